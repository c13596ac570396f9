"""Times torch.linalg.lstsq, PyTorch's own ("stock") against this extension, on the GPU of this machine.

    python scripts/bench.py [--suite f23 practice] [--dtype float32] [--only 1024x32] [--output DIR] [--quick]

Every answer is checked against float64 (complex128) LAPACK on the CPU before anything is timed; a row whose answer is
wrong is not timed and is marked. It writes `<device>.json` and `<device>.md` to --output, by default scripts/results;
a partial run (--dtype, --only, --quick, or one suite) writes only where --output says.

    stock_ms, ours_ms            device time of a call, median of triton.testing.do_bench (caches flushed)
    stock_wall_ms, ours_wall_ms  wall time of a call in a loop of calls with one synchronisation at its end
    floor_ms                     the larger of bytes moved / bandwidth and operations / peak; null on unknown devices
    stock_err, ours_err          ||X - X64|| / ||X64|| (Frobenius), the batch's worst
    stock_extra, ours_extra      bytes that a call allocates at its peak, its outputs included

Suite f23-householder is f23 with the other routes off.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import math
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "scripts" / "results"
KEYS = [
    *["suite", "dtype", "shape", "nrhs", "route", "stock_ms", "ours_ms", "floor_ms"],
    *["stock_wall_ms", "ours_wall_ms", "stock_err", "ours_err", "stock_extra", "ours_extra"],
]

# Measured on the device: bytes a second of a copy, operations a second of a matrix product. float32 data may be
# multiplied in float64, so the faster of the two counts for it.
CEILINGS = {
    "h200": {"bytes": 4.3e12, "float32": 54.2e12, "float64": 54.2e12, "complex64": 54.2e12, "complex128": 54.2e12}
}

# A backward error of this many eps is a right answer. Householder's QR has about one.
TOLERANCE = 32.0


# Cases --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One row. `shape` is A's, (*batch, m, n); B is `shape[:-1]` for a vector rhs, else (*batch, m, nrhs)."""

    suite: str
    shape: tuple[int, ...]
    nrhs: int = 1
    dtype: str = "float32"
    vector: bool = False
    layout: str = "contiguous"  # or one of LAYOUTS

    @property
    def name(self) -> str:
        return "x".join(map(str, self.shape))


# "permuted": A and B are stored rows first and transposed, as in (m, batch, n) -> (batch, m, n).
# "shared": one A (m, n), expanded over the batch by stride 0.
# "transposed rhs": B is the transpose of (nrhs, m), as in pixels of three channels.
LAYOUTS = ("contiguous", "permuted", "shared", "transposed rhs")

F23 = [
    *[(256, 32), (1024, 16), (4096, 8), (8, 4096, 8), (64, 2048, 16), (16, 8192, 16), (8, 16, 512), (8, 64, 256)],
    *[(16, 16, 1024), (64, 32, 256), (64, 1024), (128, 512), (8, 64, 1024), (16, 32, 2048), (256, 256), (512, 512)],
    *[(1024, 1024), (2048, 2048), (8, 256, 256), (8, 512, 512), (4096, 512), (512, 1024), (1024, 2048)],
]

# A's shape, nrhs, layout, dtype.
PRACTICE = [
    ((1000000, 2), 1, "contiguous", "float32"),  # depth: scale and shift
    ((4, 200000, 2), 1, "contiguous", "float32"),
    ((100000, 16), 1, "contiguous", "float32"),  # probes on activations
    ((500000, 16), 1, "contiguous", "float32"),
    ((3, 2), 1000000, "transposed rhs", "float32"),  # stains of a slide's pixels
    ((248000, 34), 1, "contiguous", "float32"),
    ((256, 5, 3), 2, "contiguous", "float32"),
    ((65536, 6, 3), 1, "contiguous", "float32"),
    ((512, 6, 7), 1, "contiguous", "float32"),
    ((32, 3, 128), 128, "contiguous", "float32"),
    ((784, 6, 8), 64, "permuted", "float32"),  # spline layers: initialisation
    ((64, 1000, 8), 32, "permuted", "float32"),  # and grid update
    ((25, 1000, 13), 1, "shared", "float32"),
    ((8, 251, 3), 1, "contiguous", "float32"),  # polynomial detrending
    ((8, 8), 1, "contiguous", "float32"),
    ((8, 8), 1, "contiguous", "float64"),
    ((64, 72, 72), 72, "contiguous", "float32"),  # Koopman models
    ((4096, 256), 96, "contiguous", "float32"),
    ((4096, 1024), 1024, "contiguous", "float32"),
    ((20000, 1500), 1, "contiguous", "float64"),
    ((16, 300, 40), 2, "contiguous", "complex64"),  # dynamic mode decomposition
    ((64, 128, 128), 1, "contiguous", "float32"),
    ((64, 512, 512), 512, "contiguous", "float32"),
    ((65536, 32, 16), 1, "contiguous", "float32"),
    ((10000, 8, 4), 1, "contiguous", "float32"),  # Levenberg-Marquardt steps
    ((10000, 8, 4), 1, "contiguous", "float64"),
    ((131072, 256), 1, "contiguous", "float32"),
    ((4096, 4096), 1, "contiguous", "float32"),
]


