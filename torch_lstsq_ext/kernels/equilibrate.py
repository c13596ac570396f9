"""Between the caller's tensors and a working matrix whose columns are scaled by powers of two, which is exact.

A working matrix has its columns contiguous. Matrices that share A are one working matrix with all their right-hand
sides: its column c of them is column c % k of the caller's matrix number c // k among those that share. A batch index
is three nested loops; `group*` are the sizes of the two inner ones over what is not shared, `shared*` over what is.
"""

import triton
import triton.language as tl

from .householder import batch_offset, exponent, power_of_two, scale_exactly, scaling


@triton.jit
def column_offset(matrix, column, k, group1, group2, shared1, shared2, stride0, stride1, stride2, stride_column):
    o = batch_offset(matrix, group1, group2, stride0, stride1, stride2)
    o += batch_offset(column // k, shared1, shared2, stride0, stride1, stride2)
    return o + column % k * stride_column


@triton.jit
def load_tile(source_ptr, row, m_row, stride_row, o_column, m_column, ROWS_FAST: tl.constexpr):
    # [row, column], or [column, row] if ROWS_FAST: the source's rows lie closer together than its columns
    if ROWS_FAST:
        p = source_ptr + o_column[:, None] + row[None, :] * stride_row
        return tl.load(p, mask=m_column[:, None] & m_row[None, :], other=0.0)
    else:
        p = source_ptr + row[:, None] * stride_row + o_column[None, :]
        return tl.load(p, mask=m_row[:, None] & m_column[None, :], other=0.0)


@triton.jit
def column_scaling(exponents_ptr, matrix, column, m_column, columns, chunks, dtype: tl.constexpr):
    # The exponent of the power of two by which a column is multiplied, from its largest in each chunk of rows
    e = tl.full(column.shape, -100000, tl.int32)
    for i in range(0, chunks):
        p = exponents_ptr + (matrix * chunks + i) * columns + column
        e = tl.maximum(e, tl.load(p, mask=m_column, other=-100000))
    return scaling(e, dtype)


@triton.jit(
    do_not_specialize=[
        "rows", "columns", "chunks", "tiles", "row_columns", "row_chunks", "k", "group1", "group2", "shared1",
        "shared2", "stride0", "stride1", "stride2", "stride_row", "stride_column",
    ]
)  # fmt: skip
def exponents_kernel(
    source_ptr,
    exponents_ptr,
    row_exponents_ptr,
    rows,
    columns,
    chunks,
    tiles,
    row_columns,
    row_chunks,
    k,
    group1,
    group2,
    shared1,
    shared2,
    stride0,
    stride1,
    stride2,
    stride_row,
    stride_column,
    CHUNK: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    ROWS_FAST: tl.constexpr,
    ROWS_SCALED: tl.constexpr,
):
    """The largest exponent in each chunk of CHUNK rows of each column: exponents (matrices, chunks, columns).
    ROWS_SCALED: after rows are scaled by `row_exponents` (matrices, row_chunks, row_columns)."""
    i_program = tl.program_id(0).to(tl.int64)
    matrix = i_program // tiles // chunks
    i_chunk = i_program // tiles % chunks
    column = i_program % tiles * BN + tl.arange(0, BN)
    m_column = column < columns
    o_column = column_offset(
        matrix, column, k, group1, group2, shared1, shared2, stride0, stride1, stride2, stride_column
    )
    e = tl.full((BN,), -100000, tl.int32)
    for first in range(0, CHUNK, BM):
        row = i_chunk * CHUNK + first + tl.arange(0, BM)
        m_row = row < rows
        x = load_tile(source_ptr, row, m_row, stride_row, o_column, m_column, ROWS_FAST)
        e_x = exponent(x)
        if ROWS_SCALED:
            s = column_scaling(row_exponents_ptr, matrix, row, m_row, row_columns, row_chunks, x.dtype)
            e_x = tl.where(x == 0, -2000, e_x + (s[None, :] if ROWS_FAST else s[:, None]))
        e = tl.maximum(e, tl.max(e_x, 1 if ROWS_FAST else 0))
    tl.store(exponents_ptr + (matrix * chunks + i_chunk) * columns + column, e, mask=m_column)


@triton.jit(
    do_not_specialize=[
        "rows", "rows_out", "columns", "first_column", "matrix_stride", "chunks", "row_tiles", "column_tiles",
        "row_columns", "row_chunks", "k", "group1", "group2", "shared1", "shared2", "stride0", "stride1", "stride2",
        "stride_row", "stride_column",
    ]
)  # fmt: skip
def scaled_copy_kernel(
    source_ptr,
    w_ptr,
    exponents_ptr,
    row_exponents_ptr,
    rows,
    rows_out,
    columns,
    first_column,
    matrix_stride,
    chunks,
    row_tiles,
    column_tiles,
    row_columns,
    row_chunks,
    k,
    group1,
    group2,
    shared1,
    shared2,
    stride0,
    stride1,
    stride2,
    stride_row,
    stride_column,
    BLOCK: tl.constexpr,
    ROWS_FAST: tl.constexpr,
    ROWS_SCALED: tl.constexpr,
):
    """Columns first_column.. of the working matrix, scaled; rows from `rows` to `rows_out` are zero."""
    i_program = tl.program_id(0).to(tl.int64)
    i_tile = i_program // column_tiles
    matrix = i_tile // row_tiles
    row = i_tile % row_tiles * BLOCK + tl.arange(0, BLOCK)
    column = i_program % column_tiles * BLOCK + tl.arange(0, BLOCK)
    m_row = row < rows
    m_column = column < columns
    o_column = column_offset(
        matrix, column, k, group1, group2, shared1, shared2, stride0, stride1, stride2, stride_column
    )
    x = load_tile(source_ptr, row, m_row, stride_row, o_column, m_column, ROWS_FAST)
    if not ROWS_FAST:
        x = tl.trans(x)
    s = column_scaling(exponents_ptr, matrix, column, m_column, columns, chunks, x.dtype)[:, None]
    if ROWS_SCALED:
        s += column_scaling(row_exponents_ptr, matrix, row, m_row, row_columns, row_chunks, x.dtype)[None, :]
        x = scale_exactly(x, s)
    else:
        x = x * power_of_two(s, x.dtype)
    p = w_ptr + matrix * matrix_stride + (first_column + column)[:, None] * rows_out + row[None, :]
    tl.store(p, x, mask=m_column[:, None] & (row < rows_out)[None, :])


@triton.jit(do_not_specialize=["rows", "first_row", "columns", "first_column", "matrix_stride", "chunks", "b_chunks"])
def squares_kernel(
    w_ptr,
    exponents_ptr,
    squares_ptr,
    rows,
    first_row,
    columns,
    first_column,
    matrix_stride,
    chunks,
    b_chunks,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sums of squares of rows first_row.. of the right-hand sides, unscaled: squares (matrices, columns, chunks)."""
    i_program = tl.program_id(0).to(tl.int64)
    i_chunk = i_program % chunks
    column = i_program // chunks % columns
    matrix = i_program // chunks // columns
    w_ptr += matrix * matrix_stride + (first_column + column) * rows + first_row + i_chunk * CHUNK
    left = rows - first_row - i_chunk * CHUNK
    i = tl.arange(0, BLOCK)
    e = tl.full((BLOCK,), -2000, tl.int32)
    for first in range(0, CHUNK, BLOCK):
        e = tl.maximum(e, exponent(tl.load(w_ptr + first + i, mask=first + i < left, other=0.0)))
    s = scaling(tl.max(e, 0), w_ptr.dtype.element_ty)
    sums = tl.zeros((BLOCK,), w_ptr.dtype.element_ty)
    for first in range(0, CHUNK, BLOCK):
        x = tl.load(w_ptr + first + i, mask=first + i < left, other=0.0) * power_of_two(s, w_ptr.dtype.element_ty)
        sums += x * x
    s = -s - column_scaling(exponents_ptr, matrix, column, column < columns, columns, b_chunks, w_ptr.dtype.element_ty)
    tl.store(squares_ptr + i_program, scale_exactly(scale_exactly(tl.sum(sums, 0), s), s))


@triton.jit(
    do_not_specialize=[
        "rows", "ld", "columns", "first_column", "matrix_stride", "chunks", "row_tiles", "column_tiles", "row_columns",
        "row_chunks", "square_chunks", "k", "group1", "group2", "shared1", "shared2", "stride0", "stride1", "stride2",
    ]
)  # fmt: skip
def finish_kernel(
    w_ptr,
    exponents_ptr,
    row_exponents_ptr,
    squares_ptr,
    x_ptr,
    residuals_ptr,
    rows,
    ld,
    columns,
    first_column,
    matrix_stride,
    chunks,
    row_tiles,
    column_tiles,
    row_columns,
    row_chunks,
    square_chunks,
    k,
    group1,
    group2,
    shared1,
    shared2,
    stride0,
    stride1,
    stride2,
    BM: tl.constexpr,
    BN: tl.constexpr,
    ROWS_SCALED: tl.constexpr,
    RESIDUALS: tl.constexpr,
):
    """X (batch, rows, k) from the right-hand sides of a working matrix of `ld` rows; residuals (batch, k) from their
    squares. stride0..2: the output's batch strides in matrices."""
    i_program = tl.program_id(0).to(tl.int64)
    i_tile = i_program // column_tiles
    matrix = i_tile // row_tiles
    i_row_tile = i_tile % row_tiles
    row = i_row_tile * BM + tl.arange(0, BM)
    column = i_program % column_tiles * BN + tl.arange(0, BN)
    m_row = row < rows
    m_column = column < columns
    p = w_ptr + matrix * matrix_stride + (first_column + column)[:, None] * ld + row[None, :]
    x = tl.load(p, mask=m_column[:, None] & m_row[None, :], other=0.0)
    s = -column_scaling(exponents_ptr, matrix, column, m_column, columns, chunks, x.dtype)[:, None]
    if ROWS_SCALED:
        s += column_scaling(row_exponents_ptr, matrix, row, m_row, row_columns, row_chunks, x.dtype)[None, :]
    x = tl.trans(scale_exactly(x, s))
    i_out = column_offset(matrix, column, k, group1, group2, shared1, shared2, stride0, stride1, stride2, 0)
    o_x = (i_out * rows)[None, :] * k + row[:, None] * k + (column % k)[None, :]
    tl.store(x_ptr + o_x, x, mask=m_row[:, None] & m_column[None, :])
    if RESIDUALS:
        r = tl.zeros((BN,), x.dtype)
        for i in range(0, square_chunks):
            r += tl.load(squares_ptr + (matrix * columns + column) * square_chunks + i, mask=m_column, other=0.0)
        tl.store(residuals_ptr + i_out * k + column % k, r, mask=i_row_tile * columns + column < columns)
