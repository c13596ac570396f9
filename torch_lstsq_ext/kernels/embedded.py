"""Complex matrices as real ones of twice the size, and back. Derivation: routes/embedded.py.

Complex tensors come as pairs of reals; their strides count pairs. A matrix is `rows` x `columns`. ROWS_FAST: the real
matrix is stored column by column, else row by row.
"""

import triton
import triton.language as tl

from .householder import batch_offset

EMBED_SIZES = [
    "count", "rows", "columns", "group1", "group2", "stride0", "stride1", "stride2", "stride_row", "stride_column",
]  # fmt: skip


@triton.jit(do_not_specialize=EMBED_SIZES)
def embed_kernel(
    source_ptr,
    real_ptr,
    count,
    rows,
    columns,
    group1,
    group2,
    stride0,
    stride1,
    stride2,
    stride_row,
    stride_column,
    BLOCK: tl.constexpr,
    ROWS_FAST: tl.constexpr,
    OPERATOR: tl.constexpr,
):
    """[Re, -Im; Im, Re] of each matrix if OPERATOR, else [Re; Im]. count: complex numbers in all matrices."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < count
    if ROWS_FAST:
        row, column, matrix = i % rows, i // rows % columns, i // rows // columns
    else:
        column, row, matrix = i % columns, i // columns % rows, i // columns // rows
    o = batch_offset(matrix, group1, group2, stride0, stride1, stride2)
    p = source_ptr + 2 * (o + row * stride_row + column * stride_column)
    re = tl.load(p, mask=mask, other=0.0)
    im = tl.load(p + 1, mask=mask, other=0.0)
    all_columns = 2 * columns if OPERATOR else columns
    o_row = tl.where(ROWS_FAST, 1, all_columns)
    o_column = tl.where(ROWS_FAST, 2 * rows, 1)
    p = real_ptr + matrix * (2 * rows) * all_columns + row * o_row + column * o_column
    below = p + rows * o_row
    tl.store(p, re, mask=mask)
    tl.store(below, im, mask=mask)
    if OPERATOR:
        tl.store(p + columns * o_column, -im, mask=mask)
        tl.store(below + columns * o_column, re, mask=mask)


@triton.jit(do_not_specialize=["count", "size"])
def extract_kernel(real_ptr, x_ptr, count, size, BLOCK: tl.constexpr):
    """Complex X from [Re; Im]. count: complex numbers in all matrices; size: in one."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < count
    p = real_ptr + i + i // size * size
    tl.store(x_ptr + 2 * i, tl.load(p, mask=mask), mask=mask)
    tl.store(x_ptr + 2 * i + 1, tl.load(p + size, mask=mask), mask=mask)