def f23(suite: str = "f23") -> list[Case]:
    """23 shapes with a vector right-hand side, in float32 and float64: 46 rows."""
    return [Case(suite, shape, dtype=dtype, vector=True) for dtype in ("float32", "float64") for shape in F23]


def f23_householder() -> list[Case]:
    """f23 for the routes of Householder's QR alone."""
    return f23("f23-householder")


def practice() -> list[Case]:
    """The shapes and layouts of real call sites."""
    return [Case("practice", shape, k, dtype, layout=layout) for shape, k, layout, dtype in PRACTICE]


SUITES = {"f23": f23, "f23-householder": f23_householder, "practice": practice}

# The routes that may answer a suite, where not all may.
ONLY_ROUTES = {"f23-householder": ("tile", "tsqr", "compact_wy")}


def make(case: Case, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A and B, the same on every device. f23: normal numbers; practice: B is A X plus 10 % of noise."""
    generator = torch.Generator().manual_seed(0)
    *batch, m, n = case.shape

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=getattr(torch, case.dtype))

    A = randn(m, n) if case.layout == "shared" else randn(*case.shape)
    if case.vector:
        B = randn(*batch, m)
    else:
        B = A @ (randn(*batch, n, case.nrhs) / n**0.5) + 0.1 * randn(*batch, m, case.nrhs)
    A, B = A.to(device), B.to(device)
    if case.layout == "permuted":
        A, B = (T.transpose(0, 1).contiguous().transpose(0, 1) for T in (A, B))
    elif case.layout == "shared":
        A = A.expand(case.shape)
    elif case.layout == "transposed rhs":
        B = B.mT.contiguous().mT
    return A, B


# What is right ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """Everything in float64 (complex128) on the CPU, over the flattened batch of P problems."""

    A: torch.Tensor  # (P, m, n)
    B: torch.Tensor  # (P, m, k)
    X: torch.Tensor  # (P, n, k)
    rss: torch.Tensor | None  # (P, k), for m > n
    largest: torch.Tensor  # (P,), A's largest singular value
    smallest: torch.Tensor  # (P,), its smallest


def reference(A: torch.Tensor, B: torch.Tensor) -> Reference:
    """Least squares by LAPACK's QR of [A | B] (of A^H, m < n): R holds Q^H B and, below it, the residual.

    A (..., m, n), B (..., m) or (..., m, k).
    """
    wide = torch.complex128 if A.is_complex() else torch.float64
    m, n = A.shape[-2:]
    A = A.cpu().to(wide).reshape(-1, m, n)
    B = B.cpu().to(wide).reshape(A.shape[0], m, -1)
    rss = None
    if m >= n:
        QB = torch.linalg.qr(torch.cat([A, B], dim=-1), mode="r").R
        R = QB[:, :n, :n]
        X = torch.linalg.solve_triangular(R, QB[:, :n, n:], upper=True)
        if m > n:
            rss = QB[:, n:, n:].abs().square().sum(dim=-2)
    else:
        Q, R = torch.linalg.qr(A.mH)
        X = Q @ torch.linalg.solve_triangular(R.mH, B, upper=False)
    return Reference(A, B, X, rss, *_extreme_singular_values(R))


def _extreme_singular_values(R: torch.Tensor, steps: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    """Estimates by the power method with R (P, n, n), upper triangular, and with its inverse: within a few per cent."""
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(*R.shape[:-1], 1, generator=generator, dtype=torch.float64).to(R.dtype)

    def grow(step) -> torch.Tensor:
        v = start / _norm(start)[:, None, None]
        for _ in range(steps):
            w = step(v)
            size = _norm(w)
            v = w / size[:, None, None]
        return size.sqrt()

    largest = grow(lambda v: R.mH @ (R @ v))
    inverse = grow(
        lambda v: torch.linalg.solve_triangular(R, torch.linalg.solve_triangular(R.mH, v, upper=False), upper=True)
    )
    return largest, 1 / inverse


def _norm(T: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(T, dim=(-2, -1))


def verify(result, ref: Reference, dtype: torch.dtype) -> tuple[float, str]:
    """Error of an answer in `dtype`, and what is wrong with it ("" if nothing).

    The error is the batch's worst ||X - X64|| / ||X64||. Right means: what a solver with a backward error of
    TOLERANCE eps may answer. So X is held to the first-order bound of its own problem's conditioning, and so that bad
    conditioning excuses nothing, the residual B - A X is compared too: it is well conditioned.
    """
    X = result.solution.cpu().to(ref.X.dtype).reshape(ref.X.shape)
    if not X.isfinite().all():
        return math.inf, "not finite"
    eps = TOLERANCE * torch.finfo(dtype).eps
    sizes = _norm(ref.X)
    error = _norm(X - ref.X)
    worst = (error / sizes).max().item()

    fit = _norm(ref.B) + ref.largest * sizes
    bound = eps * fit / ref.smallest
    if ref.rss is not None:
        bound = bound + eps * ref.largest * ref.rss.sum(dim=-1).sqrt() / ref.smallest**2
    if not (error <= bound).all():
        return worst, f"error {worst:.1e} is {(error / bound).max().item():.0f} times the bound"

    moved = _norm(ref.A @ (X - ref.X))
    slack = eps * fit
    if ref.rss is not None:
        slack = slack + eps * ref.largest / ref.smallest * ref.rss.sum(dim=-1).sqrt()
        rss = result.residuals.cpu().double().reshape(ref.rss.shape)
        off = torch.linalg.vector_norm(rss.sqrt() - ref.rss.sqrt(), dim=-1)
        if not (off <= slack).all():
            return worst, "residuals are wrong"
    if not (moved <= slack).all():
        return worst, "A X is wrong"
    return worst, ""


# What is possible ---------------------------------------------------------------------------------------------------


def floor_ms(case: Case, device: str) -> float | None:
    """Least time in ms that reading A and B once, writing X, and the operations can take; None on unknown devices.

    Operations: half of Householder's, m n^2 + n^3 / 3 (a Gram matrix and its factor), with 2 n^3 / 3 (LU) for square
    matrices, and the right-hand sides; four times as many real ones for complex numbers.
    """
    ceilings = CEILINGS.get(device)
    if ceilings is None:
        return None
    *batch, m, n = case.shape
    count, k = math.prod(batch), case.nrhs
    factors = 1 if case.layout == "shared" else count
    moved = factors * m * n + count * (m + n) * k
    long, short = max(m, n), min(m, n)
    factorise = 2 * n**3 / 3 if m == n else long * short**2 + short**3 / 3
    operations = factors * factorise + count * 2 * k * (long * short + short**2 if m != n else n**2)
    dtype = getattr(torch, case.dtype)
    seconds = max(
        moved * dtype.itemsize / ceilings["bytes"],
        operations * (4 if dtype.is_complex else 1) / ceilings[case.dtype],
    )
    return 1e3 * seconds


# What it takes ------------------------------------------------------------------------------------------------------


def device_ms(call, quick: bool) -> float:
    """Median device time of `call` in ms."""
    from triton.testing import do_bench

    return do_bench(call, warmup=5 if quick else 10, rep=20 if quick else 60, return_mode="median")


def wall_ms(call, ms: float, quick: bool) -> float:
    """Wall time in ms of one of many back-to-back calls of about `ms` each."""
    count = max(3, min(500, int((20 if quick else 60) / max(ms, 0.01))))
    call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start) / count


def extra_bytes(call) -> int:
    """Bytes that `call` holds at its peak, beyond what was held before it."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return torch.cuda.max_memory_allocated() - before


def run_case(case: Case, device: str, quick: bool = False) -> dict:
    """The row of one case. Whatever fails leaves nulls and a note."""
    from torch_lstsq_ext.solve import restricted_to

    routes = ONLY_ROUTES.get(case.suite)
    with restricted_to(*routes) if routes else contextlib.nullcontext():
        return _run_case(case, device, quick)


def _run_case(case: Case, device: str, quick: bool) -> dict:
    import torch_lstsq_ext

    A, B = make(case, "cuda")
    row = dict.fromkeys(KEYS)
    row.update(suite=case.suite, dtype=case.dtype, shape=list(case.shape), nrhs=case.nrhs)
    row.update(layout=case.layout, route=torch_lstsq_ext.explain(A, B).route, floor_ms=floor_ms(case, device))
    ref = reference(A, B)

    def call():
        return torch.linalg.lstsq(A, B)

    notes = []
    for who in ("stock", "ours"):
        try:
            with torch_lstsq_ext.disabled() if who == "stock" else contextlib.nullcontext():
                note = _measure(who, call, ref, A.dtype, row, quick)
        except Exception as error:
            note = f"raises {type(error).__name__}: {str(error).strip()[:100]}".replace("\n", " ")
        if note:
            notes.append(f"{who} {note}")
    if notes:
        row["note"] = "; ".join(notes)
    return row


def _measure(who: str, call, ref: Reference, dtype: torch.dtype, row: dict, quick: bool) -> str:
    from torch_lstsq_ext.solve import counts

    before = counts()
    result = call()
    if who == "ours" and row["route"] != "stock" and counts().get(row["route"]) == before.get(row["route"]):
        planned, row["route"] = row["route"], "stock"
        return f"not timed: the route {planned} failed and handed over to stock"
    error, wrong = verify(result, ref, dtype)
    row[f"{who}_err"] = error if math.isfinite(error) else None
    if wrong:
        return f"WRONG, not timed: {wrong}"
    del result
    row[f"{who}_extra"] = extra_bytes(call)
    row[f"{who}_ms"] = device_ms(call, quick)
    row[f"{who}_wall_ms"] = wall_ms(call, row[f"{who}_ms"], quick)
    return ""


# What comes of it ---------------------------------------------------------------------------------------------------


def speedup(row: dict, kind: str = "ms") -> float | None:
    """Stock's time over ours, None where either is missing."""
    stock, ours = row[f"stock_{kind}"], row[f"ours_{kind}"]
    return stock / ours if stock and ours else None


def geomean(values: list[float]) -> float:
    """Geometric mean; nan of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def summary(rows: list[dict]) -> list[str]:
    """A Markdown table of the speedups of each suite and dtype, over all rows and over those that a route covers."""
    lines = [
        "| rows | count | geomean | arithmetic mean | at or above 1x | wall: geomean |",
        "|---|---|---|---|---|---|",
    ]
    for suite, dtype in dict.fromkeys((row["suite"], row["dtype"]) for row in rows):
        group = [row for row in rows if (row["suite"], row["dtype"]) == (suite, dtype)]
        covered = [row for row in group if row["route"] != "stock"]
        for name, chosen in ((f"{suite} {dtype}", group), (f"{suite} {dtype}, covered", covered)):
            factors = [s for s in map(speedup, chosen) if s]
            wall = [s for s in (speedup(row, "wall_ms") for row in chosen) if s]
            if not factors:
                lines.append(f"| {name} | 0 of {len(chosen)} | | | | |")
                continue
            mean = sum(factors) / len(factors)
            ahead = sum(s >= 1 for s in factors)
            lines.append(
                f"| {name} | {len(factors)} of {len(chosen)} | {geomean(factors):.2f} | {mean:.2f} "
                f"| {ahead} | {geomean(wall):.2f} |"
            )
    return lines


def table(rows: list[dict]) -> list[str]:
    """A Markdown table with one line a row. Times in ms, `x` is stock's time over ours, `floor` that of floor_ms."""
    heads = ["suite", "dtype", "shape", "nrhs", "layout", "route", "stock", "ours", "x", "floor", "ours/floor"]
    heads += ["stock wall", "ours wall", "x wall", "stock err", "ours err", "stock MB", "ours MB", "note"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        ratio = row["ours_ms"] / row["floor_ms"] if row["ours_ms"] and row["floor_ms"] else None
        cells = [row["suite"], row["dtype"], "x".join(map(str, row["shape"])), str(row["nrhs"])]
        cells += [row.get("layout", ""), row["route"]]
        cells += [_cell(row["stock_ms"], ".4f"), _cell(row["ours_ms"], ".4f"), _cell(speedup(row), ".2f")]
        cells += [_cell(row["floor_ms"], ".4f"), _cell(ratio, ".1f")]
        cells += [_cell(row["stock_wall_ms"], ".4f"), _cell(row["ours_wall_ms"], ".4f")]
        cells += [_cell(speedup(row, "wall_ms"), ".2f")]
        cells += [_cell(row["stock_err"], ".1e"), _cell(row["ours_err"], ".1e")]
        cells += [_megabytes(row["stock_extra"]), _megabytes(row["ours_extra"]), row.get("note", "")]
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return lines


def _megabytes(count: int | None) -> str:
    return _cell(count if count is None else count / 2**20, ".2f")


def _cell(value: float | None, spec: str) -> str:
    return "" if value is None else format(value, spec)


def slug(device: str) -> str:
    """A device's name as a file's: "NVIDIA H200" -> "h200"."""
    name = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return name[len("nvidia-") :] if name.startswith("nvidia-") else name


def commit() -> str:
    """The checked-out commit, with "-dirty" if anything but the results differs from it; "unknown" without git."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        head = git("rev-parse", "--verify", "HEAD")
        changed = git("status", "--porcelain", "--", ".", ":(exclude)scripts/results")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}-dirty" if changed else head


def write(report: dict, directory: Path) -> list[Path]:
    """Write the report as `<device>.json` and `<device>.md`; returns the two paths."""
    directory.mkdir(parents=True, exist_ok=True)
    stem = directory / slug(report["device"])
    rows = report["rows"]
    head = [
        f"# torch.linalg.lstsq on {report['device']}",
        "",
        f"torch {report['torch']}, triton {report['triton']}, commit {report['commit']}. Times in ms; device time is",
        "do_bench's median, wall time that of back-to-back calls. x: stock's time over ours. Errors are relative to",
        "float64 on the CPU; a wrong answer is not timed.",
        "",
    ]
    text = "\n".join([*head, *summary(rows), "", *table(rows)]) + "\n"
    lines = ",\n    ".join(json.dumps(row) for row in rows)
    fields = "".join(f"  {json.dumps(k)}: {json.dumps(v)},\n" for k, v in report.items() if k != "rows")
    paths = [stem.with_suffix(".json"), stem.with_suffix(".md")]
    paths[0].write_text(f'{{\n{fields}  "rows": [\n    {lines}\n  ]\n}}\n', encoding="utf-8")
    paths[1].write_text(text, encoding="utf-8")
    return paths


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    dtypes = ["float32", "float64", "complex64"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", nargs="+", choices=list(SUITES), default=list(SUITES))
    parser.add_argument("--dtype", nargs="+", choices=dtypes, default=dtypes)
    parser.add_argument("--only", default="", metavar="TEXT", help="only shapes that contain this, as in 1024x32")
    parser.add_argument("--output", type=Path, metavar="DIR", help="default: scripts/results, for a complete run")
    parser.add_argument("--commit", help="default: what git says")
    parser.add_argument("--quick", action="store_true", help="shorter, noisier timings")
    arguments = parser.parse_args(argv)
    arguments.cases = [
        case
        for suite in dict.fromkeys(arguments.suite)
        for case in SUITES[suite]()
        if case.dtype in arguments.dtype and arguments.only in case.name
    ]
    complete = len(arguments.cases) == sum(len(suite()) for suite in SUITES.values())
    if arguments.output is None and complete and not arguments.quick:
        arguments.output = RESULTS
    return arguments


def main(argv: list[str] | None = None) -> int:
    arguments = parse(argv)
    if not torch.cuda.is_available():
        print("bench.py needs a GPU that torch.cuda sees, and there is none", file=sys.stderr)
        return 2
    import triton

    import torch_lstsq_ext

    torch_lstsq_ext.enable()
    device = torch.cuda.get_device_name()
    rows, paths = [], []
    report = {"device": device, "torch": torch.__version__, "triton": triton.__version__}
    report.update(commit=arguments.commit or commit(), rows=rows)
    for case in arguments.cases:
        start = time.perf_counter()
        try:
            row = run_case(case, slug(device), arguments.quick)
        except Exception as error:  # the CPU's reference or the data itself
            row = {**dict.fromkeys(KEYS), "suite": case.suite, "dtype": case.dtype, "shape": list(case.shape)}
            row.update(nrhs=case.nrhs, route="stock", note=f"not run: {type(error).__name__}: {str(error)[:100]}")
        rows.append(row)
        gc.collect()
        torch.cuda.empty_cache()
        print(_line(row, time.perf_counter() - start), flush=True)
        if arguments.output:  # after every row: a run that is cut short keeps what it has
            paths = write(report, arguments.output)
    print("\n" + "\n".join(summary(rows)))
    if paths:
        print("wrote", *paths)
    return 1 if any("ours WRONG" in row.get("note", "") for row in rows) else 0


def _line(row: dict, seconds: float) -> str:
    shape = "x".join(map(str, row["shape"]))
    what = f"{row['suite']:15} {row['dtype']:9} {shape:>12} k={row['nrhs']:<7} {row['route']:10}"
    stock, ours, factor = _cell(row["stock_ms"], ".4f"), _cell(row["ours_ms"], ".4f"), _cell(speedup(row), ".2f")
    return f"{what} {stock:>9} -> {ours:>9} ms {factor:>7}x [{seconds:.1f} s] {row.get('note', '')}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
