"""One level of the tall-skinny QR tree. Derivation and limits: routes/tsqr.py."""

import triton
import triton.language as tl

from .householder import (
    batch_offset,
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
    tile_elements,
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
    TM: tl.constexpr,
    TN: tl.constexpr,
):
    """Blocks of RM * TM rows of [A | B] become R and the top of Q^T B, `columns` rows each, in the stack
    (batch, columns + rhs, blocks * columns); what is left of B adds its squares to partials (batch, rhs, partials)."""
    i_program = tl.program_id(0).to(tl.int64)
    i_chunk = i_program % chunks
    first_block = (i_program // chunks) * W  # over all matrices
    first_rhs = i_chunk * (RK * TN)
    row = row_index(RM, TM)
    column = column_index(RN, TN)

    i_block, i_row, i_column = tile_elements(RM, RN, W, TM, TN)
    i_block += first_block
    i_matrix, i_block = i_block // blocks, i_block % blocks
    a_row = i_block * (RM * TM) + i_row
    o_a = batch_offset(i_matrix, group1, group2, a_stride0, a_stride1, a_stride2)
    o_a += a_row * a_stride_row + i_column * a_stride_column
    m_a = (i_matrix < batch) & (i_column < columns)
    A = tl.reshape(tl.load(a_ptr + o_a, mask=m_a & (a_row < rows), other=0.0), (RM, RN, W, TM, TN))
    o_r = ((i_matrix * (columns + rhs) + i_column) * blocks + i_block) * columns + i_row
    # Every chunk makes R; the first one writes it.
    m_r = m_a & (i_row < columns) & (i_column < tl.where(i_chunk == 0, columns, 0))

    i_block, i_row, i_rhs = tile_elements(RM, RK, W, TM, TN)
    i_block += first_block
    i_rhs += first_rhs
    i_matrix, i_block = i_block // blocks, i_block % blocks
    b_row = i_block * (RM * TM) + i_row
    o_b = batch_offset(i_matrix, group1, group2, b_stride0, b_stride1, b_stride2)
    o_b += b_row * b_stride_row + i_rhs * b_stride_column
    m_b = (i_matrix < batch) & (i_rhs < rhs)
    B = tl.reshape(tl.load(b_ptr + o_b, mask=m_b & (b_row < rows), other=0.0), (RM, RK, W, TM, TN))
    o_c = ((i_matrix * (columns + rhs) + columns + i_rhs) * blocks + i_block) * columns + i_row

    s_a = scaling(max_rows(exponent(A)), A.dtype)  # [RN, W, TN]
    A = A * columns_to_tile(power_of_two(s_a, A.dtype))
    s_b = scaling(max_rows(exponent(B)), B.dtype)  # [RK, W, TN]
    B = B * columns_to_tile(power_of_two(s_b, B.dtype))
    A, B, _ = factor(A, B, columns, RM, RN, TM, TN)

    sum_squares = sum_rows(tl.where(rows_to_tile(row) >= columns, B * B, 0.0))  # [RK, W, TN]
    sum_squares = scale_exactly(scale_exactly(sum_squares, -s_b), -s_b)
    r_block = first_block + tl.arange(0, W)[None, :, None]
    r_rhs = first_rhs + column_index(RK, TN)
    o_p = (r_block // blocks * rhs + r_rhs) * partials + first_partial + r_block % blocks
    tl.store(partials_ptr + o_p, sum_squares, mask=(r_block // blocks < batch) & (r_rhs < rhs))

    R = tl.where(rows_to_tile(row) <= columns_to_tile(column), scale_exactly(A, -columns_to_tile(s_a)), 0.0)
    tl.store(stack_ptr + o_r, tl.reshape(R, (RM * RN * W * TM * TN,)), mask=m_r)
    top = scale_exactly(B, -columns_to_tile(s_b))
    tl.store(stack_ptr + o_c, tl.reshape(top, (RM * RK * W * TM * TN,)), mask=m_b & (i_row < columns))
