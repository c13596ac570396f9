"""Route `tsqr`: tall and skinny, of any height. A tree of small QR factorisations, one launch a level.

Blocks of rows of [A | B] are factored independently; each leaves n rows, R and the top of Q^T B, and the squares of the
rest of Q^T B, which no later level touches. The stacked remains are a problem of the same kind and the same solution,
shorter by the ratio of a block's height to n; when one program can hold it, route `tile` solves it.
    [A1 | B1]   [R1 | C1]
    [A2 | B2] -> [R2 | C2] -> ... -> X,    residual = sum of the squares left behind by every block
Every level is an orthogonal transformation, so the whole is as backward stable as one Householder QR, and the order of
the sums is fixed by the shape: the same call gives the same bits. Demmel, Grigori, Hoemmen, Langou,
Communication-optimal parallel and sequential QR and LU factorizations, SIAM J. Sci. Comput. 34 (2012).

Limits: m > n, and a block of at least 2 n rows must fit a program's registers (tiling.py), so n <= 128 in float32 and
n <= 64 in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .. import tiling
from ..problem import Problem
from .steps import RESIDUALS, A, B, Launch, Plan, Workspace, X
from .tile import launch_tile

TALLEST_BLOCK = 4096


@dataclass(frozen=True)
class Tree:
    """Tiles from the leaves to the root, and the estimated cycles."""

    tiles: tuple[tiling.Tile, ...]
    cost: float


def _grow(rows: int, problem: Problem, facts, known: dict[int, Tree | None]) -> Tree | None:
    if rows in known:
        return known[rows]
    n, k, batch, size = problem.n, problem.k, problem.batch, problem.item_bytes
    root = tiling.best(rows, n, k, batch, size, facts) if rows <= TALLEST_BLOCK else None
    best = Tree((root[0],), root[1]) if root else None
    height = tiling.power_of_two_ceil(2 * n)
    while height < min(rows, TALLEST_BLOCK + 1):
        blocks = math.ceil(rows / height)
        leaf = tiling.best(height, n, k, batch * blocks, size, facts)
        rest = leaf and _grow(blocks * n, problem, facts, known)
        if rest:
            cost = leaf[1] + tiling.LAUNCH + rest.cost
            if best is None or cost < best.cost:
                best = Tree((leaf[0], *rest.tiles), cost)
        height *= 2
    known[rows] = best
    return best


def _tree(problem: Problem, facts) -> Tree | None:
    if problem.m <= problem.n:
        return None
    tree = _grow(problem.m, problem, facts, {})
    return tree if tree and len(tree.tiles) > 1 else None


def covers(problem: Problem, facts) -> bool:
    p, tree = problem, _tree(problem, facts)
    if tree is None:
        return False
    leaf = tree.tiles[0]
    return tiling.shares_well(leaf, p.n, p.k, p.batch * math.ceil(p.m / leaf.rows), facts)


def plan(problem: Problem, facts) -> Plan:
    p = problem
    *levels, root = _tree(p, facts).tiles
    heights = [p.m]  # rows that come into each level, the root's last
    for tile in levels:
        heights.append(math.ceil(heights[-1] / tile.rows) * p.n)
    partials = sum(height // p.n for height in heights[1:])

    workspace = Workspace()
    partials_at = workspace.take(p.batch * p.k * partials, p.dtype)
    # A level reads one stack and writes the next: two buffers take turns.
    stacks_at = [workspace.take(p.batch * (p.n + p.k) * height, p.dtype) for height in heights[1:3]]

    launches = []
    tensors, groups = (A, B), p.groups
    a_strides = (*p.a_batch_strides, *p.a_strides)
    b_strides = (*p.b_batch_strides, *p.b_strides)
    first_partial = 0
    for level, tile in enumerate(levels):
        height = heights[level + 1]
        blocks = height // p.n
        stack_at = stacks_at[level % 2]
        chunks = tile.chunks(p.k)
        sizes = (heights[level], p.n, p.k, p.batch, chunks, *groups[1:], blocks, partials, first_partial)
        launches.append(
            Launch(
                kernel="tsqr",
                grid=math.ceil(p.batch * blocks / tile.w) * chunks,
                tensors=(*tensors, stack_at, partials_at),
                sizes=(*sizes, *a_strides, *b_strides),
                constexprs=tile.constexprs,
                num_warps=tile.num_warps,
                note=str(tile),
            )
        )
        first_partial += blocks
        tensors, groups = (stack_at, stack_at.at(p.n * height)), (1, 1, p.batch)
        a_strides = b_strides = (0, 0, (p.n + p.k) * height, 1, height)
    launches.append(
        launch_tile(
            root,
            (*tensors, X, RESIDUALS, partials_at),
            (heights[-1], p.n),
            p,
            a_strides,
            b_strides,
            groups,
            partials,
        )
    )
    return Plan("tsqr", tuple(launches), workspace.size)
