"""Householder QR of [A | B] held in registers: the pieces that every Householder kernel is made of.

A tile is a tensor [RM, RN, W, TN, TM]: W matrices, row r_m * TM + t_m, column t_n * RN + r_n. Triton's default layout
gives TM to the lanes of a warp, then TN and W to lanes and warps, and keeps RM and RN in a thread's registers. A
column is then RM numbers of one slice of threads, and a sum over rows is RM additions and log2(TM) shuffles.

Three shapes of vector follow from a tile, each in the layout in which the tile's reductions leave it:
    over rows [RM, W, TM], over columns [RN, W, TN], over matrices [W].
The method is derived in routes/tile.py.
"""

import triton
import triton.language as tl


@triton.jit
def rows_to_tile(x):
    return tl.expand_dims(tl.expand_dims(x, 2), 1)  # [RM, W, TM] -> [RM, 1, W, 1, TM]


@triton.jit
def columns_to_tile(x):
    return tl.expand_dims(tl.expand_dims(x, 3), 0)  # [RN, W, TN] -> [1, RN, W, TN, 1]


@triton.jit
def matrices_to_vector(x):
    return tl.expand_dims(tl.expand_dims(x, 1), 0)  # [W] -> [1, W, 1], over rows or over columns


@triton.jit
def sum_rows(x):
    return tl.sum(tl.sum(x, 0), 3)  # [RM, RN, W, TN, TM] -> [RN, W, TN]


@triton.jit
def max_rows(x):
    return tl.max(tl.max(x, 0), 3)  # [RM, RN, W, TN, TM] -> [RN, W, TN]


@triton.jit
def sum_vector(x):
    return tl.sum(tl.sum(x, 0), 1)  # [RM, W, TM] -> [W]


@triton.jit
def row_index(RM: tl.constexpr, TM: tl.constexpr):
    r_m = tl.arange(0, RM)[:, None, None]
    t_m = tl.arange(0, TM)[None, None, :]
    return r_m * TM + t_m  # [RM, 1, TM]


@triton.jit
def column_index(RN: tl.constexpr, TN: tl.constexpr):
    r_n = tl.arange(0, RN)[:, None, None]
    t_n = tl.arange(0, TN)[None, None, :]
    return t_n * RN + r_n  # [RN, 1, TN]


@triton.jit
def tile_offsets(base, row, column, row_stride, column_stride):
    # base [W], row [RM, 1, TM], column [RN, 1, TN] -> int64 [RM, RN, W, TN, TM]
    o_row = rows_to_tile(row.to(tl.int64) * row_stride)
    o_column = columns_to_tile(column.to(tl.int64) * column_stride)
    return base[None, None, :, None, None] + o_row + o_column


@triton.jit
def tile_mask(inside, row, column, rows, columns):
    m_row = rows_to_tile(row < rows)
    m_column = columns_to_tile(column < columns)
    return inside[None, None, :, None, None] & m_row & m_column


@triton.jit
def take_column(A, o, i: tl.constexpr, RN: tl.constexpr, TN: tl.constexpr):
    # Column o * RN + i. Adding -0.0 changes no number, +0.0 would change -0.0: the compiler drops only the former.
    r_n = tl.arange(0, RN)[None, :, None, None, None]
    t_n = tl.arange(0, TN)[None, None, :, None]
    c = tl.sum(tl.where(r_n == i, A, -0.0), 1)  # [RM, W, TN, TM]
    return tl.sum(tl.where(t_n == o, c, -0.0), 2)  # [RM, W, TM]


@triton.jit
def exponent(x):
    # Unbiased, int32; a zero or subnormal number gives the smallest normal's less one, inf and NaN the largest's plus one.
    if x.dtype == tl.float64:
        return ((x.to(tl.int64, bitcast=True) >> 52) & 0x7FF).to(tl.int32) - 1023
    else:
        return ((x.to(tl.int32, bitcast=True) >> 23) & 0xFF) - 127


@triton.jit
def clamp_exponent(e, dtype: tl.constexpr):
    if dtype == tl.float64:
        return tl.minimum(tl.maximum(e, -1022), 1023)
    else:
        return tl.minimum(tl.maximum(e, -126), 127)


