"""Householder panels with their compact WY form, and its application. Derivation and storage: routes/compact_wy.py.

A level's stack is the rows on which its reflectors act, `stack_rows` of them, in blocks of HEIGHT. At level 0 the
stack is the matrix from row `first` on. At a tree level (TREE) it is the triangles that the level below left: its row s
is row first + s // PANEL * stride + s % PANEL of the matrix, from column s % PANEL of the panel on.
"""

import triton
import triton.language as tl

from .householder import (
    column_index,
    columns_to_tile,
    contract,
    exponent,
    factor_panel,
    max_rows,
    power_of_two,
    row_index,
    rows_to_tile,
    scale_exactly,
    scaling,
    tile_elements,
)

PANEL_SIZES = ["rows", "matrix_stride", "items", "blocks", "first", "columns", "stack_rows", "stride"]


@triton.jit
def stack_row(s, first, stride, PANEL: tl.constexpr, TREE: tl.constexpr):
    if TREE:
        return first + s // PANEL * stride + s % PANEL
    else:
        return first + s


@triton.jit(do_not_specialize=PANEL_SIZES)
def panel_kernel(
    w_ptr,
    t_ptr,
    rows,
    matrix_stride,
    items,
    blocks,
    first,
    columns,
    stack_rows,
    stride,
    RM: tl.constexpr,
    RN: tl.constexpr,
    W: tl.constexpr,
    TM: tl.constexpr,
    TN: tl.constexpr,
    RT: tl.constexpr,
    TREE: tl.constexpr,
):
    """Factors `columns` columns from column `first` on, in place: R on and above the diagonal of each block, the
    reflectors, of unit diagonal, below it; T (items, PANEL, PANEL). items: matrices x blocks."""
    PANEL: tl.constexpr = RN * TN
    first_item = tl.program_id(0).to(tl.int64) * W
    row = row_index(RM, TM)
    column = column_index(RN, TN)

    i_item, i_row, i_column = tile_elements(RM, RN, W, TM, TN)
    i_item += first_item
    s = i_item % blocks * (RM * TM) + i_row
    o_w = i_item // blocks * matrix_stride + (first + i_column) * rows + stack_row(s, first, stride, PANEL, TREE)
    m_w = (i_item < items) & (s < stack_rows) & (i_column < columns)
    if TREE:
        m_w = m_w & (s % PANEL <= i_column)
    A = tl.reshape(tl.load(w_ptr + o_w, mask=m_w, other=0.0), (RM, RN, W, TM, TN))

    i_item, i_t, i_column = tile_elements(RT, RN, W, TM, TN)
    i_item += first_item
    # Zeros that are known at run time only: see householder.factor
    T = tl.reshape(tl.where(i_column < -columns, 1.0, 0.0).to(A.dtype), (RT, RN, W, TM, TN))

    s_a = scaling(max_rows(exponent(A)), A.dtype)  # [RN, W, TN]
    A = A * columns_to_tile(power_of_two(s_a, A.dtype))
    A, T = factor_panel(A, T, columns, column, RM, RN, TM, TN, RT)
    R = scale_exactly(A, -columns_to_tile(s_a))
    A = tl.where(rows_to_tile(row) <= columns_to_tile(column), R, A)
    tl.store(w_ptr + o_w, tl.reshape(A, (RM * RN * W * TM * TN,)), mask=m_w)
    o_t = (i_item * PANEL + i_t) * PANEL + i_column
    tl.store(t_ptr + o_t, tl.reshape(T, (RT * RN * W * TM * TN,)), mask=(i_item < items) & (i_t < PANEL))


REFLECT_SIZES = [
    "rows", "matrix_stride", "blocks", "tiles", "first", "columns", "stack_rows", "stride", "column0", "column1",
]  # fmt: skip


@triton.jit
def reflectors(w_ptr, s_local, m_row, row, first, columns, rows, PANEL: tl.constexpr, TREE: tl.constexpr):
    # V [len(s_local), PANEL] of a block: unit lower trapezoidal, what is not stored is zero
    j = tl.arange(0, PANEL)[None, :]
    m_v = m_row[:, None] & (s_local[:, None] > j) & (j < columns)
    if TREE:
        m_v = m_v & ((s_local % PANEL)[:, None] <= j)
    V = tl.load(w_ptr + (first + j).to(tl.int64) * rows + row[:, None], mask=m_v, other=0.0)
    return tl.where((s_local[:, None] == j) & (j < columns), 1.0, V)


@triton.jit(do_not_specialize=REFLECT_SIZES)
def reflect_kernel(
    w_ptr,
    t_ptr,
    rows,
    matrix_stride,
    blocks,
    tiles,
    first,
    columns,
    stack_rows,
    stride,
    column0,
    column1,
    HEIGHT: tl.constexpr,
    PANEL: tl.constexpr,
    BK: tl.constexpr,
    BN: tl.constexpr,
    TREE: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    USE_DOT: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Columns column0..column1 of each block's rows become Q^T times them (TRANSPOSED) or Q times them, Q = I - V T V^T
    of the panel at `first`. A program has one block and one of `tiles` tiles of BN columns."""
    i_program = tl.program_id(0).to(tl.int64)
    i_item = i_program // tiles
    i_block = i_item % blocks
    w_ptr += i_item // blocks * matrix_stride
    t_ptr += i_item * PANEL * PANEL
    o_c = column0 + i_program % tiles * BN + tl.arange(0, BN)
    m_c = o_c < column1
    o_c = o_c * rows
    height = tl.minimum(HEIGHT, stack_rows - i_block * HEIGHT)

    Y = tl.zeros((PANEL, BN), w_ptr.dtype.element_ty)
    for s0 in range(0, height, BK):
        s_local = s0 + tl.arange(0, BK)
        m_row = s_local < height
        row = stack_row(i_block * HEIGHT + s_local, first, stride, PANEL, TREE)
        V = reflectors(w_ptr, s_local, m_row, row, first, columns, rows, PANEL, TREE)
        C = tl.load(w_ptr + o_c[None, :] + row[:, None], mask=m_row[:, None] & m_c[None, :], other=0.0)
        Y += contract(tl.trans(V), C, USE_DOT, WIDE)

    j = tl.arange(0, PANEL)
    if USE_DOT or BN <= 8:
        o_t = j[None, :] * PANEL + j[:, None] if TRANSPOSED else j[:, None] * PANEL + j[None, :]
        Y = contract(tl.load(t_ptr + o_t), Y, USE_DOT, WIDE)
    else:  # rank-1 terms one by one: together they fill the registers
        S = Y
        Y = tl.zeros((PANEL, BN), w_ptr.dtype.element_ty)
        for i in range(0, PANEL):
            t = tl.load(t_ptr + (i * PANEL + j if TRANSPOSED else j * PANEL + i))
            Y += t[:, None] * tl.sum(tl.where(j[:, None] == i, S, 0.0), 0)[None, :]

    for s0 in range(0, height, BK):
        s_local = s0 + tl.arange(0, BK)
        m_row = s_local < height
        row = stack_row(i_block * HEIGHT + s_local, first, stride, PANEL, TREE)
        V = reflectors(w_ptr, s_local, m_row, row, first, columns, rows, PANEL, TREE)
        p_c = w_ptr + o_c[None, :] + row[:, None]
        m_w = m_row[:, None] & m_c[None, :]
        C = tl.load(p_c, mask=m_w, other=0.0)
        tl.store(p_c, C - contract(V, Y, USE_DOT, WIDE), mask=m_w)
