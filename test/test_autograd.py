"""Derivatives and function transforms: PyTorch's own formulas around our forward."""

from __future__ import annotations

import pytest
import torch
from _support import assert_close, gels64, matrix, randn
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import grad, jacfwd, jacrev, jvp, vjp, vmap

from torch_lstsq_ext import solve

PROBLEMS = {
    "tall": ((3, 2), (3, 2)),
    "tall-vector": ((3, 2), (3,)),
    "square": ((2, 2), (2, 2)),
    "square-vector": ((2, 2), (2,)),
    "wide": ((2, 3), (2, 2)),
    "wide-vector": ((2, 3), (2,)),
    "batch": ((2, 2, 1), (2, 2, 2)),
    "batch-vector": ((2, 3, 1), (2, 3)),
    "broadcast-A": ((1, 2, 1), (2, 2, 1)),
    "broadcast-B": ((2, 2, 1), (1, 2, 1)),
    "broadcast-wide": ((1, 1, 2), (2, 1, 1)),
}
SMALL = ["tall", "tall-vector", "square", "wide", "batch-vector", "broadcast-B"]


def problem(name, device, requires_grad=True):
    a_shape, b_shape = PROBLEMS[name]
    A = matrix(*a_shape, dtype=torch.float64).to(device)
    B = randn(*b_shape, seed=7).to(device)
    return A.requires_grad_(requires_grad), B.requires_grad_(requires_grad)


def solution(A, B):
    return torch.linalg.lstsq(A, B).solution


def differentiable(A, B):
    return torch.linalg.lstsq(A, B)[:2]


def scalar(A, B):
    result = torch.linalg.lstsq(A, B)
    return result.solution.sin().sum() + result.residuals.sum()


# Gradients ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(PROBLEMS))
def test_gradcheck(device, name):
    assert gradcheck(differentiable, problem(name, device))


@pytest.mark.parametrize("name", SMALL)
def test_forward_mode(device, name):
    assert gradcheck(differentiable, problem(name, device), check_forward_ad=True, check_backward_ad=False)


@pytest.mark.parametrize("name", SMALL)
def test_double_backward(device, name):
    assert gradgradcheck(differentiable, problem(name, device))


@pytest.mark.parametrize("name", ["tall", "wide"])
def test_batched_gradients(device, name):
    assert gradcheck(differentiable, problem(name, device), check_batched_grad=True, fast_mode=True)


@pytest.mark.parametrize("which", ["A", "B"])
@pytest.mark.parametrize("name", ["tall", "square-vector", "wide"])
def test_one_input_requires_grad(device, name, which):
    A, B = problem(name, device)
    (B if which == "A" else A).requires_grad_(False)
    assert gradcheck(differentiable, (A, B))


def test_gradient_values(device):
    """Of the solution: that of pinv(A) B. Of the residuals: 2 (A X - B) X^T and -2 (A X - B)."""
    A, B = problem("tall", device)
    solution(A, B).sum().backward()
    A_, B_ = (t.detach().cpu().requires_grad_() for t in (A, B))
    (torch.linalg.pinv(A_) @ B_).sum().backward()
    assert_close(A.grad, A_.grad, factor=1000)
    assert_close(B.grad, B_.grad, factor=1000)

    A, B = problem("tall", device)
    result = torch.linalg.lstsq(A, B)
    result.residuals.sum().backward()
    with torch.no_grad():
        error = A_ @ gels64(A_, B_).solution - B_
        assert_close(A.grad, 2 * error @ gels64(A_, B_).solution.mT, factor=1000)
        assert_close(B.grad, -2 * error, factor=1000)


def test_what_carries_a_gradient(device):
    A, B = problem("tall", device)
    result = torch.linalg.lstsq(A, B)
    assert result.solution.requires_grad and result.residuals.requires_grad
    assert not result.rank.requires_grad and not result.singular_values.requires_grad
    assert "LinalgLstsq" in result.solution.grad_fn.name()


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128], ids=["float32", "complex128"])
def test_other_dtypes_have_gradients(device, dtype):
    A = matrix(4, 2, dtype=dtype)
    B = randn(4, 2, dtype=dtype, seed=7)
    A_, B_ = A.to(device).requires_grad_(), B.to(device).requires_grad_()
    solution(A_, B_).abs().square().sum().backward()
    A, B = (t.to(torch.complex128 if dtype.is_complex else torch.float64).requires_grad_() for t in (A, B))
    torch.linalg.lstsq(A, B, driver="gels").solution.abs().square().sum().backward()
    assert_close(A_.grad, A.grad, factor=1000)
    assert_close(B_.grad, B.grad, factor=1000)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
