"""Which route answers a problem on a device. Pure: no torch, no triton, no device.

A route is a module with covers(problem, facts) -> bool and plan(problem, facts) -> Plan. The first row of ROUTES that
covers a problem answers it; a problem that none covers goes to stock.
"""

from __future__ import annotations

from .problem import ITEM_BYTES, REAL, Problem
from .routes import compact_wy, embedded, tile, tsqr
from .routes.steps import Plan

ROUTES = (
    # name, module     what it covers, and what put the boundary there
    ("tile", tile),  # a matrix and one column of B fit a program's registers: one launch beats any split
    ("tsqr", tsqr),  # m > n, 2 n rows of A fit a program's registers: n <= 128 float32, n <= 64 float64
    ("compact_wy", compact_wy),  # any size: what no program's registers hold
)

ROUTE_NAMES = tuple(name for name, _ in ROUTES)
STOCK = "stock"


def make_plan(problem: Problem, facts, allowed: tuple[str, ...] = ROUTE_NAMES) -> Plan | None:
    """The plan for `problem` on a device with `facts`, by one of the `allowed` routes; None for stock.

    NotImplementedError where the device cannot do the problem's data type at all.
    """
    if problem.dtype in REAL:
        real = make_plan(embedded.real_problem(problem), facts, allowed)
        return real and embedded.wrap(problem, real)
    if problem.dtype not in ITEM_BYTES:
        return None
    if problem.dtype == "float64" and not facts.fp64:
        raise NotImplementedError(facts.fp64_error)
    for name, route in ROUTES:
        if name in allowed and route.covers(problem, facts):
            return route.plan(problem, facts)
    return None
