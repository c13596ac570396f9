"""torch.linalg.lstsq(..., out=...): the overload has a kernel of its own, with rules of its own."""

from __future__ import annotations

import warnings

import pytest
import torch
from _support import (
    DEVICE_TYPE,
    FLOATS,
    assert_close,
    dtype_id,
    gels64,
    matrix,
    randn,
    shape_id,
)

RESIZED = "An output with one or more elements was resized since it had shape {}, which does not match"


def named(table: dict):
    return pytest.mark.parametrize("case", list(table.values()), ids=list(table))


NAMES = ("solution", "residuals", "rank", "singular_values")


def outputs(device, *shapes, dtype=torch.float32, dtypes=None, **named_shapes):
    """Four tensors of sevens to write to, (0,) unless a shape is given; `dtypes` for those that it names."""
    named_shapes.update(zip(NAMES, shapes))
    types = {**dict.fromkeys(NAMES, dtype), "rank": torch.int64, **(dtypes or {})}
    return tuple(torch.full(named_shapes.get(name, (0,)), 7, dtype=types[name], device=device) for name in NAMES)


def solve_into(A, B, out, device):
    """Solve into `out`; the messages of the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = torch.linalg.lstsq(A.to(device), B.to(device), out=out)
    assert type(result) is torch.return_types.linalg_lstsq_out
    for returned, given in zip(result, out):
        assert returned is given
    return [str(warning.message) for warning in caught if "determinis" not in str(warning.message)]


def message(call) -> str:
    with pytest.raises(RuntimeError) as raised:
        call()
    return str(raised.value)


# Values -------------------------------------------------------------------------------------------------------------

PROBLEMS = {
    "tall": ((5, 3), (5, 2)),
    "tall-vector": ((5, 3), (5,)),
    "square": ((4, 4), (4, 2)),
    "square-vector": ((4, 4), (4,)),
    "wide": ((3, 5), (3, 2)),
    "wide-vector": ((3, 5), (3,)),
    "batch": ((2, 5, 3), (2, 5, 2)),
    "batch-vector": ((2, 5, 3), (2, 5)),
    "batch-wide": ((2, 3, 5), (2, 3, 2)),
    "broadcast-A": ((1, 5, 3), (4, 5, 2)),
    "broadcast-B": ((4, 5, 3), (1, 5, 2)),
    "rhs-of-one-dim-fewer": ((1, 5, 3), (5, 4)),
    "no-rows": ((0, 3), (0, 2)),
    "no-rhs": ((5, 3), (5, 0)),
    "no-batch": ((0, 5, 3), (0, 5, 2)),
}


@pytest.mark.parametrize("start", ["empty", "exact", "wrong", "column-major"])
@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
@named(PROBLEMS)
def test_values(device, case, dtype, start):
    A, B = matrix(*case[0], dtype=dtype), randn(*case[1], dtype=dtype, seed=7)
    expected = gels64(A, B)
    shape, residuals_shape = tuple(expected.solution.shape), tuple(expected.residuals.shape)
    out = outputs(device, dtype=dtype)
    if start == "exact":
        out = outputs(device, shape, residuals_shape, dtype=dtype)
    elif start == "wrong":
        out = outputs(device, (2, 2, 2), (3,), dtype=dtype)
    elif start == "column-major":
        out = outputs(device, shape[::-1], dtype=dtype)
        out = (out[0].permute(*reversed(range(len(shape)))), *out[1:])
    solve_into(A, B, out, device)
    assert_close(out[0], expected.solution)
    assert_close(out[1], expected.residuals)
    assert out[2].shape == (0,) and out[3].shape == (0,)
    assert out[0].dtype == out[1].dtype == dtype


@pytest.mark.parametrize("shape", [(5, 3), (4, 4), (3, 5)], ids=shape_id)
def test_bits_of_the_functional_overload(device, shape):
    A, B = matrix(*shape, dtype=torch.float32), randn(shape[0], 2, dtype=torch.float32, seed=7)
    functional = torch.linalg.lstsq(A.to(device), B.to(device))
    for solution in ((0,), tuple(functional.solution.shape), (7,)):
        out = outputs(device, solution)
        solve_into(A, B, out, device)
        assert torch.equal(out[0].cpu(), functional.solution.cpu())
        assert torch.equal(out[1].cpu(), functional.residuals.cpu())


def test_no_columns(device):
    B = torch.tensor([[1.0, -2.0], [2.0, 0.0], [2.0, 3.0]])
    out = outputs(device)
    solve_into(torch.empty(3, 0), B, out, device)
    assert out[0].shape == (0, 2)
    assert out[1].tolist() == [9.0, 13.0]


def test_out_may_be_any_sequence_of_four(device):
    A, B = matrix(5, 3, dtype=torch.float32).to(device), randn(5, 2, dtype=torch.float32, seed=7).to(device)
    out = outputs(device)
    result = torch.linalg.lstsq(A, B, out=list(out))
    assert result.solution is out[0]
    with pytest.raises(TypeError):
        torch.linalg.lstsq(A, B, out=out[:3])


# The buffer of max(m, n) rows that ATen's own kernels hand to .out ---------------------------------------------------

BUFFERS = {
    "tall-vector": ((5, 3), (5,), (5,), (3,)),
    "square-vector": ((4, 4), (4,), (4,), (4,)),
    "wide-vector": ((3, 5), (3,), (5,), (5,)),
    "batch-vector": ((2, 5, 3), (2, 5), (2, 5), (2, 3)),
    "tall-batch": ((2, 5, 3), (2, 5, 2), (2, 5, 2), (2, 3, 2)),
    "wide-batch": ((2, 3, 5), (2, 3, 2), (2, 5, 2), (2, 5, 2)),
}


@named(BUFFERS)
def test_column_major_buffer_becomes_a_view(device, case):
    """The first n rows are the solution; nothing is resized, and nothing else of `out` is touched."""
    a_shape, b_shape, buffer_shape, x_shape = case
    A, B = matrix(*a_shape, dtype=torch.float32), randn(*b_shape, dtype=torch.float32, seed=7)
    vector = len(x_shape) == len(a_shape) - 1
    buffer = torch.full(buffer_shape if vector else (*buffer_shape[:-2], *buffer_shape[:-3:-1]), 7.0, device=device)
    storage = buffer.untyped_storage().data_ptr()
    out = (buffer if vector else buffer.mT, *outputs(device, rank=(3,), singular_values=(4,))[1:])
    assert solve_into(A, B, out, device) == []
    assert out[0].untyped_storage().data_ptr() == storage
    assert out[0].shape == x_shape
    assert_close(out[0], gels64(A, B).solution)
    assert out[2].tolist() == [7, 7, 7] and out[3].tolist() == [7.0] * 4


def test_unbatched_buffer_is_resized(device):
    """Without a batch the buffer is taken as a vector's by ATen's test, so a matrix of max(m, n) rows is wrong."""
    A, B = matrix(5, 3, dtype=torch.float32), randn(5, 2, dtype=torch.float32, seed=7)
    out = (torch.full((2, 5), 7.0, device=device).mT, *outputs(device)[1:])
    assert any(RESIZED.format([5, 2]) in text for text in solve_into(A, B, out, device))
    assert_close(out[0], gels64(A, B).solution)


# Resizing and what stays untouched ----------------------------------------------------------------------------------


def test_right_shapes_warn_of_nothing(device):
    A, B = matrix(5, 3, dtype=torch.float32), randn(5, 2, dtype=torch.float32, seed=7)
    assert solve_into(A, B, outputs(device), device) == []
    assert solve_into(A, B, outputs(device, (3, 2), (2,)), device) == []


RESIZES = {
    "solution": ({"solution": (7,)}, [[7]]),
    "solution-of-right-size": ({"solution": (2, 3)}, [[2, 3]]),
    "residuals": ({"residuals": (7,)}, [[7]]),
    "solution-and-residuals": ({"solution": (7,), "residuals": (1, 2)}, [[7], [1, 2]]),
    "rank-by-copy": ({"solution": (3, 2), "rank": (3,)}, [[3]]),
    "singular-values-by-copy": ({"solution": (3, 2), "singular_values": (4,)}, [[4]]),
}


@named(RESIZES)
def test_wrong_shapes_are_resized_with_a_warning(device, case):
    shapes, expected = case
    A, B = matrix(5, 3, dtype=torch.float32), randn(5, 2, dtype=torch.float32, seed=7)
    out = outputs(device, **shapes)
    texts = solve_into(A, B, out, device)
    assert len(texts) == len(expected)
    for text, shape in zip(texts, expected):
        assert text.startswith(RESIZED.format(shape))
    assert [tuple(o.shape) for o in out] == [(3, 2), (2,), (0,), (0,)]
    assert_close(out[0], gels64(A, B).solution)


def test_rank_and_singular_values_are_untouched_on_the_direct_path(device):
    A, B = matrix(5, 3, dtype=torch.float32), randn(5, 2, dtype=torch.float32, seed=7)
    out = outputs(device, rank=(3,), singular_values=(4,))
    assert solve_into(A, B, out, device) == []
    assert out[2].tolist() == [7, 7, 7]
    assert out[3].tolist() == [7.0] * 4


@pytest.mark.parametrize("start, kept", [((0,), 4), ((5, 2), 0)], ids=["direct", "copied"])
def test_residuals_of_a_wide_problem(device, start, kept):
    A, B = matrix(3, 5, dtype=torch.float32), randn(3, 2, dtype=torch.float32, seed=7)
    out = outputs(device, start, residuals=(4,))
    solve_into(A, B, out, device)
    assert out[1].tolist() == [7.0] * kept


# Types --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [(0,), (3, 2), (7,)], ids=["empty", "exact", "wrong"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.complex64], ids=dtype_id)
def test_solution_of_a_type_that_holds_it(device, dtype, start):
    A, B = matrix(5, 3, dtype=torch.float32), randn(5, 2, dtype=torch.float32, seed=7)
    out = outputs(device, start, dtypes={"solution": dtype})
    solve_into(A, B, out, device)
    assert out[0].dtype == dtype and out[0].shape == (3, 2)
    exact = torch.linalg.lstsq(A.to(device), B.to(device)).solution.cpu()
    assert torch.equal(out[0].cpu(), exact.to(dtype))


SAFELY = "torch.linalg.lstsq: Expected {} to be safely castable from {} dtype, but got {} with dtype {}"
TYPE_ERRORS = {
    "solution-int": ("solution", torch.int64, SAFELY.format("solution", "Float", "solution", "Long")),
    "solution-bool": ("solution", torch.bool, SAFELY.format("solution", "Float", "solution", "Bool")),
    "residuals-double": (
        "residuals",
        torch.float64,
        "Expected out tensor to have dtype float, but got double instead",
    ),
    "residuals-half": (
        "residuals",
        torch.float16,
        "Expected out tensor to have dtype float, but got c10::Half instead",
    ),
    "residuals-int": ("residuals", torch.int64, SAFELY.format("solution", "Float", "solution", "Long")),
    "rank-bool": ("rank", torch.bool, SAFELY.format("rank", "Long", "rank", "Bool")),
    "singular-values-int": (
        "singular_values",
        torch.int32,
        SAFELY.format("singular_values", "Float", "singular_values", "Int"),
    ),
}


@named(TYPE_ERRORS)
def test_types_that_do_not_fit(device, case):
    name, dtype, expected = case
    A, B = torch.eye(5, 3, device=device), torch.ones(5, 2, device=device)
    out = outputs(device, dtypes={name: dtype})
    assert message(lambda: torch.linalg.lstsq(A, B, out=out)) == expected


@pytest.mark.parametrize(
    "name, dtype",
    [("rank", torch.int32), ("rank", torch.float32), ("singular_values", torch.float64)],
    ids=["rank-int32", "rank-float32", "singular-values-float64"],
)
def test_castable_types_of_outputs_that_are_not_written(device, name, dtype):
    A, B = torch.eye(5, 3, device=device), torch.ones(5, 2, device=device)
    out = outputs(device, dtypes={name: dtype})
    assert "INTERNAL ASSERT" in message(lambda: torch.linalg.lstsq(A, B, out=out))


# Refusals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_outputs_on_another_device(device, name):
    A, B = torch.eye(5, 3, device=device), torch.ones(5, 2, device=device)
    out = tuple(o.cpu() if which == name else o for o, which in zip(outputs(device), NAMES))
    text = message(lambda: torch.linalg.lstsq(A, B, out=out))
    assert "be on the same device" in text
    if DEVICE_TYPE != "cuda":  # there the generated wrapper speaks first
        assert text == (
            f"torch.linalg.lstsq: Expected {name} and input tensors to be on the same device, "
            f"but got {name} on cpu and input on {device}"
        )


@pytest.mark.parametrize("which", ["A", "B"])
def test_no_gradients(device, which):
    A, B = torch.eye(5, 3, device=device), torch.ones(5, 2, device=device)
    (A if which == "A" else B).requires_grad_()
    assert message(lambda: torch.linalg.lstsq(A, B, out=outputs(device))) == (
        "linalg_lstsq(): functions with out=... arguments don't support automatic differentiation, "
        "but one of the arguments requires grad."
    )


def test_input_errors_come_first(device):
    out = outputs(device, dtypes={"solution": torch.int64})
    A = torch.ones(5, 3, device=device)
    assert message(lambda: torch.linalg.lstsq(A, torch.ones(4, device=device), out=out)) == (
        "torch.linalg.lstsq: input.size(-2) should match other.size(-1)"
    )
    assert message(lambda: torch.linalg.lstsq(A, torch.ones(5, device=device), driver="gelsd", out=out)) == (
        "torch.linalg.lstsq: `driver` other than `gels` is not supported on CUDA"
    )


def test_overlapping_solution(device):
    A, B = torch.eye(5, 3, device=device), torch.ones(5, 2, device=device)
    out = (torch.zeros(1, 1, device=device).expand(3, 2), *outputs(device)[1:])
    assert "more than one element of the written-to tensor refers to a single memory location" in message(
        lambda: torch.linalg.lstsq(A, B, out=out)
    )


# Aliases ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alias", ["matrix", "rhs"])
@pytest.mark.parametrize("order", ["row-major", "column-major"])
def test_solution_written_over_an_input(device, alias, order):
    A, B = matrix(4, 4, dtype=torch.float32), randn(4, 4, dtype=torch.float32, seed=7)
    A_, B_ = A.to(device), B.to(device)
    if order == "column-major":
        A_, B_ = A_.mT.contiguous().mT, B_.mT.contiguous().mT
    target = A_ if alias == "matrix" else B_
    torch.linalg.lstsq(A_, B_, out=(target, *outputs(device)[1:]))
    assert_close(target, gels64(A, B).solution)


@pytest.mark.parametrize("alias", ["matrix", "rhs"])
def test_batched_buffer_written_over_an_input(device, alias):
    A, B = matrix(2, 5, 5, dtype=torch.float64), randn(2, 5, 5, seed=7)
    A_, B_ = (t.to(device).mT.contiguous().mT for t in (A, B))
    target = A_ if alias == "matrix" else B_
    torch.linalg.lstsq(A_, B_, out=(target, *outputs(device, dtype=torch.float64)[1:]))
    assert_close(target, gels64(A, B).solution)
