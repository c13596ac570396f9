"""NVIDIA: compute capability 9.0 by default; the measured limits replace those of other cards."""

from __future__ import annotations

import re

from .facts import Facts

FACTS = Facts(
    vendor="nvidia",
    warp_size=32,
    threads_per_block=1024,
    shared_memory=232448,
    private_bytes=None,
    multiprocessors=132,
    fp64=True,
    fp64_rate=0.5,
    fp64_dot=True,
    fp32_dot=True,
    dot_stages=None,
    min_dot=16,
    sources={
        "warp_size": "CUDA C++ Programming Guide, compute capabilities",
        "threads_per_block": "CUDA C++ Programming Guide, compute capabilities",
        "shared_memory": "CUDA C++ Programming Guide, 227 KB a block at compute capability 9.0; Triton opts in to it",
        "private_bytes": "CUDA C++ Programming Guide: 512 KB of local memory a thread, beyond any kernel here",
        "multiprocessors": "NVIDIA H100 architecture white paper, SXM: 132; the H200 has as many",
        "fp64": "IEEE 754; CUDA C++ Programming Guide, floating-point standard",
        "fp64_rate": "CUDA C++ Programming Guide, throughput of native arithmetic instructions, compute capability 9.0",
        "fp64_dot": "measured on an H200, triton 3.6.0",
        "fp32_dot": "measured on an H200, triton 3.6.0: right with ieee, off by 7e-4 with tf32",
        "dot_stages": "no restriction known",
        "min_dot": "Triton's semantic check of tl.dot: K >= 16",
        "broken_reduction_lengths": "none known",
    },
)

# Drivers of 2020 leave the maker out: "Tesla V100-SXM2-16GB", "A100-SXM4-40GB".
_NAME = re.compile(
    r"NVIDIA|Tesla|GeForce|Quadro|\bTITAN\b|\bGRID\b|Jetson|\bOrin\b|\bXavier\b|^A(10|16|30|40|100)\b", re.IGNORECASE
)
# Throughput of native arithmetic instructions, CUDA C++ Programming Guide: float64 to float32 by compute capability
_HALF_RATE = {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}
_UPSTREAM_BUILD = re.compile(r"\+cu\d+$")


def recognise(signals) -> str | None:
    """A CUDA build of torch, no other vendor's mark on it, and NVIDIA's name or PyTorch's own `+cu` build.

    Other makers imitate CUDA, torch.version.cuda included, so that alone proves nothing.
    """
    if signals.device_type != "cuda" or not signals.cuda_version or signals.warp_size not in (None, 32):
        return None
    if signals.hip_version or signals.maca_version or signals.has_corex or signals.has_hcu_version:
        return None
    if _NAME.search(signals.name):
        return f"the device's name is {signals.name!r}"
    for version in (signals.torch_version, signals.torch_metadata_version):
        if _UPSTREAM_BUILD.search(version):
            return f"torch {version} is PyTorch's own CUDA build"
    return None


def measured(signals) -> dict[str, float]:
    """What this card's compute capability says beyond the profile; 1/64 is right to a factor of 2 for the others."""
    if signals.capability is None:
        return {}
    return {"fp64_rate": 0.5 if signals.capability in _HALF_RATE else 1 / 64}
