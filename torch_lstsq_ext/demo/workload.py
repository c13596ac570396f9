"""Two workloads as GPU code has them, generated, in float32: images to align and a spline layer to initialise.

Each is checked against the same computation in float64 on the CPU. The error is relative to the largest entry of what
the caller is after (the aligned depth; the spline coefficients); BOUND is what float32 leaves on such data, whose
condition numbers with unit columns (rows, for the layer) are below 100.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

import torch

BOUND = 3e-5
_STEPS = 4


@dataclass(frozen=True)
class Workload:
    """`A` (batch, m, n) and `B` (batch, m, k), float64 on the CPU; `run(A, B)` is the computation to be checked."""

    name: str
    description: str
    A: torch.Tensor
    B: torch.Tensor
    run: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def workloads(large: bool) -> list[Workload]:
    """The depth alignment and the spline layer: at the size of their use, or small enough for an interpreter."""
    depth = depth_alignment(4, 400, 500) if large else depth_alignment(2, 16, 12)
    layer = spline_layer(784, 64) if large else spline_layer(4, 3)
    return [
        Workload("depth", "scale and shift of predicted depth, 4 robust steps", *depth, align),
        Workload("KAN", "spline coefficients of a layer, minimum norm", *layer, solve),
    ]


def depth_alignment(batch: int, height: int, width: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """[d, 1] (batch, height * width, 2) and metric depth g (batch, height * width, 1) of smooth random scenes.

    min ||s d + t - g|| over scale s and shift t is how monocular depth is compared with metric depth (Ranftl et al.,
    Towards Robust Monocular Depth Estimation, 2020). The prediction d carries 1 % of noise, 5 % of the pixels of g
    are wrong.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    v = torch.linspace(0, 1, height, dtype=torch.float64)[:, None]
    u = torch.linspace(0, 1, width, dtype=torch.float64)
    metres = 2 + 6 * (1 - v) + uniform(batch, 1, 1) * torch.sin(7 * u + 6 * uniform(batch, 1, 1)) * torch.cos(5 * v)
    noise = torch.randn(metres.shape, generator=generator, dtype=torch.float64)
    scale, shift = 4 + 4 * uniform(batch, 1, 1), uniform(batch, 1, 1)
    d = (metres - shift) / scale * (1 + 0.01 * noise)
    g = torch.where(uniform(*metres.shape) < 0.05, 10 * uniform(*metres.shape), metres)
    d, g = d.reshape(batch, -1), g.reshape(batch, -1, 1)
    return torch.stack([d, torch.ones_like(d)], dim=-1), g


def align(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """The aligned depth s d + t, (batch, m, 1): least squares reweighted by Cauchy's 1 / (1 + (r / scale)^2)."""
    weight = torch.ones_like(B)
    for _ in range(_STEPS):
        aligned = A @ torch.linalg.lstsq(weight * A, weight * B).solution
        residual = (aligned - B).abs()
        scale = 2 * residual.mean(dim=-2, keepdim=True)
        weight = (1 + (residual / scale) ** 2).rsqrt()
    return aligned


def spline_layer(features: int, outputs: int, grid: int = 5, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Cubic B-splines at the grid points, (features, grid + 1, grid + 3), and noise (features, grid + 1, outputs).

    The initialisation of a Kolmogorov-Arnold layer: coefficients of minimum norm whose splines pass through the noise.
    Every feature has the grid stretched by a factor of its own. Both tensors are transposed views of (grid + 1,
    features, ...), as in the layers' code.
    """
    generator = torch.Generator().manual_seed(seed)
    order = 3
    stretch = 1 + torch.rand(features, 1, generator=generator, dtype=torch.float64)
    knots = stretch * (torch.arange(-order, grid + order + 1, dtype=torch.float64) * 2 / grid - 1)
    x = knots[:, order : order + grid + 1].T[..., None]  # (grid + 1, features, 1)
    bases = ((x >= knots[:, :-1]) & (x < knots[:, 1:])).double()
    for k in range(1, order + 1):  # Cox and de Boor
        left = (x - knots[:, : -k - 1]) / (knots[:, k:-1] - knots[:, : -k - 1])
        right = (knots[:, k + 1 :] - x) / (knots[:, k + 1 :] - knots[:, 1:-k])
        bases = left * bases[..., :-1] + right * bases[..., 1:]
    noise = torch.rand(grid + 1, features, outputs, generator=generator, dtype=torch.float64)
    return bases.transpose(0, 1), ((noise - 0.5) * 0.1 / grid).transpose(0, 1)


def solve(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    return torch.linalg.lstsq(A, B).solution


def error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """max |actual - expected| / max |expected|, in float64 on the CPU; inf if any entry is not finite."""
    difference = (actual.detach().cpu().double() - expected).abs()
    return (difference.max() / expected.abs().max()).item() if difference.isfinite().all() else float("inf")