def test_without_a_graph(device, mode):
    A, B = problem("tall", device)
    with mode():
        result = torch.linalg.lstsq(A, B)
    assert not result.solution.requires_grad and not result.residuals.requires_grad
    assert result.solution.is_inference() == (mode is torch.inference_mode)
    assert_close(result.solution, gels64(A.detach(), B.detach()).solution)


def test_dual_tensors(device):
    A, B = problem("tall", device, requires_grad=False)
    tangent = randn(3, 2, seed=9).to(device)
    with forward_ad.dual_level():
        result = torch.linalg.lstsq(A, forward_ad.make_dual(B, tangent))
        primal, derivative = forward_ad.unpack_dual(result.solution)
    assert_close(primal, gels64(A, B).solution)
    assert_close(derivative, gels64(A, tangent).solution, factor=1000)


# Transforms ---------------------------------------------------------------------------------------------------------


def batch_of(a_shape, b_shape, device):
    return matrix(*a_shape, dtype=torch.float64).to(device), randn(*b_shape, seed=7).to(device)


VMAPS = {
    "both": ((3, 4, 2), (3, 4, 2), (0, 0)),
    "A-only": ((3, 4, 2), (4, 2), (0, None)),
    "B-only": ((4, 2), (3, 4, 2), (None, 0)),
    "wide": ((3, 2, 4), (3, 2, 2), (0, 0)),
    "square": ((3, 2, 2), (3, 2, 2), (0, 0)),
    "over-a-batch": ((3, 2, 4, 2), (3, 2, 4, 1), (0, 0)),
    "over-a-broadcast-batch": ((3, 1, 4, 2), (3, 2, 4, 1), (0, 0)),
}


@pytest.mark.parametrize("case", list(VMAPS.values()), ids=list(VMAPS))
def test_vmap(device, case):
    a_shape, b_shape, in_dims = case
    A, B = batch_of(a_shape, b_shape, device)
    result = vmap(torch.linalg.lstsq, in_dims=in_dims)(A, B)
    pick = [lambda t, i, d=d: t if d is None else t.select(d, i) for d in in_dims]
    looped = [gels64(pick[0](A, i), pick[1](B, i)) for i in range(3)]
    assert_close(result.solution, torch.stack([one.solution for one in looped]))
    residuals = torch.stack([one.residuals for one in looped])
    assert_close(result.residuals, residuals)
    assert result.rank.shape == (3, 0) and result.singular_values.shape == (3, 0)


def test_vmap_in_dims(device):
    A, B = batch_of((3, 4, 2), (3, 4, 2), device)
    expected = gels64(A, B).solution
    assert_close(vmap(solution, in_dims=(1, 2))(A.movedim(0, 1), B.movedim(0, 2)), expected)
    assert_close(vmap(solution, in_dims=(2, 0), out_dims=1)(A.movedim(0, 2), B), expected.movedim(0, 1))


def test_vmap_nested(device):
    A, B = batch_of((2, 3, 4, 2), (2, 3, 4, 1), device)
    assert_close(vmap(vmap(solution))(A, B), gels64(A, B).solution)
    assert_close(vmap(vmap(solution, in_dims=(None, 0)), in_dims=(None, 0))(A[0, 0], B), gels64(A[:1, :1], B).solution)


def test_vmap_of_a_vector_for_several_matrices(device):
    A, b = batch_of((3, 4, 2), (4,), device)
    expected = torch.stack([gels64(one, b).solution for one in A])
    assert_close(vmap(solution, in_dims=(0, None))(A, b), expected)


def test_vmap_of_vectors_is_refused_as_before(device):
    """(3, 4, 2) with (3, 4): per sample a vector, but the physical shapes are those of a matrix."""
    A, b = batch_of((3, 4, 2), (3, 4), device)
    with pytest.raises(RuntimeError, match=r"input\.size\(-2\) should match other\.size\(-2\)"):
        vmap(solution)(A, b)


@pytest.mark.parametrize("argument", [0, 1], ids=["A", "B"])
@pytest.mark.parametrize("jacobian", [jacrev, jacfwd], ids=["jacrev", "jacfwd"])
@pytest.mark.parametrize("name", ["tall", "tall-vector", "square", "wide"])
def test_jacobians(device, name, jacobian, argument):
    A, B = problem(name, device, requires_grad=False)
    found = jacobian(solution, argnums=argument)(A, B)

    def on_cpu(A, B):
        X = torch.linalg.pinv(A) @ (B.unsqueeze(-1) if B.dim() == 1 else B)
        return X.squeeze(-1) if B.dim() == 1 else X

    expected = torch.autograd.functional.jacobian(on_cpu, (A.cpu(), B.cpu()))[argument]
    assert_close(found, expected, factor=1000)


