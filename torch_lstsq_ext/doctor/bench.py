"""What a probe works with: the device, its facts, launches, and the report of what it measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

import torch

from ..devices.facts import Facts


@dataclass(frozen=True)
class Bench:
    """declared: the fact under test, a value of JSON. write: takes each report, a dict."""

    device: torch.device
    facts: Facts
    declared: object
    write: Callable[[dict], None]

    def report(self, measured, agrees: bool | None, detail: str = "") -> None:
        """measured: a value of JSON; agrees: None if that cannot be told. The last report counts, also if the probe
        does not come back from what it tries next."""
        self.write({"measured": measured, "agrees": agrees, "detail": detail})

    def report_soundness(self, sound: bool, detail: str, refutable: bool = True) -> None:
        """A declared None leaves it open. refutable: an unsound operation would have been wrong here, so that a right
        answer contradicts the declaration."""
        agrees = self.declared is None or sound == self.declared
        self.report(sound, agrees if agrees or not sound or refutable else None, detail)

    def launch(self, kernel, *arguments, num_warps: int = 4, num_stages: int = 1, **constexprs):
        """Run one program on device tensors and numbers. Returns Triton's compiled kernel, None in its interpreter."""
        from ..launch import FUSED

        if self.facts.interpreted:
            from ..simulator import host_alias

            arguments = [host_alias(a) if isinstance(a, torch.Tensor) else a for a in arguments]
        return kernel[(1,)](*arguments, **constexprs, num_warps=num_warps, num_stages=num_stages, **FUSED)

    def empty(self, *shape, dtype: torch.dtype) -> torch.Tensor:
        return torch.full(shape, float("nan"), dtype=dtype).to(self.device)


def uniform(*shape, dtype: torch.dtype, low: float = -1.0, high: float = 1.0) -> torch.Tensor:
    """The same numbers every time, on the CPU."""
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.rand(*shape, generator=generator, dtype=torch.float64) * (high - low) + low).to(dtype)


def relative_error(actual: torch.Tensor, expected: torch.Tensor, size: torch.Tensor) -> float:
    """The worst |actual - expected| / size, in float64 on the CPU; inf where `actual` is not finite."""
    error = ((actual.cpu().double() - expected).abs() / size).max().item()
    return error if error == error else float("inf")


def said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:120]
