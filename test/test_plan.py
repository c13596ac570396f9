"""plan.py, routes/ and tiling.py: pure functions, no device."""

import ast
import math
from dataclasses import replace
from pathlib import Path

import pytest

from torch_lstsq_ext import tiling
from torch_lstsq_ext.devices import hygon, iluvatar, metax, nvidia
from torch_lstsq_ext.plan import ROUTES, make_plan
from torch_lstsq_ext.problem import Problem
from torch_lstsq_ext.routes import compact_wy
from torch_lstsq_ext.routes.steps import WORKSPACE_ALIGNMENT, Piece

PACKAGE = Path(tiling.__file__).parent
PROFILES = {module.__name__.rpartition(".")[2]: module.FACTS for module in (nvidia, metax, iluvatar, hygon)}
SHAPES = [
    (1, 1, 1, 1), (1, 3, 2, 10**6), (65536, 6, 3, 1), (512, 6, 7, 1), (32, 3, 128, 128), (1, 256, 32, 1),
    (8, 64, 256, 1), (64, 72, 72, 72), (1, 128, 128, 1), (1, 129, 128, 1), (3, 1000, 17, 5), (1, 1 << 20, 64, 1),
    (1, 10**6, 2, 1), (64, 2048, 16, 1), (1, 131072, 128, 1), (200000, 4, 4, 1),
]  # fmt: skip


def shape_id(shape):
    return "x".join(map(str, shape))


def planned(facts, shape, dtype):
    batch, m, n, k = shape
    problem = Problem(m=m, n=n, k=k, dtype=dtype, groups=(1, 1, batch))
    return problem, make_plan(problem, facts)


@pytest.fixture(params=PROFILES, ids=str)
def facts(request):
    return PROFILES[request.param]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=shape_id)
def test_a_plan_covers_the_problem_within_the_profile(facts, shape, dtype):
    if dtype == "float64" and not facts.fp64:
        with pytest.raises(NotImplementedError, match="float64"):
            planned(facts, shape, dtype)
        return
    problem, plan = planned(facts, shape, dtype)
    assert plan is not None
    if plan.route == "compact_wy":
        assert min(problem.m, problem.n) > 32, "small problems take one launch"
        return
    for launch in plan.launches:
        c = launch.constexprs
        assert all(c[name] == tiling.power_of_two_ceil(c[name]) for name in ("RM", "RN", "RK", "W", "TN", "TM"))
        assert launch.num_warps * facts.warp_size <= facts.threads_per_block
        assert c["RM"] * (c["RN"] + c["RK"]) * problem.item_bytes <= 4 * tiling.WORDS_A_THREAD
        assert c["RN"] * c["TN"] >= min(problem.m, problem.n)
        assert 0 < launch.grid < 2**31
        assert all(0 <= t.start < plan.workspace for t in launch.tensors if isinstance(t, Piece))
    last = plan.launches[-1]
    c = last.constexprs
    assert last.kernel == "tile"
    assert c["RM"] * c["TM"] >= last.sizes[0], "the last tile holds all rows that are left"
    assert last.grid == math.ceil(problem.batch / c["W"]) * math.ceil(problem.k / (c["RK"] * c["TN"]))


@pytest.mark.parametrize("shape", [s for s in SHAPES if s[1] > 4096], ids=shape_id)
def test_tsqr_levels_hand_on_every_row(shape):
    problem, plan = planned(nvidia.FACTS, shape, "float32")
    assert plan.route == "tsqr"
    rows, first_partial = problem.m, 0
    buffers = []
    for launch in plan.launches[:-1]:
        c, sizes = launch.constexprs, dict(zip(("rows", "n", "k", "batch", "chunks", "g1", "g2"), launch.sizes))
        blocks, partials, first = launch.sizes[7:10]
        assert sizes["rows"] == rows
        assert blocks == math.ceil(rows / (c["RM"] * c["TM"]))
        assert first == first_partial
        stack, partial_buffer = launch.tensors[2:]
        assert stack.start % WORKSPACE_ALIGNMENT == 0
        assert stack.at(problem.batch * (problem.n + problem.k) * blocks * problem.n).start <= plan.workspace
        assert partial_buffer.at(problem.batch * problem.k * partials).start <= stack.start
        assert not buffers or buffers[-1] != stack, "a level must not write what it reads"
        buffers.append(stack)
        rows, first_partial = blocks * problem.n, first_partial + blocks
    assert plan.launches[-1].sizes[0] == rows
    assert first_partial == partials


