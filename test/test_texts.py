"""Every text that a user can meet, written out. EXPECTTEST_ACCEPT=1 rewrites them here."""

# ruff: noqa: E501

from __future__ import annotations

import re
import textwrap

import torch
from _support import DEVICE, DEVICE_TYPE, ON_SIMULATOR, python, python_output
from expecttest import TestCase

import torch_lstsq_ext
from torch_lstsq_ext.explanation import Explanation
from torch_lstsq_ext.problem import Problem
from torch_lstsq_ext.routes.steps import Launch, Plan
from torch_lstsq_ext.tiling import Tile


def neutral(text: str) -> str:
    """Without what differs from one device, one machine or one build to the next."""
    text = text.replace(DEVICE, "<device>")
    text = re.sub(rf"\bdevice type {DEVICE_TYPE}\b", "device type <type>", text)
    return re.sub(r"\b(on|profile) (nvidia|simulator|metax|iluvatar|hygon|generic)\b", r"\1 <vendor>", text)


def zeros(*shape, dtype=torch.float32, device=DEVICE):
    return torch.zeros(shape, dtype=dtype, device=device)


class TestErrors(TestCase):
    def test_errors(self):
        calls = {
            "A (3)": lambda: torch.linalg.lstsq(zeros(3), zeros(3)),
            "B ()": lambda: torch.linalg.lstsq(zeros(3, 2), zeros()),
            "dtypes": lambda: torch.linalg.lstsq(zeros(3, 2), zeros(3, dtype=torch.float64)),
            "dims": lambda: torch.linalg.lstsq(zeros(2, 3, 2), zeros(3)),
            "rows of a vector": lambda: torch.linalg.lstsq(zeros(3, 2), zeros(4)),
            "rows of a matrix": lambda: torch.linalg.lstsq(zeros(3, 2), zeros(4, 1)),
            "batches": lambda: torch.linalg.lstsq(zeros(2, 3, 2), zeros(5, 3, 1)),
            "driver": lambda: torch.linalg.lstsq(zeros(3, 2), zeros(3), driver="gelsd"),
            "half": lambda: torch.linalg.lstsq(zeros(3, 2, dtype=torch.float16), zeros(3, dtype=torch.float16)),
            "int": lambda: torch.linalg.lstsq(zeros(3, 2, dtype=torch.int64), zeros(3, dtype=torch.int64)),
        }
        texts = []
        for name, call in calls.items():
            with self.assertRaises(RuntimeError) as raised:
                call()
            texts.append(f"{name}: {type(raised.exception).__name__}: {raised.exception}")
        self.assertExpectedInline(
            neutral("\n".join(texts)),
            """\
A (3): RuntimeError: torch.linalg.lstsq: input must have at least 2 dimensions.
B (): RuntimeError: torch.linalg.lstsq: other must have at least 1 dimension.
dtypes: RuntimeError: torch.linalg.lstsq: Expected input and other to have the same dtype, but got input's dtype Float and other's dtype Double
dims: RuntimeError: torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) <= 1
rows of a vector: RuntimeError: torch.linalg.lstsq: input.size(-2) should match other.size(-1)
rows of a matrix: RuntimeError: torch.linalg.lstsq: input.size(-2) should match other.size(-2)
batches: RuntimeError: The size of tensor a (2) must match the size of tensor b (5) at non-singleton dimension 0
driver: RuntimeError: torch.linalg.lstsq: `driver` other than `gels` is not supported on CUDA
half: RuntimeError: This function doesn't handle types other than float and double
int: RuntimeError: This function doesn't handle types other than float and double""",
        )

    def test_float64_where_the_device_has_none(self):
        done = python(
            f"torch.linalg.lstsq(*(torch.ones(s, dtype=torch.float64, device={DEVICE!r}) for s in ((4, 3), (4,))))",
            TORCH_LSTSQ_EXT_VENDOR="iluvatar",
        )
        self.assertExpectedInline(
            "\n".join(textwrap.wrap(done.stderr.strip().splitlines()[-1], 100)),
            """\
NotImplementedError: torch.linalg.lstsq: Iluvatar CoreX devices cannot compute in float64: tl.dot
and torch.matmul do not accept it, copies of float64 to the device can silently become zeros, and
solves can return NaN. Convert A and B to float32 before they are moved to the device, or keep them
on the CPU and solve there.""",
        )

    def test_environment(self):
        texts = []
        for name in ("TORCH_LSTSQ_EXT", "TORCH_LSTSQ_EXT_VENDOR", "TORCH_LSTSQ_EXT_LOG"):
            done = python("", prologue="import torch\n", **{name: "perhaps"})
            texts += [line for line in done.stderr.splitlines() if "perhaps" in line]
        self.assertExpectedInline(
            "\n".join(texts),
            """\
ValueError: TORCH_LSTSQ_EXT='perhaps': allowed values are 0, 1, auto
ValueError: TORCH_LSTSQ_EXT_VENDOR='perhaps': allowed values are metax, iluvatar, hygon, nvidia
ValueError: TORCH_LSTSQ_EXT_LOG='perhaps': allowed values are 0, 1""",
        )


