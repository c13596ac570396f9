"""scripts/bench.py: what it measures, what it takes for right, and what it writes."""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from _support import ON_CUDA

from torch_lstsq_ext import plan

ROOT = Path(__file__).resolve().parent.parent


def _load():
    spec = importlib.util.spec_from_file_location("bench", ROOT / "scripts" / "bench.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


bench = _load()

# One of each layout and each relation of m to n.
SMALL = {
    "tall-vector": bench.Case("f23", (40, 5), vector=True),
    "batch-vector": bench.Case("f23", (3, 20, 4), dtype="float64", vector=True),
    "square": bench.Case("practice", (4, 6, 6), 2),
    "wide": bench.Case("practice", (3, 4, 9), 5),
    "permuted": bench.Case("practice", (5, 6, 8), 3, layout="permuted"),
    "shared": bench.Case("practice", (5, 30, 4), 1, layout="shared"),
    "transposed-rhs": bench.Case("practice", (3, 2), 100, layout="transposed rhs"),
    "complex": bench.Case("practice", (2, 12, 3), 2, "complex64"),
}


def case_ids(cases):
    return pytest.mark.parametrize("case", cases.values(), ids=cases.keys())


def lapack(A, B):
    return torch.linalg.lstsq(A, B, driver="gels")


def off_by_one_in_a_thousand(result):
    X = result.solution
    noise = torch.randn(X.shape, generator=torch.Generator().manual_seed(0))
    return SimpleNamespace(solution=X * (1 + 1e-3 * noise), residuals=result.residuals)


def row(**changes):
    values = dict.fromkeys(bench.KEYS, 1.0)
    values.update(suite="f23", dtype="float32", shape=[256, 32], nrhs=1, route="tile")
    return {**values, **changes}


def test_f23_is_23_vector_problems_in_two_dtypes():
    cases = bench.f23()
    assert len(cases) == 46
    assert len({case.shape for case in cases}) == 23
    assert {case.dtype for case in cases} == {"float32", "float64"}
    for case in cases:
        assert case.vector
        assert case.nrhs == 1
        assert 2 <= len(case.shape) <= 3


def test_f23_householder_is_f23_for_some_of_the_routes():
    assert [case.shape for case in bench.f23_householder()] == [case.shape for case in bench.f23()]
    assert set(bench.ONLY_ROUTES) <= set(bench.SUITES)
    for routes in bench.ONLY_ROUTES.values():
        assert set(routes) <= set(plan.ROUTE_NAMES)


def test_practice_names_known_layouts_and_no_row_twice():
    cases = bench.practice()
    assert len(cases) == len(set(cases)) == 28
    assert {case.layout for case in cases} == set(bench.LAYOUTS)
    assert {case.dtype for case in cases} == {"float32", "float64", "complex64"}


@case_ids(SMALL)
def test_data_has_the_shapes_dtypes_and_strides_of_its_case(case):
    A, B = bench.make(case, "cpu")
    assert A.shape == case.shape
    assert B.shape == (case.shape[:-1] if case.vector else (*case.shape[:-1], case.nrhs))
    assert A.dtype == B.dtype == getattr(torch, case.dtype)
    assert A.is_contiguous() == (case.layout not in ("permuted", "shared"))
    assert B.is_contiguous() == (case.layout not in ("permuted", "transposed rhs"))
    if case.layout == "shared":
        assert A.stride(0) == 0
    assert torch.equal(B, bench.make(case, "cpu")[1])


@case_ids(SMALL)
def test_reference_is_lapacks_answer(case):
    A, B = bench.make(case, "cpu")
    ref = bench.reference(A, B)
    wide = torch.complex128 if A.is_complex() else torch.float64
    expected = lapack(A.to(wide), B.to(wide))
    torch.testing.assert_close(ref.X.reshape(expected.solution.shape), expected.solution)
    if ref.rss is not None:
        torch.testing.assert_close(ref.rss.reshape(expected.residuals.shape), expected.residuals)
    s = torch.linalg.svdvals(ref.A)
    torch.testing.assert_close(ref.largest, s[:, 0], rtol=0.1, atol=0)
    torch.testing.assert_close(ref.smallest, s[:, -1], rtol=0.1, atol=0)


@case_ids(SMALL)
def test_verify_accepts_lapack_in_the_cases_dtype(case):
    A, B = bench.make(case, "cpu")
    error, wrong = bench.verify(lapack(A, B), bench.reference(A, B), A.dtype)
    assert wrong == ""
    assert 0 < error < 1e4 * torch.finfo(A.dtype).eps


@case_ids(SMALL)
def test_verify_rejects_an_answer_off_by_one_in_a_thousand(case):
    A, B = bench.make(case, "cpu")
    assert bench.verify(off_by_one_in_a_thousand(lapack(A, B)), bench.reference(A, B), A.dtype)[1]


@case_ids({name: SMALL[name] for name in ("square", "wide")})
def test_bad_conditioning_does_not_excuse_a_wrong_answer(case):
    A, B = bench.make(case, "cpu")
    A[..., 0, :] = A[..., 1, :] * (1 + 1e-6)
    ref = bench.reference(A, B)
    assert bench.verify(lapack(A, B), ref, A.dtype)[1] == ""
    assert bench.verify(off_by_one_in_a_thousand(lapack(A, B)), ref, A.dtype)[1]


@pytest.mark.parametrize("value", [math.nan, math.inf], ids=str)
def test_verify_rejects_what_is_not_finite(value):
    A, B = bench.make(SMALL["batch-vector"], "cpu")
    result = lapack(A, B)
    result.solution[1, 2] = value
    assert bench.verify(result, bench.reference(A, B), A.dtype) == (math.inf, "not finite")


def test_verify_rejects_wrong_residuals():
    A, B = bench.make(SMALL["tall-vector"], "cpu")
    result = lapack(A, B)
    off = SimpleNamespace(solution=result.solution, residuals=1.01 * result.residuals)
    assert bench.verify(off, bench.reference(A, B), A.dtype)[1] == "residuals are wrong"


def test_floor_is_bandwidth_for_thin_problems_and_arithmetic_for_fat_ones():
    ceilings = bench.CEILINGS["h200"]
    thin = bench.Case("practice", (1000000, 2))
    assert bench.floor_ms(thin, "h200") == pytest.approx(1e3 * 4 * (3 * 1000000 + 2) / ceilings["bytes"])
    fat = bench.Case("practice", (4096, 4096))
    assert bench.floor_ms(fat, "h200") == pytest.approx(1e3 * 2 / 3 * 4096**3 / ceilings["float32"], rel=1e-2)
    shared = bench.Case("practice", (25, 1000, 13), layout="shared")
    assert bench.floor_ms(shared, "h200") < bench.floor_ms(bench.Case("practice", (25, 1000, 13)), "h200")
    assert bench.floor_ms(thin, "a-device-nobody-measured") is None


def test_means():
    assert bench.geomean([1.0, 4.0]) == 2.0
    assert bench.geomean([]) != bench.geomean([])
    assert bench.speedup(row(stock_ms=3.0, ours_ms=2.0)) == 1.5
    assert bench.speedup(row(ours_ms=None)) is None
    assert bench.speedup(row(stock_wall_ms=5.0), "wall_ms") == 5.0


def test_summary_counts_all_rows_and_the_covered_ones():
    rows = [
        row(stock_ms=4.0),
        row(stock_ms=16.0),
        row(stock_ms=0.5, route="stock"),
        row(stock_ms=None, route="stock"),
        row(dtype="float64", ours_ms=None),
    ]
    assert bench.summary(rows) == [
        "| rows | count | geomean | arithmetic mean | at or above 1x | wall: geomean |",
        "|---|---|---|---|---|---|",
        "| f23 float32 | 3 of 4 | 3.17 | 6.83 | 2 | 1.00 |",
        "| f23 float32, covered | 2 of 2 | 8.00 | 10.00 | 2 | 1.00 |",
        "| f23 float64 | 0 of 1 | | | | |",
        "| f23 float64, covered | 0 of 1 | | | | |",
    ]


def test_table_leaves_a_gap_where_nothing_was_timed():
    lines = bench.table([row(stock_ms=2.0), row(stock_ms=None, note="stock raises RuntimeError: a | b")])
    assert len(lines) == 4
    assert len({line.count("|") for line in lines}) == 1
    cells = [cell.strip() for cell in lines[3].split("|")]
    assert cells[1:5] == ["f23", "float32", "256x32", "1"]
    assert cells[7] == cells[9] == ""
    assert cells[-2] == "stock raises RuntimeError: a / b"


def test_report_has_exactly_the_fields_that_it_promises(tmp_path):
    report = {"device": "NVIDIA H200", "torch": "2.11.0", "triton": "3.6.0", "commit": "abc"}
    report["rows"] = [row(), row(suite="practice", ours_ms=None, note="ours raises")]
    json_path, md_path = bench.write(report, tmp_path / "results")
    assert (json_path.name, md_path.name) == ("h200.json", "h200.md")
    read = json.loads(json_path.read_text())
    assert read == report
    assert list(read) == ["device", "torch", "triton", "commit", "rows"]
    assert all(set(bench.KEYS) <= set(entry) for entry in read["rows"])
    text = md_path.read_text()
    assert text.startswith("# torch.linalg.lstsq on NVIDIA H200\n")
    assert "| practice | float32 | 256x32 |" in text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("MetaX C500", "metax-c500"),
        ("Iluvatar BI-V150", "iluvatar-bi-v150"),
    ],
)
def test_slug(name, expected):
    assert bench.slug(name) == expected


