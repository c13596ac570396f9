"""Complex problems, which are solved as real ones of twice the size."""

from __future__ import annotations

import pytest
import torch
from _support import COMPLEX, DEVICE, REAL_SIZE, assert_answers, assert_close, dtype_id, gels64, matrix, randn, shape_id

from torch_lstsq_ext import solve

SHAPES = [(1, 1), (7, 3), (3, 7), (5, 5), (40, 2)]
if REAL_SIZE:
    SHAPES += [(256, 24), (24, 256), (300, 200), (200, 300), (20_000, 30), (600, 600)]


@pytest.fixture(autouse=True)
def by_our_kernels():
    before = solve.counts().get("stock", 0)
    yield
    assert solve.counts().get("stock", 0) == before


def on_device(*tensors):
    return (tensor.to(DEVICE) for tensor in tensors)


@pytest.mark.parametrize("dtype", COMPLEX, ids=dtype_id)
@pytest.mark.parametrize("rhs", [None, 1, 3], ids=["vector", "one", "three"])
@pytest.mark.parametrize("shape", SHAPES, ids=shape_id)
def test_shapes(shape, rhs, dtype):
    A, B = matrix(*shape, dtype=dtype), randn(*(shape[:1] if rhs is None else (shape[0], rhs)), dtype=dtype, seed=5)
    assert_answers(torch.linalg.lstsq(*on_device(A, B)), A, B)


@pytest.mark.parametrize("shape", [(6, 3), (3, 6)], ids=shape_id)
def test_broadcast_batches(shape):
    A, B = matrix(3, 1, *shape, dtype=torch.complex64), randn(1, 4, shape[0], 2, dtype=torch.complex64, seed=5)
    assert_answers(torch.linalg.lstsq(*on_device(A, B)), A, B)
    a, b = on_device(A, B)
    assert_answers(torch.linalg.lstsq(a[0, 0].expand(2, 3, *shape), b[:, :3].expand(2, 3, shape[0], 2)),
                   A[0, 0].expand(2, 3, *shape), B[:, :3].expand(2, 3, shape[0], 2))  # fmt: skip


@pytest.mark.parametrize("shape", [(6, 3), (3, 6)], ids=shape_id)
def test_views(shape):
    """Transposed, strided, conjugate and negative views."""
    storage = randn(2 * shape[1], 3 * shape[0], dtype=torch.complex128, seed=8)
    rhs = randn(3, 2 * shape[0], dtype=torch.complex128, seed=9)
    a, b = on_device(storage, rhs)
    A, B = a[1::2, ::3].mH, b[:, 1::2].mT
    assert A.is_conj()
    for X, (left, right) in (
        (torch.linalg.lstsq(A, B).solution, (A, B)),
        (torch.linalg.lstsq(A.conj(), B.conj()).solution, (A.conj(), B.conj())),
        (torch.linalg.lstsq(A, torch._neg_view(B)).solution, (A, -B)),
    ):
        assert_close(X, gels64(left.cpu().resolve_conj(), right.cpu().resolve_conj()).solution, factor=1e4)
    assert torch.equal(a.cpu(), storage) and torch.equal(b.cpu(), rhs)


@pytest.mark.parametrize("scale", [1e-30, 1e30], ids=["tiny", "huge"])
@pytest.mark.parametrize("shape", [(6, 3), (3, 6)], ids=shape_id)
def test_scale(shape, scale):
    A, B = matrix(*shape, dtype=torch.complex128) * scale, randn(shape[0], 1, dtype=torch.complex128, seed=5) * scale
    X = torch.linalg.lstsq(*on_device(A.to(torch.complex64), B.to(torch.complex64))).solution
    assert_close(X, gels64(A, B).solution)


def test_what_is_not_finite_stays_in_its_matrix_and_column():
    A, B = matrix(3, 6, 3, dtype=torch.complex64), randn(3, 6, 2, dtype=torch.complex64, seed=4)
    expected = gels64(A, B).solution
    A[1, 5, 2] = complex(0, torch.nan)
    B[2, 3, 1] = torch.inf
    X = torch.linalg.lstsq(*on_device(A, B)).solution.cpu()
    assert_close(X[0], expected[0])
    assert_close(X[2, :, 0], expected[2, :, 0])
    assert not X[1].isfinite().all() and not X[2, :, 1].isfinite().all()


def test_a_zero_column_is_no_finite_answer():
    A, B = matrix(2, 6, 3, dtype=torch.complex64), randn(2, 6, 1, dtype=torch.complex64, seed=4)
    expected = gels64(A, B).solution
    A[1, :, 1] = 0
    X = torch.linalg.lstsq(*on_device(A, B)).solution.cpu()
    assert_close(X[0], expected[0])
    assert not X[1].isfinite().all()


def test_no_columns():
    B = randn(4, 2, dtype=torch.complex64)
    result = torch.linalg.lstsq(torch.zeros(4, 0, dtype=torch.complex64, device=DEVICE), B.to(DEVICE))
    assert result.residuals.dtype == torch.float32
    assert_close(result.residuals, B.to(torch.complex128).abs().square().sum(0))