@pytest.mark.parametrize("height, tree_height", [(64, 64), (256, 64), (64, 512), (1024, 128)])
@pytest.mark.parametrize("rows", [1, 5, 64, 65, 69, 96, 97, 1000, 4096, 100_001])
def test_levels_annihilate_all_but_one_triangle(rows, height, tree_height):
    """Follows the rows that are left: each block keeps its first PANEL."""
    left = list(range(rows))
    for i, level in enumerate(compact_wy.levels(rows, height, tree_height)):
        size = tree_height if i else height
        assert level.stack_rows == len(left)
        assert level.blocks == -(-len(left) // size)
        P = compact_wy.PANEL
        assert left == [s // P * level.stride + s % P for s in range(len(left))]
        left = [row for first in range(0, len(left), size) for row in left[first : first + size][:P]]
    assert len(left) == min(rows, compact_wy.PANEL)


@pytest.mark.parametrize("shape", [(8192, 8192, 1), (1024, 2048, 1), (131072, 256, 1), (4096, 256, 1024)], ids=shape_id)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_compact_wy_takes_the_memory_of_the_problem(facts, shape, dtype):
    m, n, k = shape
    problem = Problem(m=m, n=n, k=k, dtype=dtype, a_strides=(n, 1), b_strides=(k, 1))
    plan = compact_wy.plan(problem, facts)
    words = plan.workspace / problem.item_bytes
    # For m < n every T is kept
    share_of_t = 0.0 if m >= n else 0.15
    assert words <= max(m, n) * (min(m, n) * (1 + share_of_t) + k) * 1.05 + 1e5
    for launch in plan.launches:
        assert all(0 <= t.start < plan.workspace for t in launch.tensors if isinstance(t, Piece))
        assert 0 < launch.grid < 2**31
        assert launch.num_warps <= facts.max_warps


def test_a_profile_decides_how_products_are_formed():
    problem = Problem(m=512, n=512, k=32, dtype="float64", a_strides=(512, 1), b_strides=(1, 1))
    for facts, expected in ((nvidia.FACTS, True), (metax.FACTS, False), (hygon.FACTS, False)):
        used = {launch.constexprs["USE_DOT"] for launch in compact_wy.plan(problem, facts).launches
                if "USE_DOT" in launch.constexprs}  # fmt: skip
        assert used == {expected}
    single = compact_wy.plan(replace(problem, dtype="float32"), metax.FACTS)
    dots = [launch for launch in single.launches if launch.constexprs.get("USE_DOT")]
    assert dots and all(launch.num_stages == 1 for launch in dots)


def test_two_stacks_do_not_overlap():
    problem, plan = planned(nvidia.FACTS, (1, 1 << 20, 64, 1), "float32")
    first, second = plan.launches[0], plan.launches[1]
    length = problem.batch * (problem.n + problem.k) * first.sizes[7] * problem.n
    assert first.tensors[2].at(length).start <= second.tensors[2].start


def test_the_first_route_that_covers_answers():
    for shape in SHAPES:
        problem, plan = planned(nvidia.FACTS, shape, "float32")
        covering = [name for name, route in ROUTES if route.covers(problem, nvidia.FACTS)]
        assert (plan.route if plan else None) == (covering[0] if covering else None)


def test_float64_on_a_device_without_it_says_what_to_do():
    with pytest.raises(NotImplementedError) as caught:
        planned(iluvatar.FACTS, (1, 8, 3, 1), "float64")
    assert "float32" in str(caught.value)


@pytest.mark.parametrize("shape", [(3, 7, 4, 2), (3, 4, 7, 2), (1, 5000, 40, 1), (1, 300, 300, 1)], ids=shape_id)
def test_a_complex_plan_is_a_real_one_between_two_launches(facts, shape):
    if not facts.fp64:
        with pytest.raises(NotImplementedError, match="float64"):
            planned(facts, shape, "complex128")
    batch, m, n, k = shape
    layout = {"groups": (1, 1, batch), "a_batch_strides": (0, 0, m * n), "b_batch_strides": (0, 0, m * k)}
    plan = make_plan(Problem(m=m, n=n, k=k, dtype="complex64", **layout), facts)
    real = make_plan(Problem(m=2 * m, n=2 * n, k=k, **layout), facts)
    assert plan.route == real.route
    embed_a, embed_b, *solve, extract = plan.launches
    assert [launch.kernel for launch in (embed_a, embed_b, extract)] == ["embed", "embed", "extract"]
    a, b, x = embed_a.tensors[1], embed_b.tensors[1], extract.tensors[0]
    assert a.at(4 * m * n).start <= b.start and b.at(2 * m * k * batch).start <= x.start
    used = {place for launch in solve for place in launch.tensors}
    assert {a, b, x} <= used and not used & {"A", "B", "X"}
    inner = [p.start for p in used - {a, b, x} if isinstance(p, Piece)]
    assert all(x.at(2 * n * k * batch).start <= start < plan.workspace for start in inner)


def test_fewer_threads_a_block_means_smaller_tiles():
    narrow = replace(nvidia.FACTS, threads_per_block=128)
    for shape in SHAPES:
        _, plan = planned(narrow, shape, "float32")
        assert plan is None or all(launch.num_warps <= 4 for launch in plan.launches)


@pytest.mark.parametrize(
    "path",
    [
        "plan.py",
        "problem.py",
        "tiling.py",
        *(f"routes/{n}.py" for n in ("steps", "compact_wy", "embedded", "tile", "tsqr")),
    ],
)
def test_planning_imports_neither_torch_nor_triton(path):
    imported = set()
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported.add(node.module.partition(".")[0])
    assert not imported & {"torch", "triton"}


def test_routes_are_symmetric():
    """A route is a file in routes/ and one row of the table."""
    files = {path.stem for path in (PACKAGE / "routes").glob("*.py")} - {"__init__", "embedded", "steps"}
    assert {name for name, _ in ROUTES} == files