@triton.jit
def power_of_two(e, dtype: tl.constexpr):
    if dtype == tl.float64:
        return ((clamp_exponent(e, dtype).to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)
    else:
        return ((clamp_exponent(e, dtype) + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def scale_exactly(x, e):
    # x * 2^e where 2^e alone may lie outside the format
    half = e >> 1
    return x * power_of_two(half, x.dtype) * power_of_two(e - half, x.dtype)


@triton.jit
def scaling(e_max, dtype: tl.constexpr):
    # The power of two that brings a largest exponent to 2^40 (2^300): squares of m such numbers do not overflow, and
    # what elimination leaves of them may be 2^100 (2^800) times smaller before its square underflows.
    if dtype == tl.float64:
        return clamp_exponent(300 - e_max, dtype)
    else:
        return clamp_exponent(40 - e_max, dtype)


@triton.jit
def columns_to_rows(x, row, column):
    # x [RN, W, TN], one number a column -> [RM, W, TM], the same number at the row of that index
    same = rows_to_tile(row) == columns_to_tile(column)
    return tl.sum(tl.sum(tl.where(same, columns_to_tile(x), 0), 1), 2)


@triton.jit
def reflector(c, row, j):
    # The reflector that takes c [RM, W, TM], from row j down, to alpha e_j. v, v / (v^T v / 2), alpha; H = I if c is 0.
    c = tl.where(row >= j, c, 0.0)
    pivot = sum_vector(tl.where(row == j, c, 0.0))
    norm_squared = sum_vector(c * c)
    norm = tl.sqrt(norm_squared)
    alpha = tl.where(pivot < 0, norm, -norm)
    half_square = norm_squared + tl.abs(pivot) * norm
    beta = tl.where(norm_squared == 0, 0.0, 1.0 / half_square)
    v = tl.where(row == j, c - matrices_to_vector(alpha), c)
    return v, v * matrices_to_vector(beta), alpha


@triton.jit
def apply(v, v_scaled, A):
    # H A = A - v (v_scaled^T A)
    w = sum_rows(rows_to_tile(v_scaled) * A)
    return A - rows_to_tile(v) * columns_to_tile(w)


@triton.jit
def factor(A, B, columns, row, RN: tl.constexpr, TN: tl.constexpr):
    # Q^T [A | B]; R stands on and above A's diagonal, what is below it is not to be read.
    for o in range(0, tl.cdiv(columns, RN)):
        for i in tl.static_range(RN):
            j = o * RN + i
            v, v_scaled, _ = reflector(take_column(A, o, i, RN, TN), row, j)
            A = apply(v, v_scaled, A)
            B = apply(v, v_scaled, B)
    return A, B


@triton.jit
def solve_upper(A, B, columns, row, RN: tl.constexpr, TN: tl.constexpr):
    # Rows 0..columns of B become R^-1 of them.
    row5 = rows_to_tile(row)
    last = tl.cdiv(columns, RN) - 1
    for step in range(0, last + 1):
        o = last - step
        for i in tl.static_range(RN - 1, -1, -1):
            j = o * RN + i
            c = take_column(A, o, i, RN, TN)
            r = sum_vector(tl.where(row == j, c, 0.0))
            b = sum_rows(tl.where(row5 == j, B, 0.0))
            x = tl.where(j < columns, b / matrices_to_vector(r), 0.0)
            x5 = columns_to_tile(x)
            B = tl.where(row5 < j, B - rows_to_tile(c) * x5, tl.where(row5 == j, x5, B))
    return B


@triton.jit
def factor_and_solve_lower(A, B, columns, row, column, RN: tl.constexpr, TN: tl.constexpr):
    # For A = Q R: rows 0..columns of B become R^-T of them. Column j of A keeps R above its diagonal and the
    # reflector, scaled to 1 at row j, below.
    row5 = rows_to_tile(row)
    column5 = columns_to_tile(column)
    for o in range(0, tl.cdiv(columns, RN)):
        for i in tl.static_range(RN):
            j = o * RN + i
            c = take_column(A, o, i, RN, TN)
            v, v_scaled, alpha = reflector(c, row, j)
            solved = sum_rows(rows_to_tile(tl.where(row < j, c, 0.0)) * B)
            b = sum_rows(tl.where(row5 == j, B, 0.0))
            y = tl.where(j < columns, (b - solved) / matrices_to_vector(alpha), 0.0)
            B = tl.where(row5 == j, columns_to_tile(y), B)

            w = tl.where(column > j, sum_rows(rows_to_tile(v_scaled) * A), 0.0)
            head = sum_vector(tl.where(row == j, v, 0.0))
            below = tl.where(matrices_to_vector(head) == 0, 0.0, v / matrices_to_vector(head))
            kept = tl.where(row > j, below, c)
            A = A - rows_to_tile(v) * columns_to_tile(w)
            A = tl.where(column5 == j, rows_to_tile(kept), A)
    return A, B


@triton.jit
def apply_q(A, B, columns, row, RN: tl.constexpr, TN: tl.constexpr):
    # Q B, from the reflectors that factor_and_solve_lower left below A's diagonal
    last = tl.cdiv(columns, RN) - 1
    for step in range(0, last + 1):
        o = last - step
        for i in tl.static_range(RN - 1, -1, -1):
            j = o * RN + i
            c = take_column(A, o, i, RN, TN)
            v = tl.where(row > j, c, tl.where(row == j, 1.0, 0.0).to(c.dtype))
            tau = tl.where(j < columns, 2.0 / sum_vector(v * v), 0.0)
            B = apply(v, v * matrices_to_vector(tau), B)
    return B
