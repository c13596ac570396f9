"""How a tile of [A | B] is laid over the threads of a program. Pure arithmetic on shapes and facts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

# 32-bit words of [A | B] that a thread keeps in registers. At 64 the kernels take up to 255 registers in 8 warps and
# leave next to nothing on the stack, ahead of time for sm_90.
WORDS_A_THREAD = 72
PANEL_WORDS_A_THREAD = 80
# Columns that a thread owns, and so the length of the kernels' unrolled loop: 16 double the compile time of 8.
UNROLLED_COLUMNS = 8
MAX_THREADS = 512  # 1024 would leave 64 registers a thread

# The cost model, in cycles of a multiprocessor: within 15 % of the panel kernel's times on an H200 (triton 3.6.0), 124
# tiles of both data types. Only ratios matter.
PIVOT_LATENCY = 350  # the chain of one column: two sums over rows, square root, reciprocal
SHUFFLE_LATENCY = 25
EXCHANGE = 130  # what each warp adds to a sum over rows that crosses warps
MULTIPROCESSORS = 100  # where a device does not say
PROGRAM_OVERHEAD = 2000  # loads, stores
LAUNCH = 2500


@dataclass(frozen=True)
class Tile:
    """A as a tensor [rm, rn, w, tm, tn], B as [rm, rk, w, tm, tn]: see kernels/householder.py.

    Beside a panel stands not B (rk = 0) but its compact WY factor, [rt, rn, w, tm, tn].
    """

    rm: int
    rn: int
    rk: int
    w: int
    tm: int
    tn: int
    num_warps: int
    rt: int = 0

    @property
    def rows(self) -> int:
        return self.rm * self.tm

    @property
    def constexprs(self) -> dict[str, int]:
        last = {"RT": self.rt} if self.rt else {"RK": self.rk}
        return {"RM": self.rm, "RN": self.rn, **last, "W": self.w, "TM": self.tm, "TN": self.tn}

    @property
    def words(self) -> int:
        """Numbers that a thread holds."""
        return self.rm * (self.rn + self.rk) + self.rt * self.rn

    def __str__(self) -> str:
        columns = self.rn * self.tn
        name = f"panel {self.rows} x {columns}" if self.rt else f"tile {self.rows} x ({columns} + {self.rk * self.tn})"
        return f"{name}, {self.w} a program"

    def chunks(self, rhs: int) -> int:
        """Programs over which `rhs` columns of B are spread, each with all of A."""
        return math.ceil(rhs / (self.rk * self.tn))


def shares_well(tile: Tile, columns: int, rhs: int, items: int, facts) -> bool:
    """Whether each chunk of B may factor A for itself: it costs no time, or at most that of solving for the chunk."""
    chunks = tile.chunks(rhs)
    programs = math.ceil(items / tile.w) * chunks
    return chunks == 1 or 2 * tile.rk * tile.tn >= columns or programs <= (facts.multiprocessors or MULTIPROCESSORS)


def power_of_two_ceil(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def _powers(first: int, last: int):
    value = first
    while value <= last:
        yield value
        value *= 2


def candidates(rows: int, columns: int, rhs: int | None, items: int, item_bytes: int, facts):
    """Every tile that holds `rows` x `columns` of A beside at least one column of B, for `items` matrices; of those for
    panels, beside T, if `rhs` is None."""
    words = item_bytes // 4
    max_threads = min(MAX_THREADS, facts.threads_per_block)
    warp = facts.warp_size
    all_rows, all_columns = power_of_two_ceil(rows), power_of_two_ceil(columns)
    all_rhs, all_items = power_of_two_ceil(rhs or 0), power_of_two_ceil(items)
    for tn in _powers(1, min(max(all_columns, all_rhs), warp)):
        rn = max(1, all_columns // tn)
        if rn > UNROLLED_COLUMNS:
            continue
        for tm in _powers(1, min(all_rows, max_threads // tn)):
            if tm in facts.broken_reduction_lengths:  # TM is what sum_rows adds up across threads
                continue
            rm = all_rows // tm
            # With one column of each a thread, Triton gives the pivot loop a layout of its own: up to 18 KB of stack.
            least_rk = 2 if rn == 1 and tn < 4 else 1
            rt = 0 if rhs else max(1, all_columns // tm)
            for rk in _powers(least_rk, max(least_rk, all_rhs // tn)) if rhs else (0,):
                if words * Tile(rm, rn, rk, 1, tm, tn, 1, rt).words > (WORDS_A_THREAD if rhs else PANEL_WORDS_A_THREAD):
                    break
                threads = tm * tn
                # Matrices of less than a warp share one; several warps of them share a program.
                for warps in (1, 2, 4) if threads < warp else (threads // warp,):
                    w = min(max(1, warps * warp // threads), all_items)
                    yield Tile(rm, rn, rk, w, tm, tn, max(1, w * threads // warp), rt)


def cycles(tile: Tile, columns: int, rhs: int | None, items: int, item_bytes: int, facts) -> float:
    """Estimated time of `items` factorisations with `tile`: waves of programs, each limited by latency or issue."""
    words = item_bytes // 4
    programs = math.ceil(items / tile.w) * (tile.chunks(rhs) if rhs else 1)
    if facts.interpreted:  # programs run one after another and cost alike, whatever their size
        return columns * programs
    multiprocessors = facts.multiprocessors or MULTIPROCESSORS
    elements = tile.words
    column_steps = tile.tn.bit_length() - 1
    row_steps = min(tile.tm, facts.warp_size // tile.tn).bit_length() - 1
    shuffles = (tile.rm + 4) * column_steps + 2 * (tile.rn + tile.rk) * row_steps
    instructions = words * (5 * elements + 3 * shuffles) + 60
    latency = words * (PIVOT_LATENCY + SHUFFLE_LATENCY * (2 * column_steps + row_steps))
    exchange = 0
    if tile.tm * tile.tn > facts.warp_size:
        exchange = EXCHANGE * tile.num_warps * (1 if tile.rk in (0, tile.rn) else 2)
    wanted = 64 + 2 * elements * words
    registers = min(255, wanted, 65536 // (facts.warp_size * tile.num_warps))
    instructions += 4 * (wanted - registers)  # moves to and from the stack
    resident = max(1, min(32, 65536 // (registers * facts.warp_size * tile.num_warps)))
    share = min(resident, math.ceil(programs / multiprocessors))
    waves = math.ceil(programs / (multiprocessors * resident))
    issue = instructions * tile.num_warps * (facts.warp_size / 32) / 4
    alone = latency + exchange + max(instructions, issue)
    return waves * (PROGRAM_OVERHEAD + columns * max(alone, share * (exchange + issue)))


@lru_cache(maxsize=65536)
def best(rows: int, columns: int, rhs: int | None, items: int, item_bytes: int, facts) -> tuple[Tile, float] | None:
    """The cheapest tile and its cost, None where no tile holds the matrix."""
    costed = [
        (cycles(tile, columns, rhs, items, item_bytes, facts), i, tile)
        for i, tile in enumerate(candidates(rows, columns, rhs, items, item_bytes, facts))
    ]
    if not costed:
        return None
    cost, _, tile = min(costed)
    return tile, cost
