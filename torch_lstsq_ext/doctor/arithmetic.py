"""Probes of what kernels compute: float64, tl.dot beside the rank-1 form, pipelined products, reductions."""

from __future__ import annotations

import torch

from .bench import Bench, relative_error, said, uniform

# A tl.dot in reduced precision is off by 1e-4 in float32; a right one by a few units over |A| |B|, whatever K is.
BOUND = 32  # eps

# (M, N, K), BLOCK_K, num_warps
PRODUCTS = [
    ((16, 16, 16), 16, 1),
    ((32, 16, 64), 32, 4),
    ((16, 64, 32), 16, 4),
    ((64, 64, 256), 32, 4),
    ((128, 64, 512), 32, 8),
]
UPDATES = [(64, 16, 16, 16), (128, 32, 16, 32), (256, 64, 32, 64), (512, 32, 32, 64)]  # rows, columns, panel, block
STAGES = (1, 2, 3, 4)
LENGTHS = [2**i for i in range(1, 13)]


def fp64(bench: Bench) -> None:
    """Sums, products, quotients and square roots."""
    from .kernels import arithmetic_kernel

    n = 1024
    a, b = (uniform(n, dtype=torch.float64, low=low, high=3.0) for low in (0.1, 0.2))
    out = bench.empty(4, n, dtype=torch.float64)
    bench.launch(arithmetic_kernel, a.to(bench.device), b.to(bench.device), out, N=n)
    expected = torch.stack([a + b, a * b, a / b, a.sqrt()])
    error = relative_error(out, expected, expected)
    bench.report_soundness(error <= 4 * _eps(torch.float64), f"error {error:.1e}", refutable=False)


def fp64_copy(bench: Bench) -> None:
    """Tensors to the device and back, to the bit: large, small, and with gaps."""
    wrong = []
    for rows, columns, step in ((1, 1, 1), (1000, 1, 1), (256, 256, 1), (2048, 1024, 1), (64, 64, 2)):
        x = uniform(rows, columns, dtype=torch.float64)[:, ::step]
        if not torch.equal(x.to(bench.device).cpu(), x):
            wrong.append(f"{rows} x {columns}")
    detail = f"wrong for {', '.join(wrong)}" if wrong else "all copies equal"
    bench.report_soundness(not wrong, detail, refutable=False)


def product_error(bench: Bench, dtype: torch.dtype, shape, block: int, num_warps: int, use_dot: bool) -> float:
    """|C - A B| / (|A| |B|), the worst element."""
    from .kernels import product_kernel

    m, n, k = shape
    a, b = uniform(m, k, dtype=dtype), uniform(k, n, dtype=dtype)
    c = bench.empty(m, n, dtype=dtype)
    tile = {"M": m, "N": n, "BLOCK_K": block, "USE_DOT": use_dot}
    bench.launch(product_kernel, a.to(bench.device), b.to(bench.device), c, k, num_warps=num_warps, **tile)
    a, b = a.double(), b.double()
    return relative_error(c, a @ b, a.abs() @ b.abs())


def dot(bench: Bench, dtype_name: str) -> None:
    """tl.dot, ieee, beside the same product as a sum of rank-1 products, small and large."""
    dtype = getattr(torch, dtype_name)
    errors = {}
    for use_dot in (False, True):
        try:
            errors[use_dot] = max(product_error(bench, dtype, *row, use_dot) for row in PRODUCTS)
        except Exception as error:
            if not use_dot:
                raise
            bench.report_soundness(False, said(error))
            return
    detail = f"error {errors[True]:.1e}, rank-1 {errors[False]:.1e}"
    if errors[False] > BOUND * _eps(dtype):
        bench.report(errors[True] <= BOUND * _eps(dtype), False, f"{detail}: the rank-1 form is wrong")
    else:
        bench.report_soundness(errors[True] <= BOUND * _eps(dtype), detail)


def dot_stages(bench: Bench) -> None:
    """C - V T V^T C in a pipelined loop: the largest num_stages up to which all sizes are right, None for any."""
    from .kernels import update_kernel

    right, errors = [], {}
    for stages in STAGES:
        errors[stages] = 0.0
        for rows, columns, panel, block in UPDATES:
            v, t, c = (uniform(*s, dtype=torch.float32) for s in ((rows, panel), (panel, panel), (rows, columns)))
            out = bench.empty(rows, columns, dtype=torch.float32)
            tile = {"COLUMNS": columns, "PANEL": panel, "BLOCK": block}
            try:
                tensors = [tensor.to(bench.device) for tensor in (v, t, c)]
                bench.launch(update_kernel, *tensors, out, rows, num_stages=stages, **tile)
            except Exception as error:
                if stages == 1:
                    raise
                if "out of resource" in str(error):  # too large, not wrong
                    continue
                raise
            v, t, c = v.double(), t.double(), c.double()
            size = c.abs() + v.abs() @ (t.abs() @ (v.abs().mT @ c.abs()))
            errors[stages] = max(errors[stages], relative_error(out, c - v @ (t @ (v.mT @ c)), size))
        if errors[stages] <= BOUND * _eps(torch.float32) and len(right) == stages - 1:
            right.append(stages)
    measured = None if len(right) == len(STAGES) else len(right)
    bench.report(measured, measured == bench.declared, ", ".join(f"{s}: {e:.1e}" for s, e in errors.items()))


def min_dot(bench: Bench) -> None:
    """The smallest cube that tl.dot multiplies. The plan relies on the declared one, so a smaller is no difference."""
    extent, smallest = 64, None
    while extent >= 1:
        try:
            error = product_error(bench, torch.float32, (extent, extent, 4 * extent), extent, 4, True)
        except Exception as refused:
            if smallest is None:
                raise
            bench.report(smallest, smallest <= bench.declared, f"{extent}: {said(refused)[:40]}")
            return
        if error > BOUND * _eps(torch.float32):
            bench.report(smallest, smallest is not None and smallest <= bench.declared, f"{extent}: error {error:.1e}")
            return
        smallest = extent
        bench.report(smallest, smallest <= bench.declared)
        extent //= 2


def reductions(bench: Bench, fp64: bool) -> None:
    """The lengths over which a sum, maximum or minimum is wrong, of integers, so that any order is exact."""
    from .kernels import reduction_kernel

    warps = (
        [1]
        if bench.facts.interpreted
        else [w for w in (1, 4, 8) if w < bench.facts.max_warps] + [bench.facts.max_warps]
    )
    trials = [(torch.float32, 1, w) for w in warps] + [(torch.float32, 4, warps[-1])]
    if fp64:
        trials.append((torch.float64, 1, warps[-1]))
    wrong = {}
    for length in LENGTHS:
        for dtype, columns, num_warps in trials:
            x = uniform(length, columns, dtype=torch.float64, low=-8, high=8).round().to(dtype)
            out = bench.empty(3, columns, dtype=dtype)
            x_ = x.to(bench.device)
            bench.launch(reduction_kernel, x_, out, num_warps=num_warps, N=length, COLUMNS=columns)
            if not torch.equal(out.cpu(), torch.stack([x.sum(0), x.amax(0), x.amin(0)])):
                wrong.setdefault(length, f"{length} with {num_warps} warps")
    detail = f"wrong: {', '.join(wrong.values())}" if wrong else f"{LENGTHS[0]} to {LENGTHS[-1]}"
    bench.report([*wrong], [*wrong] == [*bench.declared], detail)


def _eps(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps
