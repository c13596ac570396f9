"""How near the answers are, judged by backward error first and by forward error where the condition number allows.

Bounds. Householder's QR, in any order of its reflections and sums, is backward stable: the computed solution solves a
problem within c(m, n) eps of the given one (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., theorems
19.4, 20.3 and 21.4). c is a low polynomial in the worst case and, with rounding errors that are independent, about
sqrt(m) times a small number for a sequential sum and a small number for a tree of sums. LAPACK's own error, measured
on the same data in the same dtype, says what is due on a problem where 10 eps would be too strict.
"""

from __future__ import annotations

import math

import pytest
import torch
from _support import (
    FLOATS,
    REAL_SIZE,
    assert_close,
    dtype_id,
    error,
    gels64,
    last_true,
    matrix,
    randn,
    route,
    shape_id,
)


def bound(A, B) -> float:
    """max(10 eps, 4 times the error of LAPACK in this dtype)."""
    eps = torch.finfo(A.dtype).eps
    try:
        lapack = error(A, torch.linalg.lstsq(A, B, driver="gels").solution, B)
    except RuntimeError:  # an exactly zero pivot
        lapack = math.inf
    return max(10 * eps, 4 * lapack if math.isfinite(lapack) else 0)


def solve(A, B, device):
    result = torch.linalg.lstsq(A.to(device), B.to(device))
    return result.solution.cpu(), result.residuals.cpu()


def check(A, B, device):
    """Solve one problem (m, n), (m, k) and judge solution and residuals."""
    X, residuals = solve(A, B, device)
    assert X.shape == (A.shape[1], B.shape[1])
    limit = bound(A, B)
    found = error(A, X, B)
    assert found <= limit, f"backward error {found:.3g}, allowed {limit:.3g}"
    if A.shape[0] > A.shape[1]:
        check_residuals(A, B, residuals)
    return X


def check_residuals(A, B, residuals):
    """The root of each is within rounding of the distance from b to the range of A, relative to ||b||.

    The distance of a nearby problem differs by eps (||b|| + ||A|| ||x||); its square overflows to infinity and
    underflows towards zero as any number of the dtype does.
    """
    limits = torch.finfo(residuals.dtype)
    for j in range(B.shape[1]):
        a, b = A.double(), B[:, j].double()
        a_size, b_size = (2.0 ** math.frexp(t.abs().max().item())[1] for t in (a, b))
        a, b = a / a_size, b / b_size
        columns = a.abs().amax(0)
        a = a / torch.where(columns > 0, columns, 1.0)
        Q = torch.linalg.qr(a, mode="complete").Q if a.shape[0] <= 512 else None
        if Q is None:
            x = torch.linalg.lstsq(a, b.unsqueeze(1), driver="gels").solution
            distance = (b.unsqueeze(1) - a @ x).norm().item()
        else:
            distance = (Q[:, a.shape[1] :].mT @ b).norm().item()
        x = torch.linalg.lstsq(a, b.unsqueeze(1), driver="gels").solution
        slack = 20 * limits.eps * (b.norm() + a.norm() * x.norm()).item()
        low, high = (max(0.0, distance - slack) * b_size, (distance + slack) * b_size)
        found = residuals[j].item()
        assert found >= 0
        assert found >= min(low * low * (1 - 4 * limits.eps), limits.max) - limits.smallest_normal
        if high * high * (1 + 4 * limits.eps) < limits.max:
            assert found <= high * high * (1 + 4 * limits.eps) + limits.smallest_normal
        elif low * low > 2 * limits.max:
            assert math.isinf(found)


# Condition, grading and scale ---------------------------------------------------------------------------------------

SHAPES = [(12, 5), (6, 6), (5, 12), (9, 1), (150, 3)]
if REAL_SIZE:
    SHAPES += [(256, 32), (64, 64), (32, 256), (3000, 16), (9000, 24), (20, 3000)]
CONDITIONS = [1e0, 1e3, 1e6, 1e10, 1e15]


def graded(A, grading):
    """Rows or columns multiplied by factors between 1e-6 and 1e6, the largest not first."""
    m, n = A.shape
    length = m if grading == "rows" else n
    factors = torch.logspace(-6, 6, length, dtype=torch.float64)[torch.randperm(length, generator=seeded(3))]
    return (A.double() * (factors.unsqueeze(1) if grading == "rows" else factors)).to(A.dtype)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
