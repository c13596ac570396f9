"""A launch that breaks the device's profile raises before it runs, and its call goes to stock with a warning."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from _support import DEVICE, assert_close, gels64, matrix, randn

from torch_lstsq_ext import limits, solve
from torch_lstsq_ext.devices import hygon, iluvatar, metax, nvidia
from torch_lstsq_ext.devices.facts import Facts
from torch_lstsq_ext.limits import LimitExceeded, check_compiled, check_launch
from torch_lstsq_ext.plan import make_plan
from torch_lstsq_ext.problem import Problem

DOT = "%c = tt.dot %a, %b, %c, inputPrecision = ieee : tensor<{m}x{k}x{t}> * tensor<{k}x{n}x{t}> -> tensor<{m}x{n}x{t}>"
REDUCE = """
    %r = "tt.reduce"(%x) <{{axis = {axis} : i32}}> ({{
    ^bb0(%l: f32 loc(#loc), %r: f32 loc(#loc)):
      %s = arith.addf %l, %r : f32 loc(#loc)
      tt.reduce.return %s : f32 loc(#loc)
    }}) : (tensor<{shape}xf32>) -> tensor<4xf32> loc(#loc)
"""


def dot(t="f32", m=32, n=16, k=64):
    return DOT.format(m=m, n=n, k=k, t=t)


def compiled(ttir="", shared=0, spills=0, stages=1):
    return SimpleNamespace(
        metadata=SimpleNamespace(shared=shared, num_stages=stages), n_spills=spills, asm={"ttir": ttir}
    )


def small_plan(facts: Facts):
    return make_plan(Problem(m=256, n=32, k=1, groups=(1, 1, 1)), facts)


def test_dots_and_reductions_are_read_from_the_ir():
    ttir = dot("f64", 16, 32, 64) + "\n" + REDUCE.format(axis=0, shape="512x2") + dot("f32", 64, 64, 8)
    ttir += REDUCE.format(axis=2, shape="4x1x32")
    assert limits.dots(ttir) == [("f64", 16), ("f32", 8)]
    assert limits.reduction_lengths(ttir) == {512, 32}
    assert limits.dots("tt.dot_scaled %a : tensor<16x16xf32>") == []


def test_threads():
    launch = SimpleNamespace(kernel="tile", num_warps=8)
    check_launch(launch, metax.FACTS)
    launch.num_warps = 16
    with pytest.raises(LimitExceeded, match="tile_kernel asks for 1024 threads a block, profile metax allows 512"):
        check_launch(launch, metax.FACTS)


WITHIN = {
    "shared": (metax.FACTS, compiled(shared=65536)),
    "private": (metax.FACTS, compiled(spills=1024)),
    "no-limit-of-private": (nvidia.FACTS, compiled(spills=100_000)),
    "stages-without-dot": (metax.FACTS, compiled(stages=3)),
    "one-stage": (metax.FACTS, compiled(dot(), stages=1)),
    "free-stages": (nvidia.FACTS, compiled(dot(), stages=4)),
    "fp64-dot": (nvidia.FACTS, compiled(dot("f64"))),
    "fp64-dot-to-be-tried": (hygon.FACTS, compiled(dot("f64"))),
    "reduction-of-1024": (iluvatar.FACTS, compiled(REDUCE.format(axis=0, shape="1024x512"))),
    "reduction-of-512": (metax.FACTS, compiled(REDUCE.format(axis=0, shape="512x4"))),
}
BEYOND = {
    "shared": (metax.FACTS, compiled(shared=65537), "65537 bytes of shared memory a block, .* metax allows 65536"),
    "private": (metax.FACTS, compiled(spills=1025), "4100 bytes of private memory a thread, .* metax allows 4096"),
    "stages": (metax.FACTS, compiled(dot(), stages=2), "2 stages beside tl.dot, profile metax allows 1"),
    "fp64-dot": (metax.FACTS, compiled(dot("f64")), "tl.dot on f64, which profile metax declares unsound"),
    "fp32-dot": (replace(nvidia.FACTS, fp32_dot=False), compiled(dot()), "tl.dot on f32, which profile nvidia"),
    "narrow-dot": (iluvatar.FACTS, compiled(dot(k=8)), "tl.dot of extent 8, profile iluvatar asks for at least 16"),
    "reduction": (iluvatar.FACTS, compiled(REDUCE.format(axis=1, shape="2x512")), "reduces 512 elements, .* iluvatar"),
}


@pytest.mark.parametrize(("facts", "kernel"), WITHIN.values(), ids=WITHIN)
def test_within_the_profile(facts, kernel):
    check_compiled("tile", kernel, facts)


@pytest.mark.parametrize(("facts", "kernel", "said"), BEYOND.values(), ids=BEYOND)
def test_beyond_the_profile(facts, kernel, said):
    with pytest.raises(LimitExceeded, match="tile_kernel .*" + said):
        check_compiled("tile", kernel, facts)


def test_a_triton_that_does_not_count_spills():
    kernel = compiled()
    del kernel.n_spills
    check_compiled("tile", kernel, metax.FACTS)


class FakeKernel:
    """Stands for a JITFunction: records what the runner does with it."""

    def __init__(self, kernel):
        self.kernel, self.done = kernel, []

    def warmup(self, *args, grid, num_warps, num_stages, **options):
        self.done.append(("compiled", grid, num_warps, num_stages))
        return self

    def __getitem__(self, grid):
        self.done.append(("loaded", grid))
        return lambda *args, **options: self.done.append(("run", grid)) or self

    def __getattr__(self, name):
        return getattr(self.kernel, name)


@pytest.mark.parametrize("shared", [65536, 65537], ids=["within", "beyond"])
def test_the_runner_checks_before_it_runs(monkeypatch, shared):
    from torch_lstsq_ext import launch

    kernel = FakeKernel(compiled(shared=shared))
    monkeypatch.setitem(launch.KERNELS, "tile", kernel)
    (planned,) = small_plan(metax.FACTS).launches
    runner = launch.Runner(planned, torch.device(DEVICE), metax.FACTS)
    grid = (planned.grid, 1, 1)
    if shared > metax.FACTS.shared_memory:
        with pytest.raises(LimitExceeded, match="profile metax allows 65536"):
            runner.run(lambda: [], [])
    else:
        runner.run(lambda: [], [])
    assert kernel.done[:2] == [("compiled", grid, planned.num_warps, 1), ("loaded", grid)]
    assert (("run", grid) in kernel.done) == (shared <= metax.FACTS.shared_memory)


@pytest.fixture
def fresh(monkeypatch):
    """Nothing prepared for the device, and its facts to be changed: fresh(threads_per_block=...)."""
    device = torch.device(DEVICE)
    facts = solve.device_facts(device)
    monkeypatch.setattr(solve, "_prepared", {})
    monkeypatch.setattr(solve, "_said", set())
    return lambda **changes: monkeypatch.setitem(solve._facts, device, replace(facts, **changes))


def test_a_solve_beyond_the_profile_goes_to_stock_with_one_warning(fresh, monkeypatch):
    fresh(threads_per_block=32)
    facts = solve.device_facts(torch.device(DEVICE))
    # A plan that takes no notice of the limit, as a faulty route's
    monkeypatch.setattr(
        solve, "make_plan", lambda problem, facts, *_: make_plan(problem, replace(facts, threads_per_block=256))
    )
    A, b = matrix(256, 32, dtype=torch.float32), randn(256, dtype=torch.float32)
    before = solve.counts()
    with pytest.warns(RuntimeWarning, match=rf"LimitExceeded: .* threads a block, profile {facts.vendor} allows 32"):
        result = torch.linalg.lstsq(A.to(DEVICE), b.to(DEVICE))
    assert_close(result.solution, gels64(A, b.unsqueeze(1)).solution[:, 0])
    after = solve.counts()
    assert after.get("stock", 0) == before.get("stock", 0) + 1
    assert after.get("tile", 0) == before.get("tile", 0)


@pytest.mark.parametrize("m", [512, 1024, 4096, 100_000])
def test_no_tile_sums_a_broken_length(m):
    seen = set()
    for n in (1, 2, 8, 64):
        for facts in (iluvatar.FACTS, replace(iluvatar.FACTS, broken_reduction_lengths=())):
            plan = make_plan(Problem(m=m, n=n, k=1), facts)
            lengths = {launch.constexprs["TM"] for launch in plan.launches}
            assert not lengths & {*facts.broken_reduction_lengths}
            seen |= lengths
    if m == 4096:
        assert 512 in seen, "without the trap the plan would take that length"
