"""Route `compact_wy` by itself: every level of its trees, both forms of its products, both orientations.

On the simulator panels and blocks are small, so that small matrices have several panels and trees.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from _support import (
    DEVICE,
    FLOATS,
    REAL_SIZE,
    assert_answers,
    assert_close,
    dtype_id,
    gels64,
    matrix,
    randn,
    shape_id,
)
from test_accuracy import check, graded

from torch_lstsq_ext import solve
from torch_lstsq_ext.devices import nvidia
from torch_lstsq_ext.plan import make_plan
from torch_lstsq_ext.problem import Problem
from torch_lstsq_ext.routes import compact_wy

P = compact_wy.PANEL if REAL_SIZE else 16


@pytest.fixture(params=[True, False], ids=["dot", "rank1"])
def use_dot(request):
    return request.param


@pytest.fixture(autouse=True)
def only_this_route(monkeypatch, request):
    """Nothing else may answer, and everything is planned anew."""
    facts = solve.device_facts(torch.device(DEVICE))
    if "use_dot" in request.fixturenames:
        dot = request.getfixturevalue("use_dot")
        facts = replace(facts, fp32_dot=facts.fp32_dot and dot, fp64_dot=facts.fp64_dot and dot)
    monkeypatch.setattr(solve, "_facts", {torch.device(DEVICE): facts})
    if not REAL_SIZE:
        monkeypatch.setattr(compact_wy, "PANEL", P)
        monkeypatch.setattr(compact_wy, "TRIANGLE", P)
        monkeypatch.setattr(compact_wy, "TALLEST_BLOCK", 2 * P)
    before = solve.counts()
    with solve.restricted_to("compact_wy"):
        yield
    after = solve.counts()
    assert {name for name in after if after[name] != before.get(name)} <= {"compact_wy"}


def on_device(*tensors):
    return (tensor.to(DEVICE) for tensor in tensors)


# (m, n, k): a row, a column, around a panel, around a block, trees of two and three levels
SHAPES = [(1, 4, 2), (4, 1, 1), (P - 1, P, 1), (P + 1, P, 1), (2 * P, P + 1, 3), (2 * P + 1, P - 1, 1), (P + 2, 40, 2)]
TALL = (5 * P, P + 2, 1)
if REAL_SIZE:
    SHAPES += [(70, 64, 20), (255, 257, 1), (1025, 100, 2), (100, 3000, 1), (700, 700, 5), (3000, 500, 1)]
    TALL = (200_000, 70, 2)


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
@pytest.mark.parametrize("shape", SHAPES, ids=shape_id)
def test_shapes(device, shape, dtype, use_dot):
    m, n, k = shape
    check(matrix(m, n, cond=1e3, dtype=dtype), randn(m, k, dtype=dtype, seed=5), device)


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
@pytest.mark.parametrize("wide", [False, True], ids=["tall", "wide"])
def test_three_levels(device, dtype, wide):
    m, n, k = TALL
    m, n = (n, m) if wide else (m, n)
    problem = Problem(m=m, n=n, k=k, dtype=dtype_id(dtype))
    plan = make_plan(problem, solve.device_facts(torch.device(device)))
    trees = [launch for launch in plan.launches if launch.kernel == "panel"] if plan.route == "compact_wy" else None
    assert trees is None or sum(launch.constexprs["TREE"] for launch in trees) >= 2
    check(matrix(m, n, cond=1e2, dtype=dtype), randn(m, k, dtype=dtype, seed=5), device)


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
@pytest.mark.parametrize("grading", ["rows", "columns"])
@pytest.mark.parametrize("shape", [(36, 20), (20, 36)], ids=shape_id)
@pytest.mark.parametrize("cond", [1e0, 1e15], ids=["well", "ill"])
def test_grading_and_condition(device, shape, grading, cond, dtype):
    A = graded(matrix(*shape, cond=cond), grading).to(dtype)
    B = torch.stack([A.double() @ randn(shape[1], seed=11), randn(shape[0], seed=12)], dim=1).to(dtype)
    check(A, B, device)


@pytest.mark.parametrize("scale", [1e-30, 1e30], ids=["tiny", "huge"])
@pytest.mark.parametrize("shape", [(36, 20), (20, 36)], ids=shape_id)
def test_scale(device, shape, scale):
    A, B = matrix(*shape, cond=10.0) * scale, randn(shape[0], 1, seed=5) * scale
    X = check(A.float(), B.float(), device)
    assert_close(X, gels64(A, B).solution, factor=1000)


@pytest.mark.parametrize("shape", [(36, 20), (20, 36)], ids=shape_id)
def test_an_exact_answer_has_no_residual(device, shape):
    """Small integers: products and sums are exact in float64, so what is left is rounding alone."""
    A = torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(1)).double()
    x = A.mT @ randn(shape[0], 1, seed=2) if shape[0] < shape[1] else randn(shape[1], 1, seed=2)
    result = torch.linalg.lstsq(*on_device(A, A @ x))
    assert_close(result.solution, gels64(A, A @ x).solution, factor=1e4)
    if shape[0] > shape[1]:
        assert 0 <= result.residuals.item() <= 1e-24 * (A @ x).square().sum().item()


@pytest.mark.parametrize("shape", [(24, 18), (18, 24)], ids=shape_id)
@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
def test_batches_and_vectors(shape, dtype):
    A, b = matrix(2, 2, *shape, dtype=dtype), randn(2, 2, shape[0], dtype=dtype, seed=4)
    assert_answers(torch.linalg.lstsq(*on_device(A, b)), A, b)


@pytest.mark.parametrize("shape", [(24, 18), (18, 24)], ids=shape_id)
def test_shared_matrices_are_factored_once(shape):
    """Batch strides of 0 in A, outside, inside and on both sides of one that is not."""
    A = matrix(2, *shape, dtype=torch.float32)
    B = randn(3, 2, 4, shape[0], 2, dtype=torch.float32, seed=4)
    a = A.to(DEVICE)[None, :, None]
    for expanded, rhs in (
        (a, B),
        (a[:, :1], B[:, :1]),
        (a[0], B[0]),
        (a[0, 0].expand(3, *shape), B[:, 0, 0]),
        (a.expand(3, 2, 4, *shape), B),
    ):
        result = torch.linalg.lstsq(expanded, rhs.to(DEVICE))
        assert_answers(result, expanded.cpu(), rhs)
    problem = Problem(m=shape[0], n=shape[1], groups=(3, 2, 4), a_batch_strides=(0, shape[0] * shape[1], 0))
    plan = compact_wy.plan(problem, nvidia.FACTS)
    panels = [launch for launch in plan.launches if launch.kernel == "panel" and not launch.constexprs["TREE"]]
    assert all(launch.sizes[2] == 2 for launch in panels), "two matrices, not 24"


@pytest.mark.parametrize("shape", [(24, 18), (18, 24)], ids=shape_id)
def test_views_are_read_and_left_alone(shape):
    storage = randn(2, 2 * shape[1], 3 * shape[0], seed=8)
    A = storage.to(DEVICE)[1, ::2, ::3].mT
    rhs = randn(3, 2 * shape[0], seed=9).to(DEVICE)
    B = rhs[:, 1::2].mT
    kept = A.clone(), rhs.clone()
    expected = gels64(A, B)
    assert_close(torch.linalg.lstsq(A, B).solution, expected.solution, factor=1e4)
    assert torch.equal(A, kept[0]) and torch.equal(rhs, kept[1])


@pytest.mark.parametrize("wide", [False, True], ids=["tall", "wide"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf], ids=str)
def test_what_is_not_finite_stays_in_its_matrix_and_column(value, wide):
    shape = (18, 24) if wide else (24, 18)
    A, B = matrix(3, *shape, dtype=torch.float32), randn(3, shape[0], 2, dtype=torch.float32, seed=4)
    expected = gels64(A, B).solution
    A[1, 5, 7] = value
    B[2, 3, 1] = value
    X = torch.linalg.lstsq(*on_device(A, B)).solution.cpu()
    assert_close(X[0], expected[0])
    assert_close(X[2, :, 0], expected[2, :, 0])
    assert not X[1].isfinite().all() and not X[2, :, 1].isfinite().all()


@pytest.mark.parametrize("column", [0, 17])
def test_a_zero_column_is_no_finite_answer(column):
    A, B = matrix(2, 24, 18, dtype=torch.float32), randn(2, 24, 1, dtype=torch.float32, seed=4)
    expected = gels64(A, B).solution
    A[1, :, column] = 0
    X = torch.linalg.lstsq(*on_device(A, B)).solution.cpu()
    assert_close(X[0], expected[0])
    assert not X[1].isfinite().all()


def test_the_same_call_gives_the_same_bits():
    A, B = on_device(matrix(36, 20, dtype=torch.float32), randn(36, 3, dtype=torch.float32))
    first, second = torch.linalg.lstsq(A, B), torch.linalg.lstsq(A, B)
    assert torch.equal(first.solution, second.solution) and torch.equal(first.residuals, second.residuals)