class TestWarnings(TestCase):
    def shown(self, code: str, **kwargs) -> str:
        done = python(code, PYTHONWARNINGS="always::RuntimeWarning", **kwargs)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = [line.split("RuntimeWarning: ")[1] for line in done.stderr.splitlines() if "RuntimeWarning: " in line]
        return neutral("\n".join(found))

    SOLVE = f"""
x = torch.linalg.lstsq(torch.eye(4, 3, device={DEVICE!r}), torch.ones(4, device={DEVICE!r}), driver="gels").solution
assert x.tolist() == [1.0, 1.0, 1.0]
"""

    def test_a_route_that_fails(self):
        code = """
from torch_lstsq_ext import launch
def fail(*arguments):
    raise RuntimeError("out of resources: registers")
launch.Runner.run = fail
"""
        self.assertExpectedInline(
            self.shown(code + self.SOLVE + self.SOLVE),
            """torch_lstsq_ext: route tile failed (RuntimeError: out of resources: registers); this call and its like go to stock torch.linalg.lstsq""",
        )

    def test_no_triton(self):
        code = """
import sys
for name in [name for name in sys.modules if name.split(".")[0] == "triton"]:
    del sys.modules[name]
sys.modules["triton"] = None
"""
        self.assertExpectedInline(
            self.shown(code + self.SOLVE + self.SOLVE),
            """torch_lstsq_ext: no usable triton (import of triton halted; None in sys.modules); torch.linalg.lstsq stays stock""",
        )

    def test_built_for_another_torch(self):
        code = """
import sys
sys.modules["torch_lstsq_ext._C"] = None
import torch_lstsq_ext
torch_lstsq_ext._autoload()
"""
        self.assertExpectedInline(
            self.shown(code, prologue="import torch\n", TORCH_DEVICE_BACKEND_AUTOLOAD="0"),
            """torch_lstsq_ext stays off: it does not fit this torch, reinstall it (ModuleNotFoundError: import of torch_lstsq_ext._C halted; None in sys.modules)""",
        )


class TestLog(TestCase):
    def test_one_line_for_each_class_of_problems(self):
        code = f"""
def solve(*shape, dtype=torch.float32):
    A = torch.eye(*shape[-2:], dtype=dtype).expand(shape).to({DEVICE!r})
    torch.linalg.lstsq(A, torch.ones(*shape[:-1], 1, dtype=dtype, device={DEVICE!r}))
for _ in range(3):
    solve(6, 3)
solve(3, 6)
solve(50, 6, 3)
solve(6, 3, dtype=torch.float64)
solve(20000, 2)
from torch_lstsq_ext import solve as module
module.make_plan = lambda problem, facts, allowed: None
solve(7, 3)
"""
        done = python(code, TORCH_LSTSQ_EXT_LOG="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertExpectedInline(
            neutral(done.stderr),
            """\
torch_lstsq_ext: 1x6x3, 1, float32 on <vendor>: tile
torch_lstsq_ext: 1x3x6, 1, float32 on <vendor>: tile
torch_lstsq_ext: 50x6x3, 1, float32 on <vendor>: tile
torch_lstsq_ext: 1x6x3, 1, float64 on <vendor>: tile
torch_lstsq_ext: 1x20000x2, 1, float32 on <vendor>: tsqr
torch_lstsq_ext: 1x7x3, 1, float32 on <vendor>: stock
""",
        )


