"""A call of torch.linalg.lstsq, from csrc/dispatch.cpp to its outputs: one workspace, ordered launches."""

from __future__ import annotations

import sys
import threading
import warnings
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import torch

from . import settings
from .devices.detect import facts_for
from .plan import ROUTE_NAMES, STOCK, make_plan
from .problem import Problem, from_geometry
from .routes.steps import RESIDUALS, A, B, Piece, Plan, X

# Geometries whose launches are kept ready. Beyond it the oldest go.
PREPARED_LIMIT = 1024

_prepared: dict[tuple[int, ...], Prepared | None] = {}
_facts: dict[torch.device, object] = {}
_counts: Counter[str] = Counter()
_said: set[object] = set()
# Triton's interpreter patches triton.language for the length of a call: one thread at a time.
_interpreter = threading.Lock()


def counts() -> dict[str, int]:
    """Calls answered so far in this process, by route; `stock` counts those handed on."""
    return dict(_counts)


def device_facts(device: torch.device):
    """The facts of a device, looked up once. Asks the device and Triton's driver."""
    facts = _facts.get(device)
    if facts is None:
        limits = None
        if device.type == "cuda":
            from .launch import measured_limits

            limits = measured_limits(device.index)
        facts = _facts[device] = facts_for(device, forced=settings.CURRENT.vendor, limits=limits)
    return facts


def is_served(facts) -> bool:
    """Whether the mode asks for this device: `auto` serves the recognised ones."""
    return settings.CURRENT.mode == "1" or facts.recognised


def plan_for(problem: Problem, facts) -> Plan | None:
    """The plan under the current settings, None for stock."""
    settings.check_routes(settings.CURRENT, ROUTE_NAMES)
    return make_plan(problem, facts, settings.CURRENT.routes or ROUTE_NAMES) if is_served(facts) else None


@contextmanager
def restricted_to(*routes: str):
    """Within it only these routes answer, in every thread; calls are planned anew. To look at a route by itself."""
    global _prepared
    before = settings.CURRENT, _prepared
    settings.CURRENT, _prepared = replace(settings.CURRENT, routes=routes), {}
    try:
        yield
    finally:
        settings.CURRENT, _prepared = before


class Prepared:
    """A plan whose launches are ready for one geometry on one device."""

    def __init__(self, plan: Plan, device: torch.device, facts):
        from .launch import Runner

        self.route = plan.route
        self.workspace = plan.workspace
        self.interpreted = facts.interpreted
        if self.interpreted:
            from .simulator import interpreter

            interpreter.quicken()
        self.steps = [(Runner(launch, device, facts), launch.tensors) for launch in plan.launches]

    def run(self, A_, B_, X_, residuals, a, b, x, r) -> None:
        addresses = {A: a, B: b, X: x, RESIDUALS: r}
        work = base = None
        if self.workspace:
            with torch._C.DisableTorchFunction():
                work = torch.empty(self.workspace, dtype=torch.uint8, device=X_.device)
                base = work.data_ptr()
        for runner, places in self.steps:

            def tensors(places=places):
                with torch._C.DisableTorchFunction():
                    named = {A: A_, B: B_, X: X_, RESIDUALS: residuals}
                    found = [_view(work, place) if isinstance(place, Piece) else named[place] for place in places]
                    found = _on_host(found) if self.interpreted else found
                    return [torch.view_as_real(t) if t.is_complex() else t for t in found]

            given = [base + place.start if isinstance(place, Piece) else addresses[place] for place in places]
            if self.interpreted:
                import numpy

                # Lanes outside a matrix divide by its zeros: nothing to tell the user.
                with _interpreter, numpy.errstate(all="ignore"):
                    runner.run(tensors, given)
            else:
                runner.run(tensors, given)


def _view(work: torch.Tensor, piece: Piece) -> torch.Tensor:
    return work[piece.start :].view(getattr(torch, piece.dtype))


def _on_host(tensors):
    from .simulator import host_alias

    return [host_alias(t) if t.device.type != "cpu" else t for t in tensors]


def answer(geometry, A_, B_, X_, residuals, a, b, x, r) -> bool:
    """Solve into X_ and residuals. False: not ours, and the outputs hold nothing.

    geometry: see problem.from_geometry. A_ and B_ are the caller's tensors, X_ (..., n, k) and residuals (..., k)
    fresh and contiguous; a, b, x, r are their addresses.
    """
    try:
        prepared = _prepared[geometry]
    except KeyError:
        prepared = _prepare(geometry, A_.device)
    if prepared is None:
        _counts[STOCK] += 1
        return False
    try:
        prepared.run(A_, B_, X_, residuals, a, b, x, r)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        _prepared[geometry] = None
        _counts[STOCK] += 1
        _warn(prepared.route, error)
        return False
    _counts[prepared.route] += 1
    return True


def _prepare(geometry, device: torch.device) -> Prepared | None:
    problem = from_geometry(geometry)
    facts = device_facts(device)
    plan = plan_for(problem, facts)
    _log(problem, facts, plan)
    prepared = None
    if plan is not None:
        try:
            prepared = Prepared(plan, device, facts)
        except Exception as error:
            _warn(plan.route, error)
    while len(_prepared) >= PREPARED_LIMIT:
        _prepared.pop(next(iter(_prepared)), None)
    _prepared[geometry] = prepared
    return prepared


def _warn(route: str, error: Exception) -> None:
    reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    if (route, reason) in _said:
        return
    _said.add((route, reason))
    warnings.warn(
        f"torch_lstsq_ext: route {route} failed ({reason}); this call and its like go to stock torch.linalg.lstsq",
        RuntimeWarning,
        stacklevel=2,
    )


def _log(problem: Problem, facts, plan: Plan | None) -> None:
    if not settings.CURRENT.log:
        return
    line = f"torch_lstsq_ext: {problem} on {facts.vendor}: {plan.route if plan else STOCK}"
    if line not in _said:
        _said.add(line)
        print(line, file=sys.stderr, flush=True)
