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
# Bytes of stack a thread on CUDA. The largest tiles, 72 words a thread in 16 warps, park up to 528; a kernel whose
# pivot loop has got the wrong layout takes 7 to 15 KB.
STACK_ALLOWED = 1024


@pytest.mark.parametrize("vendor", ["nvidia", "metax", "iluvatar", "hygon"])
def test_every_launch_keeps_the_profile(vendor, record_property):
    facts = importlib.import_module(f"torch_lstsq_ext.devices.{vendor}").FACTS
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, GATE, vendor], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]

    assert {row["kernel"] for row in rows} == set(KERNELS)
    assert {row["dtype"] for row in rows} == ({"float32", "float64"} if facts.fp64 else {"float32"})
    assert {row["tile"].get("WIDE") for row in rows} == {True, False, None}
    for row in rows:
        print(f"{100 * row['shared'] / facts.shared_memory_budget:5.1f} % of the shared-memory budget: {row}")
        assert row["shared"] <= facts.shared_memory_budget, row
        assert row["num_warps"] * facts.warp_size <= facts.threads_per_block, row
        if row["target"].startswith("cuda"):
            assert row["scratch"] <= STACK_ALLOWED, row
        elif facts.private_bytes is not None:
            assert row["scratch"] <= facts.private_bytes, row
