"""The proof, in fresh interpreters: plain torch.linalg.lstsq, with no import of ours, is answered by our kernels."""

from __future__ import annotations

import statistics

import pytest
import torch
from _support import DEVICE, ON_CUDA, ON_SIMULATOR, python, python_output

import torch_lstsq_ext

# A user's program: nothing of ours but, where there is no accelerator, the simulator in its prologue.
PROGRAM = f"""
A = torch.tensor([[1., 1.], [1., 2.], [1., 3.], [1., 4.]], device={DEVICE!r})
b = torch.tensor([6., 5., 7., 10.], device={DEVICE!r})
x, residuals, rank, singular_values = torch.linalg.lstsq(A, b, driver="gels")
assert (x.cpu() - torch.tensor([3.5, 1.4])).abs().max() < 1e-5
assert (residuals.cpu() - 4.2).abs().max() < 1e-4
"""

COUNT = """
import sys
module = sys.modules.get("torch_lstsq_ext.solve")
print(sum(module.counts().values()) - module.counts().get("stock", 0) if module else 0)
"""


def test_a_program_that_does_not_know_us():
    done = python(PROGRAM + COUNT, TORCH_LSTSQ_EXT_LOG="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1"]
    log = [line for line in done.stderr.splitlines() if line.startswith("torch_lstsq_ext:")]
    assert len(log) == 1 and log[0].endswith(": tile")


def test_the_same_program_with_the_extension_off():
    done = python(PROGRAM + COUNT, TORCH_LSTSQ_EXT="0", TORCH_LSTSQ_EXT_LOG="1")
    if ON_SIMULATOR:  # which then has no lstsq at all, or ATen's on the CPU
        assert done.stdout.split() in (["0"], [])
    else:
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["0"]
    assert "torch_lstsq_ext: " not in done.stderr


def test_off_means_not_even_registered():
    code = """
import torch_lstsq_ext
print(torch_lstsq_ext.is_enabled())
for key in ("CUDA", "PrivateUse1"):
    dump = torch._C._dispatch_dump("aten::linalg_lstsq")
    print(any(line.startswith(key + ":") and "register.cpp" in line for line in dump.splitlines()))
"""
    assert python_output(code, TORCH_LSTSQ_EXT="0").split() == ["False"] * 3
    assert "True" in python_output(code)