def test_only_a_complete_run_replaces_the_results():
    assert bench.parse([]).output == bench.RESULTS
    assert len(bench.parse([]).cases) == 120
    for partial in (["--quick"], ["--only", "256x32"], ["--suite", "f23"], ["--dtype", "float32"]):
        assert bench.parse(partial).output is None
    assert str(bench.parse(["--quick", "--output", "here"]).output) == "here"
    chosen = bench.parse(["--suite", "f23", "--dtype", "float64", "--only", "2048x2048"]).cases
    assert chosen == [bench.Case("f23", (2048, 2048), dtype="float64", vector=True)]


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_commit(tmp_path, monkeypatch):
    def git(*arguments):
        names = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        done = subprocess.run(["git", *names, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    monkeypatch.setattr(bench, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert bench.commit() == "unknown"
    git("init", "-q")
    assert bench.commit() == "unknown"
    git("commit", "-q", "--allow-empty", "-m", "first")
    head = git("rev-parse", "HEAD")
    results = tmp_path / "scripts" / "results"
    results.mkdir(parents=True)
    (results / "h200.json").write_text("{}")
    assert bench.commit() == head
    (tmp_path / "new.py").write_text("")
    assert bench.commit() == f"{head}-dirty"


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_gpu_it_says_so_in_one_line(capsys):
    assert bench.main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "bench.py needs a GPU that torch.cuda sees, and there is none\n"


@pytest.mark.skipif(not ON_CUDA, reason="times a GPU")
@case_ids({name: case for name, case in SMALL.items() if name != "complex"})
def test_a_row_on_the_gpu(case):
    entry = bench.run_case(case, "h200", quick=True)
    assert set(bench.KEYS) <= set(entry)
    assert "ours" not in entry.get("note", "")
    assert entry["ours_ms"] > 0
    assert entry["ours_wall_ms"] > 0
    assert entry["ours_err"] < 1e4 * torch.finfo(getattr(torch, case.dtype)).eps
