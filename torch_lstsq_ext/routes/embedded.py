"""Complex problems as real ones of twice the size, for whatever route solves those.

With A = A1 + i A2, and so on, |b - A x|^2 is the squared norm of
    [b1]   [A1  -A2] [x1]
    [b2] - [A2   A1] [x2]
so minimisers, residuals and norms of solutions are the same, and the real matrix has A's singular values, each twice:
the same condition number. No kernel sees a complex type, which some vendors' compilers lack.

Limits: four times the memory of A's real part, twice the arithmetic of a complex solver.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..problem import REAL, Problem
from .steps import WORKSPACE_ALIGNMENT, A, B, Launch, Piece, Plan, Workspace, X

BLOCK = 1024


def _embedding(problem: Problem, name: str):
    """(batch strides and row and column strides in the real matrix, distinct matrices in the three loops).

    A matrix that the caller broadcasts is embedded once. The longer side of A lies contiguous.
    """
    p = problem
    strides = p.a_batch_strides if name == A else p.b_batch_strides
    distinct = tuple(1 if stride == 0 else size for size, stride in zip(p.groups, strides))
    rows, columns = (2 * p.m, 2 * p.n) if name == A else (2 * p.m, p.k)
    matrix = rows * columns
    batch = (distinct[1] * distinct[2] * matrix, distinct[2] * matrix, matrix)
    batch = tuple(0 if size == 1 else stride for size, stride in zip(distinct, batch))
    inner = (1, rows) if not p.wide else (columns, 1)
    return batch, inner, distinct


def real_problem(problem: Problem) -> Problem:
    (a_batch, a_inner, _), (b_batch, b_inner, _) = _embedding(problem, A), _embedding(problem, B)
    return replace(
        problem,
        m=2 * problem.m,
        n=2 * problem.n,
        dtype=REAL[problem.dtype],
        a_batch_strides=a_batch,
        a_strides=a_inner,
        b_batch_strides=b_batch,
        b_strides=b_inner,
    )


def wrap(problem: Problem, real: Plan) -> Plan:
    """`real`, a plan for real_problem(problem), between the caller's complex tensors."""
    p, dtype = problem, REAL[problem.dtype]
    workspace = Workspace()
    places, before = {}, []
    for name, columns in ((A, p.n), (B, p.k)):
        strides = (*p.a_batch_strides, *p.a_strides) if name == A else (*p.b_batch_strides, *p.b_strides)
        distinct = _embedding(p, name)[2]
        count = math.prod(distinct) * p.m * columns
        places[name] = workspace.take(count * (4 if name == A else 2), dtype)
        before.append(
            Launch(
                "embed",
                math.ceil(count / BLOCK),
                (name, places[name]),
                (count, p.m, columns, *distinct[1:], *strides),
                {"BLOCK": BLOCK, "ROWS_FAST": not p.wide, "OPERATOR": name == A},
                num_warps=4,
            )
        )
    count = p.batch * p.n * p.k
    places[X] = workspace.take(2 * count, dtype)
    base = workspace.size
    assert base % WORKSPACE_ALIGNMENT == 0

    def moved(place):
        return Piece(place.start + base, place.dtype) if isinstance(place, Piece) else places.get(place, place)

    solve = [replace(launch, tensors=tuple(map(moved, launch.tensors))) for launch in real.launches]
    after = Launch(
        "extract", math.ceil(count / BLOCK), (places[X], X), (count, p.n * p.k), {"BLOCK": BLOCK}, num_warps=4
    )
    return Plan(real.route, (*before, *solve, after), base + real.workspace)
