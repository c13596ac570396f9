"""Compiles what the plan can produce for a vendor's profile, for a stand-in target, with no device.

python test/compile_gate.py <vendor>  prints one JSON object a compiled kernel:
{"kernel", "dtype", "target", "tile", "num_warps", "shared", "scratch"}, the last two in bytes a block and a thread.
A process of its own, since Triton must not be in interpreter mode.
"""

import importlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from torch_lstsq_ext.kernels import KERNELS
from torch_lstsq_ext.plan import make_plan
from torch_lstsq_ext.problem import Problem
from torch_lstsq_ext.routes.steps import Piece

# (batch, m, n, k): every route, both orientations, matrices of a lane, a warp and many warps, and the largest tiles.
SHAPES = [
    (65536, 6, 3, 1),
    (65536, 32, 16, 1),
    (8, 16, 512, 1),
    (1, 4096, 8, 1),
    (1, 1 << 16, 64, 3),
    (1, 1 << 14, 128, 1),
    (1, 4096, 512, 64),
    (1, 512, 1024, 1),
]
TARGETS = {
    "nvidia": GPUTarget("cuda", 90, 32),
    "metax": GPUTarget("hip", "gfx90a", 64),
    "iluvatar": GPUTarget("hip", "gfx90a", 64),
    "hygon": GPUTarget("hip", "gfx942", 64),
}
POINTERS = {"float32": "*fp32", "float64": "*fp64", "int32": "*i32"}


def launches(facts):
    found = {}
    for batch, m, n, k in SHAPES:
        for dtype in ["float32", "float64"] if facts.fp64 else ["float32"]:
            plan = make_plan(Problem(m=m, n=n, k=k, dtype=dtype, groups=(1, 1, batch), a_strides=(n, 1)), facts)
            for launch in plan.launches if plan else ():
                key = (launch.kernel, dtype, launch.num_warps, *launch.constexprs.items())
                found[key] = (dtype, launch)
    return found.values()


def scratch_bytes(compiled, target) -> int:
    """Bytes of private memory a thread: what spills, or is indexed at run time."""
    if target.backend == "hip":
        return int(re.search(r"\.private_segment_fixed_size:\s*(\d+)", compiled.asm["amdgcn"]).group(1))
    tools = Path(triton.__file__).parent / "backends/nvidia/bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        usage = subprocess.run(
            [tools / "cuobjdump", "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    return int(re.search(r"STACK:(\d+)", usage).group(1))


def compile_launch(dtype, launch, target):
    kernel = KERNELS[launch.kernel]
    names = kernel.arg_names
    pointers = [n for n in names if n.endswith("_ptr")]
    types = [place.dtype if isinstance(place, Piece) else dtype for place in launch.tensors]
    signature = {**dict.fromkeys(names, "i32"), **{n: POINTERS[type_] for n, type_ in zip(pointers, types)}}
    signature.update(dict.fromkeys(launch.constexprs, "constexpr"))
    aligned = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if n.endswith("_ptr")}
    source = ASTSource(kernel, signature, constexprs=dict(launch.constexprs), attrs=aligned)
    options = {"num_warps": launch.num_warps, "num_stages": launch.num_stages, "enable_fp_fusion": True}
    return triton.compile(source, target=target, options=options)


def main(vendor: str) -> None:
    facts = importlib.import_module(f"torch_lstsq_ext.devices.{vendor}").FACTS
    target = TARGETS[vendor]
    for dtype, launch in launches(facts):
        compiled = compile_launch(dtype, launch, target)
        row = {
            "kernel": launch.kernel,
            "dtype": dtype,
            "target": f"{target.backend}:{target.arch}",
            "tile": dict(launch.constexprs),
            "num_warps": launch.num_warps,
            "shared": compiled.metadata.shared,
            "scratch": scratch_bytes(compiled, target),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
