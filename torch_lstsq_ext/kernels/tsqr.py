"""One level of the tall-skinny QR tree. Derivation and limits: routes/tsqr.py."""

import triton
import triton.language as tl

from .householder import (
    column_index,
    columns_to_tile,
    exponent,
    factor,
    max_rows,
    power_of_two,
    row_index,
    rows_to_tile,
    scale_exactly,
    scaling,
    sum_rows,
    tile_mask,
    tile_offsets,
)

SIZES = [
    "rows", "columns", "rhs", "batch", "chunks", "group1", "group2", "blocks", "partials", "first_partial",
    "a_stride0", "a_stride1", "a_stride2", "a_stride_row", "a_stride_column",
    "b_stride0", "b_stride1", "b_stride2", "b_stride_row", "b_stride_column",
]  # fmt: skip


@triton.jit(do_not_specialize=SIZES)
def tsqr_kernel(
    a_ptr,
    b_ptr,
    stack_ptr,
    partials_ptr,
    rows,
    columns,
    rhs,
    batch,
    chunks,
    group1,
    group2,
    blocks,
    partials,
    first_partial,
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
    RESIDUALS: tl.constexpr,
):
    """Blocks of RM * TM rows of [A | B] become R and the top of Q^T B, `columns` rows each, in the stack
    (batch, columns + rhs, blocks * columns); what is left of B adds its squares to partials (batch, rhs, partials)."""
    i_program = tl.program_id(0).to(tl.int64)
    i_chunk = i_program % chunks
    i_block = (i_program // chunks) * W + tl.arange(0, W)  # [W], over all matrices
    i_matrix = i_block // blocks
    i_block = i_block % blocks
    inside = i_matrix < batch
    i2 = i_matrix % group2
    i1 = (i_matrix // group2) % group1
    i0 = i_matrix // group2 // group1

    row = row_index(RM, TM)
    column = column_index(RN, TN)
    rhs_column = i_chunk * (RK * TN) + column_index(RK, TN)
    first = i_block * (RM * TM)  # [W]
    m_row = (row + first[None, :, None]) < rows  # [RM, W, TM]

    a_base = i0 * a_stride0 + i1 * a_stride1 + i2 * a_stride2 + first * a_stride_row
    o_a = tile_offsets(a_base, row, column, a_stride_row, a_stride_column)
    m_a = tile_mask(inside, row, column, rows, columns) & rows_to_tile(m_row)
    A = tl.load(a_ptr + o_a, mask=m_a, other=0.0)
    b_base = i0 * b_stride0 + i1 * b_stride1 + i2 * b_stride2 + first * b_stride_row
    o_b = tile_offsets(b_base, row, rhs_column, b_stride_row, b_stride_column)
    m_b = tile_mask(inside, row, rhs_column, rows, rhs) & rows_to_tile(m_row)
    B = tl.load(b_ptr + o_b, mask=m_b, other=0.0)

    s_a = scaling(max_rows(exponent(A)), A.dtype)  # [RN, W, TN]
    A = A * columns_to_tile(power_of_two(s_a, A.dtype))
    s_b = scaling(max_rows(exponent(B)), B.dtype)  # [RK, W, TN]
    B = B * columns_to_tile(power_of_two(s_b, B.dtype))
    A, B = factor(A, B, columns, row, RN, TN)

    if RESIDUALS:
        sum_squares = sum_rows(tl.where(rows_to_tile(row) >= columns, B * B, 0.0))  # [RK, W, TN]
        sum_squares = scale_exactly(scale_exactly(sum_squares, -s_b), -s_b)
        o_p = (i_matrix[None, :, None] * rhs + rhs_column) * partials + first_partial + i_block[None, :, None]
        tl.store(partials_ptr + o_p, sum_squares, mask=inside[None, :, None] & (rhs_column < rhs))

    height = (blocks * columns).to(tl.int64)
    base = i_matrix * (columns + rhs) * height + i_block * columns
    R = tl.where(rows_to_tile(row) <= columns_to_tile(column), A, 0.0)
    R = scale_exactly(R, -columns_to_tile(s_a))
    o_r = tile_offsets(base, row, column, 1, height)
    m_r = tile_mask(inside, row, column, tl.where(i_chunk == 0, columns, 0), columns)
    tl.store(stack_ptr + o_r, R, mask=m_r)
    C = scale_exactly(B, -columns_to_tile(s_b))
    o_c = tile_offsets(base + columns * height, row, rhs_column, 1, height)
    tl.store(stack_ptr + o_c, C, mask=tile_mask(inside, row, rhs_column, columns, rhs))
