"""What the test files share: the device under test, problems to solve, and measures of a solution's error.

Every reference is computed on the CPU in float64 (complex128), by LAPACK or in extended precision, never on the
device under test.
"""

from __future__ import annotations

import functools
import math
import os
import subprocess
import sys

import numpy as np
import torch

import torch_lstsq_ext


def _select_device() -> str:
    if torch.cuda.is_available():
        return "cuda:0"
    if torch._C._get_privateuse1_backend_name() == "privateuseone":  # nobody has named it
        torch_lstsq_ext.simulator.activate()
    return torch._C._get_privateuse1_backend_name() + ":0"


DEVICE = _select_device()
DEVICE_TYPE = DEVICE.split(":")[0]
ON_CUDA = DEVICE_TYPE == "cuda"
ON_SIMULATOR = DEVICE_TYPE == "simulator"
REAL_SIZE = not ON_SIMULATOR  # the simulator interprets its kernels: a millisecond a column

FLOATS = [torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]


def dtype_id(dtype: torch.dtype) -> str:
    return str(dtype).replace("torch.", "")


def shape_id(shape) -> str:
    return "x".join(map(str, shape)) or "scalar"


# Problems -----------------------------------------------------------------------------------------------------------


def randn(*shape, dtype=torch.float64, seed=0) -> torch.Tensor:
    """Normal numbers on the CPU that do not depend on the device, the order of tests or the dtype."""
    generator = torch.Generator().manual_seed(seed)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    return torch.randn(*shape, generator=generator, dtype=wide).to(dtype)


def matrix(*shape, cond=2.0, dtype=torch.float64, seed=0) -> torch.Tensor:
    """(*batch, m, n) on the CPU, singular values spaced evenly in their logarithm from 1 to 1 / cond."""
    *batch, m, n = shape
    if 0 in shape:
        return torch.zeros(shape, dtype=dtype)
    q = min(m, n)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    U = torch.linalg.qr(randn(*batch, m, q, dtype=wide, seed=2 * seed + 1)).Q
    V = torch.linalg.qr(randn(*batch, n, q, dtype=wide, seed=2 * seed + 2)).Q
    s = torch.logspace(0, -math.log10(cond), q, dtype=torch.float64)
    return ((U * s) @ V.mH).to(dtype)


def gels64(A: torch.Tensor, B: torch.Tensor):
    """LAPACK's answer to the same numbers in float64 (complex128) on the CPU."""
    wide = torch.complex128 if A.is_complex() else torch.float64
    return torch.linalg.lstsq(A.cpu().to(wide), B.cpu().to(wide), driver="gels")


def assert_close(actual: torch.Tensor, expected64: torch.Tensor, factor=100.0) -> None:
    """Same shape, and the largest difference is at most factor * eps of the largest entry."""
    assert actual.shape == expected64.shape
    if actual.numel() == 0:
        return
    eps = torch.finfo(actual.dtype).eps
    difference = (actual.cpu().to(expected64.dtype) - expected64).abs().max().item()
    size = expected64.abs().max().item()
    assert difference <= factor * eps * size, f"off by {difference:.3g} where the largest entry is {size:.3g}"


def assert_answers(result, A: torch.Tensor, B: torch.Tensor) -> None:
    """`result` is all that the contract says of the driver gels for a well-conditioned A: types, shapes, values."""
    expected = gels64(A, B)
    real = torch.empty(0, dtype=A.dtype).abs().dtype
    assert type(result) is torch.return_types.linalg_lstsq
    for name, dtype in zip(("solution", "residuals", "rank", "singular_values"), (A.dtype, real, torch.int64, real)):
        output = getattr(result, name)
        assert output.dtype == dtype, name
        assert output.device == torch.device(DEVICE), name
        assert output.shape == getattr(expected, name).shape, name
        assert not output.requires_grad, name
    assert_close(result.solution, expected.solution)
    residuals = expected.residuals
    if A.shape[-1] == 0 and A.shape[-2] > 0:  # LAPACK answers 0 here
        squares = B.cpu().to(expected.solution.dtype).abs().square()
        vector_rhs = expected.solution.dim() == A.dim() - 1
        sums = squares.sum(-1, keepdim=True) if vector_rhs else squares.sum(-2)
        residuals = sums.expand(expected.residuals.shape)
    assert_close(result.residuals, residuals)


# Routes -------------------------------------------------------------------------------------------------------------


@functools.cache
def route(m: int, n: int, k: int = 1, batch: int = 1, dtype: torch.dtype = torch.float32) -> str:
    """The route that the plan takes on the device under test."""
    from torch_lstsq_ext.plan import STOCK, make_plan
    from torch_lstsq_ext.problem import Problem
    from torch_lstsq_ext.solve import device_facts

    problem = Problem(m=m, n=n, k=k, dtype=dtype_id(dtype), groups=(1, 1, batch))
    plan = make_plan(problem, device_facts(torch.device(DEVICE)))
    return plan.route if plan else STOCK


def last_true(predicate, low: int, high: int) -> int:
    """The largest i in [low, high] for which `predicate` holds: it holds at low, and no longer from some i on."""
    assert predicate(low)
    while low < high:
        middle = (low + high + 1) // 2
        if predicate(middle):
            low = middle
        else:
            high = middle - 1
    return low


# Measures -----------------------------------------------------------------------------------------------------------


