"""The simulator device itself, without this extension's operator."""

import copy
import io
import pickle
import subprocess
import sys
import warnings

import pytest
import torch

from torch_lstsq_ext import simulator

DEVICE = "simulator"
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
LAYOUTS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.mT,
    "strided": lambda t: t[1:, ::2],
    "empty": lambda t: t[:0],
    "expanded": lambda t: t[:, :1].expand(-1, 4),
    "scalar": lambda t: t[1, 1],
}
VIEWS = {
    "view": lambda t: t.view(4, 3),
    "reshape": lambda t: t.reshape(2, 6),
    "transpose": lambda t: t.mT,
    "slice": lambda t: t[1:, ::2],
    "diagonal": lambda t: t.diagonal(),
    "unfold": lambda t: t.unfold(1, 2, 1),
    "unbind": lambda t: t.unbind(1)[1],
    "as_strided": lambda t: t.as_strided((2, 2), (1, 4), 1),
    "expand": lambda t: t.expand(2, 3, 4),
    "detach": lambda t: t.detach(),
    "dtype": lambda t: t.view(torch.int64 if t.dtype == torch.float64 else torch.float64),
    "conj": lambda t: t.conj(),
    "adjoint": lambda t: t.mH,
    "imag": lambda t: t.conj().imag if t.is_complex() else torch.ops.aten.alias(t),
    "real": lambda t: t.real,
    "as_real_or_complex": lambda t: torch.view_as_real(t) if t.is_complex() else torch.view_as_complex(t.view(6, 2)),
}


@pytest.fixture(scope="module", autouse=True)
def active():
    if not simulator.is_active() and torch.accelerator.is_available():
        pytest.skip("this machine has an accelerator")
    simulator.activate()


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


@pytest.fixture
def poison():
    simulator.poison(True)
    yield
    simulator.poison(False)


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_activation():
    simulator.activate()
    assert simulator.is_active()
    assert torch.device(DEVICE).type == torch.accelerator.current_accelerator().type == DEVICE
    assert torch.simulator.device_count() == torch.accelerator.device_count() == 1
    torch.simulator.synchronize()
    torch.accelerator.synchronize()


def test_activation_leaves_triton_alone():
    code = """
import sys
from torch_lstsq_ext import simulator
simulator.activate()
assert "triton" not in sys.modules
"""
    process = run_python(code)
    assert process.returncode == 0, process.stderr


def test_another_backend_is_refused():
    code = """
import torch
from torch_lstsq_ext import simulator
torch.utils.rename_privateuse1_backend("other")
simulator.activate()
"""
    process = run_python(code)
    assert "RuntimeError: cannot activate the simulator: the PrivateUse1 backend is already 'other'" in (process.stderr)


def test_compiled_triton_is_refused():
    pytest.importorskip("triton")
    code = """
import os
os.environ.pop("TRITON_INTERPRET", None)
import triton.language
from torch_lstsq_ext import simulator
simulator.activate()
"""
    process = run_python(code)
    assert "imported without TRITON_INTERPRET=1" in process.stderr


@pytest.mark.parametrize("device", [DEVICE + ":1", DEVICE + ":7"])
def test_there_is_one_device(device):
    with pytest.raises(RuntimeError, match="the simulator is one device"):
        torch.empty(2, device=device)
    with pytest.raises(ValueError, match="the simulator is one device"):
        torch.simulator.set_device(device)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_copies(dtype, layout):
    host = torch.arange(12).reshape(3, 4).remainder(5).to(dtype)
    expected = layout(host)
    there = layout(host.to(DEVICE))
    assert there.is_simulator and there.stride() == expected.stride()
    torch.testing.assert_close(there.cpu(), expected, rtol=0, atol=0)
    torch.testing.assert_close(expected.to(DEVICE).cpu(), expected, rtol=0, atol=0)
    torch.testing.assert_close(there.to("cpu", torch.complex128, non_blocking=True), expected.to(torch.cdouble))
    torch.testing.assert_close(there, expected.clone().to(DEVICE))


def test_overlapping_copy_is_refused():
    x = torch.ones(4, device=DEVICE)
    with pytest.raises(RuntimeError, match="single memory location"):
        x[1:].copy_(x[:-1])


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_views_share_memory(view, dtype):
    host = torch.randn(3, 4, dtype=dtype)
    base = host.to(DEVICE)
    there, here = view(base), view(host)
    assert there.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    torch.testing.assert_close(there.cpu(), here)
    base.mul_(2)
    host.mul_(2)
    torch.testing.assert_close(there.cpu(), here)


