"""Shapes, types, errors and special cases of torch.linalg.lstsq with the driver gels."""

from __future__ import annotations

import math
import re
import warnings

import pytest
import torch
from _support import (
    COMPLEX,
    FLOATS,
    ON_CUDA,
    assert_answers,
    assert_close,
    backward_error,
    dtype_id,
    gels64,
    matrix,
    randn,
    shape_id,
)

BAD_DRIVER = "torch.linalg.lstsq: `driver` other than `gels` is not supported on CUDA"
BAD_TYPE = "This function doesn't handle types other than float and double"

# id: shapes of A and B, then of the solution and the residuals.
SHAPES = {
    "tall": ((5, 3), (5, 2), (3, 2), (2,)),
    "tall-vector": ((5, 3), (5,), (3,), (1,)),
    "square": ((4, 4), (4, 2), (4, 2), (0,)),
    "square-vector": ((4, 4), (4,), (4,), (0,)),
    "square-square-rhs": ((4, 4), (4, 4), (4, 4), (0,)),
    "wide": ((3, 5), (3, 2), (5, 2), (0,)),
    "wide-vector": ((3, 5), (3,), (5,), (0,)),
    "1x1": ((1, 1), (1, 1), (1, 1), (0,)),
    "1x1-vector": ((1, 1), (1,), (1,), (0,)),
    "column": ((6, 1), (6, 2), (1, 2), (2,)),
    "column-rhs-of-one-column": ((6, 1), (6, 1), (1, 1), (1,)),
    "row": ((1, 6), (1, 2), (6, 2), (0,)),
    "rhs-wider-than-matrix": ((4, 2), (4, 9), (2, 9), (9,)),
    "batch": ((2, 5, 3), (2, 5, 2), (2, 3, 2), (2, 2)),
    "batch-vector": ((2, 5, 3), (2, 5), (2, 3), (2, 1)),
    "batch-wide": ((2, 3, 5), (2, 3, 2), (2, 5, 2), (0,)),
    "batch-wide-vector": ((2, 3, 5), (2, 3), (2, 5), (0,)),
    "batch-of-one": ((1, 5, 3), (1, 5, 2), (1, 3, 2), (1, 2)),
    "batch-2d": ((2, 3, 5, 3), (2, 3, 5, 2), (2, 3, 3, 2), (2, 3, 2)),
    "batch-2d-vector": ((2, 3, 5, 3), (2, 3, 5), (2, 3, 3), (2, 3, 1)),
    "batch-3d": ((2, 1, 2, 4, 2), (2, 1, 2, 4, 1), (2, 1, 2, 2, 1), (2, 1, 2, 1)),
    "vector-where-it-looks-like-a-matrix": ((3, 4, 4), (3, 4), (3, 4), (0,)),
    "vector-2d-where-it-looks-like-a-matrix": ((2, 3, 4, 4), (2, 3, 4), (2, 3, 4), (0,)),
    "broadcast-A": ((1, 5, 3), (4, 5, 2), (4, 3, 2), (4, 2)),
    "broadcast-B": ((4, 5, 3), (1, 5, 2), (4, 3, 2), (4, 2)),
    "broadcast-both": ((1, 3, 5, 3), (2, 1, 5, 2), (2, 3, 3, 2), (2, 3, 2)),
    "broadcast-wide": ((1, 2, 5), (3, 2, 2), (3, 5, 2), (0,)),
    "broadcast-interleaved": ((1, 2, 1, 2, 4, 4), (2, 1, 2, 1, 4, 2), (2, 2, 2, 2, 4, 2), (0,)),
    "rhs-of-one-dim-fewer": ((1, 5, 3), (5, 4), (5, 3, 4), (5, 4)),
    "rhs-of-one-dim-fewer-shared": ((5, 5, 3), (5, 4), (5, 3, 4), (5, 4)),
    "rhs-of-one-dim-fewer-2d": ((2, 1, 5, 3), (1, 5, 4), (2, 5, 3, 4), (2, 5, 4)),
}

