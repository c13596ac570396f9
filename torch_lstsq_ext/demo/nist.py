"""NIST's certified linear least-squares sets, and how many digits a solver owes on each.

Nine of the eleven sets of the Statistical Reference Datasets; `nist.json` holds the observed data, the certified
values and their sources. Wampler1 to Wampler5 and NoInt1, NoInt2 are written here by their definitions.

The digits owed. Let the solver be backward stable column by column, as Householder's QR is: its answer solves
min ||(b + f) - (A + E) x|| exactly, with ||E_j|| <= c eps ||A_j|| for every column j and ||f|| <= c eps ||b||.
To first order (Bjorck, Numerical Methods for Least Squares Problems, 1996, section 1.4) coefficient i is then off by
at most c eps S_i |x_i|, where, with r the residual and H = (A^T A)^-1,

    S_i |x_i| = ||A^+_i|| (||b|| + sum_j ||A_j|| |x_j|) + ||r|| sum_j |H_ij| ||A_j||.

S is at most about the condition number of A with unit columns, plus its square times ||r|| / (||A|| ||x||): that
second term is why Wampler5 leaves float32 no digit at all. Hence

    expected digits = max(0, min(digits_of_design, 14, -log10(c eps max_i S_i)) - slack):

rounding the problem to the dtype may cost digits that no solver brings back, and 15 certified ones agree with the
exact solution to 14.3 at worst. The residual's norm is well conditioned whatever the coefficients are: it is off by at
most c eps (||b|| + sum_j ||A_j|| |x_j|), so it catches a wrong answer where no digit of x is owed.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch

CONSTANT = 2.0  # c; LAPACK's QR needs 1.1 at most, over these sets in both dtypes and 40 orders of their rows
SLACK = 0.3

_CERTIFIED_DIGITS = 14.0

# y of Wampler3, 4 and 5 is the polynomial plus 1, 100 and 10000 times this. R. H. Wampler, JASA 65 (1970), 549-565.
_HALF = [759, -2048, 2048, -2048, 2523, -2048, 2048, -2048, 1838, -2048, 2048]
_WAMPLER_RESIDUAL = [*_HALF, *_HALF[-2::-1]]


@dataclass(frozen=True)
class Dataset:
    """One certified problem, min ||y - A x||.

    `A` (m, n) and `y` (m,) are float64 on the CPU, every entry correctly rounded; `certified` holds the n coefficients
    and `certified_rss` the residual sum of squares to 15 digits. `digits_of_design` maps "float32" and "float64" to
    the digits that survive rounding the problem, 99 for all.
    """

    name: str
    description: str
    A: torch.Tensor
    y: torch.Tensor
    certified: list[float]
    certified_rss: float
    digits_of_design: dict[str, float]

    def digits(self, solution: torch.Tensor) -> float:
        """Correct digits of `solution` (n,), the worst coefficient's: see `digits`."""
        return digits(solution.detach().cpu().double().reshape(-1).tolist(), self.certified)

    def expected_digits(self, dtype: torch.dtype) -> float:
        """Digits owed by a solver that works in `dtype` (float32 or float64); 0 where none can be."""
        attainable = -math.log10(CONSTANT * torch.finfo(dtype).eps * self.sensitivity)
        of_design = self.digits_of_design[str(dtype).replace("torch.", "")]
        return max(0.0, min(of_design, _CERTIFIED_DIGITS, attainable) - SLACK)

    def residual_is_right(self, rss: float, dtype: torch.dtype) -> bool:
        """Whether the residual sum of squares `rss` is what a solver that works in `dtype` may answer."""
        bound = CONSTANT * torch.finfo(dtype).eps * self._size
        return rss >= 0 and abs(math.sqrt(rss) - math.sqrt(self.certified_rss)) <= bound

    @functools.cached_property
    def sensitivity(self) -> float:
        """max_i S_i of the module's docstring: relative error of a coefficient over relative backward error."""
        columns = self.A.norm(dim=0)
        Q, R = torch.linalg.qr(self.A / columns)
        inverse = torch.linalg.solve_triangular(R, torch.eye(R.shape[0], dtype=R.dtype), upper=True)
        of_fit = inverse.norm(dim=1) * self._size
        of_residual = math.sqrt(self.certified_rss) * (inverse @ inverse.T).abs().sum(dim=1)
        return ((of_fit + of_residual) / (columns * self._solution.abs())).max().item()

    @property
    def _solution(self) -> torch.Tensor:
        return torch.tensor(self.certified, dtype=torch.float64)

    @property
    def _size(self) -> float:
        return (self.y.norm() + (self.A.norm(dim=0) * self._solution.abs()).sum()).item()


def digits(values: list[float], certified: list[float]) -> float:
    """min over i of -log10(|values_i - certified_i| / |certified_i|), between 0 and 15; 0 if any value is not finite.

    Where the certified value is 0 the absolute error is taken.
    """
    worst = 15.0
    for value, truth in zip(values, certified):
        if not math.isfinite(value):
            return 0.0
        error = abs(value - truth) / (abs(truth) or 1.0)
        if error > 0:
            worst = min(worst, -math.log10(error))
    return max(0.0, worst)


def load() -> list[Dataset]:
    """The nine sets, from easy to hard."""
    text = (Path(__file__).parent / "nist.json").read_text(encoding="utf-8")
    sets = []
    for name, entry in json.loads(text)["sets"].items():
        rows, y = _data(name, entry)
        sets.append(
            Dataset(
                name=name,
                description=entry["description"],
                A=torch.tensor(rows, dtype=torch.float64),
                y=torch.tensor(y, dtype=torch.float64),
                certified=entry["certified"],
                certified_rss=entry["certified_rss"],
                digits_of_design=entry["digits_of_design"],
            )
        )
    return sets


def _data(name: str, entry: dict) -> tuple[list[list[float]], list[float]]:
    """The rows of the design matrix, and y."""
    if name == "Norris":
        return [[1.0, x] for x in entry["x"]], entry["y"]
    if name == "Longley":
        return [[1.0, *x] for x in entry["x"]], entry["y"]
    if name == "NoInt1":
        return [[x] for x in range(60, 71)], [x + 70 for x in range(60, 71)]
    if name == "NoInt2":
        return [[4], [5], [6]], [3, 4, 4]
    x = range(21)
    powers = [[u**j for j in range(6)] for u in x]
    if name == "Wampler2":  # coefficients 10^-j; one division rounds as the published decimals do
        return powers, [sum(u**j * 10 ** (5 - j) for j in range(6)) / 10**5 for u in x]
    factor = {"Wampler1": 0, "Wampler3": 1, "Wampler4": 100, "Wampler5": 10000}[name]
    return powers, [sum(row) + factor * d for row, d in zip(powers, _WAMPLER_RESIDUAL)]
