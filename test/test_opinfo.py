"""PyTorch's own operator database: its sample inputs, error inputs and gradient checks, for both of its entries of
linalg.lstsq, and the shapes of its own tests. Nothing is skipped that stock does not skip."""

from __future__ import annotations

import copy
import itertools

import torch
from _support import DEVICE, DEVICE_TYPE, assert_answers, assert_close, gels64, matrix, randn
from torch.autograd import gradcheck, gradgradcheck
from torch.testing._internal.common_device_type import instantiate_device_type_tests, ops
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, noncontiguous_like, run_tests

import torch_lstsq_ext


def without_requirements(op):
    """The entry without its decorators: they skip CUDA builds that lack MAGMA, which we do not use."""
    op = copy.copy(op)
    op.decorators = ()
    return op


LSTSQ = [without_requirements(op) for op in op_db if op.name == "linalg.lstsq"]
PLAIN = [op for op in LSTSQ if not op.variant_test_name]
GRAD_ORIENTED = [op for op in LSTSQ if op.variant_test_name == "grad_oriented"]
assert len(PLAIN) == 1 and len(GRAD_ORIENTED) == 1


def samples(op, device, dtype, requires_grad=False):
    """The op's samples for the driver gels, the only one that a device has: the database adds the CPU's drivers for
    every device type but CUDA."""
    found = [
        sample
        for sample in op.sample_inputs(device, dtype, requires_grad=requires_grad)
        if sample.kwargs["driver"] == "gels"
    ]
    assert len(found) in (3, 9)  # batches (), (3,), (3, 3) of 3x3 and, but for builds without cuSOLVER, 2x3 and 4x3
    return found


def every(dtype) -> int:
    """The step through the samples of a gradient test: interpreted, complex problems take a minute for all."""
    return 4 if dtype.is_complex and DEVICE_TYPE == "simulator" else 1


