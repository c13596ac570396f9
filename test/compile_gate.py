"""Compiles what the plan can produce for a vendor's profile, for stand-in targets, with no device.

python test/compile_gate.py <vendor> [--all]  prints one JSON object a compiled kernel:
{"kernel", "dtype", "target", "constexprs", "num_warps", "stages", "shared", "registers", "scratch", "spilled", "dots",
"error"}; shared in bytes a block, scratch in bytes a thread, registers and spilled in a thread's registers (spilled is
None on CUDA, where scratch tells), dots the element types of every tl.dot, error what limits.py says of it or "".
A process of its own, since Triton must not be in interpreter mode. Triton's cache keeps what is compiled.

The plan produces hundreds of configurations, of 1 to 10 s each. A thorough target gets, of every kernel, dtype and
combination of flags, the one with the most elements and, where a program may hold many small matrices, the one with the
least; any other target that with the most of every kernel and dtype. RESIDUALS adds a sum to a kernel and takes nothing
away: where both are planned, only kernels with it are compiled. --all compiles everything.
"""

import importlib
import itertools
import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from torch_lstsq_ext.kernels import KERNELS
from torch_lstsq_ext.launch import register_options
from torch_lstsq_ext.limits import LimitExceeded, check_compiled, check_launch, dots
from torch_lstsq_ext.plan import make_plan
from torch_lstsq_ext.problem import REAL, Problem
from torch_lstsq_ext.routes.steps import Piece

BATCHES = (1, 64, 65536)
EXTENTS = (1, 6, 32, 64, 128, 512, 4096, 1 << 17)
RHS = (1, 64)
MOST_NUMBERS = 1 << 27  # of A

GFX90A, GFX942 = GPUTarget("hip", "gfx90a", 64), GPUTarget("hip", "gfx942", 64)
# (target, what the profile is there, thorough)
TARGETS = {
    "nvidia": [
        (GPUTarget("cuda", 90, 32), {}, True),
        (GPUTarget("cuda", 80, 32), {"shared_memory": 166912, "multiprocessors": 108}, False),
    ],
    "metax": [(GFX90A, {}, True)],
    "iluvatar": [(GFX90A, {}, True)],
    "hygon": [(GFX942, {}, False)],
}
TYPES = {"float32": "fp32", "float64": "fp64", "int32": "i32"}


def pointers(dtype, launch):
    """(type, aligned to 16 bytes) of each tensor argument."""
    for tensor in launch.tensors:
        piece = isinstance(tensor, Piece)
        yield "*" + TYPES[tensor.dtype if piece else dtype], not piece or tensor.start % 16 == 0


def launches(facts):
    """(dtype, launch) of every different kernel of the grid's plans."""
    found = {}
    dtypes = ("float32", "complex64", "float64", "complex128") if facts.fp64 else ("float32", "complex64")
    for dtype, batch, m, n, k in itertools.product(dtypes, BATCHES, EXTENTS, EXTENTS, RHS):
        if batch * m * n > MOST_NUMBERS:
            continue
        layout = {"a_batch_strides": (0, 0, m * n), "a_strides": (n, 1), "b_strides": (k, 1)}
        plan = make_plan(Problem(m=m, n=n, k=k, dtype=dtype, groups=(1, 1, batch), **layout), facts)
        real = REAL.get(dtype, dtype)
        for launch in plan.launches:
            types = tuple(pointers(real, launch))
            key = (launch.kernel, types, launch.num_warps, launch.num_stages, tuple(launch.constexprs.items()))
            found[key] = (real, launch)
    return [*found.values()]


def flags(launch):
    return tuple((n, v) for n, v in launch.constexprs.items() if isinstance(v, (bool, str)) and n != "RESIDUALS")


def elements(launch):
    """What the integer constexprs span: they are extents."""
    return math.prod(max(1, v) for v in launch.constexprs.values() if type(v) is int)


def chosen(rows, thorough: bool):
    groups = {}
    for dtype, launch in rows:
        groups.setdefault((launch.kernel, dtype, flags(launch) if thorough else None), []).append((dtype, launch))
    for group in groups.values():
        group = [row for row in group if row[1].constexprs.get("RESIDUALS")] or group
        by_size = sorted(group, key=lambda row: (elements(row[1]), row[1].num_warps, str(row[1].constexprs)))
        yield by_size[-1]
        if thorough and len(by_size) > 1 and by_size[0][1].kernel in ("tile", "tsqr"):
            yield by_size[0]


def resources(compiled, target) -> dict:
    """Registers, bytes of private memory (what spills, or is indexed at run time) and spilled registers of a thread."""
    if target.backend == "hip":
        names = {"registers": "vgpr_count", "scratch": "private_segment_fixed_size", "spilled": "vgpr_spill_count"}
        assembly = compiled.asm["amdgcn"]
        return {ours: int(re.search(rf"\.{theirs}:\s*(\d+)", assembly).group(1)) for ours, theirs in names.items()}
    tools = Path(triton.__file__).parent / "backends/nvidia/bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        usage = subprocess.run(
            [tools / "cuobjdump", "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", usage).groups()
    return {"registers": int(registers), "scratch": int(stack), "spilled": None}


def compile_kernel(kernel, types, sizes, constexprs, target, num_warps, **options):
    """types: see pointers(). The kernel's arguments are tensors, sizes, constexprs, in that order."""
    integers = ["i32" if -(2**31) <= size < 2**31 else "i64" for size in sizes]
    signature = dict(zip(kernel.arg_names, [kind for kind, _ in types] + integers))
    signature.update(dict.fromkeys(constexprs, "constexpr"))
    aligned = {(i,): [["tt.divisibility", 16]] for i, (_, aligned) in enumerate(types) if aligned}
    source = ASTSource(kernel, signature, constexprs=dict(constexprs), attrs=aligned)
    options = {"num_warps": num_warps, "num_stages": 1, "enable_fp_fusion": True, **options}
    return triton.compile(source, target=target, options=options)


def compile_launch(dtype, launch, target):
    types = [*pointers(dtype, launch)]
    options = {"num_stages": launch.num_stages, **register_options(launch, target)}
    kernel = KERNELS[launch.kernel]
    return compile_kernel(kernel, types, launch.sizes, launch.constexprs, target, launch.num_warps, **options)


def row_of(dtype, launch, target, facts) -> dict:
    compiled = compile_launch(dtype, launch, target)
    try:
        check_launch(launch, facts)
        check_compiled(launch.kernel, compiled, facts)
        error = ""
    except LimitExceeded as caught:
        error = str(caught)
    return {
        "kernel": launch.kernel,
        "dtype": dtype,
        "target": f"{target.backend}:{target.arch}",
        "constexprs": dict(launch.constexprs),
        "num_warps": launch.num_warps,
        "stages": compiled.metadata.num_stages,
        "shared": compiled.metadata.shared,
        **resources(compiled, target),
        "dots": sorted({kind for kind, _ in dots(compiled.asm["ttir"])}),
        "error": error,
    }


def main(vendor: str, everything: bool) -> None:
    profile = importlib.import_module(f"torch_lstsq_ext.devices.{vendor}").FACTS
    for target, limits, thorough in TARGETS[vendor]:
        facts = profile.with_limits(**limits)
        rows = launches(facts)
        for dtype, launch in rows if everything else chosen(rows, thorough):
            print(json.dumps(row_of(dtype, launch, target, facts)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], "--all" in sys.argv[2:])
