"""What would answer a call, and how."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from .plan import STOCK
from .problem import ITEM_BYTES, REAL, Problem
from .routes.steps import Plan


@dataclass(frozen=True)
class Explanation:
    """route: the name of a route, or "stock". str() is a text of a few lines."""

    problem: Problem | None
    device: str
    vendor: str | None
    plan: Plan | None
    reason: str

    @property
    def route(self) -> str:
        return self.plan.route if self.plan else STOCK

    def __str__(self) -> str:
        what = f"{self.problem} on {self.device}" if self.problem else self.device
        lines = [f"{what}: {self.route} ({self.reason})"]
        if self.plan:
            for launch in self.plan.launches:
                what = f"{launch.grid} programs of {launch.num_warps} warps"
                lines.append(f"  {launch.kernel}_kernel: {', '.join(filter(None, (what, launch.note)))}")
            lines.append(f"  workspace: {self.plan.workspace} bytes")
        return "\n".join(lines)


def explain(A: torch.Tensor, B: torch.Tensor) -> Explanation:
    """Which route torch.linalg.lstsq(A, B) takes. A (..., m, n), B (..., m, k) or (..., m). Solves nothing.

    For arguments that torch.linalg.lstsq accepts; it does not check what lstsq checks.
    """
    from . import _C, switch

    def stock(reason: str, problem=None, vendor=None) -> Explanation:
        return Explanation(problem, str(A.device), vendor, None, reason)

    dtype = str(A.dtype).removeprefix("torch.")
    if dtype not in {**ITEM_BYTES, **REAL}:
        return stock(f"{dtype} has no route")
    if not switch.is_enabled() or _C.is_bypassed():
        return stock("disabled")
    if A.device.type not in ("cuda", torch._C._get_privateuse1_backend_name()):
        return stock(f"device type {A.device.type} is not served")
    *batch, m, n = A.shape
    vector = B.dim() == 1 or (B.dim() == A.dim() - 1 and B.shape == A.shape[:-1])
    k = 1 if vector else B.shape[-1]
    if not vector:
        batch = torch.broadcast_shapes(A.shape[:-2], B.shape[: A.dim() - 2])
    count = math.prod(batch)
    # As far as a plan depends on them: whether matrices share A
    shared = math.prod(A.shape[:-2]) == 1 or not any(A.stride()[:-2])
    problem = Problem(
        m=m,
        n=n,
        k=k,
        dtype=dtype,
        groups=(1, 1, count),
        a_batch_strides=(0, 0, 0 if shared else m * n),
        a_strides=A.stride()[-2:],
        b_batch_strides=(0, 0, m * k),
        b_strides=(k, 1),
    )
    if 0 in (m, n, k, count):
        return stock("empty, answered without a kernel", problem)

    from .solve import device_facts, is_served, plan_for

    facts = device_facts(A.device)
    if not is_served(facts):
        return stock(f"mode auto serves recognised devices, and this one is {facts.vendor}", problem, facts.vendor)
    plan = plan_for(problem, facts)
    if plan is None:
        return stock("no route covers this shape", problem, facts.vendor)
    return Explanation(problem, str(A.device), facts.vendor, plan, f"profile {facts.vendor}")