EMPTY_SHAPES = {
    "no-columns": ((5, 0), (5, 2), (0, 2), (2,)),
    "no-columns-vector": ((5, 0), (5,), (0,), (1,)),
    "no-columns-batch": ((2, 5, 0), (2, 5, 2), (2, 0, 2), (2, 2)),
    "no-columns-batch-vector": ((2, 5, 0), (2, 5), (2, 0), (2, 1)),
    "no-columns-broadcast-A": ((1, 5, 0), (3, 5, 2), (3, 0, 2), (3, 2)),
    "no-columns-broadcast-B": ((3, 5, 0), (1, 5, 2), (3, 0, 2), (3, 2)),
    "no-columns-one-row": ((1, 0), (1, 1), (0, 1), (1,)),
    "no-rows": ((0, 3), (0, 2), (3, 2), (0,)),
    "no-rows-vector": ((0, 3), (0,), (3,), (0,)),
    "no-rows-batch": ((2, 0, 3), (2, 0, 2), (2, 3, 2), (0,)),
    "no-rows-one-column": ((0, 1), (0, 1), (1, 1), (0,)),
    "no-rows-no-columns": ((0, 0), (0, 2), (0, 2), (0,)),
    "no-rows-no-columns-batch": ((2, 2, 0, 0), (2, 2, 0, 0), (2, 2, 0, 0), (0,)),
    "no-rhs": ((5, 3), (5, 0), (3, 0), (0,)),
    "no-rhs-square": ((3, 3), (3, 0), (3, 0), (0,)),
    "no-rhs-wide": ((3, 5), (3, 0), (5, 0), (0,)),
    "no-rhs-batch": ((2, 5, 3), (2, 5, 0), (2, 3, 0), (2, 0)),
    "no-rhs-no-columns": ((2, 2, 3, 0), (2, 2, 3, 0), (2, 2, 0, 0), (2, 2, 0)),
    "no-rhs-interleaved": ((1, 3, 1, 3, 1, 1), (3, 1, 3, 1, 1, 0), (3, 3, 3, 3, 1, 0), (0,)),
    "no-batch": ((0, 5, 3), (0, 5, 2), (0, 3, 2), (0, 2)),
    "no-batch-vector": ((0, 5, 3), (0, 5), (0, 3), (0, 1)),
    "no-batch-wide": ((0, 3, 5), (0, 3, 2), (0, 5, 2), (0,)),
    "no-batch-2d": ((0, 0, 3, 3), (0, 0, 3, 2), (0, 0, 3, 2), (0,)),
    "no-batch-one-of-two": ((2, 0, 5, 3), (2, 0, 5, 2), (2, 0, 3, 2), (2, 0, 2)),
    "no-batch-broadcast-A": ((1, 5, 3), (0, 5, 2), (0, 3, 2), (0, 2)),
    "no-batch-broadcast-B": ((0, 5, 3), (1, 5, 2), (0, 3, 2), (0, 2)),
}


def named(table: dict):
    return pytest.mark.parametrize("case", list(table.values()), ids=list(table))