def _exponents(tensor: torch.Tensor, dim) -> torch.Tensor:
    """Integers e such that 2^-e brings the norm along `dim` near 1; exact, and 0 where the norm is 0."""
    peak = tensor.abs().amax(dim, keepdim=True)
    first = torch.where(peak > 0, torch.frexp(peak).exponent.double(), 0.0)
    norm = (tensor * torch.exp2(-first)).norm(dim=dim, keepdim=True)
    second = torch.where(norm > 0, torch.frexp(norm).exponent.double(), 0.0)
    return first + second


def _scale(tensor: torch.Tensor, exponents: torch.Tensor) -> torch.Tensor:
    half = torch.floor(exponents / 2)  # in two factors, neither of which overflows
    return tensor * torch.exp2(half) * torch.exp2(exponents - half)


def _residual(A: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """b - A x, in extended precision where that is affordable: its rounding must not count as the solver's."""
    if A.numel() <= 200_000:
        A, x, b = (t.numpy().astype(np.longdouble) for t in (A, x, b))
        return torch.from_numpy((b - A @ x).astype(np.float64))
    return b - A @ x


def backward_error(A: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> float:
    """How far the nearest least-squares problem that `x` solves lies from min ||b - A x||, m >= n, relative to it.

    The estimate of Karlson and Walden, which Gratton, Jiranek and Titley-Peloquin (2012) show to be within a factor
    of 2 of the optimum: ||P [r; 0]|| / ||x|| for the projection P onto the range of [A; phi I], phi = ||r|| / ||x||.
    The matrix's columns are brought to norm 1 first (Householder's QR is stable column by column, so a column of
    1e-18 beside one of 1 is no excuse), and the right-hand side may be perturbed too: hence relative to
    ||A|| ||x|| + ||b||.
    """
    A, x, b = A.double(), x.double(), b.double()
    if not x.isfinite().all():
        return math.inf
    columns, rhs = _exponents(A, 0), _exponents(b, 0)
    A, b, x = _scale(A, -columns), _scale(b, -rhs), _scale(x, columns[0] - rhs)
    r = _residual(A, x, b)
    size = (A.norm() * x.norm() + b.norm()).item()
    if size == 0 or r.norm() == 0:
        return 0.0
    if x.norm() == 0:
        return ((A.mT @ r).norm() / (A.norm() * b.norm())).item()
    phi = r.norm() / x.norm()
    Q = torch.linalg.qr(torch.cat([A, phi * torch.eye(A.shape[1], dtype=torch.float64)])).Q
    return (min(r.norm(), (Q[: A.shape[0]].mT @ r).norm()) / size).item()


def minimum_norm_error(A: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> float:
    """The same for the solution of minimum norm, m < n: the larger of two errors.

    A x must be b, relative to ||A|| ||x|| + ||b||; and x must lie in the row space, that is x = A^T z for some z,
    relative to ||A|| ||z|| + ||x||. Demmel and Higham (1993): the Q method attains both row by row, so the rows are
    brought to norm 1 first.
    """
    A, x, b = A.double(), x.double(), b.double()
    if not x.isfinite().all():
        return math.inf
    rows, size = _exponents(A, 1), _exponents(x, 0)
    A, b, x = _scale(A, -rows), _scale(b, -rows[:, 0] - size), _scale(x, -size)
    if x.norm() == 0:
        return 0.0 if b.norm() == 0 else 1.0
    consistent = _residual(A, x, b).norm() / (A.norm() * x.norm() + b.norm())
    z = torch.linalg.lstsq(A.mT, x.unsqueeze(-1), driver="gels").solution[:, 0]
    in_row_space = _residual(A.mT, z, x).norm() / (A.norm() * z.norm() + x.norm())
    return max(consistent.item(), in_row_space.item())


def error(A: torch.Tensor, X: torch.Tensor, B: torch.Tensor) -> float:
    """The worst backward error over the columns of X (n, k) for A (m, n) and B (m, k)."""
    A, X, B = A.cpu(), X.cpu(), B.cpu()
    measure = minimum_norm_error if A.shape[0] < A.shape[1] else backward_error
    return max(measure(A, X[:, j], B[:, j]) for j in range(B.shape[1]))


# Subprocesses -------------------------------------------------------------------------------------------------------

# What a user's program begins with to have the device at all. On a GPU that is torch.
PROLOGUE = "import torch\n"
if ON_SIMULATOR:
    PROLOGUE += "import torch_lstsq_ext.simulator\ntorch_lstsq_ext.simulator.activate()\n"


def python(code: str, *, prologue=PROLOGUE, **environment) -> subprocess.CompletedProcess:
    """Run `code` in a fresh interpreter. An environment variable given as None is removed."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_LSTSQ_EXT")}
    inherited.pop("TRITON_INTERPRET", None)
    inherited.update({name: value for name, value in environment.items() if value is not None})
    return subprocess.run(
        [sys.executable, "-c", prologue + code], env=inherited, capture_output=True, text=True, timeout=300
    )


def python_output(code: str, **kwargs) -> str:
    """What `code` printed; AssertionError with its stderr if it failed."""
    done = python(code, **kwargs)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@functools.cache
def route_profile() -> str:
    """Which device profile the plan uses, in words."""
    return str(torch_lstsq_ext.explain(torch.zeros(6, 3, device=DEVICE), torch.zeros(6, device=DEVICE)))
