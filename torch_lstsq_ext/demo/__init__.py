"""`python -m torch_lstsq_ext demo`: certified problems and real workloads, solved by plain torch.linalg.lstsq.

The answers come from torch.linalg.lstsq alone, called as any program calls it; `explain` only names their routes.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from dataclasses import dataclass

import torch

import torch_lstsq_ext
from torch_lstsq_ext import simulator

from . import nist, workload

FAILED = 1


def main(argv: list[str] | None = None) -> int:
    """Run the demo with command-line arguments `argv` (sys.argv's when None) and print its tables.

    Returns 0, or 1 when an answer has fewer correct digits than its dtype and condition number allow.
    """
    parser = argparse.ArgumentParser(prog="python -m torch_lstsq_ext demo", description=__doc__.split("\n")[0])
    parser.add_argument("--device", help="cuda, simulator, ...; default: an accelerator, else the simulator")
    device = choose_device(parser.parse_args(argv).device)
    if device.type == "cpu":
        parser.error("on the CPU torch.linalg.lstsq is PyTorch's own; the simulator runs the kernels there")

    print(headline(device))
    if device.type == "simulator":
        print("The simulator interprets its kernels on the CPU: their times say nothing about a GPU.")
    certified = [_solve_set(data, device) for data in nist.load()]
    real = [_solve_workload(work, device) for work in workload.workloads(large=device.type != "simulator")]

    stock = "stock" if _has_stock(device) else "LAPACK"
    print(f"\nNIST's certified sets: correct digits, digits owed, and {stock}'s; time of a call in float32")
    _print_table(_SET_HEAD.format(stock=stock).split("|"), [_set_cells(*result) for result in certified])
    print(f"\nWorkloads in float32: error against float64 (at most {workload.BOUND:g}), and {stock}'s")
    rows = [_workload_cells(*result, comparable=_has_stock(device)) for result in real]
    _print_table(_WORKLOAD_HEAD.format(stock=stock).split("|"), rows)

    failures = [data.name for data, *answers in certified if any(answer.failure for answer in answers)]
    failures += [work.name for work, answer in real if answer.failure]
    print(f"\nFAILED: {', '.join(failures)}" if failures else "\nAll answers are as good as their dtype allows.")
    return FAILED if failures else 0


def choose_device(name: str | None = None) -> torch.device:
    """`name` as a device; without one CUDA, else another accelerator, else the simulator, which is then activated."""
    other = torch._C._get_privateuse1_backend_name()
    if name is None and torch.cuda.is_available():
        name = "cuda"
    elif name is None and other != "privateuseone" and getattr(torch, other).is_available():
        name = other
    name = name or "simulator"
    if name.split(":")[0] == "simulator":
        simulator.activate()
    return torch.device(name)


def headline(device: torch.device) -> str:
    """One line: the device, torch, triton, and whether this package answers."""
    name = f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)
    try:
        from triton import __version__ as triton_version
    except ImportError:
        triton_version = "none"
    state = "on" if torch_lstsq_ext.is_enabled() else "off"
    return f"{name}, torch {torch.__version__}, triton {triton_version}, torch_lstsq_ext {state}"


@dataclass(frozen=True)
class _Answer:
    """One problem in one dtype. Scores are digits for a certified set, an error for a workload."""

    route: str = ""
    score: float = 0.0
    owed: float = 0.0
    stock_score: float | None = None
    ms: float = 0.0
    stock_ms: float | None = None
    failure: bool = False
    missing: bool = False  # the device has no such dtype


def _solve_set(data: nist.Dataset, device: torch.device) -> tuple[nist.Dataset, _Answer, _Answer]:
    return data, _digits(data, torch.float32, device), _digits(data, torch.float64, device)


def _digits(data: nist.Dataset, dtype: torch.dtype, device: torch.device) -> _Answer:
    try:
        A, y = data.A.to(dtype).to(device), data.y.to(dtype).to(device)
        result = torch.linalg.lstsq(A, y)
    except NotImplementedError:
        return _Answer(missing=True)
    digits, owed = data.digits(result.solution), data.expected_digits(dtype)
    residuals = result.residuals.tolist()  # empty from the CPU's default driver, which answers where nothing else does
    fits = all(data.residual_is_right(rss, dtype) for rss in residuals)
    stock = _stock(lambda A, y: data.digits(torch.linalg.lstsq(A, y, driver="gels").solution), A, y)
    ms, stock_ms = _times(A, y)
    return _Answer(_route(A, y), digits, owed, stock, ms, stock_ms, failure=digits < owed or not fits)


def _solve_workload(work: workload.Workload, device: torch.device) -> tuple[workload.Workload, _Answer]:
    expected = work.run(work.A, work.B)
    A, B = work.A.float().to(device), work.B.float().to(device)
    error = workload.error(work.run(A, B), expected)
    stock = _stock(lambda A, B: workload.error(work.run(A, B), expected), A, B)
    ms, stock_ms = _times(A, B)
    failure = not error <= workload.BOUND
    return work, _Answer(_route(A, B), error, workload.BOUND, stock, ms, stock_ms, failure)


def _has_stock(device: torch.device) -> bool:
    return device.type == "cuda"


def _stock(run, A: torch.Tensor, B: torch.Tensor):
    """`run(A, B)` by PyTorch's own kernels: the device's where it has some, else the CPU's. None if they raise."""
    on_device = _has_stock(A.device)
    try:
        with torch_lstsq_ext.disabled() if on_device else contextlib.nullcontext():
            return run(A, B) if on_device else run(A.cpu(), B.cpu())
    except RuntimeError:
        return None


def _route(A: torch.Tensor, B: torch.Tensor) -> str:
    return torch_lstsq_ext.explain(A, B).route if torch_lstsq_ext.is_enabled() else "stock"


def _times(A: torch.Tensor, B: torch.Tensor) -> tuple[float, float | None]:
    """Wall time of a call in ms, ours and stock's."""
    return _ms(A, B), _stock(_ms, A, B)


def _ms(A: torch.Tensor, B: torch.Tensor) -> float:
    module = getattr(torch, A.device.type)
    calls = 1 if A.device.type == "simulator" else 20
    torch.linalg.lstsq(A, B, driver="gels")
    times = []
    for _ in range(calls):
        module.synchronize()
        start = time.perf_counter()
        torch.linalg.lstsq(A, B, driver="gels")
        module.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


_SET_HEAD = "set|n|m|route|float32|owed|{stock}|float64|owed|{stock}|ms|{stock} ms|"
_WORKLOAD_HEAD = "workload|batch|m|n|k|route|error|{stock}|ms|{stock} ms|ratio||"


def _set_cells(data: nist.Dataset, single: _Answer, double: _Answer) -> list[str]:
    m, n = data.A.shape
    routes = [answer.route for answer in (single, double) if answer.route]
    cells = [data.name, str(n), str(m), "/".join(dict.fromkeys(routes))]
    for answer in (single, double):
        if answer.missing:
            cells += ["none", "-", "-"]
        else:
            cells += [f"{answer.score:.1f}", f"{answer.owed:.1f}", _format(answer.stock_score, ".1f")]
    failed = "BELOW" if single.failure or double.failure else "ok"
    return [*cells, _format(single.ms, ".3f"), _format(single.stock_ms, ".3f"), failed]


def _workload_cells(work: workload.Workload, answer: _Answer, comparable: bool) -> list[str]:
    batch, m, n = work.A.shape
    cells = [work.name, str(batch), str(m), str(n), str(work.B.shape[-1]), answer.route]
    cells += [f"{answer.score:.1e}", _format(answer.stock_score, ".1e")]
    cells += [_format(answer.ms, ".3f"), _format(answer.stock_ms, ".3f")]
    ratio = f"{answer.stock_ms / answer.ms:.1f}x" if answer.stock_ms and comparable else "-"
    return [*cells, ratio, "WRONG" if answer.failure else "ok", work.description]


def _format(value: float | None, spec: str) -> str:
    return "fails" if value is None else format(value, spec)


def _print_table(head: list[str], rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    numeric = [all(cell[:1].isdigit() for cell in column) for column in zip(*rows)]
    for row in [head, *rows]:
        cells = [c.rjust(w) if right else c.ljust(w) for c, w, right in zip(row, widths, numeric)]
        print("  ".join(cells).rstrip())
