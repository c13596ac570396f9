"""Ahead-of-time gate: for every vendor's profile, what the plan can launch compiles and keeps the profile's limits.

No device is needed. The targets are stand-ins: upstream Triton has no back end for the three vendors, and gfx90a and
gfx942 share their 64-wide warp and 64 KiB of shared memory.
"""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torch_lstsq_ext.kernels import KERNELS

GATE = Path(__file__).with_name("compile_gate.py")
# Bytes of private memory a thread. The largest tiles, 72 words a thread in 16 warps, park up to 936 on CUDA; a kernel
# whose pivot loop has got the wrong layout takes 4 to 18 KB.
SCRATCH_ALLOWED = 1024
TARGETS = {
    "nvidia": {"cuda:90", "cuda:80"},
    "metax": {"hip:gfx90a"},
    "iluvatar": {"hip:gfx90a"},
    "hygon": {"hip:gfx942"},
}


def run(*arguments, code=None):
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, *(["-c", code] if code else [GATE]), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=GATE.parent)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("vendor", TARGETS)
def test_every_launch_keeps_the_profile(vendor):
    facts = importlib.import_module(f"torch_lstsq_ext.devices.{vendor}").FACTS
    rows = run(vendor)

    assert {row["kernel"] for row in rows} == set(KERNELS)
    assert {row["dtype"] for row in rows} == ({"float32", "float64"} if facts.fp64 else {"float32"})
    assert {row["target"] for row in rows} == TARGETS[vendor]
    if vendor != "hygon":  # no thorough target
        assert {row["constexprs"].get("WIDE") for row in rows} >= {True, False}
    for row in rows:
        print(f"{100 * row['shared'] / facts.shared_memory_budget:5.1f} % of the shared-memory budget: {row}")
        assert row["error"] == "", row
        budget = 83456 if row["target"] == "cuda:80" else facts.shared_memory_budget
        assert row["shared"] <= budget, row
        assert row["num_warps"] * facts.warp_size <= facts.threads_per_block, row
        assert row["scratch"] <= min(SCRATCH_ALLOWED, facts.private_bytes or SCRATCH_ALLOWED), row
        assert 0 < row["registers"] <= 512, row
        if facts.fp64_dot is False:
            assert "f64" not in row["dots"], row
        if facts.dot_stages is not None:
            assert row["stages"] <= facts.dot_stages, row


DOTS = """
import json
import compile_gate
from torch_lstsq_ext.devices import metax
from torch_lstsq_ext.doctor.kernels import product_kernel
from torch_lstsq_ext.limits import LimitExceeded, check_compiled, dots
for kind in ("fp64", "fp32"):
    for use_dot in (True, False):
        tile = {"M": 32, "N": 16, "BLOCK_K": 16, "USE_DOT": use_dot}
        types = [(f"*{kind}", True)] * 3
        compiled = compile_gate.compile_kernel(product_kernel, types, (64,), tile, compile_gate.GFX90A, 4)
        try:
            check_compiled("product", compiled, metax.FACTS)
            error = ""
        except LimitExceeded as caught:
            error = str(caught)
        print(json.dumps([kind, use_dot, dots(compiled.asm["ttir"]), error]))
"""


def test_the_gate_sees_a_dot_in_the_ir():
    """A kernel in both forms: that of tl.dot holds tt.dot, in float64 against MetaX's profile; the rank-1 form none."""
    rows = {(kind, use_dot): (found, error) for kind, use_dot, found, error in run(code=DOTS)}
    assert rows["fp64", True][0] == [["f64", 16]]
    assert "tl.dot on f64, which profile metax declares unsound" in rows["fp64", True][1]
    assert rows["fp32", True] == ([["f32", 16]], "")
    assert rows["fp64", False] == rows["fp32", False] == ([], "")


def test_pointer_types_follow_the_launch():
    """The problem's type for A, B, X and the residuals; a piece of the workspace has its own, and its alignment."""
    code = """
import json
import compile_gate
from types import SimpleNamespace
from torch_lstsq_ext.routes.steps import RESIDUALS, A, B, Piece, X
tensors = (A, B, Piece(256, "float32"), Piece(8, "float64"), X, RESIDUALS)
print(json.dumps([*compile_gate.pointers("float64", SimpleNamespace(tensors=tensors))]))
"""
    double = ["*fp64", True]
    assert run(code=code) == [[double, double, ["*fp32", True], ["*fp64", False], double, double]]