@pytest.mark.parametrize("grading", ["even", "rows", "columns"])
@pytest.mark.parametrize("cond", CONDITIONS, ids=lambda cond: f"cond{cond:.0e}")
@pytest.mark.parametrize("shape", SHAPES, ids=shape_id)
def test_condition_and_grading(device, shape, cond, grading, dtype):
    A = matrix(*shape, cond=cond, dtype=torch.float64)
    A = (graded(A, grading) if grading != "even" else A).to(dtype)
    # one consistent right-hand side, one that is not
    B = torch.stack([A.double() @ randn(shape[1], seed=11), randn(shape[0], seed=12)], dim=1).to(dtype)
    check(A, B, device)


SCALES = {torch.float32: (1e-25, 1e25), torch.float64: (1e-200, 1e200)}


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
@pytest.mark.parametrize("size", ["tiny", "huge"])
@pytest.mark.parametrize("which", ["both", "A", "B", "one-column", "one-row"])
@pytest.mark.parametrize("shape", SHAPES, ids=shape_id)
def test_scale(device, shape, which, size, dtype):
    scale = SCALES[dtype][size == "huge"]
    A, B = matrix(*shape, cond=100.0), randn(shape[0], 2, seed=7)
    if which in ("both", "A"):
        A = A * scale
    if which in ("both", "B"):
        B = B * scale
    if which == "one-column":
        A[:, -1] *= scale
    if which == "one-row":
        A[0] *= scale
        B[0] *= scale
    check(A.to(dtype), B.to(dtype), device)


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
@pytest.mark.parametrize("shape", SHAPES, ids=shape_id)
def test_scaling_by_a_power_of_two_is_exact(device, shape, dtype):
    A, B = matrix(*shape, cond=100.0, dtype=dtype), randn(shape[0], 2, dtype=dtype, seed=7)
    scale = 2.0**80 if dtype == torch.float32 else 2.0**600
    X, _ = solve(A, B, device)
    both, _ = solve(A * scale, B * scale, device)
    inverse, _ = solve(A / scale, B / scale, device)
    assert torch.equal(X, both) and torch.equal(X, inverse)


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
def test_diagonal_of_very_different_sizes(device, dtype):
    """Full rank, however small the last pivot: no threshold may drop it."""
    sizes = [1.0, 1e-9, 1e-18, 1e9, 1e18]
    A = torch.diag(torch.tensor(sizes, dtype=dtype))
    B = torch.tensor(sizes, dtype=dtype) * torch.arange(1.0, 6.0, dtype=dtype)
    for tall in (A, torch.cat([A, torch.zeros(3, 5, dtype=dtype)])):
        b = torch.cat([B, torch.zeros(tall.shape[0] - 5, dtype=dtype)])
        x = torch.linalg.lstsq(tall.to(device), b.to(device)).solution
        assert_close(x, torch.arange(1.0, 6.0, dtype=torch.float64), factor=4)


# Around each route's edges ------------------------------------------------------------------------------------------


def edges(dtype) -> dict[str, tuple[int, int]]:
    """Shapes one below, at and one above each edge of the routes, read off the plan."""
    found = {}

    def around(name, edge, shape, step=1):
        for offset, where in ((-step, "below"), (0, "at"), (step, "above")):
            found[f"{name}-{where}"] = shape(edge + offset)

    def same(shape):
        start = route(*shape(2), dtype=dtype)
        return lambda i: route(*shape(i), dtype=dtype) == start

    def tall(n):
        return lambda i: (n * i, n)

    # A tile's height at widths of its own, its width at few rows, its size where square.
    limit = 2**15
    for n in (1, 4) if not REAL_SIZE else (1, 2, 7, 16, 32):
        edge = last_true(same(lambda i, n=n: (n + i, n)), 2, limit)
        around(f"height-{n}", edge, lambda i, n=n: (n + i, n))
    around("square", last_true(same(lambda i: (i, i)), 2, 4096), lambda i: (i, i))
    for m in (2,) if not REAL_SIZE else (1, 2, 8, 31):
        around(f"wide-{m}", last_true(same(lambda i, m=m: (m, m + i)), 2, limit), lambda i, m=m: (m, m + i))
    # The width that a tree of tiles still takes.
    if REAL_SIZE:
        height = 20000
        tree = route(height, 4, dtype=dtype)
        width = last_true(lambda n: route(height, n, dtype=dtype) == tree, 4, 512)
        around("width", width, lambda n: (height, n))
    return found


