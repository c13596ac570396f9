"""The probes' kernels. Not to be imported before the simulator, if any, is active.

Each stores what the host can predict. A matrix is row-major, its extents are powers of two.
"""

import triton
import triton.language as tl


@triton.jit
def arithmetic_kernel(a_ptr, b_ptr, out_ptr, N: tl.constexpr):
    """out (4, N) = a + b, a * b, a / b, sqrt(a)."""
    i = tl.arange(0, N)
    a, b = tl.load(a_ptr + i), tl.load(b_ptr + i)
    tl.store(out_ptr + i, a + b)
    tl.store(out_ptr + N + i, a * b)
    tl.store(out_ptr + 2 * N + i, a / b)
    tl.store(out_ptr + 3 * N + i, tl.sqrt(a))


@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, K, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr, USE_DOT: tl.constexpr
):
    """c (M, N) = a (M, K) b (K, N) in steps of BLOCK_K, by tl.dot or as a sum of rank-1 products."""
    i_m, i_n, i_k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, BLOCK_K)
    c = tl.zeros((M, N), dtype=c_ptr.dtype.element_ty)
    if USE_DOT:
        for k in range(0, K, BLOCK_K):
            a = tl.load(a_ptr + i_m * K + (k + i_k)[None, :])
            b = tl.load(b_ptr + (k + i_k)[:, None] * N + i_n)
            c += tl.dot(a, b, input_precision="ieee", out_dtype=c_ptr.dtype.element_ty)
    else:
        for k in range(0, K):
            c += tl.load(a_ptr + i_m * K + k) * tl.load(b_ptr + k * N + i_n)
    tl.store(c_ptr + i_m * N + i_n, c)


@triton.jit
def update_kernel(v_ptr, t_ptr, c_ptr, out_ptr, rows, COLUMNS: tl.constexpr, PANEL: tl.constexpr, BLOCK: tl.constexpr):
    """out (rows, COLUMNS) = c - v t v^T c for v (rows, PANEL), t (PANEL, PANEL): two loops over blocks of rows."""
    i_b, i_p, i_c = tl.arange(0, BLOCK), tl.arange(0, PANEL), tl.arange(0, COLUMNS)
    t = tl.load(t_ptr + i_p[:, None] * PANEL + i_p[None, :])
    w = tl.zeros((PANEL, COLUMNS), dtype=c_ptr.dtype.element_ty)
    for first in range(0, rows, BLOCK):
        v = tl.load(v_ptr + (first + i_b)[:, None] * PANEL + i_p[None, :])
        c = tl.load(c_ptr + (first + i_b)[:, None] * COLUMNS + i_c[None, :])
        w += tl.dot(tl.trans(v), c, input_precision="ieee", out_dtype=c_ptr.dtype.element_ty)
    w = tl.dot(t, w, input_precision="ieee", out_dtype=c_ptr.dtype.element_ty)
    for first in range(0, rows, BLOCK):
        v = tl.load(v_ptr + (first + i_b)[:, None] * PANEL + i_p[None, :])
        o_c = (first + i_b)[:, None] * COLUMNS + i_c[None, :]
        c = tl.load(c_ptr + o_c)
        c -= tl.dot(v, w, input_precision="ieee", out_dtype=c_ptr.dtype.element_ty)
        tl.store(out_ptr + o_c, c)


@triton.jit
def reduction_kernel(x_ptr, out_ptr, N: tl.constexpr, COLUMNS: tl.constexpr):
    """out (3, COLUMNS) = sum, maximum and minimum over the rows of x (N, COLUMNS)."""
    i_c = tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + tl.arange(0, N)[:, None] * COLUMNS + i_c[None, :])
    tl.store(out_ptr + i_c, tl.sum(x, 0))
    tl.store(out_ptr + COLUMNS + i_c, tl.max(x, 0))
    tl.store(out_ptr + 2 * COLUMNS + i_c, tl.min(x, 0))


@triton.jit
def copy_kernel(x_ptr, out_ptr, N: tl.constexpr):
    """out (N,) = x (N,), one block."""
    i = tl.arange(0, N)
    tl.store(out_ptr + i, tl.load(x_ptr + i))


@triton.jit
def spill_kernel(x_ptr, out_ptr, N: tl.constexpr):
    """out (N,) = x - sum(x): every element lives on while the sum crosses the block."""
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, x - tl.sum(x, 0))


@triton.jit(do_not_specialize=["steps"])
def chain_kernel(out_ptr, steps, N: tl.constexpr):
    """out (N,): `steps` multiplications and additions an element, each waiting for the one before."""
    i = tl.arange(0, N)
    x = i.to(out_ptr.dtype.element_ty)
    y = x
    for _ in range(steps):
        x = x * 0.5 + y
    tl.store(out_ptr + i, x)
