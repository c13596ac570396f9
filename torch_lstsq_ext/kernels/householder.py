"""Householder QR of [A | B] held in registers: the pieces that every Householder kernel is made of.

A tile is a tensor [RM, RN, W, TM, TN]: W matrices, row r_m * TM + t_m, column t_n * RN + r_n. TN is spread over the
lanes of a warp, then TM and W over lanes and warps; RM and RN lie in a thread's registers. A column is then RM numbers
of a slice of threads and comes to all by log2(TN) shuffles; a sum over rows is RM additions, a few shuffles and, with
several warps, one exchange of RN numbers a thread. A and B are two tiles over the same threads, RN and RK columns each.

Three shapes of vector follow from a tile, each in the layout in which the tile's reductions leave it:
    over rows [RM, W, TM], over columns [RN, W, TN], over matrices [W].
The method is derived in routes/tile.py.
"""

import triton
import triton.language as tl


@triton.jit
def rows_to_tile(x):
    return tl.expand_dims(tl.expand_dims(x, 3), 1)  # [RM, W, TM] -> [RM, 1, W, TM, 1]


@triton.jit
def columns_to_tile(x):
    return tl.expand_dims(tl.expand_dims(x, 2), 0)  # [RN, W, TN] -> [1, RN, W, 1, TN]


@triton.jit
def matrices_to_vector(x):
    return tl.expand_dims(tl.expand_dims(x, 1), 0)  # [W] -> [1, W, 1], over rows or over columns


@triton.jit
def sum_rows(x):
    return tl.sum(tl.sum(x, 0), 2)  # [RM, RN, W, TM, TN] -> [RN, W, TN]


@triton.jit
def sum_rows_of_two(x, y):
    # Both sums in one exchange between warps
    return tl.split(tl.sum(tl.join(tl.sum(x, 0), tl.sum(y, 0)), 2))


@triton.jit
def sum_rows_of_four(x1, y1, x2, y2):
    # The sums of x1, y1 over the tile of A and of x2, y2 over that of B
    if x1.shape[1] == x2.shape[1]:
        one = tl.join(tl.sum(x1, 0), tl.sum(y1, 0))
        two = tl.join(tl.sum(x2, 0), tl.sum(y2, 0))
        one, two = tl.split(tl.sum(tl.join(one, two), 2))
        s1, p1 = tl.split(one)
        s2, p2 = tl.split(two)
    else:
        s1, p1 = sum_rows_of_two(x1, y1)
        s2, p2 = sum_rows_of_two(x2, y2)
    return s1, p1, s2, p2


