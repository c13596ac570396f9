"""The demo: its data against exact arithmetic, the digits it asks for, and that it runs."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from _support import FLOATS, dtype_id

import torch_lstsq_ext.demo as demo
from torch_lstsq_ext.demo import nist, workload

SETS = nist.load()
NAMES = ["Norris", "NoInt1", "NoInt2", "Longley", "Wampler1", "Wampler2", "Wampler3", "Wampler4", "Wampler5"]

each_set = pytest.mark.parametrize("data", SETS, ids=lambda data: data.name)
each_dtype = pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)


def decimals(data: nist.Dataset):
    """The problem in the published decimals: the shortest ones that round to what is stored."""
    rows = [[Fraction(repr(value)) for value in row] for row in data.A.tolist()]
    return rows, [Fraction(repr(value)) for value in data.y.tolist()]


def rounded(data: nist.Dataset, dtype: torch.dtype):
    """The problem that a solver in `dtype` is handed."""
    rows = [[Fraction(value) for value in row] for row in data.A.to(dtype).tolist()]
    return rows, [Fraction(value) for value in data.y.to(dtype).tolist()]


def exact(rows, y):
    """Least squares in rational arithmetic, the normal equations by elimination: x and the sum of squared residuals."""
    n = len(rows[0])
    joined = [[*r, t] for r, t in zip(rows, y)]
    G = [[sum(r[i] * r[j] for r in joined) for j in range(n + 1)] for i in range(n)]
    for k in range(n):
        for i in range(n):
            if i != k:
                factor = G[i][k] / G[k][k]
                G[i] = [a - factor * b for a, b in zip(G[i], G[k])]
    x = [G[k][n] / G[k][k] for k in range(n)]
    return x, sum((t - sum(a * c for a, c in zip(r, x))) ** 2 for r, t in zip(rows, y))


def to_15_digits(value: Fraction) -> float:
    if value == 0:
        return 0.0
    exponent = math.floor(math.log10(abs(value)))
    unit = Fraction(10) ** (exponent - 14)
    return float(Fraction(round(value / unit)) * unit)


def test_the_nine_sets():
    assert [data.name for data in SETS] == NAMES
    text = Path(nist.__file__).with_name("nist.json").read_text(encoding="utf-8")
    assert "National Institute of Standards and Technology" in json.loads(text)["source"]
    for data in SETS:
        assert data.A.dtype == data.y.dtype == torch.float64
        assert data.A.shape == (len(data.y), len(data.certified))


@each_set
def test_certified_values_are_the_exact_solution_to_15_digits(data):
    x, rss = exact(*decimals(data))
    assert [to_15_digits(value) for value in x] == data.certified
    assert to_15_digits(rss) == data.certified_rss


@each_dtype
@each_set
def test_digits_of_the_rounded_design(data, dtype):
    x, _ = exact(*decimals(data))
    errors = [abs((a - b) / b) for a, b in zip(exact(*rounded(data, dtype))[0], x)]
    digits = min((-math.log10(error) for error in errors if error), default=99)
    assert data.digits_of_design[dtype_id(dtype)] == pytest.approx(digits, abs=0.11)


@pytest.mark.parametrize(
    ("values", "certified", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], 15.0),
        ([1.001, 2.0], [1.0, 2.0], 3.0),
        ([1e-5], [0.0], 5.0),
        ([-30.0], [10.0], 0.0),
        ([math.nan, 2.0], [1.0, 2.0], 0.0),
        ([math.inf], [1.0], 0.0),
    ],
    ids=["exact", "worst-coefficient", "certified-zero", "no-digit", "nan", "inf"],
)
def test_digits(values, certified, expected):
    assert nist.digits(values, certified) == pytest.approx(expected, abs=1e-9)


@each_set
def test_a_float64_answer_off_by_one_in_a_thousand_fails(data):
    off = torch.tensor(data.certified, dtype=torch.float64) * 1.001
    assert data.digits(off) < data.expected_digits(torch.float64)


@each_dtype
@each_set
def test_a_residual_off_by_a_tenth_fails(data, dtype):
    assert data.residual_is_right(data.certified_rss, dtype)
    size = data.y.square().sum().item()
    if dtype == torch.float64 or data.certified_rss > 1e-4 * size:
        assert not data.residual_is_right(1.1 * data.certified_rss + 1e-8 * size, dtype)
    assert not data.residual_is_right(math.nan, dtype)


@each_dtype
@each_set
def test_lapack_has_the_digits_owed(data, dtype):
    result = torch.linalg.lstsq(data.A.to(dtype), data.y.to(dtype), driver="gels")
    assert data.digits(result.solution) >= data.expected_digits(dtype)
    assert data.residual_is_right(result.residuals.item(), dtype)


def test_most_sets_owe_digits_in_float32_too():
    owed = {data.name: data.expected_digits(torch.float32) for data in SETS}
    assert owed["NoInt1"] > 5
    assert owed["Norris"] > 2
    assert owed["Wampler2"] > 2
    assert owed["Wampler5"] == 0


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_workloads(large):
    shapes = {work.name: (*work.A.shape, work.B.shape[-1]) for work in workload.workloads(large)}
    expected = {"depth": (4, 200000, 2, 1), "KAN": (784, 6, 8, 64)}
    assert shapes == (expected if large else {"depth": (2, 192, 2, 1), "KAN": (4, 6, 8, 3)})


def test_float32_on_the_cpu_stays_within_the_workloads_bound():
    for work in workload.workloads(large=False):
        expected = work.run(work.A, work.B)
        assert 0 < workload.error(work.run(work.A.float(), work.B.float()), expected) < workload.BOUND / 3
        assert workload.error(expected * 1.001, expected) > workload.BOUND
        assert workload.error(expected * math.nan, expected) == math.inf


def test_the_robust_steps_find_the_depth_beneath_the_outliers():
    A, B = workload.depth_alignment(2, 40, 50)
    plain = A @ workload.solve(A, B)
    wrong = (workload.align(A, B) - B).abs().median() / (plain - B).abs().median()
    assert wrong < 1


def test_runs_on_the_device(device, capsys):
    code = demo.main(["--device", device])
    text = capsys.readouterr().out
    assert code == 0, text
    assert device.split(":")[0] in text.splitlines()[0]
    assert torch.__version__ in text.splitlines()[0]
    assert text.splitlines()[0].endswith("torch_lstsq_ext on")
    for name in [*NAMES, "depth", "KAN"]:
        (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
        assert " ok" in line
        assert "stock" not in line


def test_a_set_below_its_digits_fails_the_run(device, capsys, monkeypatch):
    lstsq = torch.linalg.lstsq

    def wrong(A, B, **options):
        result = lstsq(A, B, **options)
        return torch.return_types.linalg_lstsq((result.solution * 1.001, *result[1:]))

    monkeypatch.setattr(torch.linalg, "lstsq", wrong)
    monkeypatch.setattr(nist, "load", lambda: [data for data in SETS if data.name == "NoInt2"])
    monkeypatch.setattr(workload, "workloads", lambda large: [])
    assert demo.main(["--device", device]) == 1
    text = capsys.readouterr().out
    assert "BELOW" in text
    assert text.splitlines()[-1] == "FAILED: NoInt2"


def test_a_device_without_float64_is_shown_and_passed_over(device, capsys, monkeypatch):
    lstsq = torch.linalg.lstsq

    def single_only(A, B, **options):
        if A.dtype == torch.float64 and A.device.type != "cpu":
            raise NotImplementedError("no float64")
        return lstsq(A, B, **options)

    monkeypatch.setattr(torch.linalg, "lstsq", single_only)
    monkeypatch.setattr(nist, "load", lambda: SETS[:1])
    monkeypatch.setattr(workload, "workloads", lambda large: [])
    assert demo.main(["--device", device]) == 0
    assert "none" in capsys.readouterr().out


def test_the_cpu_is_refused(capsys):
    with pytest.raises(SystemExit) as info:
        demo.main(["--device", "cpu"])
    assert info.value.code == 2
    assert "the simulator" in capsys.readouterr().err