EDGES = {dtype: edges(dtype) for dtype in FLOATS}


@pytest.mark.parametrize(
    "dtype, shape",
    [(dtype, shape) for dtype in FLOATS for shape in EDGES[dtype].values()],
    ids=[f"{name}-{shape_id(shape)}-{dtype_id(dtype)}" for dtype in FLOATS for name, shape in EDGES[dtype].items()],
)
def test_edges_of_the_routes(device, shape, dtype):
    m, n = shape
    A, B = matrix(m, n, cond=1e3, dtype=dtype), randn(m, 1, dtype=dtype, seed=7)
    check(A, B, device)


def test_edges_lie_between_different_routes():
    """The edges above are edges: the plan answers differently on their two sides."""
    for dtype in FLOATS:
        shapes = EDGES[dtype]
        for name in {name.rsplit("-", 1)[0] for name in shapes}:
            at, above = (route(*shapes[f"{name}-{where}"], dtype=dtype) for where in ("at", "above"))
            assert at != above, (name, dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 9], ids=lambda n: f"n{n}")
def test_every_small_size(device, n, dtype):
    """All m from 1 to 10: every remainder of a tile's rows and columns."""
    for m in range(1, 11):
        A, B = matrix(m, n, cond=10.0, dtype=dtype, seed=m), randn(m, 1, dtype=dtype, seed=m)
        X = check(A, B, device)
        assert_close(X, gels64(A, B).solution, factor=1000)


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
@pytest.mark.parametrize("m", [63, 64, 65, 127, 129, 255, 257, 511, 513], ids=lambda m: f"m{m}")
def test_heights_around_powers_of_two(device, m, dtype):
    A, B = matrix(m, 3, cond=10.0, dtype=dtype), randn(m, 2, dtype=dtype, seed=7)
    check(A, B, device)


TALLEST = [(2**20, 64), (2**20, 16), (2**20, 2), (1_000_003, 3)] if REAL_SIZE else [(20_011, 2)]


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
@pytest.mark.parametrize("shape", TALLEST, ids=shape_id)
def test_tall_and_skinny(device, shape, dtype):
    A = randn(*shape, dtype=dtype, seed=3)
    B = randn(shape[0], 1, dtype=dtype, seed=7)
    X, residuals = solve(A, B, device)
    expected = gels64(A, B)
    # The condition number is near 1; the residual is far larger than A x, so x knows b's rounding.
    eps = torch.finfo(dtype).eps
    allowed = 50 * eps * (1 + B.norm() / (A.norm() / math.sqrt(shape[1]) * expected.solution.norm()))
    assert ((X - expected.solution).norm() / expected.solution.norm()).item() <= allowed.item()
    assert abs(residuals / expected.residuals - 1).item() <= 50 * eps


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
@pytest.mark.parametrize("shape", [(7, 3), (5, 5), (3, 7), (70, 2)], ids=shape_id)
def test_each_matrix_of_a_batch(device, real_size, shape, dtype):
    count = 1000 if real_size else 11
    A = torch.stack([matrix(*shape, cond=10.0 ** (i % 8), dtype=dtype, seed=i) for i in range(count)])
    B = randn(count, shape[0], 1, dtype=dtype, seed=7)
    result = torch.linalg.lstsq(A.to(device), B.to(device))
    X = result.solution.cpu()
    for i in range(count):
        assert error(A[i], X[i], B[i]) <= bound(A[i], B[i]), i


# Matrices with a name -----------------------------------------------------------------------------------------------


def vandermonde(m, n):
    return torch.vander(torch.linspace(0, 1, m, dtype=torch.float64), n)


def hilbert(m, n):
    return 1 / (torch.arange(m, dtype=torch.float64).unsqueeze(1) + torch.arange(n) + 1)


def kahan(n):
    c = math.cos(1.2)
    upper = torch.eye(n, dtype=torch.float64) - c * torch.ones(n, n, dtype=torch.float64).triu(1)
    return torch.diag(math.sin(1.2) ** torch.arange(n, dtype=torch.float64)) @ upper


def lauchli(n):
    """Ones above a small diagonal: forming A^T A in the working precision loses the diagonal altogether."""
    return torch.cat([torch.ones(1, n, dtype=torch.float64), 1e-5 * torch.eye(n, dtype=torch.float64)])


