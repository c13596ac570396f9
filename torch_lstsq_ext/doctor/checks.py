"""What the doctor checks of a device, as data: a line for each declared fact, then one for each kind of solve."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..devices.facts import Facts
from . import arithmetic, hardware, solves

# probe(bench, *arguments), run by worker.py: see bench.Bench
PROBES = {
    "warp_size": hardware.warp_size,
    "threads_per_block": hardware.threads_per_block,
    "shared_memory": hardware.shared_memory,
    "private_bytes": hardware.private_bytes,
    "multiprocessors": hardware.multiprocessors,
    "fp64_rate": hardware.fp64_rate,
    "fp64": arithmetic.fp64,
    "fp64_copy": arithmetic.fp64_copy,
    "dot": arithmetic.dot,
    "dot_stages": arithmetic.dot_stages,
    "min_dot": arithmetic.min_dot,
    "reductions": arithmetic.reductions,
    "solve": solves.solve,
    "refusal": solves.refusal,
}


@dataclass(frozen=True)
class Check:
    """declared: a value of JSON; probe: a name in PROBES, None where nothing can be run, and `detail` says why.

    hardware: it asks what an interpreter does not have.
    """

    name: str
    declared: object
    probe: str | None
    arguments: tuple = ()
    hardware: bool = False
    detail: str = ""


def for_device(facts: Facts) -> Iterator[Check]:
    """All checks for a device of `facts`, in the order of Facts; those of the routes, which ask the plan, last."""
    yield from (
        Check("warp_size", facts.warp_size, "warp_size", hardware=True),
        Check("threads_per_block", facts.threads_per_block, "threads_per_block", hardware=True),
        Check("shared_memory", facts.shared_memory, "shared_memory", hardware=True),
        Check("private_bytes", facts.private_bytes, "private_bytes", hardware=True),
        Check("multiprocessors", facts.multiprocessors, "multiprocessors", hardware=True),
        Check("fp64", facts.fp64, "fp64"),
        Check("fp64_copy", facts.fp64, "fp64_copy"),
        Check("fp64_rate", facts.fp64_rate, "fp64_rate", hardware=True),
        Check("fp64_dot", facts.fp64_dot, "dot", ("float64",)),
        Check("fp32_dot", facts.fp32_dot, "dot", ("float32",)),
        Check("dot_stages", facts.dot_stages, "dot_stages", hardware=True),
        Check("min_dot", facts.min_dot, "min_dot", hardware=True),
        Check("broken_reduction_lengths", facts.broken_reduction_lengths, "reductions", (facts.fp64,)),
    )
    for route, dtype, cases in solves.cases(facts):
        declared = f"<= {solves.BOUND} eps"
        if not cases:
            detail = "no problem tried takes this route"
            yield Check(f"{route} {dtype}", declared, None, detail=detail)
        for orientation, shapes in cases.items():
            yield Check(f"{route} {dtype} {orientation}", declared, "solve", (route, dtype, shapes))
    if not facts.fp64:
        yield Check("float64 refused", "NotImplementedError", "refusal")