def test_torch_can_be_told_not_to_load_backends():
    code = "import sys; print('torch_lstsq_ext' in sys.modules)"
    assert python_output(code, prologue="import torch\n", TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "False"
    assert python_output(code, prologue="import torch\n") == "True"


IMPORT_ONLY = """
import sys, json
ours = [name for name in sys.modules if name.split(".")[0] == "torch_lstsq_ext"]
print(json.dumps({
    "triton": "triton" in sys.modules,
    "numpy": "numpy" in sys.modules,
    "cuda": torch.cuda.is_initialized(),
    "kernels": any("kernels" in name or "launch" in name for name in ours),
    "enabled": bool(ours),
}))
"""


def test_importing_torch_touches_no_device_and_no_triton():
    import json

    with_us = json.loads(python_output(IMPORT_ONLY, prologue="import torch\n"))
    without = json.loads(python_output(IMPORT_ONLY, prologue="import torch\n", TORCH_DEVICE_BACKEND_AUTOLOAD="0"))
    assert with_us["enabled"] and not without["enabled"]
    assert not with_us["cuda"] and not with_us["kernels"]
    assert with_us["triton"] == without["triton"] and with_us["numpy"] == without["numpy"]


def test_importing_torch_takes_no_longer_than_50_ms():
    code = """
import time
started = time.perf_counter()
import torch_lstsq_ext
torch_lstsq_ext._autoload()
print(time.perf_counter() - started)
assert torch_lstsq_ext.is_enabled()
"""
    times = [float(python_output(code, prologue="import torch\n", TORCH_DEVICE_BACKEND_AUTOLOAD="0")) for _ in range(5)]
    assert statistics.median(times) < 0.05, times


@pytest.mark.parametrize("statement", ["import torch", "import torch, torch_lstsq_ext", "import torch_lstsq_ext"])
def test_importing_prints_nothing(statement):
    done = python("print('done')", prologue=statement + "\n", PYTHONWARNINGS="always::UserWarning:torch_lstsq_ext")
    assert done.returncode == 0 and done.stdout == "done\n"
    assert done.stderr == ""


def test_overriding_is_not_announced():
    """The dispatcher warns of every kernel that is replaced; the user did not ask."""
    code = """
import torch_lstsq_ext
for _ in range(3):
    torch_lstsq_ext.disable()
    torch_lstsq_ext.enable()
"""
    assert python(code).stderr == ""


# Back to stock, to the bit ------------------------------------------------------------------------------------------

BITS = f"""
import hashlib
generator = torch.Generator().manual_seed(5)
digest = hashlib.sha256()
with CONTEXT:
    for a_shape, b_shape in (((7, 3), (7, 2)), ((4, 4), (4,)), ((3, 6), (3, 2)), ((3, 5, 2), (3, 5, 1))):
        for dtype in (torch.float32, torch.float64, torch.complex64):
            A = torch.randn(a_shape, generator=generator, dtype=dtype).to({DEVICE!r})
            b = torch.randn(b_shape, generator=generator, dtype=dtype).to({DEVICE!r})
            for output in torch.linalg.lstsq(A, b, driver="gels"):
                digest.update(repr(output.cpu().tolist()).encode())
print(digest.hexdigest())
"""


def bits(before: str, context="contextlib.nullcontext()", **environment) -> str:
    return python_output("import contextlib\n" + before + BITS.replace("CONTEXT", context), **environment)


@pytest.fixture(scope="module")
def stock_bits():
    if ON_SIMULATOR:  # stock is ATen on the CPU
        return python_output(
            "import contextlib\n" + BITS.replace("CONTEXT", "contextlib.nullcontext()").replace(DEVICE, "cpu"),
            TORCH_LSTSQ_EXT="0",
        )
    return bits("", TORCH_LSTSQ_EXT="0")


WAYS_BACK = {
    "disable": ("import torch_lstsq_ext\ntorch_lstsq_ext.disable()\n", "contextlib.nullcontext()"),
    "disabled": ("import torch_lstsq_ext\n", "torch_lstsq_ext.disabled()"),
    "after-use": (PROGRAM + "import torch_lstsq_ext\ntorch_lstsq_ext.disable()\n", "contextlib.nullcontext()"),
    "after-many-switches": (
        "import torch_lstsq_ext\nfor _ in range(9):\n  torch_lstsq_ext.enable()\n  torch_lstsq_ext.disable()\n",
        "contextlib.nullcontext()",
    ),
}


@pytest.mark.parametrize("way", list(WAYS_BACK))
def test_stock_comes_back_to_the_bit(stock_bits, way):
    assert bits(*WAYS_BACK[way]) == stock_bits


def test_stock_bits_differ_from_ours(stock_bits):
    """Or the comparison above says nothing."""
    assert bits("") != stock_bits


def test_the_same_call_gives_the_same_bits():
    assert bits("") == bits("")


# What we do not answer goes to stock --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128], ids=["float32", "complex128"])
def test_what_no_route_covers_is_answered_by_stock(device, dtype):
    from torch_lstsq_ext import solve

    A = torch.tensor([[3, 1], [1, 2], [0, 1]], dtype=dtype, device=device)
    b = torch.tensor([1, 1, 2], dtype=dtype, device=device)
    before = solve.counts()
    with solve.restricted_to("tsqr"):  # which begins where a tile ends
        x = torch.linalg.lstsq(A, b).solution
        assert torch_lstsq_ext.explain(A, b).route == "stock"
    after = solve.counts()
    assert sum(after.values()) - after.get("stock", 0) == sum(before.values()) - before.get("stock", 0)
    assert after.get("stock", 0) == before.get("stock", 0) + 1
    assert (x.cpu() - torch.tensor([-1, 30]) / 35).abs().max() < 1e-5


def test_explain_agrees_with_what_happens(device):
    from torch_lstsq_ext import solve

    for shape in ((6, 3), (4, 4), (3, 6), (9000, 2)):
        A, b = torch.ones(shape, device=device), torch.ones(shape[0], device=device)
        route = torch_lstsq_ext.explain(A, b).route
        before = solve.counts().get(route, 0)
        torch.linalg.lstsq(A, b)
        assert solve.counts()[route] == before + 1


@pytest.mark.parametrize("what", ["compile", "launch"], ids=["fails-to-compile", "fails-to-launch"])
def test_a_route_that_fails_is_answered_by_stock_with_one_warning(what):
    target = "__init__" if what == "compile" else "run"
    code = f"""
import warnings
from torch_lstsq_ext import launch, solve
def fail(*args, **kwargs):
    raise RuntimeError("no such instruction")
launch.Runner.{target} = fail
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
{"".join("        " + line + chr(10) for line in PROGRAM.strip().splitlines())}
texts = [str(w.message) for w in caught if "torch_lstsq_ext" in str(w.message)]
assert len(texts) == 1, texts
assert "tile" in texts[0] and "no such instruction" in texts[0], texts
print(solve.counts())
"""
    assert python_output(code) == "{'stock': 3}"


@pytest.mark.skipif(not ON_CUDA, reason="streams and graphs are a GPU's")
def test_graph_capture(device):
    A, b = torch.randn(64, 8, device=device), torch.randn(64, device=device)
    torch.linalg.lstsq(A, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = torch.linalg.lstsq(A, b)
    A.copy_(torch.randn(64, 8))
    graph.replay()
    assert torch.equal(captured.solution, torch.linalg.lstsq(A, b).solution)


@pytest.mark.skipif(not ON_CUDA, reason="streams and graphs are a GPU's")
def test_the_current_stream_is_used(device):
    A, b = torch.randn(4096, 8, device=device), torch.randn(4096, device=device)
    expected = torch.linalg.lstsq(A, b).solution
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        late = torch.empty_like(A).copy_(A)
        found = torch.linalg.lstsq(late, b).solution
    stream.synchronize()
    assert torch.equal(found, expected)
