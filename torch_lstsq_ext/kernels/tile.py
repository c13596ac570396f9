"""One program solves W whole matrices in registers. Derivation and limits: routes/tile.py."""

import triton
import triton.language as tl

from .householder import (
    apply_q,
    column_index,
    columns_to_rows,
    columns_to_tile,
    exponent,
    factor,
    factor_and_solve_lower,
    max_rows,
    power_of_two,
    row_index,
    rows_to_tile,
    scale_exactly,
    scaling,
    solve_upper,
    sum_rows,
    tile_mask,
    tile_offsets,
)

SIZES = [
    "rows", "columns", "rhs", "batch", "chunks", "group1", "group2", "partials",
    "a_stride0", "a_stride1", "a_stride2", "a_stride_row", "a_stride_column",
    "b_stride0", "b_stride1", "b_stride2", "b_stride_row", "b_stride_column",
]  # fmt: skip


@triton.jit(do_not_specialize=SIZES)
def tile_kernel(
    a_ptr,
    b_ptr,
    x_ptr,
    residuals_ptr,
    partials_ptr,
    rows,
    columns,
    rhs,
    batch,
    chunks,
    group1,
    group2,
    partials,
    a_stride0,
    a_stride1,
    a_stride2,
    a_stride_row,
    a_stride_column,
    b_stride0,
    b_stride1,
    b_stride2,
    b_stride_row,
    b_stride_column,
    RM: tl.constexpr,
    RN: tl.constexpr,
    RK: tl.constexpr,
    W: tl.constexpr,
    TN: tl.constexpr,
    TM: tl.constexpr,
    WIDE: tl.constexpr,
    RESIDUALS: tl.constexpr,
    PARTIALS: tl.constexpr,
):
    """Tall or square (rows, columns) = (m, n): X = R^-1 Q^T B, residuals from the rows below.
    WIDE: the tile holds A^T, (rows, columns) = (n, m), and X = Q R^-T B. `rhs` columns of B in `chunks` chunks."""
    i_program = tl.program_id(0).to(tl.int64)
    i_chunk = i_program % chunks
    i_matrix = (i_program // chunks) * W + tl.arange(0, W)  # [W]
    inside = i_matrix < batch
    i2 = i_matrix % group2
    i1 = (i_matrix // group2) % group1
    i0 = i_matrix // group2 // group1

    row = row_index(RM, TM)
    column = column_index(RN, TN)
    rhs_column = i_chunk * (RK * TN) + column_index(RK, TN)
    if WIDE:
        b_rows = columns
    else:
        b_rows = rows

    a_base = i0 * a_stride0 + i1 * a_stride1 + i2 * a_stride2
    o_a = tile_offsets(a_base, row, column, a_stride_row, a_stride_column)
    A = tl.load(a_ptr + o_a, mask=tile_mask(inside, row, column, rows, columns), other=0.0)
    b_base = i0 * b_stride0 + i1 * b_stride1 + i2 * b_stride2
    o_b = tile_offsets(b_base, row, rhs_column, b_stride_row, b_stride_column)
    B = tl.load(b_ptr + o_b, mask=tile_mask(inside, row, rhs_column, b_rows, rhs), other=0.0)

    s_a = scaling(max_rows(exponent(A)), A.dtype)  # [RN, W, TN]
    A = A * columns_to_tile(power_of_two(s_a, A.dtype))
    s_row = rows_to_tile(columns_to_rows(s_a, row, column))
    if WIDE:
        # D A x = D b has the same solution of minimum norm
        s_b = scaling(max_rows(tl.where(B == 0, -2000, exponent(B) + s_row)), B.dtype)
        B = scale_exactly(B, s_row + columns_to_tile(s_b))
        A, B = factor_and_solve_lower(A, B, columns, row, column, RN, TN)
        B = apply_q(A, B, columns, row, RN, TN)
        X = scale_exactly(B, -columns_to_tile(s_b))
        x_rows = rows
    else:
        s_b = scaling(max_rows(exponent(B)), B.dtype)
        B = B * columns_to_tile(power_of_two(s_b, B.dtype))
        A, B = factor(A, B, columns, row, RN, TN)
        if RESIDUALS:
            sum_squares = sum_rows(tl.where(rows_to_tile(row) >= columns, B * B, 0.0))  # [RK, W, TN]
            sum_squares = scale_exactly(scale_exactly(sum_squares, -s_b), -s_b)
            m_rhs = inside[None, :, None] & (rhs_column < rhs)
            o_rhs = i_matrix[None, :, None] * rhs + rhs_column
            if PARTIALS:
                for first in range(0, partials, RM * TM):
                    o_p = tile_offsets(i_matrix * rhs * partials, row + first, rhs_column, 1, partials)
                    m_p = tile_mask(inside, row + first, rhs_column, partials, rhs)
                    sum_squares += sum_rows(tl.load(partials_ptr + o_p, mask=m_p, other=0.0))
            tl.store(residuals_ptr + o_rhs, sum_squares, mask=m_rhs)
        B = solve_upper(A, B, columns, row, RN, TN)
        X = scale_exactly(B, s_row - columns_to_tile(s_b))
        x_rows = columns
    o_x = tile_offsets(i_matrix * x_rows * rhs, row, rhs_column, rhs, 1)
    tl.store(x_ptr + o_x, X, mask=tile_mask(inside, row, rhs_column, x_rows, rhs))
