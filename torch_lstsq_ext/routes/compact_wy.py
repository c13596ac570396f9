"""Route `compact_wy`: Householder QR of a matrix of any size, panel by panel, each panel a tree.

Panels of PANEL columns are factored in registers (kernels/compact_wy.py) and their reflectors applied to what is right
of them as products, I - V T V^T, T upper triangular with T_jj = tau_j and T[:j, j] = -tau_j T[:j, :j] V[:, :j]^T v_j
(Schreiber, Van Loan, A storage-efficient WY representation for products of Householder transformations, SIAM J. Sci.
Stat. Comput. 10 (1989)). A panel taller than a program's registers is factored in blocks of rows; the triangles that
the blocks leave are stacked and factored in turn, until one is left (Demmel, Grigori, Hoemmen, Langou,
Communication-optimal parallel and sequential QR and LU factorizations, SIAM J. Sci. Comput. 34 (2012)). Blocks share no
rows, so a level is one launch and its application another, with no sum that crosses programs:
    level 0   blocks of consecutive rows             [A1; A2; A3; A4] = diag(Q1, .., Q4) [R1; R2; R3; R4]
    level 1   the R of two blocks or more, stacked   [R1; R2] = Q12 R12, [R3; R4] = Q34 R34
    level 2   and so on                              [R12; R34] = Q R

Everything is done in place. A block's reflectors have a unit diagonal, which is not stored, and lie below it, R above.
A tree level's reflectors are non-zero, besides that diagonal, only where the triangles were that they annihilated:
they take their place. Row j of the matrix is row j of R in the end.

The working matrix is [A | B], or for m < n A^T beside b and later x. Its columns are scaled by powers of two
(kernels/equilibrate.py); routes/tile.py says why and what that does to the solution. Then
- m >= n: Q^T is applied to B with the rest, x = R^-1 (Q^T b)[:n], and the residual is the sum of squares below.
- m < n: y = R^-T b, x = Q [y; 0], applying panels and levels in reverse: the solution of minimum norm.
Triangular systems are solved by substitution in blocks of TRIANGLE and products. Substitution proper, not products with
inverted blocks: it is backward stable row by row, however ill-conditioned a block is.

Matrices that share A (a batch stride of 0) share its factorisation: their right-hand sides lie side by side.

Limits: none but memory, that of [A | B] and a share for T.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .. import tiling
from ..problem import Problem
from .steps import RESIDUALS, A, B, Launch, Plan, Workspace, X

PANEL = 32
TRIANGLE = 64
EXPONENT_ROWS = 1024  # rows over which one program seeks a column's largest exponent
SQUARES_ROWS = 8192
COPY_BLOCK = 32
FEW_BLOCKS = 256  # rows of a block, so that T takes an eighth of the matrix's memory
LEVEL = 2 * tiling.LAUNCH + 15_000  # a further level: its launches and its application, in the cycles of tiling.py
TALLEST_BLOCK = 1024


@dataclass(frozen=True)
class Level:
    """One level of one panel: `stack_rows` rows in `blocks` blocks. stride: rows between two of its triangles."""

    stack_rows: int
    blocks: int
    stride: int


def levels(rows: int, height: int, tree_height: int) -> list[Level]:
    """The levels of a panel of `rows` rows, blocks of `height` rows at level 0 and `tree_height` above."""
    found = [Level(rows, math.ceil(rows / height), PANEL)]
    stride = height
    while found[-1].blocks > 1:
        below = found[-1]
        last_block = below.stack_rows - (below.blocks - 1) * height
        stack = (below.blocks - 1) * PANEL + min(PANEL, last_block)
        height = tree_height
        found.append(Level(stack, math.ceil(stack / height), stride))
        stride *= height // PANEL
    return found


def _panel_tile(height: int, items: int, item_bytes: int, facts):
    return tiling.best(height, PANEL, None, tiling.power_of_two_ceil(items), item_bytes, facts)


def _heights(facts, item_bytes: int) -> list[int]:
    found = []
    height = 2 * PANEL
    while height <= TALLEST_BLOCK and _panel_tile(height, 1, item_bytes, facts):
        found.append(height)
        height *= 2
    return found


def _choose_heights(rows: int, columns: int, batch: int, item_bytes: int, facts, keep_t: bool) -> tuple[int, int]:
    """Heights of blocks at level 0 and above, by the estimated time of all panels. keep_t: T of every panel is kept."""

    def cost(height, tree_height):
        total = 0.0
        for first in range(0, columns, PANEL):
            for i, level in enumerate(levels(rows - first, height, tree_height)):
                tile = _panel_tile(tree_height if i else height, batch * level.blocks, item_bytes, facts)
                total += tile[1] + LEVEL
        return total

    heights = tree_heights = _heights(facts, item_bytes)
    if keep_t:  # a T for every block: few blocks
        heights = [height for height in heights if height >= FEW_BLOCKS] or heights[-1:]
    return min(((h, t) for h in heights for t in tree_heights), key=lambda pair: cost(*pair))


def covers(problem: Problem, facts) -> bool:
    return bool(_heights(facts, problem.item_bytes))


@dataclass(frozen=True)
class Sharing:
    """The batch as working matrices times right-hand sides that share one: where A's batch stride is 0."""

    matrices: tuple[int, int, int]  # sizes of the three loops over what is not shared
    shared: tuple[int, int, int]

    @classmethod
    def of(cls, problem: Problem) -> Sharing:
        pairs = [
            (1, size) if stride == 0 else (size, 1) for size, stride in zip(problem.groups, problem.a_batch_strides)
        ]
        return cls(tuple(p[0] for p in pairs), tuple(p[1] for p in pairs))

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        return (*self.matrices[1:], *self.shared[1:])