def problem(a_shape, b_shape, dtype, device, cond=2.0):
    A = matrix(*a_shape, cond=cond, dtype=dtype)
    return A.to(device), randn(*b_shape, dtype=dtype, seed=7).to(device)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal, NaN included."""
    a, b = a.cpu(), b.cpu()
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())


# Shapes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX, ids=dtype_id)
@named(SHAPES)
def test_shapes_and_values(device, case, dtype):
    a_shape, b_shape, x_shape, residuals_shape = case
    A, B = problem(a_shape, b_shape, dtype, device)
    result = torch.linalg.lstsq(A, B)
    assert result.solution.shape == x_shape
    assert result.residuals.shape == residuals_shape
    assert result.rank.shape == (0,)
    assert result.singular_values.shape == (0,)
    assert_answers(result, A, B)


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX[:1], ids=dtype_id)
@named(EMPTY_SHAPES)
def test_zero_sizes(device, case, dtype):
    a_shape, b_shape, x_shape, residuals_shape = case
    A, B = torch.zeros(a_shape, dtype=dtype, device=device), randn(*b_shape, dtype=dtype, seed=7).to(device)
    result = torch.linalg.lstsq(A, B)
    assert result.solution.shape == x_shape
    assert result.residuals.shape == residuals_shape
    assert not result.solution.cpu().any()
    if dtype.is_complex and 0 in a_shape[-1:]:
        return  # answered by the stock kernel, whose residuals depend on the device here
    assert_answers(result, A, B)


def test_residuals_without_columns_are_sums_of_squares(device):
    B = torch.tensor([[1.0, -2.0], [2.0, 0.0], [2.0, 3.0]], device=device)
    assert torch.linalg.lstsq(torch.empty(3, 0, device=device), B).residuals.tolist() == [9.0, 13.0]


def test_unpacks_and_names_its_fields(device):
    A, B = problem((5, 3), (5, 2), torch.float64, device)
    result = torch.linalg.lstsq(A, B)
    solution, residuals, rank, singular_values = result
    assert solution is result.solution and residuals is result.residuals
    assert rank is result.rank and singular_values is result.singular_values
    assert rank.dtype == torch.int64


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16], ids=lambda size: f"m{size}")
@pytest.mark.parametrize("batch", [(), (2,), (2, 2)], ids=lambda batch: f"batch-{shape_id(batch)}")
@pytest.mark.parametrize("kind", ["tall", "square", "wide"])
def test_sizes_by_powers_of_two(device, size, batch, kind):
    m, n = {"tall": (size, size // 2), "square": (size, size), "wide": (size // 2, size)}[kind]
    if size == 16 and len(batch) > 1:
        batch = (2, 1)
    A, B = problem((*batch, m, n), (*batch, m, 3), torch.float32, device)
    assert_answers(torch.linalg.lstsq(A, B), A, B)


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
@pytest.mark.parametrize("k", [1, 2, 3, 7, 8, 9, 17, 33], ids=lambda k: f"k{k}")
@pytest.mark.parametrize("shape", [(9, 4), (5, 5), (4, 9)], ids=shape_id)
def test_number_of_right_hand_sides(device, shape, k, dtype):
    A, B = problem(shape, (shape[0], k), dtype, device)
    assert_answers(torch.linalg.lstsq(A, B), A, B)


# Errors -------------------------------------------------------------------------------------------------------------

ROWS_VECTOR = "torch.linalg.lstsq: input.size(-2) should match other.size(-1)"
ROWS_MATRIX = "torch.linalg.lstsq: input.size(-2) should match other.size(-2)"
DIMS = "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) <= 1"
SHAPE_ERRORS = {
    "A-scalar": ((), (), "torch.linalg.lstsq: input must have at least 2 dimensions."),
    "A-vector": ((3,), (3,), "torch.linalg.lstsq: input must have at least 2 dimensions."),
    "B-scalar": ((3, 3), (), "torch.linalg.lstsq: other must have at least 1 dimension."),
    "B-two-dims-fewer": ((2, 3, 3, 3), (3, 3), DIMS),
    "B-more-dims": ((5, 3), (2, 5, 2), DIMS),
    "B-one-vector-for-a-batch": ((2, 5, 3), (5,), DIMS),
    "vector-rows": ((5, 3), (4,), ROWS_VECTOR),
    "matrix-rows": ((5, 3), (4, 2), ROWS_MATRIX),
    "vector-never-broadcasts": ((2, 5, 3), (1, 5), ROWS_MATRIX),
    "vector-never-broadcasts-A": ((1, 1, 1), (3, 1), ROWS_MATRIX),
    "batches": (
        (2, 5, 3),
        (3, 5, 2),
        "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0",
    ),
    "batches-inner": (
        (2, 2, 5, 3),
        (2, 3, 5, 2),
        "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 1",
    ),
    "batches-empty": (
        (2, 5, 3),
        (0, 5, 2),
        "The size of tensor a (2) must match the size of tensor b (0) at non-singleton dimension 0",
    ),
    "rhs-of-one-dim-fewer": (
        (2, 5, 3),
        (5, 4),
        "The size of tensor a (2) must match the size of tensor b (5) at non-singleton dimension 0",
    ),
}


def message(call) -> str:
    with pytest.raises(RuntimeError) as raised:
        call()
    return str(raised.value)


@named(SHAPE_ERRORS)
def test_shape_errors(device, case):
    a_shape, b_shape, expected = case
    A, B = torch.ones(a_shape, device=device), torch.ones(b_shape, device=device)
    assert message(lambda: torch.linalg.lstsq(A, B)) == expected


DTYPE_PAIRS = {
    "float-double": (torch.float32, torch.float64, "Float", "Double"),
    "double-float": (torch.float64, torch.float32, "Double", "Float"),
    "float-complex": (torch.float32, torch.complex64, "Float", "ComplexFloat"),
    "float-long": (torch.float32, torch.int64, "Float", "Long"),
}


@named(DTYPE_PAIRS)
def test_dtypes_must_agree(device, case):
    a_dtype, b_dtype, a_name, b_name = case
    A, B = torch.ones(5, 3, dtype=a_dtype, device=device), torch.ones(5, 2, dtype=b_dtype, device=device)
    assert message(lambda: torch.linalg.lstsq(A, B)) == (
        "torch.linalg.lstsq: Expected input and other to have the same dtype, "
        f"but got input's dtype {a_name} and other's dtype {b_name}"
    )


UNSUPPORTED = {
    "half": (torch.float16, "Half"),
    "bfloat16": (torch.bfloat16, "BFloat16"),
    "int32": (torch.int32, "Int"),
    "int64": (torch.int64, "Long"),
    "bool": (torch.bool, "Bool"),
}


@named(UNSUPPORTED)
def test_unsupported_dtypes(device, case):
    dtype, name = case
    A, B = torch.ones(5, 3, dtype=dtype, device=device), torch.ones(5, 2, dtype=dtype, device=device)
    assert message(lambda: torch.linalg.lstsq(A, B)) == BAD_TYPE
    assert re.fullmatch(rf'"\w+" not implemented for \'{name}\'', message(lambda: torch.linalg.lstsq(A, B, rcond=0.1)))


@pytest.mark.parametrize("where", ["A", "B"])
def test_devices_must_agree(device, where):
    A, B = torch.ones(5, 3), torch.ones(5, 2)
    if where == "A":
        A = A.to(device)
    else:
        B = B.to(device)
    with pytest.raises(RuntimeError, match="be on the same device"):
        torch.linalg.lstsq(A, B)


@pytest.mark.parametrize("driver", ["gelsy", "GELSD", "gelss", "fictitious_driver", "", "gels "], ids=repr)
def test_other_drivers(device, driver):
    A, B = torch.ones(5, 3, device=device), torch.ones(5, 2, device=device)
    assert message(lambda: torch.linalg.lstsq(A, B, driver=driver)) == BAD_DRIVER


ORDER = {
    "dims-before-dtype": (torch.ones(3), torch.ones(3).double(), None, "input must have at least 2 dimensions."),
    "dtype-before-rows": (torch.ones(5, 3), torch.ones(4).double(), None, "Expected input and other to have"),
    "rows-before-driver": (torch.ones(5, 3), torch.ones(4), "bad", "should match other.size(-1)"),
    "driver-before-type": (torch.ones(5, 3).half(), torch.ones(5).half(), "bad", "`driver` other than"),
    "type-before-batch": (torch.ones(2, 5, 3).half(), torch.ones(3, 5, 2).half(), None, "doesn't handle types"),
}


@named(ORDER)
def test_the_first_of_several_errors(device, case):
    A, B, driver, expected = case
    A, B = A.to(device), B.to(device)
    assert expected in message(lambda: torch.linalg.lstsq(A, B, driver=driver))


@pytest.mark.parametrize(
    "call",
    [
        lambda A, B: torch.linalg.lstsq(A=A, B=B),
        lambda A, B: torch.linalg.lstsq(A, B=B),
        lambda A, B: torch.linalg.lstsq(A),
        lambda A, B: torch.linalg.lstsq(A, B, None, "gels"),
        lambda A, B: torch.linalg.lstsq(A, B, rcond="0"),
        lambda A, B: torch.linalg.lstsq(A, B.tolist()),
    ],
    ids=["A-and-B", "B", "no-rhs", "driver-positional", "rcond-text", "rhs-list"],
)
def test_arguments_that_do_not_bind(device, call):
    with pytest.raises(TypeError):
        call(torch.ones(5, 3, device=device), torch.ones(5, 2, device=device))


def test_an_error_does_not_spoil_the_next_call(device):
    A, B = problem((5, 3), (5, 2), torch.float32, device)
    for _ in range(3):
        message(lambda: torch.linalg.lstsq(A, B[:4]))
        assert_answers(torch.linalg.lstsq(A, B), A, B)


# Arguments ----------------------------------------------------------------------------------------------------------


def test_keywords(device):
    A, B = problem((5, 3), (5, 2), torch.float64, device)
    expected = torch.linalg.lstsq(A, B)
    for result in (
        torch.linalg.lstsq(input=A, b=B),
        torch.linalg.lstsq(A, b=B, rcond=None, driver=None),
        torch.linalg.lstsq(A, B, None, driver="gels"),
    ):
        assert same_bits(result.solution, expected.solution)
        assert same_bits(result.residuals, expected.residuals)


@pytest.mark.parametrize("driver", [None, "gels", "GELS", "GeLs"], ids=repr)
def test_gels_in_any_case(device, driver):
    A, B = problem((5, 3), (5, 2), torch.float32, device)
    assert_answers(torch.linalg.lstsq(A, B, driver=driver), A, B)


@pytest.mark.parametrize("rcond", [-1.0, 0.0, 0.5, 1, 1e30, math.inf, -math.inf, math.nan], ids=str)
@pytest.mark.parametrize("shape", [(7, 3), (4, 4), (3, 7)], ids=shape_id)
def test_rcond_is_ignored(device, shape, rcond):
    A, B = problem(shape, (shape[0], 2), torch.float64, device, cond=1e6)
    with_rcond, without = torch.linalg.lstsq(A, B, rcond=rcond), torch.linalg.lstsq(A, B)
    assert same_bits(with_rcond.solution, without.solution)
    assert same_bits(with_rcond.residuals, without.residuals)


def test_no_warnings(device):
    A, B = problem((5, 3), (5, 2), torch.float32, device)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.linalg.lstsq(A, B)
        torch.linalg.lstsq(A.mT.contiguous(), B[:3])


# Views --------------------------------------------------------------------------------------------------------------


def strided(shape, strides, offset=0, dtype=torch.float32, seed=5):
    """A view of normal numbers with these strides."""
    size = offset + 1 + sum((n - 1) * s for n, s in zip(shape, strides))
    return randn(size, dtype=dtype, seed=seed).as_strided(shape, strides, offset)


# id: shape, strides and storage offset of A, then of B.
VIEWS = {
    "transposed-A": (((6, 3), (1, 6), 0), ((6, 2), (2, 1), 0)),
    "transposed-B": (((6, 3), (3, 1), 0), ((6, 2), (1, 6), 0)),
    "transposed-both": (((6, 3), (1, 6), 0), ((6, 2), (1, 6), 0)),
    "transposed-wide": (((3, 6), (1, 3), 0), ((3, 2), (1, 3), 0)),
    "every-other-row": (((6, 3), (8, 1), 0), ((6, 2), (6, 1), 0)),
    "every-third-column": (((6, 3), (9, 3), 0), ((6, 2), (6, 3), 0)),
    "wide-columns-apart": (((3, 6), (13, 2), 0), ((3, 2), (7, 3), 0)),
    "offset-of-one": (((6, 3), (3, 1), 1), ((6, 2), (2, 1), 1)),
    "offset-of-three": (((6, 3), (3, 1), 3), ((6,), (1,), 3)),
    "vector-strided": (((6, 3), (3, 1), 0), ((6,), (5,), 2)),
    "hankel": (((6, 3), (1, 1), 0), ((6, 2), (1, 1), 4)),
    "batch-vector-strided": (((2, 6, 3), (18, 3, 1), 0), ((2, 6), (1, 2), 0)),
    "batch-permuted": (((3, 2, 6, 3), (18, 54, 3, 1), 0), ((3, 2, 6, 2), (12, 36, 2, 1), 0)),
    "batch-innermost": (((4, 6, 3), (1, 12, 4), 0), ((4, 6, 2), (1, 8, 4), 0)),
    "batch-with-gaps": (((3, 6, 3), (50, 3, 1), 5), ((3, 6, 2), (31, 2, 1), 7)),
    "batch-of-windows": (((4, 6, 3), (2, 1, 1), 0), ((4, 6, 2), (3, 1, 1), 0)),
    "expanded-A": (((4, 6, 3), (0, 3, 1), 0), ((4, 6, 2), (12, 2, 1), 0)),
    "expanded-B": (((4, 6, 3), (18, 3, 1), 0), ((4, 6, 2), (0, 2, 1), 0)),
    "expanded-both": (((4, 6, 3), (0, 3, 1), 0), ((4, 6, 2), (0, 2, 1), 0)),
    "expanded-B-vector": (((4, 6, 3), (18, 3, 1), 0), ((4, 6), (0, 1), 0)),
    "expanded-B-rows": (((6, 3), (3, 1), 0), ((6, 2), (0, 1), 0)),
    "expanded-B-columns": (((6, 3), (3, 1), 0), ((6, 4), (1, 0), 0)),
    "expanded-B-scalar": (((6, 3), (3, 1), 0), ((6, 4), (0, 0), 0)),
    "expanded-outer-batch": (((2, 3, 6, 3), (0, 18, 3, 1), 0), ((2, 3, 6, 1), (18, 6, 1, 1), 0)),
    "expanded-inner-batch": (((2, 3, 6, 3), (18, 0, 3, 1), 0), ((2, 3, 6, 1), (18, 6, 1, 1), 0)),
    "sizes-of-one-with-odd-strides": (((1, 6, 3), (7, 3, 1), 0), ((1, 6, 1), (99, 1, 5), 0)),
    "four-batch-dims": (
        ((2, 2, 2, 2, 4, 2), (16, 64, 8, 32, 2, 1), 0),
        ((2, 2, 2, 2, 4, 1), (4, 32, 16, 8, 1, 1), 0),
    ),
    "five-batch-dims": (
        ((2, 1, 2, 2, 2, 2, 3, 2), (96, 5, 6, 48, 12, 24, 2, 1), 0),
        ((2, 1, 2, 2, 2, 2, 3, 1), (3, 1, 48, 6, 24, 12, 1, 1), 0),
    ),
    "four-batch-dims-wide-vector": (
        ((2, 2, 2, 2, 2, 4), (16, 64, 8, 32, 1, 2), 0),
        ((2, 2, 2, 2, 2), (2, 16, 8, 4, 1), 0),
    ),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
@named(VIEWS)
def test_views(device, case, dtype):
    (a_shape, a_strides, a_offset), (b_shape, b_strides, b_offset) = case
    A, B = strided(*case[0], dtype=dtype, seed=5), strided(*case[1], dtype=dtype, seed=6)

    def on_device(view, shape, strides, offset):
        return view._base.to(device).as_strided(shape, strides, offset)

    A_, B_ = on_device(A, a_shape, a_strides, a_offset), on_device(B, b_shape, b_strides, b_offset)
    assert A_.stride() == a_strides and B_.stride() == b_strides
    before = A_._base.cpu(), B_._base.cpu()
    result = torch.linalg.lstsq(A_, B_)
    expected = gels64(A, B)
    # the numbers of these views are as they come: compare where the condition allows
    singular = torch.linalg.svdvals(A.double())
    cond = (singular.amax(-1) / singular.amin(-1)).max().item()
    assert cond < 1e3
    assert_close(result.solution, expected.solution, factor=30 * cond)
    assert_close(result.residuals, expected.residuals, factor=30 * cond)
    assert torch.equal(A_._base.cpu(), before[0]) and torch.equal(B_._base.cpu(), before[1])


@pytest.mark.parametrize("dtype", COMPLEX, ids=dtype_id)
@pytest.mark.parametrize("lazy", ["conj", "adjoint", "neg"])
@pytest.mark.parametrize("which", ["A", "B", "both"])
def test_lazy_complex_views(device, dtype, lazy, which):
    make = {"conj": torch.conj, "adjoint": torch.adjoint, "neg": torch._neg_view}[lazy]
    A, B = matrix(5, 3, dtype=dtype), randn(5, 2, dtype=dtype, seed=7)
    if which in ("A", "both"):
        A = make(A.mT.contiguous() if lazy == "adjoint" else A)
    if which in ("B", "both"):
        B = make(B.mT.contiguous() if lazy == "adjoint" else B)

    def on_device(tensor):  # the copy would materialise the view: apply it there
        if tensor.is_conj() and lazy == "adjoint":
            return tensor.adjoint().to(device).adjoint()
        if tensor.is_conj():
            return tensor.conj().to(device).conj()
        if tensor.is_neg():
            return torch._neg_view(torch._neg_view(tensor).to(device))
        return tensor.to(device)

    A_, B_ = on_device(A), on_device(B)
    assert (A_.is_conj(), A_.is_neg()) == (A.is_conj(), A.is_neg())
    assert_answers(torch.linalg.lstsq(A_, B_), A.resolve_conj().resolve_neg(), B.resolve_conj().resolve_neg())


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
def test_real_negative_view(device, dtype):
    """The imaginary part of a conjugate is a real tensor with the negative bit."""
    A, B = matrix(5, 3, dtype=dtype), randn(5, 2, dtype=dtype, seed=7)
    A_, B_ = (torch.complex(t, -t).to(device).conj().imag for t in (A, B))
    assert A_.is_neg() and B_.is_neg()
    assert_close(torch.linalg.lstsq(A_, B_.resolve_neg()).solution, gels64(A, B).solution)
    assert_close(torch.linalg.lstsq(A_.resolve_neg(), B_).solution, gels64(A, B).solution)
    assert_close(torch.linalg.lstsq(A_, B_).residuals, gels64(A, B).residuals)


# Inputs and outputs stand apart -------------------------------------------------------------------------------------

APART = ["tall", "tall-vector", "square", "wide", "batch", "broadcast-A", "broadcast-B", "rhs-wider-than-matrix"]


@pytest.mark.parametrize("layout", ["row-major", "column-major"])
@pytest.mark.parametrize("dtype", FLOATS + COMPLEX[:1], ids=dtype_id)
@pytest.mark.parametrize("name", APART)
def test_inputs_are_not_modified(device, name, dtype, layout):
    A, B = problem(*SHAPES[name][:2], dtype, device)
    if layout == "column-major":
        A = A.mT.contiguous().mT
        B = B.mT.contiguous().mT if B.dim() > 1 else B
    before = A.cpu().clone(), B.cpu().clone()
    torch.linalg.lstsq(A, B)
    assert torch.equal(A.cpu(), before[0]) and torch.equal(B.cpu(), before[1])


@pytest.mark.parametrize("name", APART)
def test_outputs_are_memory_of_their_own(device, name):
    A, B = problem(*SHAPES[name][:2], torch.float32, device)
    first, second = torch.linalg.lstsq(A, B), torch.linalg.lstsq(A, B)
    kept = second.solution.cpu(), second.residuals.cpu(), A.cpu(), B.cpu()
    first.solution.fill_(7.0)
    first.residuals.fill_(7.0)
    assert torch.equal(second.solution.cpu(), kept[0]) and torch.equal(second.residuals.cpu(), kept[1])
    assert torch.equal(A.cpu(), kept[2]) and torch.equal(B.cpu(), kept[3])
    assert_answers(torch.linalg.lstsq(A, B), A, B)


def test_the_same_tensor_as_matrix_and_right_hand_side(device):
    A = matrix(4, 4, dtype=torch.float64).to(device)
    assert_close(torch.linalg.lstsq(A, A).solution, torch.eye(4, dtype=torch.float64))


# Many ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4, 2), (3, 3), (2, 4)], ids=shape_id)
@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
def test_large_batch(device, real_size, shape, dtype):
    count = 70_001 if real_size else 37
    A = matrix(count, *shape, dtype=dtype).to(device)
    B = randn(count, shape[0], 1, dtype=dtype, seed=7).to(device)
    assert_answers(torch.linalg.lstsq(A, B), A, B)


@pytest.mark.parametrize("batch", [(), (1,)], ids=["unbatched", "batch-of-one"])
def test_many_right_hand_sides(device, real_size, batch):
    k = 1_048_576 if real_size else 130
    A, B = problem((*batch, 3, 2), (*batch, 3, k), torch.float32, device)
    assert_answers(torch.linalg.lstsq(A, B), A, B)


def test_millions_of_right_hand_sides(device, real_size):
    if not real_size:
        pytest.skip("only at real size")
    A, B = problem((1, 3, 2), (1, 3, 6_250_000), torch.float32, device)
    assert_answers(torch.linalg.lstsq(A, B), A, B)


@pytest.mark.parametrize("shape", [(6, 3), (3, 3), (3, 6)], ids=shape_id)
def test_one_matrix_against_a_batch(device, real_size, shape):
    count = 5000 if real_size else 17
    A, B = problem((1, *shape), (count, shape[0], 1), torch.float32, device)
    assert_answers(torch.linalg.lstsq(A, B), A, B)


@pytest.mark.parametrize("how", ["broadcast", "expanded"])
def test_a_shared_matrix_is_read_in_place(device, how):
    """Its copies would take 160 MB."""
    if not ON_CUDA:
        pytest.skip("needs the allocator's statistics")
    A, B = problem((1, 64, 8), (80_000, 64, 1), torch.float32, device)
    if how == "expanded":
        A = A.expand(80_000, 64, 8)
    torch.linalg.lstsq(A, B)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    torch.linalg.lstsq(A, B)
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before < 40e6


def test_more_elements_than_int32(device, real_size):
    """The last matrix of a view lies beyond 2^31 elements."""
    if not real_size:
        pytest.skip("only at real size")
    stride = 2**30 + 8
    storage = torch.zeros(2 * stride + 32, dtype=torch.float32, device=device)
    A = storage.as_strided((3, 6, 3), (stride, 3, 1))
    values = matrix(3, 6, 3, dtype=torch.float32)
    A.copy_(values)
    B = randn(3, 6, 1, dtype=torch.float32, seed=7)
    assert_answers(torch.linalg.lstsq(A, B.to(device)), values, B)


# Singular and not finite --------------------------------------------------------------------------------------------


def spread_shapes(real_size):
    return [(6, 3), (4, 4), (70, 3)] + ([(5000, 8), (64, 64), (70_000, 16)] if real_size else [])


def bad_and_good(device, A, B, bad):
    """Solve the batch; the solutions, after checking that all but number `bad` are right."""
    result = torch.linalg.lstsq(A.to(device), B.to(device))
    good = [i for i in range(A.shape[0]) if i != bad]
    expected = gels64(A[good], B[good])
    # Each entry of a long solution of minimum norm carries the rounding of the whole.
    assert_close(result.solution[good], expected.solution, factor=100 + A.shape[-1] ** 0.5)
    if A.shape[-2] > A.shape[-1]:
        assert_close(result.residuals[good], expected.residuals)
    return result


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
@pytest.mark.parametrize("column", ["first", "middle", "last"])
def test_zero_column(device, real_size, dtype, column):
    for m, n in spread_shapes(real_size):
        A, B = matrix(3, m, n, dtype=dtype), randn(3, m, 2, dtype=dtype, seed=7)
        A[1, :, {"first": 0, "middle": n // 2, "last": n - 1}[column]] = 0
        result = bad_and_good(device, A, B, bad=1)
        assert not result.solution[1].cpu().isfinite().all(dim=0).any(), (m, n)
        alone = torch.linalg.lstsq(A[1].to(device), B[1].to(device))
        assert not alone.solution.cpu().isfinite().all(dim=0).any(), (m, n)


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
@pytest.mark.parametrize("row", ["first", "middle", "last"])
def test_zero_row_of_a_wide_matrix(device, real_size, dtype, row):
    for n, m in spread_shapes(real_size):
        if m == n:
            continue
        A, B = matrix(3, m, n, dtype=dtype), randn(3, m, 2, dtype=dtype, seed=7)
        A[1, {"first": 0, "middle": m // 2, "last": m - 1}[row]] = 0
        result = bad_and_good(device, A, B, bad=1)
        assert not result.solution[1].cpu().isfinite().all(dim=0).any(), (m, n)


@pytest.mark.parametrize("shape", [(5, 3), (4, 4), (3, 5), (70, 2)], ids=shape_id)
@pytest.mark.parametrize("batched", [False, True], ids=["unbatched", "batched"])
def test_zero_matrix(device, shape, batched):
    A, B = torch.zeros(3, *shape), torch.ones(3, shape[0], 2)
    if not batched:
        X = torch.linalg.lstsq(A[0].to(device), B[0].to(device)).solution.cpu()
        assert not X.isfinite().any() or not X.any()
        return
    A[0], A[2] = matrix(*shape, dtype=torch.float32, seed=1), matrix(*shape, dtype=torch.float32, seed=2)
    X = bad_and_good(device, A, B, bad=1).solution[1].cpu()
    assert not X.isfinite().any() or not X.any()


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
@pytest.mark.parametrize("kind", ["duplicate", "opposite", "sum", "ones"])
def test_dependent_columns(device, dtype, kind):
    """Rounding decides whether the last pivot is zero. Either way: not finite, or the solution of a near problem."""
    A, B = randn(9, 4, dtype=dtype, seed=3), randn(9, 2, dtype=dtype, seed=7)
    if kind == "duplicate":
        A[:, 3] = A[:, 1]
    elif kind == "opposite":
        A[:, 2] = -A[:, 0]
    elif kind == "sum":
        A = A.round(decimals=1).mul(16).round()
        A[:, 3] = A[:, 0] + A[:, 1]
    else:
        A[:] = 1
    X = torch.linalg.lstsq(A.to(device), B.to(device)).solution.cpu()
    for j in range(2):
        if X[:, j].isfinite().all():
            assert backward_error(A, X[:, j], B[:, j]) < 20 * torch.finfo(dtype).eps


@pytest.mark.parametrize("shape", [(6, 3), (4, 4), (3, 6), (70, 3)], ids=shape_id)
@pytest.mark.parametrize("where", ["first", "last"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
def test_not_finite_matrix_element(device, shape, where, value):
    A, B = matrix(3, *shape, dtype=torch.float32), randn(3, shape[0], 2, dtype=torch.float32, seed=7)
    A[1].flatten()[{"first": 0, "last": -1}[where]] = value
    result = bad_and_good(device, A, B, bad=1)
    assert not result.solution[1].cpu().isfinite().all(dim=0).any()
    if math.isnan(value):
        assert result.solution[1].cpu().isnan().all()
        assert shape[0] <= shape[1] or result.residuals[1].cpu().isnan().all()


@pytest.mark.parametrize("shape", [(6, 3), (4, 4), (3, 6), (70, 3)], ids=shape_id)
@pytest.mark.parametrize("where", ["first", "last"])
@pytest.mark.parametrize("value", [math.nan, math.inf], ids=str)
def test_not_finite_right_hand_side_element(device, shape, where, value):
    A, B = matrix(*shape, dtype=torch.float32), randn(shape[0], 3, dtype=torch.float32, seed=7)
    expected = gels64(A, B)
    B[{"first": 0, "last": -1}[where], 1] = value
    result = torch.linalg.lstsq(A.to(device), B.to(device))
    X = result.solution.cpu()
    assert not X[:, 1].isfinite().any()
    assert_close(X[:, [0, 2]], expected.solution[:, [0, 2]])
    if shape[0] > shape[1]:
        assert not result.residuals[1].isfinite()
        assert_close(result.residuals.cpu()[[0, 2]], expected.residuals[[0, 2]])


def test_nan_is_not_lost_in_a_larger_matrix(device):
    A = torch.eye(20)
    A[7, 11] = math.nan
    assert torch.linalg.lstsq(A.to(device), torch.ones(20, device=device)).solution.isnan().any()


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
def test_zero_right_hand_side(device, dtype):
    for shape in ((6, 3), (4, 4), (3, 6)):
        result = torch.linalg.lstsq(
            matrix(*shape, dtype=dtype).to(device), torch.zeros(shape[0], 2, dtype=dtype, device=device)
        )
        assert not result.solution.cpu().any() and not result.residuals.cpu().any()


# Answers known in closed form ---------------------------------------------------------------------------------------


def test_underdetermined_known_answer(device):
    A = torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, 3.0]], dtype=torch.float64, device=device)
    x = torch.linalg.lstsq(A, torch.tensor([1.0, 2.0], dtype=torch.float64, device=device)).solution
    assert_close(x, torch.tensor([3.0, 10.0, 12.0], dtype=torch.float64) / 23)


def test_complex_known_answer(device):
    A = torch.tensor([[3, 1j], [1, 2], [0, 1]], dtype=torch.complex128, device=device)
    result = torch.linalg.lstsq(A, torch.tensor([1, 1j, 2], dtype=torch.complex128, device=device))
    assert_close(result.solution, torch.tensor([17 - 2j, 11 + 17j], dtype=torch.complex128) / 47)
    assert result.residuals.dtype == torch.float64
    assert_close(result.residuals, torch.tensor([194 / 47], dtype=torch.float64))


def test_singular_but_consistent(device):
    """1 to 9 as a 3x3 matrix has rank 2: many solutions, each of which must satisfy A X = A."""
    A = torch.arange(1.0, 10.0).reshape(3, 3)
    X = torch.linalg.lstsq(A.to(device), A.to(device)).solution.cpu()
    if X.isfinite().all():
        assert (A @ X - A).abs().max() <= 20 * torch.finfo(torch.float32).eps * A.norm() * X.norm()