class TestExplain(TestCase):
    def test_a_plan(self):
        """A made-up plan, so that tuning changes nothing here."""
        tile = Tile(rm=8, rn=2, rk=1, w=1, tm=32, tn=2, num_warps=2)
        launches = [
            Launch("tsqr", 4096, (), (), {}, num_warps=2, note=str(tile)),
            Launch("tile", 1, (), (), {}, num_warps=8),
        ]
        problem = Problem(m=2**20, n=4, k=3, dtype="float64", groups=(2, 3, 5))
        plan = Plan("tsqr", tuple(launches), workspace=1000)
        texts = [
            str(Explanation(problem, "cuda:0", "nvidia", plan, "profile nvidia")),
            str(Explanation(problem, "cuda:0", "nvidia", None, "no route covers this shape")),
        ]
        self.assertExpectedInline(
            "\n".join(texts),
            """\
30x1048576x4, 3, float64 on cuda:0: tsqr (profile nvidia)
  tsqr_kernel: 4096 programs of 2 warps, tile 256 x (4 + 2), 1 a program
  tile_kernel: 1 programs of 8 warps
  workspace: 1000 bytes
30x1048576x4, 3, float64 on cuda:0: stock (no route covers this shape)""",
        )

    def test_first_lines(self):
        texts = [
            str(torch_lstsq_ext.explain(A, B)).splitlines()[0]
            for A, B in (
                (zeros(6, 3), zeros(6)),
                (zeros(2, 6, 3), zeros(1, 6, 2)),
                (zeros(1, 5, 3), zeros(5, 4)),
                (zeros(6, 3, dtype=torch.complex64), zeros(6, dtype=torch.complex64)),
                (zeros(6, 0), zeros(6)),
                (zeros(6, 3, device="cpu"), zeros(6, device="cpu")),
            )
        ]
        torch_lstsq_ext.disable()
        try:
            texts.append(str(torch_lstsq_ext.explain(zeros(6, 3), zeros(6))))
        finally:
            torch_lstsq_ext.enable()
        self.assertExpectedInline(
            neutral("\n".join(texts)),
            """\
1x6x3, 1, float32 on <device>: tile (profile <vendor>)
2x6x3, 2, float32 on <device>: tile (profile <vendor>)
5x5x3, 4, float32 on <device>: tile (profile <vendor>)
1x6x3, 1, complex64 on <device>: tile (profile <vendor>)
1x6x0, 1, float32 on <device>: stock (empty, answered without a kernel)
cpu: stock (device type cpu is not served)
<device>: stock (disabled)""",
        )


class TestNames(TestCase):
    def test_version_and_public_names(self):
        names = python_output("import torch_lstsq_ext; print(*torch_lstsq_ext.__all__)", prologue="import torch\n")
        self.assertExpectedInline(
            names,
            """__version__ disable disabled enable explain is_enabled""",
        )

    def test_printing_a_result(self):
        if not ON_SIMULATOR:
            self.skipTest("the numbers' last digits are the device's")
        result = torch.linalg.lstsq(torch.eye(3, 2, device=DEVICE), torch.ones(3, device=DEVICE))
        self.assertExpectedInline(
            str(result),
            """\
torch.return_types.linalg_lstsq(
solution=tensor([1., 1.], device='simulator:0'),
residuals=tensor([1.], device='simulator:0'),
rank=tensor([], device='simulator:0', dtype=torch.int64),
singular_values=tensor([], device='simulator:0'))""",
        )
