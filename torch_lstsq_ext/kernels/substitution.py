"""Blocked substitution with a triangle that lies in a working matrix. Used by routes/compact_wy.py.

A lower triangle is an upper one read backwards: offsets at its last element, strides negative.
"""

import triton
import triton.language as tl

from .householder import column_index, columns_to_tile, contract, row_index, rows_to_tile, solve_upper, tile_elements

TRIANGLE_SIZES = [
    "matrix_stride", "size", "rhs", "batch", "chunks", "r_offset", "r_stride_row", "r_stride_column", "b_offset",
    "b_stride_row", "b_stride_column",
]  # fmt: skip


@triton.jit(do_not_specialize=TRIANGLE_SIZES)
def triangle_kernel(
    w_ptr,
    matrix_stride,
    size,
    rhs,
    batch,
    chunks,
    r_offset,
    r_stride_row,
    r_stride_column,
    b_offset,
    b_stride_row,
    b_stride_column,
    RM: tl.constexpr,
    RN: tl.constexpr,
    RK: tl.constexpr,
    W: tl.constexpr,
    TM: tl.constexpr,
    TN: tl.constexpr,
):
    """B (size, rhs) becomes R^-1 B for the upper triangle R of that size. A program has W matrices, a chunk of B."""
    i_program = tl.program_id(0).to(tl.int64)
    first_matrix = i_program // chunks * W
    row = row_index(RM, TM)

    i_matrix, i_row, i_column = tile_elements(RM, RN, W, TM, TN)
    i_matrix += first_matrix
    o_r = i_matrix * matrix_stride + r_offset + i_row * r_stride_row + i_column * r_stride_column
    m_r = (i_matrix < batch) & (i_row <= i_column) & (i_column < size)
    R = tl.reshape(tl.load(w_ptr + o_r, mask=m_r, other=0.0), (RM, RN, W, TM, TN))

    i_matrix, i_row, i_rhs = tile_elements(RM, RK, W, TM, TN)
    i_matrix += first_matrix
    i_rhs += i_program % chunks * (RK * TN)
    o_b = i_matrix * matrix_stride + b_offset + i_row * b_stride_row + i_rhs * b_stride_column
    m_b = (i_matrix < batch) & (i_row < size) & (i_rhs < rhs)
    B = tl.reshape(tl.load(w_ptr + o_b, mask=m_b, other=0.0), (RM, RK, W, TM, TN))

    diagonal = rows_to_tile(row) == columns_to_tile(column_index(RN, TN))
    inverses = 1.0 / tl.sum(tl.sum(tl.where(diagonal, R, 0.0), 1), 3)  # [RM, W, TM]
    B = solve_upper(R, B, inverses, size, RM, RN, TM, TN)
    tl.store(w_ptr + o_b, tl.reshape(B, (RM * RK * W * TM * TN,)), mask=m_b)


PRODUCT_SIZES = [
    "matrix_stride", "rows", "depth", "rhs", "row_tiles", "rhs_tiles", "r_offset", "r_stride_row", "r_stride_column",
    "x_offset", "c_offset", "ld",
]  # fmt: skip


@triton.jit(do_not_specialize=PRODUCT_SIZES)
def product_kernel(
    w_ptr,
    matrix_stride,
    rows,
    depth,
    rhs,
    row_tiles,
    rhs_tiles,
    r_offset,
    r_stride_row,
    r_stride_column,
    x_offset,
    c_offset,
    ld,
    BM: tl.constexpr,
    BK: tl.constexpr,
    BN: tl.constexpr,
    USE_DOT: tl.constexpr,
    WIDE: tl.constexpr,
):
    """C (rows, rhs) -= R (rows, depth) X (depth, rhs), all of them parts of the working matrix."""
    i_program = tl.program_id(0).to(tl.int64)
    i_tile = i_program // rhs_tiles
    w_ptr += i_tile // row_tiles * matrix_stride
    i = i_tile % row_tiles * BM + tl.arange(0, BM)
    c = i_program % rhs_tiles * BN + tl.arange(0, BN)
    S = tl.zeros((BM, BN), w_ptr.dtype.element_ty)
    for k0 in range(0, depth, BK):
        k = (k0 + tl.arange(0, BK)).to(tl.int64)
        o_r = r_offset + i[:, None] * r_stride_row + k[None, :] * r_stride_column
        R = tl.load(w_ptr + o_r, mask=(i[:, None] < rows) & (k[None, :] < depth), other=0.0)
        o_x = x_offset + k[:, None] + c[None, :] * ld
        X = tl.load(w_ptr + o_x, mask=(k[:, None] < depth) & (c[None, :] < rhs), other=0.0)
        S += contract(R, X, USE_DOT, WIDE)
    p_c = w_ptr + c_offset + i[:, None] + c[None, :] * ld
    m_c = (i[:, None] < rows) & (c[None, :] < rhs)
    tl.store(p_c, tl.load(p_c, mask=m_c, other=0.0) - S, mask=m_c)