def test_writes_through_views():
    x = torch.zeros(3, 4, device=DEVICE, dtype=torch.complex64)
    x.real[1] = 1
    x.conj()[2].copy_(torch.full((4,), 1j))
    x.mT[0] += 5
    expected = torch.tensor([[5, 0, 0, 0], [6, 1, 1, 1], [5 - 1j, -1j, -1j, -1j]])
    torch.testing.assert_close(x.cpu(), expected.to(torch.complex64))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_operators_of_the_cpu(dtype):
    a, b = torch.randn(3, 5, dtype=dtype), torch.randn(5, 4, dtype=dtype)
    x, y = a.to(DEVICE), b.to(DEVICE)
    torch.testing.assert_close((x @ y).cpu(), a @ b)
    torch.testing.assert_close((y.mH @ x.mH).cpu(), b.mH @ a.mH)
    torch.testing.assert_close(torch.linalg.svdvals(x).cpu(), torch.linalg.svdvals(a))
    u, s, vh = torch.linalg.svd(x, full_matrices=False)
    torch.testing.assert_close((u * s) @ vh, x)
    solution = torch.linalg.lstsq(y, y[:, :1], driver="gels").solution
    torch.testing.assert_close(y @ solution, y[:, :1], rtol=1e-4, atol=1e-5)
    assert x.sum().item() == pytest.approx(a.sum().item(), rel=1e-5)


def test_devices_do_not_mix():
    x = torch.ones(3, 3, device=DEVICE)
    for operation in (torch.add, torch.mm, torch.linalg.lstsq):
        with pytest.raises(RuntimeError, match="to be on the same device"):
            operation(x, torch.ones(3, 3))
    assert (x + torch.tensor(1.0)).sum().item() == 18
    assert x[torch.tensor([0, 2])].shape == (2, 3)


def test_out_and_resize():
    x = torch.arange(6.0, device=DEVICE).view(2, 3)
    out = torch.empty(0, device=DEVICE)
    assert torch.matmul(x, x.mT, out=out) is out
    torch.testing.assert_close(out.cpu(), x.cpu() @ x.cpu().mT)
    strided = torch.zeros(2, 4, device=DEVICE)[:, ::2]
    torch.matmul(x, x.mT, out=strided)
    torch.testing.assert_close(strided, out)
    out.resize_(100, 3)
    torch.testing.assert_close(out.flatten()[:4], (x @ x.mT).flatten())
    storage = out.untyped_storage()
    storage.resize_(4)
    assert storage.nbytes() == 4
    x.set_(out.untyped_storage(), 0, (1,))
    assert x.cpu().tolist() == [5]


def test_printing():
    assert repr(torch.tensor([1.5, 2], device=DEVICE)) == "tensor([1.5000, 2.0000], device='simulator:0')"
    assert "1.+2.j" in repr(torch.tensor([1 - 2j], device=DEVICE).conj())


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_autograd(dtype):
    a = torch.randn(2, 3, dtype=dtype, device=DEVICE, requires_grad=True)
    b = torch.randn(3, 2, dtype=dtype, device=DEVICE, requires_grad=True)
    assert torch.autograd.gradcheck(torch.matmul, (a, b))
    assert torch.autograd.gradgradcheck(torch.matmul, (a, b))
    (a @ b).abs().sum().backward()
    assert a.grad.is_simulator
    with torch.no_grad():
        assert not (a @ b).requires_grad
    with torch.inference_mode():
        assert (a[0] @ b).is_inference()


def test_function_transforms():
    x = torch.randn(3, 4, device=DEVICE)
    torch.testing.assert_close(torch.vmap(lambda row: (row * row).sum())(x), (x * x).sum(1))
    torch.testing.assert_close(torch.func.jacrev(torch.sin)(x[0]), x[0].cos().diag())
    torch.testing.assert_close(torch.func.jacfwd(torch.sin)(x[0]), x[0].cos().diag())


def test_training_step():
    model = torch.nn.Linear(4, 1).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    x = torch.randn(8, 4, device=DEVICE)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_autocast_lowers_products():
    x = torch.randn(3, 3, device=DEVICE)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
        assert (x + x).dtype == torch.float32


