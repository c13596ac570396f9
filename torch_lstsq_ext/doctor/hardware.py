"""Probes of a device's limits. None of them means anything in Triton's interpreter."""

from __future__ import annotations

import re
import time

import torch

from ..devices.detect import collect_signals
from .bench import Bench, relative_error, said, uniform

ELEMENTS = 4096
MOST_WARPS = 64
MOST_STAGES = 16
SPILLED_WORDS = (256, 512, 1024)  # 32-bit words that a thread has to keep


def _copy(bench: Bench, num_warps: int):
    from .kernels import copy_kernel

    x, out = uniform(ELEMENTS, dtype=torch.float32), bench.empty(ELEMENTS, dtype=torch.float32)
    compiled = bench.launch(copy_kernel, x.to(bench.device), out, num_warps=num_warps, N=ELEMENTS)
    return compiled, torch.equal(out.cpu(), x)


def warp_size(bench: Bench) -> None:
    """Threads for which Triton compiles num_warps = 1."""
    metadata = _copy(bench, 1)[0].metadata
    measured = getattr(metadata, "warp_size", None) or metadata.target.warp_size
    others = {"torch": collect_signals(bench.device).warp_size}
    agree = all(value in (None, measured) for value in others.values())
    bench.report(measured, agree and measured == bench.declared, _named(others))


def threads_per_block(bench: Bench) -> None:
    """The widest launch that runs and is right."""
    warps, widest = 1, 0
    while warps <= MOST_WARPS:
        threads = warps * bench.facts.warp_size
        try:
            failure = "" if _copy(bench, warps)[1] else "wrong"
        except Exception as error:
            failure = said(error)[:40]
        if failure:
            bench.report(widest, widest == bench.declared, f"{threads}: {failure}")
            return
        widest = threads
        bench.report(widest, widest == bench.declared)
        warps *= 2


def shared_memory(bench: Bench) -> None:
    """The limit that Triton names when it refuses a kernel; the kernels below it run and are right."""
    from .kernels import product_kernel

    m, n, k, largest = 128, 128, 256, 0
    a, b = (uniform(*s, dtype=torch.float64, low=-8, high=8).round() for s in ((m, k), (k, n)))
    tensors = a.half().to(bench.device), b.half().to(bench.device)
    for stages in range(1, MOST_STAGES + 1):
        c = bench.empty(m, n, dtype=torch.float32)
        tile = {"M": m, "N": n, "BLOCK_K": 64, "USE_DOT": True}
        try:
            compiled = bench.launch(product_kernel, *tensors, c, k, num_stages=stages, **tile)
        except Exception as error:
            limit = _limit(error)
            agrees = None if limit is None else limit == bench.declared and largest <= limit
            bench.report(limit, agrees, f"a kernel with {largest} runs" if limit else said(error))
            return
        error = relative_error(c, a @ b, a.abs() @ b.abs())
        largest = compiled.metadata.shared
        if error > 0:
            bench.report(None, False, f"a kernel with {largest} bytes is off by {error:.1e}")
            return
    bench.report(None, None if largest <= bench.declared else False, f"a kernel with {largest} runs")


def _limit(error: Exception) -> int | None:
    found = re.search(r"Hardware limit: *(\d+)", str(error))
    return int(found.group(1)) if found and "shared memory" in str(error) else None


def private_bytes(bench: Bench) -> None:
    """The most local memory with which a kernel is right; a limit is met if less works and more does not."""
    from .kernels import spill_kernel

    for words in SPILLED_WORDS:
        n = words * bench.facts.warp_size
        x = uniform(n, dtype=torch.float64, low=-8, high=8).round()
        out = bench.empty(n, dtype=torch.float32)
        try:
            compiled = bench.launch(spill_kernel, x.float().to(bench.device), out, num_warps=1, N=n)
            right = torch.equal(out.cpu().double(), x - x.sum())
            failure = "" if right else "wrong"
        except Exception as error:
            right, failure = False, said(error)
        if not right:
            bench.report(None, bench.declared is not None, f"{words} words a thread: {failure}")
            return
        spilled = getattr(compiled, "n_spills", None)
        if spilled is None:
            bench.report(None, None, "Triton does not say what a kernel spills")
            return
        if bench.declared is not None and 4 * spilled > bench.declared:
            bench.report(4 * spilled, False, "a thread may have more than declared")
            return
        bench.report(None, True if bench.declared is None else None, f"{4 * spilled} bytes work")


def multiprocessors(bench: Bench) -> None:
    """torch's count beside Triton's."""
    from ..launch import measured_limits

    measured = collect_signals(bench.device).multiprocessors
    others = {"Triton": measured_limits(bench.device.index).get("multiprocessors")}
    if measured is None:
        measured, others = others["Triton"], {}
    agree = all(value in (None, measured) for value in others.values())
    agrees = None if measured is None else agree and bench.declared in (None, measured)
    bench.report(measured, agrees, _named(others))


def fp64_rate(bench: Bench) -> None:
    """Time of a chain of multiplications and additions in float32 over that in float64, within a factor of 2."""
    from .kernels import chain_kernel

    out = {dtype: bench.empty(ELEMENTS, dtype=dtype) for dtype in (torch.float32, torch.float64)}
    seconds = {}
    for dtype, tensor in out.items():

        def run(steps, tensor=tensor):
            bench.launch(chain_kernel, tensor, steps, num_warps=8, N=ELEMENTS)
            start = time.perf_counter()
            bench.launch(chain_kernel, tensor, steps, num_warps=8, N=ELEMENTS)
            tensor[0].item()
            return time.perf_counter() - start

        seconds[dtype] = run(40_000) - run(10_000)
    rate = seconds[torch.float32] / seconds[torch.float64]
    agrees = None if bench.declared is None else bench.declared / 2 <= rate <= 2 * bench.declared
    bench.report(round(rate, 3), agrees)


def _named(values: dict) -> str:
    return ", ".join(f"{name}: {value}" for name, value in values.items() if value is not None)
