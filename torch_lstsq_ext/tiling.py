"""How a tile of [A | B] is laid over the threads of a program. Pure arithmetic on shapes and facts."""

from __future__ import annotations

import math
from dataclasses import dataclass

# 32-bit words of [A | B] that a thread keeps in registers. Above this the kernels spill (measured ahead of time for
# sm_90: 72 words leave 0 to 32 bytes of stack, 80 and more over 100).
WORDS_A_THREAD = 72
# Columns that a thread owns, and so the length of the kernels' unrolled loop: 16 double the compile time of 8.
UNROLLED_COLUMNS = 8
MAX_THREADS = 512  # 1024 would leave 64 registers a thread

# The cost model, in cycles of a multiprocessor. Only ratios matter.
PIVOT_LATENCY = 400  # the chain of one column: two sums over rows, square root, reciprocal
BARRIER_LATENCY = 150  # a sum that crosses warps
PROGRAM_OVERHEAD = 2000  # launch, loads, stores


@dataclass(frozen=True)
class Tile:
    """[A | B] as a tensor [rm, rn + rk, w, tn, tm]: see kernels/householder.py."""

    rm: int
    rn: int
    rk: int
    w: int
    tn: int
    tm: int
    num_warps: int

    @property
    def rows(self) -> int:
        return self.rm * self.tm

    @property
    def rhs(self) -> int:
        return self.rk * self.tn

    @property
    def constexprs(self) -> dict[str, int]:
        return {"RM": self.rm, "RN": self.rn, "RK": self.rk, "W": self.w, "TN": self.tn, "TM": self.tm}


def power_of_two_ceil(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def _powers(first: int, last: int):
    value = first
    while value <= last:
        yield value
        value *= 2


def candidates(rows: int, columns: int, rhs: int, items: int, item_bytes: int, facts):
    """Every tile that holds `rows` x `columns` of A beside at least one column of B, for `items` matrices."""
    words = item_bytes // 4
    max_threads = min(MAX_THREADS, facts.threads_per_block)
    warp = facts.warp_size
    all_rows, all_columns = power_of_two_ceil(rows), power_of_two_ceil(columns)
    all_rhs, all_items = power_of_two_ceil(rhs), power_of_two_ceil(items)
    for tm in _powers(1, min(all_rows, warp)):
        rm = all_rows // tm
        for tn in _powers(1, max(all_columns, min(all_rhs, 128))):
            threads = tm * tn
            if threads > max_threads:
                break
            rn = max(1, all_columns // tn)
            if rn > UNROLLED_COLUMNS or rm * (rn + 1) * words > WORDS_A_THREAD:
                continue
            rk = max(1, all_rhs // tn)
            while rm * (rn + rk) * words > WORDS_A_THREAD:
                rk //= 2
            # Matrices of less than a warp share one; several warps of them share a program.
            for warps in (1, 2, 4) if threads < warp else (max(1, threads // warp),):
                w = min(max(1, warps * warp // threads), all_items)
                num_warps = max(1, w * threads // warp)
                yield Tile(rm, rn, rk, w, tn, tm, num_warps)


def cycles(tile: Tile, columns: int, rhs: int, items: int, item_bytes: int, facts) -> float:
    """Estimated time of `items` factorisations with `tile`: waves of programs, each limited by latency or issue."""
    words = item_bytes // 4
    if facts.interpreted:  # programs run one after another and cost alike, whatever their size
        return columns * math.ceil(items / tile.w) * math.ceil(rhs / tile.rhs)
    multiprocessors = facts.multiprocessors or 100
    elements = tile.rm * (tile.rn + tile.rk)
    shuffles = (tile.rn + tile.rk + 2) * min(tile.tm, facts.warp_size).bit_length()
    instructions = words * (5 * elements + 2 * shuffles) + 40
    latency = PIVOT_LATENCY + (BARRIER_LATENCY if tile.num_warps > 1 and tile.tn > 1 else 0)
    registers = min(255, 48 + 2 * elements * words)
    resident = max(1, min(32, 65536 // (registers * facts.warp_size * tile.num_warps)))
    programs = math.ceil(items / tile.w) * math.ceil(rhs / tile.rhs)
    share = min(resident, math.ceil(programs / multiprocessors))
    waves = math.ceil(programs / (multiprocessors * resident))
    issue = instructions * tile.num_warps * (facts.warp_size / 32) * share / 4
    return waves * (PROGRAM_OVERHEAD + columns * max(latency + instructions, issue))


def best(rows: int, columns: int, rhs: int, items: int, item_bytes: int, facts) -> tuple[Tile, float] | None:
    """The cheapest tile and its cost, None where no tile holds the matrix."""
    costed = [
        (cycles(tile, columns, rhs, items, item_bytes, facts), i, tile)
        for i, tile in enumerate(candidates(rows, columns, rhs, items, item_bytes, facts))
    ]
    if not costed:
        return None
    cost, _, tile = min(costed)
    return tile, cost