@pytest.mark.parametrize("view", [lambda t: t, lambda t: t.mT, lambda t: t[1:, ::2]], ids=["whole", "mT", "part"])
def test_serialisation(view):
    x = view(torch.randn(3, 4, device=DEVICE))
    file = io.BytesIO()
    torch.save({"x": x}, file)
    file.seek(0)
    loaded = torch.load(file)["x"]
    assert loaded.is_simulator and loaded.stride() == x.stride()
    file.seek(0)
    torch.testing.assert_close(torch.load(file, map_location="cpu")["x"], x.cpu())
    for other in (loaded, copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert other.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
        torch.testing.assert_close(other, x)


def test_random_numbers():
    torch.manual_seed(3)
    first = torch.randn(5, device=DEVICE)
    torch.manual_seed(3)
    torch.testing.assert_close(torch.randn(5, device=DEVICE), first, rtol=0, atol=0)
    torch.simulator.manual_seed_all(3)
    torch.testing.assert_close(torch.randn(5, device=DEVICE), first, rtol=0, atol=0)
    generator = torch.Generator(DEVICE).manual_seed(3)
    torch.testing.assert_close(torch.randn(5, device=DEVICE, generator=generator), first, rtol=0, atol=0)
    state = torch.simulator.get_rng_state()
    with torch.random.fork_rng(device_type=DEVICE):
        first = torch.randn(5, device=DEVICE)
    torch.simulator.set_rng_state(state)
    torch.testing.assert_close(torch.randn(5, device=DEVICE), first, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_poison(poison, dtype):
    assert torch.empty(3, 4, device=DEVICE, dtype=dtype).isnan().all()
    assert torch.empty_strided((3, 4), (1, 3), device=DEVICE, dtype=dtype).isnan().all()
    assert torch.empty(0, device=DEVICE, dtype=dtype).numel() == 0
    grown = torch.zeros(2, device=DEVICE, dtype=dtype).resize_(4)
    assert grown.isnan().tolist() == [False, False, True, True]
    assert not torch.randn(3, device=DEVICE, dtype=dtype).isnan().any()


@pytest.mark.parametrize(
    "view",
    [lambda t: t, lambda t: t.mT, lambda t: t[1:, ::2], lambda t: t.conj(), lambda t: t.conj().imag],
    ids=["whole", "mT", "part", "conj", "neg"],
)
def test_host_alias(view):
    x = view(torch.randn(3, 4, device=DEVICE, dtype=torch.complex64))
    alias = simulator.host_alias(x)
    assert alias.is_cpu and alias.dtype == x.dtype
    assert (alias.shape, alias.stride(), alias.storage_offset()) == (x.shape, x.stride(), x.storage_offset())
    assert (alias.data_ptr(), alias.is_conj(), alias.is_neg()) == (x.data_ptr(), x.is_conj(), x.is_neg())
    alias.fill_(3)
    assert (x == 3).all()
    expected = x.cpu()
    del x
    torch.testing.assert_close(alias, expected)


def test_host_alias_is_outside_autograd():
    x = torch.randn(3, device=DEVICE, requires_grad=True)
    assert not simulator.host_alias(x).requires_grad
    with pytest.raises(TypeError, match="host_alias takes a tensor"):
        simulator.host_alias(3)


def test_alignment():
    for n in (1, 3, 1000):
        assert torch.empty(n, device=DEVICE).data_ptr() % 64 == 0


def test_streams_and_events():
    event = torch.Event(DEVICE)
    event.record()
    event.synchronize()
    assert event.query() and torch.accelerator.current_stream().query()


def test_triton_interpreter(tmp_path):
    pytest.importorskip("triton")
    script = tmp_path / "script.py"  # Triton reads a kernel's source from its file
    script.write_text("""
from torch_lstsq_ext import simulator
simulator.activate()
import torch
import triton
import triton.language as tl

@triton.jit
def total_kernel(x, out, N: tl.constexpr):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, N)), 0))

x = torch.arange(8.0, device="simulator")
out = torch.empty(1, device="simulator")
total_kernel[(1,)](simulator.host_alias(x), simulator.host_alias(out), 8)
assert out.item() == 28
""")
    process = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr


def test_generic_device_tests():
    code = """
from torch_lstsq_ext import simulator
simulator.activate()
import unittest
import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase

class TestDevice(TestCase):
    def test_sum(self, device):
        assert device == "simulator:0", device
        self.assertEqual(torch.ones(2, device=device).sum(), 2)

instantiate_device_type_tests(TestDevice, globals(), only_for=("simulator",))
assert "TestDeviceSIMULATOR" in globals() or "TestDevicePRIVATEUSE1" in globals()
unittest.main(argv=["x"])
"""
    process = run_python(code)
    assert process.returncode == 0 and "Ran 1 test" in process.stderr, process.stderr
