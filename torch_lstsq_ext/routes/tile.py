"""Route `tile`: one program holds a whole matrix, or several, in registers. One launch.

A = Q R by Householder reflectors H_j = I - v v^T / (v^T v / 2), v = c - alpha e_j, alpha = -sign(c_j) |c|, applied to
[A | B] as they are made, so Q is never formed. v_j = c_j - alpha adds numbers of one sign: there is no cancellation.
- m >= n: x = R^-1 (Q^T b)[:n] by back substitution by columns; the residual is the sum of squares of (Q^T b)[n:], a sum
  of squares and so never negative.
- m < n: A^T = Q R, A x = R^T Q^T x = b, so x = Q [R^-T b; 0], the solution of minimum norm. R^-T b needs column j of R
  just when it is made; v, scaled to v_j = 1, is kept below the diagonal for the product with Q at the end.
Backward stable: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., chapters 19 to 21.

Scaling. Columns of the tile are multiplied by powers of two, which is exact, so that their largest entry is near 2^40
(float32) or 2^300 (float64): sums of squares then neither overflow nor, for what elimination leaves, underflow. For
m >= n this scales the unknowns, for m < n the equations; both leave the solution what it was, and the factors are taken
out of X in two halves, since their product may lie outside the format.

A zero column gives an exactly zero pivot and so a non-finite x in that matrix only. There is no pivot threshold: badly
scaled columns of full rank are valid input.

Limits: the tile must fit a program's registers (tiling.py). Columns of B that do not fit beside A go to further
programs, each of which factors A again.
"""

from __future__ import annotations

import math

from .. import tiling
from ..problem import Problem
from .steps import RESIDUALS, A, B, Launch, Plan, X


def _tile(problem: Problem, facts):
    rows, columns = max(problem.m, problem.n), min(problem.m, problem.n)
    return tiling.best(rows, columns, problem.k, problem.batch, problem.item_bytes, facts)


def covers(problem: Problem, facts) -> bool:
    p, found = problem, _tile(problem, facts)
    return found is not None and tiling.shares_well(found[0], min(p.m, p.n), p.k, p.batch, facts)


def plan(problem: Problem, facts) -> Plan:
    tile, _ = _tile(problem, facts)
    p = problem
    row_stride, column_stride = p.a_strides
    rows, columns = p.m, p.n
    if p.wide:
        rows, columns, row_stride, column_stride = columns, rows, column_stride, row_stride
    launch = launch_tile(
        tile,
        (A, B, X, RESIDUALS, RESIDUALS),
        (rows, columns),
        p,
        (*p.a_batch_strides, row_stride, column_stride),
        (*p.b_batch_strides, *p.b_strides),
    )
    return Plan("tile", (launch,))


def launch_tile(tile, tensors, shape, problem, a_strides, b_strides, groups=None, partials=0) -> Launch:
    """The launch that solves `problem` from a matrix of `shape`, in the tile's orientation, in `tensors`."""
    chunks = tile.chunks(problem.k)
    _, group1, group2 = groups or problem.groups
    return Launch(
        kernel="tile",
        grid=math.ceil(problem.batch / tile.w) * chunks,
        tensors=tensors,
        sizes=(*shape, problem.k, problem.batch, chunks, group1, group2, partials, *a_strides, *b_strides),
        constexprs={
            **tile.constexprs,
            "WIDE": problem.wide,
            "RESIDUALS": problem.has_residuals,
            "PARTIALS": partials > 0,
        },
        num_warps=tile.num_warps,
        note=str(tile),
    )