class _Builder:
    """The launches of one problem, in order."""

    def __init__(self, problem: Problem, facts):
        p = self.problem = problem
        self.facts = facts
        self.sharing = Sharing.of(p)
        self.batch = math.prod(self.sharing.matrices)
        self.rhs = p.k * math.prod(self.sharing.shared)
        self.rows, self.columns = max(p.m, p.n), min(p.m, p.n)
        self.matrix_stride = self.rows * (self.columns + self.rhs)
        self.wide_dot = p.dtype == "float32" and facts.wide_dot
        self.use_dot = facts.fp32_dot if p.dtype == "float32" else facts.fp64_dot is True
        self.height, self.tree_height = _choose_heights(
            self.rows, self.columns, self.batch, p.item_bytes, facts, keep_t=p.wide
        )
        self.workspace = Workspace()
        self.w = self.workspace.take(self.batch * self.matrix_stride, p.dtype)
        self.launches: list[Launch] = []
        self.panels = [
            (first, levels(self.rows - first, self.height, self.tree_height)) for first in range(0, self.columns, PANEL)
        ]
        self.t = self._place_t()
        # One tile for blocks at level 0 and one above, chosen for the first panel, the tallest
        first = self.panels[0][1]
        self.tiles = [
            _panel_tile(height, self.batch * level.blocks, p.item_bytes, facts)[0]
            for height, level in ((self.height, first[0]), (self.tree_height, first[min(1, len(first) - 1)]))
        ]

    def _place_t(self):
        """The place of T for (panel, level). m >= n: panels take turns in one."""
        items = [[self.batch * level.blocks for level in found] for _, found in self.panels]
        if self.problem.wide:
            return {
                (i, j): self.workspace.take(count * PANEL * PANEL, self.problem.dtype)
                for i, counts in enumerate(items)
                for j, count in enumerate(counts)
            }
        first = [self.workspace.take(count * PANEL * PANEL, self.problem.dtype) for count in items[0]]
        return {(i, j): first[j] for i, counts in enumerate(items) for j in range(len(counts))}

    def add(self, kernel: str, grid: int, tensors, sizes, constexprs, num_warps=4, note="") -> None:
        self.launches.append(Launch(kernel, grid, tuple(tensors), tuple(sizes), constexprs, num_warps, note=note))

    # In and out

    def _source(self, name: str):
        """(rows, columns, k, strides) of A, transposed for m < n, or of B, as kernels/equilibrate.py sees them."""
        p = self.problem
        if name == A:
            row, column = p.a_strides[::-1] if p.wide else p.a_strides
            return self.rows, self.columns, self.columns, (*p.a_batch_strides, row, column)
        return p.m, self.rhs, p.k, (*p.b_batch_strides, *p.b_strides)

    def copy_in(self) -> None:
        p = self.problem
        self.exponents, self.chunks = {}, {}
        for name in (A, B):
            rows, columns, k, strides = self._source(name)
            chunks = self.chunks[name] = math.ceil(rows / EXPONENT_ROWS)
            self.exponents[name] = self.workspace.take(self.batch * chunks * columns, "int32")
            # For m < n A's scaling is one of equations, and so of B's rows
            by_row = name == B and p.wide
            scales = (self.exponents[name], self.exponents[A])
            layout = {"ROWS_FAST": strides[3] < strides[4], "ROWS_SCALED": by_row}
            # 1024 numbers at a time, and not in columns of 512: facts.broken_reduction_lengths
            width = 1 if columns == 1 else min(32, max(4, tiling.power_of_two_ceil(columns)))
            tiles = math.ceil(columns / width)
            row_scales = (self.columns, self.chunks[A])
            source = (k, *self.sharing.sizes, *strides)
            self.add(
                "exponents",
                self.batch * chunks * tiles,
                (name, *scales),
                (rows, columns, chunks, tiles, *row_scales, *source),
                {"CHUNK": EXPONENT_ROWS, "BM": 1024 // width, "BN": width, **layout},
            )
            rows_out = self.rows
            row_tiles, column_tiles = math.ceil(rows_out / COPY_BLOCK), math.ceil(columns / COPY_BLOCK)
            self.add(
                "scaled_copy",
                self.batch * row_tiles * column_tiles,
                (name, self.w, *scales),
                (
                    *(rows, rows_out, columns, self.columns if name == B else 0, self.matrix_stride, chunks),
                    *(row_tiles, column_tiles, *row_scales, *source),
                ),
                {"BLOCK": COPY_BLOCK, **layout},
            )

    def copy_out(self) -> None:
        p = self.problem
        squares, square_chunks = self.w, 0
        if p.has_residuals:
            square_chunks = math.ceil((self.rows - self.columns) / SQUARES_ROWS)
            squares = self.workspace.take(self.batch * self.rhs * square_chunks, p.dtype)
            self.add(
                "squares",
                self.batch * self.rhs * square_chunks,
                (self.w, self.exponents[B], squares),
                (
                    *(self.rows, self.columns, self.rhs, self.columns, self.matrix_stride),
                    *(square_chunks, self.chunks[B]),
                ),
                {"CHUNK": SQUARES_ROWS, "BLOCK": 1024},
            )
        width = min(32, tiling.power_of_two_ceil(self.rhs))
        row_tiles, column_tiles = math.ceil(p.n / (1024 // width)), math.ceil(self.rhs / width)
        _, group1, group2 = p.groups
        self.add(
            "finish",
            self.batch * row_tiles * column_tiles,
            (self.w, self.exponents[B], self.exponents[A], squares, X, RESIDUALS),
            (
                *(p.n, self.rows, self.rhs, self.columns, self.matrix_stride, self.chunks[B], row_tiles, column_tiles),
                *(self.columns, self.chunks[A], square_chunks, p.k, *self.sharing.sizes),
                *(group1 * group2, group2, 1),
            ),
            {"BM": 1024 // width, "BN": width, "ROWS_SCALED": not p.wide, "RESIDUALS": p.has_residuals},
        )

    # Panels

    def factor(self) -> None:
        last_column = self.columns if self.problem.wide else self.columns + self.rhs
        for i, (first, found) in enumerate(self.panels):
            width = min(PANEL, self.columns - first)
            for j, level in enumerate(found):
                self._panel(first, width, level, self.t[i, j], tree=j > 0)
                self._reflect(first, width, level, self.t[i, j], j > 0, first + width, last_column, transposed=True)

    def apply_q(self) -> None:
        for i, (first, found) in reversed([*enumerate(self.panels)]):
            width = min(PANEL, self.columns - first)
            for j, level in reversed([*enumerate(found)]):
                last = self.columns + self.rhs
                self._reflect(first, width, level, self.t[i, j], j > 0, self.columns, last, transposed=False)

    def _panel(self, first, width, level, t, tree) -> None:
        tile = self.tiles[tree]
        items = self.batch * level.blocks
        self.add(
            "panel",
            math.ceil(items / tile.w),
            (self.w, t),
            (self.rows, self.matrix_stride, items, level.blocks, first, width, level.stack_rows, level.stride),
            {**tile.constexprs, "TREE": tree},
            tile.num_warps,
            note=str(tile),
        )

    def _reflect(self, first, width, level, t, tree, column0, column1, transposed) -> None:
        columns, items = column1 - column0, self.batch * level.blocks
        if columns == 0:
            return
        tile = self._product_tile(columns)
        if tile["USE_DOT"] and items * math.ceil(columns / 64) >= (self.facts.multiprocessors or 1):
            tile["BN"] = 64  # reads the reflectors half as often, where that leaves enough programs
        tiles = math.ceil(columns / tile["BN"])
        self.add(
            "reflect",
            items * tiles,
            (self.w, t),
            (
                *(self.rows, self.matrix_stride, level.blocks, tiles, first, width),
                *(level.stack_rows, level.stride, column0, column1),
            ),
            {
                **{"HEIGHT": self.tree_height if tree else self.height, "PANEL": PANEL, **tile},
                **{"TREE": tree, "TRANSPOSED": transposed},
            },
        )

    def _product_tile(self, columns: int) -> dict:
        """BK rows by BN columns at a time. tl.dot takes 16 columns or more; without it the terms fill the registers."""
        width = min(32, tiling.power_of_two_ceil(columns))
        if width >= 16 and self.use_dot:
            return {"BK": 32, "BN": 32, "USE_DOT": True, "WIDE": self.wide_dot}
        return {"BK": min(64, 256 // width), "BN": width, "USE_DOT": False, "WIDE": False}

    # Triangles

    def substitute(self) -> None:
        """R^-1, m >= n, or R^-T times the first rows of the right-hand sides."""
        blocks = [(first, min(TRIANGLE, self.columns - first)) for first in range(0, self.columns, TRIANGLE)]
        tile, _ = tiling.best(TRIANGLE, TRIANGLE, self.rhs, self.batch, self.problem.item_bytes, self.facts)
        for first, size in blocks if self.problem.wide else reversed(blocks):
            self._triangle(tile, first, size)
            if self.problem.wide:
                self._product(first, size, first + size, self.columns - first - size)
            else:
                self._product(first, size, 0, first)

    def _triangle(self, tile, first, size) -> None:
        corner, b = first + first * self.rows, self.columns * self.rows + first
        r_strides, b_stride = (1, self.rows), 1
        if self.problem.wide:  # R^T, read backwards
            last = size - 1
            corner, b = corner + last * (1 + self.rows), b + last
            r_strides, b_stride = (-self.rows, -1), -1
        chunks = tile.chunks(self.rhs)
        self.add(
            "triangle",
            math.ceil(self.batch / tile.w) * chunks,
            (self.w,),
            (self.matrix_stride, size, self.rhs, self.batch, chunks, corner, *r_strides, b, b_stride, self.rows),
            tile.constexprs,
            tile.num_warps,
            note=str(tile),
        )

    def _product(self, first, size, row0, rows) -> None:
        """Rows row0.. of the right-hand sides lose their share of unknowns first..first + size."""
        if rows == 0:
            return
        tile = self._product_tile(self.rhs)
        row_tiles, rhs_tiles = math.ceil(rows / 32), math.ceil(self.rhs / tile["BN"])
        r = (row0 + first * self.rows, 1, self.rows)
        if self.problem.wide:
            r = (first + row0 * self.rows, self.rows, 1)
        b = self.columns * self.rows
        self.add(
            "product",
            self.batch * row_tiles * rhs_tiles,
            (self.w,),
            (self.matrix_stride, rows, size, self.rhs, row_tiles, rhs_tiles, *r, b + first, b + row0, self.rows),
            {"BM": 32, **tile},
        )


def plan(problem: Problem, facts) -> Plan:
    builder = _Builder(problem, facts)
    builder.copy_in()
    builder.factor()
    builder.substitute()
    if problem.wide:
        builder.apply_q()
    builder.copy_out()
    return Plan("compact_wy", tuple(builder.launches), builder.workspace.size)
