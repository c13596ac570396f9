"""Which route answers a problem on a device. Pure: no torch, no triton, no device.

A route is a module with covers(problem, facts) -> bool and plan(problem, facts) -> Plan. The first row of ROUTES that
covers a problem answers it; a problem that none covers goes to stock.
"""

from __future__ import annotations

from .problem import ITEM_BYTES, Problem
from .routes import tile, tsqr
from .routes.steps import Plan

ROUTES = (
    # name, module     what it covers, and what put the boundary there
    ("tile", tile),  # a matrix and one column of B fit a program's registers: one launch beats any split
    ("tsqr", tsqr),  # m > n, 2 n rows of A fit a program's registers: n <= 128 float32, n <= 64 float64
)

STOCK = "stock"


def make_plan(problem: Problem, facts) -> Plan | None:
    """The plan for `problem` on a device with `facts`, None for stock.

    NotImplementedError where the device cannot do the problem's data type at all.
    """
    if problem.dtype not in ITEM_BYTES:
        return None
    if problem.dtype == "float64" and not facts.fp64:
        raise NotImplementedError(facts.fp64_error)
    for _, route in ROUTES:
        if route.covers(problem, facts):
            return route.plan(problem, facts)
    return None