@triton.jit
def max_rows(x):
    return tl.max(tl.max(x, 0), 2)  # [RM, RN, W, TM, TN] -> [RN, W, TN]


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
def tile_elements(RM: tl.constexpr, RN: tl.constexpr, W: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr):
    """A tile's elements as one long vector: the matrix, row and column (int64) of each.

    Tiles go to and from memory in this form because it leaves no choice of layout: thread t has every element of index
    t modulo the number of threads. The layout of a five-dimensional load is one that suits memory, in some versions
    with rows and columns in other places, and the pivot loop inherits it.
    """
    i = tl.arange(0, RM * RN * W * TM * TN)
    t_n = i % TN
    t_m = (i // TN) % TM
    i_matrix = (i // (TM * TN)) % W
    r_n = (i // (TM * TN * W)) % RN
    r_m = i // (TM * TN * W * RN)
    return i_matrix, (r_m * TM + t_m).to(tl.int64), (t_n * RN + r_n).to(tl.int64)


@triton.jit
def batch_offset(i, group1, group2, stride0, stride1, stride2):
    # Of matrix i in a batch of three nested loops, whose two inner ones have sizes group1 and group2
    return i // group2 // group1 * stride0 + i // group2 % group1 * stride1 + i % group2 * stride2


@triton.jit
def at_row(j, RM: tl.constexpr, TM: tl.constexpr, COLUMNS: tl.constexpr):
    # Over rows: whether a row is j, and whether it is j or below, for j < COLUMNS. Only a thread's first rows can be
    # above COLUMNS: the compiler knows the masks of the others.
    r_m = tl.arange(0, RM)[:, None, None]
    row = r_m * TM + tl.arange(0, TM)[None, None, :]
    first: tl.constexpr = (COLUMNS + TM - 1) // TM
    return (r_m < first) & (row == j), (r_m >= first) | (row >= j)


@triton.jit
def at_column(o, i: tl.constexpr, RN: tl.constexpr, TN: tl.constexpr):
    # Over a tile: whether a column is o * RN + i
    r_n = tl.arange(0, RN)[None, :, None, None, None]
    t_n = tl.arange(0, TN)[None, None, None, None, :]
    return (r_n == i) & (t_n == o)


@triton.jit
def take_column(C, o, i: tl.constexpr, RN: tl.constexpr, TN: tl.constexpr):
    # Column o * RN + i. Adding -0.0 changes no number, +0.0 would change -0.0: the compiler drops only the former.
    r_n = tl.arange(0, RN)[None, :, None, None, None]
    t_n = tl.arange(0, TN)[None, None, None, :]
    c = tl.sum(tl.where(r_n == i, C, -0.0), 1)  # [RM, W, TM, TN]
    return tl.sum(tl.where(t_n == o, c, -0.0), 3)  # [RM, W, TM]


@triton.jit
def take_one(x, o, i: tl.constexpr, RN: tl.constexpr, TN: tl.constexpr):
    # Entry o * RN + i of a vector over columns: [RN, W, TN] -> [W]
    r_n = tl.arange(0, RN)[:, None, None]
    t_n = tl.arange(0, TN)[None, :]
    return tl.sum(tl.where(t_n == o, tl.sum(tl.where(r_n == i, x, -0.0), 0), -0.0), 1)


@triton.jit
def exponent(x):
    # Unbiased, int32. Below every normal number's for zero and the subnormal, above it for inf and NaN.
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
    return tl.sum(tl.sum(tl.where(same, columns_to_tile(x), 0), 1), 3)


@triton.jit
def reflect(norm_squared, pivot):
    # For H c = alpha e_j: alpha, and beta = 2 / v^T v for v = c - alpha e_j. H = I, beta = 0, if c is zero.
    norm = tl.sqrt(norm_squared)
    alpha = tl.where(pivot < 0, norm, -norm)
    half_square = norm_squared + tl.abs(pivot) * norm
    return alpha, tl.where(norm_squared == 0, 0.0, 1.0 / half_square)


@triton.jit
def factor(A, B, columns, RM: tl.constexpr, RN: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr):
    # Q^T [A | B], and over rows 1 / r_jj. R stands on and above A's diagonal, what is below it is not to be read.
    # Zeros in the layout of a column. A constant would bring a layout of its own into the loop: 7 KB of stack.
    inverses = tl.sum(tl.sum(A, 1), 3) * 0.0
    for o in range(0, tl.cdiv(columns, RN)):
        for i in tl.static_range(RN):
            j = o * RN + i
            at_j, from_j = at_row(j, RM, TM, RN * TN)
            c = tl.where(from_j & (j < columns), take_column(A, o, i, RN, TN), 0.0)
            c5 = rows_to_tile(c)
            at_j5 = rows_to_tile(at_j)
            # c^T A, with c^T c in column j, c^T B, and row j of both
            s_a, p_a, s_b, p_b = sum_rows_of_four(c5 * A, tl.where(at_j5, A, -0.0), c5 * B, tl.where(at_j5, B, -0.0))
            alpha, beta = reflect(take_one(s_a, o, i, RN, TN), take_one(p_a, o, i, RN, TN))
            alpha = matrices_to_vector(alpha)
            beta = matrices_to_vector(beta)
            inverses = tl.where(at_j, 1.0 / alpha, inverses)
            v = rows_to_tile(tl.where(at_j, c - alpha, c))
            A -= v * columns_to_tile((s_a - alpha * p_a) * beta)
            B -= v * columns_to_tile((s_b - alpha * p_b) * beta)
    return A, B, inverses


@triton.jit
def solve_upper(A, B, inverses, columns, RM: tl.constexpr, RN: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr):
    # Rows 0..columns of B become R^-1 of them. inverses: 1 / r_jj, over rows.
    last = tl.cdiv(columns, RN) - 1
    for step in range(0, last + 1):
        o = last - step
        for i in tl.static_range(RN - 1, -1, -1):
            j = o * RN + i
            at_j, from_j = at_row(j, RM, TM, RN * TN)
            at_j5 = rows_to_tile(at_j)
            c = tl.where(j < columns, take_column(A, o, i, RN, TN), 0.0)
            x = columns_to_tile(sum_rows(tl.where(at_j5 & (j < columns), B * rows_to_tile(inverses), -0.0)))
            B = tl.where(rows_to_tile(from_j), B, B - rows_to_tile(c) * x)
            B = tl.where(at_j5, x, B)
    return B


@triton.jit
def factor_and_solve_lower(
    A, B, columns, column, RM: tl.constexpr, RN: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr
):
    # For A = Q R: rows 0..columns of B become R^-T of them. Column j of A becomes v sqrt(beta), H = I - v v^T beta.
    for o in range(0, tl.cdiv(columns, RN)):
        for i in tl.static_range(RN):
            j = o * RN + i
            at_j, from_j = at_row(j, RM, TM, RN * TN)
            at_j5 = rows_to_tile(at_j)
            a = tl.where(j < columns, take_column(A, o, i, RN, TN), 0.0)
            c = tl.where(from_j, a, 0.0)
            # c^T A; a[:j]^T y, r_jj y_j = b_j - a[:j]^T y; and row j of both
            s_a, p_a, s_b, p_b = sum_rows_of_four(
                rows_to_tile(c) * A,
                tl.where(at_j5, A, -0.0),
                tl.where(rows_to_tile(from_j), -0.0, rows_to_tile(a) * B),
                tl.where(at_j5, B, -0.0),
            )
            alpha, beta = reflect(take_one(s_a, o, i, RN, TN), take_one(p_a, o, i, RN, TN))
            alpha = matrices_to_vector(alpha)
            beta = matrices_to_vector(beta)
            y = columns_to_tile((p_b - s_b) * (1.0 / alpha))
            B = tl.where(at_j5 & (j < columns), y, B)
            v = tl.where(at_j, c - alpha, c)
            w = tl.where(column > j, (s_a - alpha * p_a) * beta, 0.0)
            A -= rows_to_tile(v) * columns_to_tile(w)
            A = tl.where(at_column(o, i, RN, TN), rows_to_tile(v * tl.sqrt(beta)), A)
    return A, B


@triton.jit
def apply_q(A, B, columns, RN: tl.constexpr, TN: tl.constexpr):
    # Q B, from the reflectors that factor_and_solve_lower left in A
    last = tl.cdiv(columns, RN) - 1
    for step in range(0, last + 1):
        o = last - step
        for i in tl.static_range(RN - 1, -1, -1):
            v = rows_to_tile(take_column(A, o, i, RN, TN))
            B -= v * columns_to_tile(sum_rows(v * B))
    return B


@triton.jit
def factor_panel(
    A, T, columns, column, RM: tl.constexpr, RN: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, RT: tl.constexpr
):
    # A becomes R on and above the diagonal and V, of unit diagonal, below it; T [RT, RN, W, TM, TN], zeros, the compact
    # WY factor: Q = H_0 H_1 ... = I - V T V^T.
    for o in range(0, tl.cdiv(columns, RN)):
        for i in tl.static_range(RN):
            j = o * RN + i
            at_j, from_j = at_row(j, RM, TM, RN * TN)
            at_column_j = at_column(o, i, RN, TN)
            a = take_column(A, o, i, RN, TN)
            c = tl.where(from_j & (j < columns), a, 0.0)
            # c^T V before column j, c^T c in it, c^T A behind it; and row j
            s, p = sum_rows_of_two(rows_to_tile(c) * A, tl.where(rows_to_tile(at_j), A, -0.0))
            pivot = take_one(p, o, i, RN, TN)
            alpha, beta = reflect(take_one(s, o, i, RN, TN), pivot)
            v_j = pivot - alpha
            inverse = matrices_to_vector(tl.where(v_j == 0, 0.0, 1.0 / v_j))
            tau = matrices_to_vector(beta * v_j * v_j)
            alpha = matrices_to_vector(alpha)
            y = (s - alpha * p) * matrices_to_vector(beta)
            v = tl.where(at_j, c - alpha, c)
            A -= rows_to_tile(v) * columns_to_tile(tl.where(column > j, y, 0.0))
            new = tl.where(at_j, alpha, tl.where(from_j, c * inverse, a))
            A = tl.where(at_column_j, rows_to_tile(new), A)
            # Column j of T: -tau T V^T (v / v_j), and tau on the diagonal. Its later columns are still zero.
            t = tl.sum(tl.sum(T * columns_to_tile(y), 1), 3)  # [RT, W, TM]
            at_j, _ = at_row(j, RT, TM, RN * TN)
            t = tl.where(at_j, tau, -matrices_to_vector(v_j) * t)
            T = tl.where(at_column_j, rows_to_tile(t), T)
    return A, T


@triton.jit
def contract(x, y, USE_DOT: tl.constexpr, WIDE: tl.constexpr):
    # x [M, K] y [K, N], by tl.dot, WIDE in float64, or where that is not to be trusted, as a sum of rank-1 terms
    if USE_DOT and WIDE:
        return tl.dot(x.to(tl.float64), y.to(tl.float64), out_dtype=tl.float64).to(x.dtype)
    elif USE_DOT:
        return tl.dot(x, y, input_precision="ieee", out_dtype=x.dtype)
    else:
        # Summed over the first axis: in float32 Triton makes a tl.dot of the same sum over the middle one
        return tl.sum(tl.expand_dims(tl.trans(x), 2) * tl.expand_dims(y, 1), 0)
