"""Kernels on a device. The only file that knows Triton's run time.

The first run of a launch goes through Triton's JIT, which compiles; it hands back the compiled kernel, and every later
run calls that with plain addresses. The JIT's own look-up costs about 20 us a launch, the compiled kernel 6.
"""

from __future__ import annotations

import torch
import triton
from triton.compiler.compiler import make_backend
from triton.runtime import driver

from .kernels import KERNELS
from .limits import check_compiled, check_launch
from .routes.steps import Launch

# Triton 3.9 announces that fused multiply-add will be off by default. The kernels want it, and say so.
FUSED = {"enable_fp_fusion": True} if hasattr(getattr(triton, "knobs", None), "language") else {}

REGISTERS = 65536  # of a multiprocessor, every NVIDIA GPU since compute capability 3.0


def measured_limits(index: int) -> dict[str, int]:
    """What Triton's driver says of device `index`: shared_memory in bytes a block, multiprocessors, warp_size."""
    properties = driver.active.utils.get_device_properties(index)
    names = {
        "max_shared_mem": "shared_memory",
        "multiprocessor_count": "multiprocessors",
        "warpSize": "warp_size",
    }
    return {ours: properties[theirs] for theirs, ours in names.items() if properties.get(theirs)}


def register_options(launch: Launch, target=None) -> dict[str, int]:
    """`maxnreg`, where a program is large and the compiler for `target`, by default the current one, has that option.

    Of 16 warps ptxas may decide to give each thread 64 registers and a kilobyte of stack, where 128 are to be had.
    """
    if launch.num_warps < 16:
        return {}
    target = target or driver.active.get_current_target()
    if not hasattr(make_backend(target).parse_options({}), "maxnreg"):
        return {}
    return {"maxnreg": REGISTERS // (launch.num_warps * target.warp_size)}


class Runner:
    """One launch of a plan, ready to be run again and again on fresh addresses.

    limits.LimitExceeded, here or before the first run, where it breaks the device's profile.
    """

    def __init__(self, launch: Launch, device: torch.device, facts):
        check_launch(launch, facts)
        self.kernel = KERNELS[launch.kernel]
        self.launch = launch
        self.grid = (launch.grid, 1, 1)
        self.device = device
        self.facts = facts
        self.on_cuda = device.type == "cuda"
        # (compiled kernel bound to its grid, arguments behind the addresses), after the first run
        self.compiled = None

    def run(self, tensors, addresses) -> None:
        """Enqueue on the current stream. tensors: a function that gives the tensor arguments; addresses: theirs."""
        if self.compiled is None:
            self._compile_and_run(tensors())
            return
        bound, rest = self.compiled
        try:
            if self.on_cuda:
                bound(*addresses, *rest, stream=torch._C._cuda_getCurrentRawStream(self.device.index))
            else:
                bound(*addresses, *rest)
        except TypeError:  # a Triton whose launcher takes other arguments than those known here
            self.compiled = None
            self.keep_compiled = False
            self._compile_and_run(tensors())

    keep_compiled = True

    def _compile_and_run(self, tensors) -> None:
        launch = self.launch
        options = {**launch.constexprs, "num_warps": launch.num_warps, "num_stages": launch.num_stages, **FUSED}
        if not self.facts.interpreted:
            options.update(register_options(launch))
            compiled = self.kernel.warmup(*tensors, *launch.sizes, grid=self.grid, **options)
            compiled[self.grid]  # loads it: only then is the private memory known
            check_compiled(launch.kernel, compiled, self.facts)
        compiled = self.kernel[self.grid](*tensors, *launch.sizes, **options)
        # The interpreter compiles nothing.
        if compiled is None or not self.keep_compiled:
            return
        self.compiled = (compiled[self.grid], (*launch.sizes, *launch.constexprs.values()))
