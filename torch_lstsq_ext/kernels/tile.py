"""One program solves W whole matrices in registers. Derivation and limits: routes/tile.py."""

import triton
import triton.language as tl

from .householder import (
    apply_q,
    batch_offset,
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
    tile_elements,
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
    TM: tl.constexpr,
    TN: tl.constexpr,
    WIDE: tl.constexpr,
    RESIDUALS: tl.constexpr,
    PARTIALS: tl.constexpr,
):
    """Tall or square (rows, columns) = (m, n): X = R^-1 Q^T B, residuals from the rows below.
    WIDE: the tile holds A^T, (rows, columns) = (n, m), and X = Q R^-T B. `chunks` programs share B's `rhs` columns."""
    i_program = tl.program_id(0).to(tl.int64)
    first_matrix = (i_program // chunks) * W
    first_rhs = (i_program % chunks) * (RK * TN)
    row = row_index(RM, TM)
    column = column_index(RN, TN)

    i_matrix, i_row, i_column = tile_elements(RM, RN, W, TM, TN)
    i_matrix += first_matrix
    o_a = batch_offset(i_matrix, group1, group2, a_stride0, a_stride1, a_stride2)
    o_a += i_row * a_stride_row + i_column * a_stride_column
    m_a = (i_matrix < batch) & (i_row < rows) & (i_column < columns)
    A = tl.reshape(tl.load(a_ptr + o_a, mask=m_a, other=0.0), (RM, RN, W, TM, TN))

    i_matrix, i_row, i_rhs = tile_elements(RM, RK, W, TM, TN)
    i_matrix += first_matrix
    i_rhs += first_rhs
    o_b = batch_offset(i_matrix, group1, group2, b_stride0, b_stride1, b_stride2)
    o_b += i_row * b_stride_row + i_rhs * b_stride_column
    m_b = (i_matrix < batch) & (i_rhs < rhs)
    b_rows = columns if WIDE else rows
    B = tl.reshape(tl.load(b_ptr + o_b, mask=m_b & (i_row < b_rows), other=0.0), (RM, RK, W, TM, TN))

    s_a = scaling(max_rows(exponent(A)), A.dtype)  # [RN, W, TN]
    A = A * columns_to_tile(power_of_two(s_a, A.dtype))
    s_row = rows_to_tile(columns_to_rows(s_a, row, column))
    if WIDE:
        # D A x = D b has the same solution of minimum norm
        s_b = scaling(max_rows(tl.where(B == 0, -2000, exponent(B) + s_row)), B.dtype)  # [RK, W, TN]
        B = scale_exactly(B, s_row + columns_to_tile(s_b))
        A, B = factor_and_solve_lower(A, B, columns, column, RM, RN, TM, TN)
        X = scale_exactly(apply_q(A, B, columns, RN, TN), -columns_to_tile(s_b))
        x_rows = rows
    else:
        s_b = scaling(max_rows(exponent(B)), B.dtype)
        B = B * columns_to_tile(power_of_two(s_b, B.dtype))
        A, B, inverses = factor(A, B, columns, RM, RN, TM, TN)
        if RESIDUALS:
            sum_squares = sum_rows(tl.where(rows_to_tile(row) >= columns, B * B, 0.0))  # [RK, W, TN]
            sum_squares = scale_exactly(scale_exactly(sum_squares, -s_b), -s_b)
            if PARTIALS:
                for first in range(0, partials, RM * TM):
                    o_p = (i_matrix * rhs + i_rhs) * partials + first + i_row
                    p = tl.load(partials_ptr + o_p, mask=m_b & (first + i_row < partials), other=0.0)
                    sum_squares += sum_rows(tl.reshape(p, (RM, RK, W, TM, TN)))
            r_matrix = first_matrix + tl.arange(0, W)[None, :, None]
            r_rhs = first_rhs + column_index(RK, TN)
            tl.store(residuals_ptr + r_matrix * rhs + r_rhs, sum_squares, mask=(r_matrix < batch) & (r_rhs < rhs))
        X = scale_exactly(solve_upper(A, B, inverses, columns, RM, RN, TM, TN), s_row - columns_to_tile(s_b))
        x_rows = columns
    o_x = (i_matrix * x_rows + i_row) * rhs + i_rhs
    tl.store(x_ptr + o_x, tl.reshape(X, (RM * RK * W * TM * TN,)), mask=m_b & (i_row < x_rows))