def near_duplicates(m, n):
    A = randn(m, n, seed=21)
    A[:, 1::2] = A[:, : n - n % 2 : 2] + 1e-7 * randn(m, n // 2, seed=22)
    return A


def half_rank(m, n):
    return randn(m, n // 2, seed=23) @ randn(n // 2, n, seed=24)


def already_triangular(m, n):
    return randn(m, n, seed=25).triu()


def negative(m, n):
    """First entries of every sign and zero, where a reflector picks its sign."""
    A = randn(m, n, seed=26)
    A[0] = torch.tensor([-1.0, 0.0, 1.0, -0.0]).double().repeat(n)[:n]
    return A


NAMED = {
    "vandermonde": lambda: vandermonde(20, 8),
    "vandermonde-square": lambda: vandermonde(9, 9),
    "vandermonde-wide": lambda: vandermonde(20, 8).mT,
    "hilbert": lambda: hilbert(15, 10),
    "hilbert-square": lambda: hilbert(10, 10),
    "hilbert-wide": lambda: hilbert(8, 12),
    "kahan": lambda: kahan(16),
    "lauchli": lambda: lauchli(6),
    "lauchli-wide": lambda: lauchli(6).mT,
    "near-duplicate-columns": lambda: near_duplicates(20, 7),
    "near-duplicate-rows": lambda: near_duplicates(20, 7).mT,
    "half-rank": lambda: half_rank(20, 8),
    "half-rank-wide": lambda: half_rank(8, 20),
    "triangular": lambda: already_triangular(12, 6),
    "triangular-square": lambda: already_triangular(8, 8),
    "identity": lambda: torch.eye(9, 5, dtype=torch.float64),
    "permutation": lambda: torch.eye(8, dtype=torch.float64)[torch.randperm(8, generator=seeded(5))],
    "first-row-of-every-sign": lambda: negative(10, 6),
    "ones": lambda: torch.ones(7, 1, dtype=torch.float64),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
@pytest.mark.parametrize("name", list(NAMED))
def test_named_matrices(device, name, dtype):
    A = NAMED[name]().to(dtype)
    B = torch.stack([A.double().sum(1), randn(A.shape[0], seed=7)], dim=1).to(dtype)
    check(A, B, device)


# Forward error ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
@pytest.mark.parametrize("cond", [1e0, 1e2, 1e4], ids=lambda cond: f"cond{cond:.0e}")
@pytest.mark.parametrize("shape", SHAPES, ids=shape_id)
def test_forward_error(device, shape, cond, dtype):
    """Wedin: ||x - x*|| / ||x*|| <= c eps (kappa + kappa^2 ||r|| / (||A|| ||x||) + kappa ||b|| / (||A|| ||x||)).

    c = 10, or 4 times LAPACK's error in this dtype.
    """
    A = matrix(*shape, cond=cond).to(dtype)
    B = torch.stack([A.double() @ randn(shape[1], seed=11), randn(shape[0], seed=12)], dim=1).to(dtype)
    X, _ = solve(A, B, device)
    expected = gels64(A, B).solution
    lapack = torch.linalg.lstsq(A, B, driver="gels").solution
    kappa = cond if min(shape) > 1 else 1.0
    for j in range(2):
        x, b = expected[:, j], B[:, j].double()
        size = torch.linalg.matrix_norm(A.double(), 2) * x.norm()
        r = (b - A.double() @ x).norm()
        allowed = 10 * torch.finfo(dtype).eps * (kappa + (kappa**2 * r + kappa * b.norm()) / size)
        due, found = ((Y[:, j].double() - x).norm() / x.norm() for Y in (lapack, X))
        assert found.item() <= max(allowed.item(), 4 * due.item())


@pytest.mark.parametrize("shape", [(8, 3), (4, 4), (3, 8)], ids=shape_id)
def test_integers_come_out_almost_exact(device, shape):
    m, n = shape
    A = torch.randint(-5, 6, shape, generator=seeded(1)).double() + 20 * torch.eye(m, n, dtype=torch.float64)
    x = torch.arange(1.0, n + 1, dtype=torch.float64)
    if m < n:  # the solution of minimum norm lies in the row space
        x = A.mT @ torch.arange(1.0, m + 1, dtype=torch.float64)
    X = torch.linalg.lstsq(A.to(device), (A @ x).to(device)).solution
    assert_close(X, x, factor=50)