def test_jacobian_of_a_batch_of_vectors(device):
    A, B = batch_of((2, 3, 3), (2, 3), device)
    assert jacfwd(solution)(A, B).shape == (2, 3, 2, 3, 3)
    assert_close(jacfwd(solution)(A, B), jacrev(solution)(A, B).cpu(), factor=1000)


def test_vmap_of_grad(device):
    A, B = batch_of((3, 4, 2), (3, 4, 2), device)
    per_sample = vmap(grad(scalar, argnums=(0, 1)))(A, B)
    for i in range(3):
        A_, B_ = A[i].cpu().requires_grad_(), B[i].cpu().requires_grad_()
        result = torch.linalg.lstsq(A_, B_, driver="gels")
        (result.solution.sin().sum() + result.residuals.sum()).backward()
        assert_close(per_sample[0][i], A_.grad, factor=1000)
        assert_close(per_sample[1][i], B_.grad, factor=1000)


def test_vjp_and_jvp_agree(device):
    A, B = problem("tall", device, requires_grad=False)
    dA, dB, dX = (randn(*shape, seed=seed).to(device) for shape, seed in (((3, 2), 1), ((3, 2), 2), ((2, 2), 3)))
    _, forward = jvp(solution, (A, B), (dA, dB))
    _, pull = vjp(solution, A, B)
    gA, gB = pull(dX)
    assert_close((forward * dX).sum(), ((gA * dA).sum() + (gB * dB).sum()).cpu(), factor=1000)


# Elsewhere in the dispatcher ----------------------------------------------------------------------------------------


def test_functionalize(device):
    A, B = problem("tall", device, requires_grad=False)
    assert_close(torch.func.functionalize(solution)(A, B), gels64(A, B).solution)


def test_autocast_does_not_lower_the_precision(device):
    A, B = matrix(40, 8, cond=100.0, dtype=torch.float32), randn(40, 2, dtype=torch.float32, seed=7)
    plain = torch.linalg.lstsq(A.to(device), B.to(device)).solution
    with torch.autocast(device.split(":")[0], dtype=torch.bfloat16):
        cast = torch.linalg.lstsq(A.to(device), B.to(device)).solution
    assert cast.dtype == torch.float32
    assert torch.equal(cast.cpu(), plain.cpu())


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_matmul_precision_does_not_matter(device, precision):
    A, B = matrix(40, 8, cond=100.0, dtype=torch.float32), randn(40, 2, dtype=torch.float32, seed=7)
    plain = torch.linalg.lstsq(A.to(device), B.to(device)).solution
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        again = torch.linalg.lstsq(A.to(device), B.to(device)).solution
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(again.cpu(), plain.cpu())


def test_jit_trace(device):
    A, B = problem("tall", device, requires_grad=False)
    traced = torch.jit.trace(solution, (A, B))
    assert_close(traced(A * 2, B), gels64(A * 2, B).solution)


def test_make_fx_records_one_call(device):
    from torch.fx.experimental.proxy_tensor import make_fx

    A, B = problem("tall", device, requires_grad=False)
    graph = make_fx(solution)(A, B)
    targets = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    assert targets.count("aten.linalg_lstsq.default") == 1
    assert_close(graph(A, B), gels64(A, B).solution)


def test_compile_with_a_graph_break(device):
    """Dynamo runs the call as it is, and must not trace the Python that answers it."""
    A, B = problem("tall", device, requires_grad=False)
    compiled = torch.compile(lambda A, B: solution(A * 2, B) + 1, backend="eager")
    before = solve.counts()
    assert_close(compiled(A, B), gels64(A * 2, B).solution + 1)
    after = solve.counts()
    assert after.get("stock", 0) == before.get("stock", 0)
    assert sum(after.values()) == sum(before.values()) + 1


def test_training_step(device):
    """A layer solved in closed form inside a network: its loss goes down."""
    features = torch.nn.Linear(3, 2, dtype=torch.float64)
    with torch.no_grad():
        features.weight.copy_(randn(2, 3, seed=1))
        features.bias.copy_(randn(2, seed=2))
    features.to(device)
    x, y = randn(12, 3, seed=3).to(device), randn(12, 1, seed=4).to(device)
    optimizer = torch.optim.SGD(features.parameters(), lr=0.02)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = torch.linalg.lstsq(features(x).tanh(), y).residuals.sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
