"""What a route's plan is made of: launches as data, to be run by solve.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

A, B, X, RESIDUALS = "A", "B", "X", "residuals"
# A launch's tensor argument: one of the names above, or an offset in elements into the plan's workspace.
Buffer = "str | int"

WORKSPACE_ALIGNMENT = 64  # elements, so that every piece starts on 16 bytes


@dataclass(frozen=True)
class Launch:
    """One kernel launch: `grid` programs, arguments in the kernel's order."""

    kernel: str  # a name in kernels.KERNELS
    grid: int
    tensors: tuple[Buffer, ...]
    sizes: tuple[int, ...]
    constexprs: Mapping[str, int | bool]
    num_warps: int


@dataclass(frozen=True)
class Plan:
    """A route's answer to a problem. workspace: elements of the problem's dtype."""

    route: str
    launches: tuple[Launch, ...]
    workspace: int = 0
    notes: tuple[str, ...] = field(default=())


class Workspace:
    """Hands out aligned pieces of one buffer."""

    def __init__(self) -> None:
        self.size = 0

    def take(self, elements: int) -> int:
        start = self.size
        self.size += -(-elements // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT
        return start
