"""What a route's plan is made of: launches as data, to be run by solve.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..problem import ITEM_BYTES as PROBLEM_ITEM_BYTES

ITEM_BYTES = {**PROBLEM_ITEM_BYTES, "int32": 4}

A, B, X, RESIDUALS = "A", "B", "X", "residuals"

WORKSPACE_ALIGNMENT = 256  # bytes


@dataclass(frozen=True)
class Piece:
    """A place in the plan's workspace: `start` in bytes, the type of what lies there."""

    start: int
    dtype: str

    def at(self, elements: int) -> Piece:
        return Piece(self.start + elements * ITEM_BYTES[self.dtype], self.dtype)


@dataclass(frozen=True)
class Launch:
    """One kernel launch: `grid` programs, arguments in the kernel's order."""

    kernel: str  # a name in kernels.KERNELS
    grid: int
    tensors: tuple[str | Piece, ...]  # A, B, X, RESIDUALS or places in the workspace
    sizes: tuple[int, ...]
    constexprs: Mapping[str, int | bool | str]
    num_warps: int
    num_stages: int = 1
    note: str = ""  # for explain()


@dataclass(frozen=True)
class Plan:
    """A route's answer to a problem. workspace: bytes."""

    route: str
    launches: tuple[Launch, ...]
    workspace: int = 0


class Workspace:
    """Hands out aligned pieces of one buffer. size: bytes so far."""

    def __init__(self) -> None:
        self.size = 0

    def take(self, elements: int, dtype: str) -> Piece:
        piece = Piece(self.size, dtype)
        self.size += -(-elements * ITEM_BYTES[dtype] // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT
        return piece
