"""Plain torch.linalg.lstsq through every route by itself, against LAPACK in float64 on the CPU."""

from __future__ import annotations

import itertools
import warnings

import torch

from .. import plan
from ..devices.facts import Facts
from ..problem import Problem
from .bench import Bench, said, uniform

BOUND = 100  # eps, relative to the largest entry: the matrices are well conditioned

_EXTENTS = (3, 32, 128, 512, 2048, 16384)
_BATCH_AND_RHS = ((1, 1), (8, 40))
_MOST_NUMBERS = 1 << 21


def _shapes() -> list[tuple[int, int, int, int]]:
    """(batch, m, n, k) to ask the plan about, small ones first."""
    every = [(batch, m, n, k) for m in _EXTENTS for n in _EXTENTS for batch, k in _BATCH_AND_RHS]
    return sorted((s for s in every if s[0] * s[1] * s[2] <= _MOST_NUMBERS), key=lambda s: s[0] * s[1] * s[2])


def cases(facts: Facts) -> list[tuple[str, str, dict[str, list]]]:
    """For each route of plan.ROUTES and dtype: (route, dtype, {"tall", "square", "wide": shapes that take it}).

    Shapes are the smallest and, where kernels are not interpreted, the largest of those tried that the route covers.
    """
    dtypes = ("float32", "float64") if facts.fp64 else ("float32",)
    found = {(name, dtype): {} for name, _ in plan.ROUTES for dtype in dtypes}
    for (route, dtype), (batch, m, n, k) in itertools.product(found, _shapes()):
        if plan.make_plan(Problem(m=m, n=n, k=k, dtype=dtype, groups=(1, 1, batch)), facts, (route,)) is not None:
            orientation = "tall" if m > n else "wide" if m < n else "square"
            found[route, dtype].setdefault(orientation, []).append((batch, m, n, k))
    for shapes in found.values():
        for orientation, all_of_them in shapes.items():
            ends = all_of_them[:1] if facts.interpreted else [all_of_them[0], all_of_them[-1]]
            shapes[orientation] = list(dict.fromkeys(ends))
    return [(route, dtype, shapes) for (route, dtype), shapes in found.items()]


def solve(bench: Bench, route: str, dtype_name: str, shapes: list) -> None:
    """The worst error of the solutions and the residuals; another route than the planned one is a difference."""
    from .. import solve

    eps = torch.finfo(getattr(torch, dtype_name)).eps
    worst, strayed = 0.0, []
    for batch, m, n, k in shapes:
        A, B = problem(batch, m, n, k, getattr(torch, dtype_name))
        before = solve.counts().get(route, 0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with solve.restricted_to(route):
                result = torch.linalg.lstsq(A.to(bench.device), B.to(bench.device))
        if solve.counts().get(route, 0) != before + 1:
            strayed += [str(w.message) for w in caught] or [f"{batch}x{m}x{n} did not take the route"]
        worst = max(worst, _error(result, A.double(), B.double()) / eps)
    text = ", ".join(f"{batch}x{m}x{n}, {k}" for batch, m, n, k in shapes)
    bench.report(f"{worst:.1f} eps", worst <= BOUND and not strayed, "; ".join([text, *strayed]))


def problem(batch: int, m: int, n: int, k: int, dtype: torch.dtype):
    """A (batch, m, n) of condition number at most 4 and B (batch, m, k)."""
    A = torch.eye(m, n, dtype=torch.float64) + uniform(batch, m, n, dtype=torch.float64) * 0.5 / max(m, n) ** 0.5
    return A.to(dtype), uniform(batch, m, k, dtype=dtype)


def _error(result, A: torch.Tensor, B: torch.Tensor) -> float:
    expected = torch.linalg.lstsq(A, B, driver="gels")
    pairs = [(result.solution, expected.solution)]
    if A.shape[-2] > A.shape[-1]:
        pairs.append((result.residuals, expected.residuals))
    errors = [((ours.cpu().double() - theirs).abs().max() / theirs.abs().max()).item() for ours, theirs in pairs]
    return max(error if error == error else float("inf") for error in errors)


def refusal(bench: Bench) -> None:
    """A float64 call where the device has no float64 says so."""
    A = torch.ones(4, 2, dtype=torch.float64, device=bench.device)
    try:
        torch.linalg.lstsq(A, A)
    except Exception as error:
        bench.report(type(error).__name__, isinstance(error, NotImplementedError), said(error)[:60])
    else:
        bench.report("an answer", False)
