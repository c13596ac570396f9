"""All eleven linear sets of NIST's Statistical Reference Datasets, read from outside the repository if they are there.

An answer must have the digits that a backward-stable solver owes (torch_lstsq_ext/demo/nist.py derives them), and at
most one digit fewer than LAPACK's QR. LAPACK's digits depend on the order of the rows by a digit or two, so it is held
to its worst over several orders.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from _support import FLOATS, dtype_id

from torch_lstsq_ext.demo import nist

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "nist_strd.json"
NAMES = ["Norris", "Pontius", "NoInt1", "NoInt2", "Filip", "Longley"] + [f"Wampler{i}" for i in range(1, 6)]
ORDERS = 10

pytestmark = pytest.mark.skipif(not DATA.exists(), reason="needs the eleven sets beside the repository")


def dataset(name: str) -> nist.Dataset:
    entry = json.loads(DATA.read_text(encoding="utf-8"))[name]
    kind, _, degree = entry["design"].partition(":")
    if kind == "polynomial":  # every power correctly rounded: for Filip that matters
        rows = [[float(Fraction(repr(x)) ** j) for j in range(int(degree) + 1)] for x in entry["x"]]
    elif kind == "intercept+predictors":
        rows = [[1.0, *x] for x in entry["x"]]
    else:
        rows = [[x] for x in entry["x"]]
    return nist.Dataset(
        name=name,
        description=entry["description"],
        A=torch.tensor(rows, dtype=torch.float64),
        y=torch.tensor(entry["y"], dtype=torch.float64),
        certified=entry["certified"],
        certified_rss=entry["certified_rss"],
        digits_of_design={name: entry[f"digits_of_{name}_design"] for name in ("float32", "float64")},
    )


def lapack_digits(data: nist.Dataset, dtype: torch.dtype) -> float:
    generator = torch.Generator().manual_seed(0)
    A, y = data.A.to(dtype), data.y.to(dtype)
    orders = [torch.randperm(len(y), generator=generator) for _ in range(ORDERS)]
    return min(data.digits(torch.linalg.lstsq(A[order], y[order], driver="gels").solution) for order in orders)


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
@pytest.mark.parametrize("name", NAMES)
def test_digits(name, dtype, device):
    data = dataset(name)
    result = torch.linalg.lstsq(data.A.to(dtype).to(device), data.y.to(dtype).to(device))
    digits = data.digits(result.solution)
    assert digits >= data.expected_digits(dtype)
    assert digits >= lapack_digits(data, dtype) - 1
    assert data.residual_is_right(result.residuals.item(), dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_id)
@pytest.mark.parametrize("name", NAMES)
def test_lapack_has_the_digits_owed(name, dtype):
    data = dataset(name)
    assert lapack_digits(data, dtype) >= data.expected_digits(dtype)


@pytest.mark.parametrize("data", nist.load(), ids=lambda data: data.name)
def test_shipped_sets_are_these(data):
    original = dataset(data.name)
    assert torch.equal(data.A, original.A)
    assert torch.equal(data.y, original.y)
    assert data.certified == original.certified
    assert data.certified_rss == original.certified_rss
    for name, digits in original.digits_of_design.items():
        assert data.digits_of_design[name] == pytest.approx(digits, abs=0.11)