class TestOpInfo(TestCase):
    @ops(LSTSQ)
    def test_samples(self, device, dtype, op):
        for sample in samples(op, device, dtype):
            A, B = sample.input, sample.args[0]
            result = op(A, B, **sample.kwargs)
            expected = gels64(A, B)
            assert_close(result[0], expected.solution, factor=1000)
            assert_close(result[1], expected.residuals, factor=1000)
            if not op.variant_test_name:
                assert_answers(result, A, B)

    @ops(LSTSQ)
    def test_noncontiguous_samples(self, device, dtype, op):
        for sample in samples(op, device, dtype):
            A, B = sample.input, sample.args[0]
            strided = noncontiguous_like(A), noncontiguous_like(B)
            assert not strided[0].is_contiguous()
            expected = gels64(A, B)
            for a, b in ((strided[0], B), (A, strided[1]), strided):
                result = op(a, b, **sample.kwargs)
                assert_close(result[0], expected.solution, factor=1000)
                assert_close(result[1], expected.residuals, factor=1000)

    @ops(PLAIN)
    def test_default_driver(self, device, dtype, op):
        for sample in samples(op, device, dtype):
            A, B = sample.input, sample.args[0]
            self.assertEqual(op(A, B).solution, op(A, B, driver="gels").solution, rtol=0, atol=0)

    @ops(PLAIN)
    def test_out(self, device, dtype, op):
        for sample in samples(op, device, dtype):
            A, B = sample.input, sample.args[0]
            functional = op(A, B, **sample.kwargs)
            out = tuple(torch.empty(0, dtype=t.dtype, device=t.device) for t in functional)
            result = op(A, B, **sample.kwargs, out=out)
            for returned, given, expected in zip(result, out, functional):
                self.assertIs(returned, given)
                self.assertEqual(given, expected, rtol=0, atol=0)

    @ops(LSTSQ, allowed_dtypes=[torch.float32])
    def test_errors(self, device, dtype, op):
        errors = list(op.error_inputs(device))
        assert errors
        for error in errors:
            sample = error.sample_input
            with self.assertRaisesRegex(error.error_type, error.error_regex):
                op(sample.input, *sample.args, **sample.kwargs)

    @ops(LSTSQ)
    def test_our_kernels_answered(self, device, dtype, op):
        from torch_lstsq_ext import solve

        before = solve.counts()
        answered = len([op(s.input, *s.args, **s.kwargs) for s in samples(op, device, dtype)])
        after = solve.counts()
        stock = after.get("stock", 0) - before.get("stock", 0)
        assert sum(after.values()) - sum(before.values()) == answered > 0
        assert stock == 0

    @ops(GRAD_ORIENTED, allowed_dtypes=[torch.float64, torch.complex128])
    def test_gradients(self, device, dtype, op):
        for sample in samples(op, device, dtype, requires_grad=True)[:: every(dtype)]:
            inputs = (sample.input, *sample.args)

            def call(A, B, kwargs=sample.kwargs):
                return op(A, B, **kwargs)

            unbatched = sample.input.dim() == 2
            assert gradcheck(call, inputs, fast_mode=True, check_forward_ad=True, check_batched_grad=unbatched)

    @ops(GRAD_ORIENTED, allowed_dtypes=[torch.float64, torch.complex128])
    def test_second_gradients(self, device, dtype, op):
        for sample in samples(op, device, dtype, requires_grad=True)[: 3 : every(dtype)]:
            inputs = (sample.input, *sample.args)

            def call(A, B, kwargs=sample.kwargs):
                return op(A, B, **kwargs)

            assert gradgradcheck(call, inputs, fast_mode=True, check_fwd_over_rev=True)

    # The shapes of PyTorch's own test_linalg_lstsq, test_linalg_lstsq_batch_broadcasting and ..._input_checks.

    @ops(PLAIN)
    def test_sizes(self, device, dtype, op):
        for m, batch in itertools.product((1, 2, 4, 8, 16), ((), (2,), (2, 2), (2, 2, 2))):
            if m == 16 and len(batch) > 1 and DEVICE_TYPE == "simulator":
                continue  # nothing new there, and slow
            for rows, columns in ((m, m // 2), (m, m), (m // 2, m)):
                A = matrix(*batch, rows, columns, dtype=dtype).to(device)
                B = randn(*batch, rows, 3, dtype=dtype, seed=7).to(device)
                assert_close(op(A, B).solution, gels64(A, B).solution)

    @ops(PLAIN)
    def test_batch_broadcasting(self, device, dtype, op):
        pairs = [((2, 2, 2), (2, 2, 2)), ((2, 2, 2), (1, 1, 1)), ((1, 3, 1, 3), (3, 1, 3, 1)), ((0,), (1,))]
        for (a_batch, b_batch), m in itertools.product(pairs, (1, 3)):
            A = matrix(*a_batch, m, m, dtype=dtype).to(device)
            B = randn(*b_batch, m, m // 2, dtype=dtype, seed=7).to(device)
            assert_answers(op(A, B), A, B)

    @ops(PLAIN)
    def test_empties(self, device, dtype, op):
        for a_shape, b_shape, x_shape in (
            ((0, 0, 3, 3), (0, 0, 3, 2), (0, 0, 3, 2)),
            ((2, 2, 0, 0), (2, 2, 0, 0), (2, 2, 0, 0)),
            ((2, 2, 3, 0), (2, 2, 3, 0), (2, 2, 0, 0)),
            ((2, 2, 3, 0), (2, 2, 3, 2), (2, 2, 0, 2)),
            ((2, 2, 0, 3), (2, 2, 0, 2), (2, 2, 3, 2)),
        ):
            A = torch.rand(a_shape, dtype=dtype).to(device)
            B = torch.rand(b_shape, dtype=dtype).to(device)
            X = op(A, B).solution
            assert X.shape == x_shape
            assert not X.cpu().any()


def only_this_device():
    return "cuda" if DEVICE_TYPE == "cuda" else torch._C._get_privateuse1_backend_name()


instantiate_device_type_tests(TestOpInfo, globals(), only_for=only_this_device())


def test_the_database_was_instantiated_for_this_device():
    names = [name for name, value in globals().items() if isinstance(value, type) and issubclass(value, TestCase)]
    instantiated = [globals()[name] for name in names if name.startswith("TestOpInfo")]
    assert len(instantiated) == 1
    assert sum(name.startswith("test_") for name in dir(instantiated[0])) > 30
    assert torch_lstsq_ext.is_enabled() and DEVICE.startswith(DEVICE_TYPE)


if __name__ == "__main__":
    run_tests()
