"""Hygon DCU on DTK, for instance K100_AI and BW1000. DTK imitates ROCm, which imitates CUDA."""

from __future__ import annotations

import re

from .facts import Facts

FACTS = Facts(
    vendor="hygon",
    warp_size=64,
    threads_per_block=1024,
    shared_memory=65536,
    private_bytes=None,
    multiprocessors=80,
    fp64=True,
    fp64_rate=None,
    fp64_dot=None,
    fp32_dot=True,
    dot_stages=None,
    min_dot=16,
    sources={
        "warp_size": "FlagSparse vendor documents, gfx936",
        "threads_per_block": "HIP documentation: 1024 threads a block; DTK implements HIP",
        "shared_memory": "FlagGems pull request 5390: Triton says 'Required: 73728, Hardware limit: 65536'",
        "private_bytes": "no limit reported",
        "multiprocessors": "FlagSparse vendor documents, gfx936",
        "fp64": "FlagGems pull request 5390: the silicon is right",
        "fp64_rate": "not published",
        "fp64_dot": "FlagGems pull request 5390: one Triton build says 'Unsupported lhs dtype fp64', another runs it "
        "and passes",
        "fp32_dot": "FlagTree's hcu back end: ieee is the only precision",
        "dot_stages": "no restriction reported",
        "min_dot": "Triton's semantic check of tl.dot: K >= 16",
        "broken_reduction_lengths": "none known",
    },
)

_ARCHITECTURES = ("gfx906", "gfx926", "gfx928", "gfx936", "gfx938")
_NAME = re.compile(r"hygon|\bK100_AI\b|^BW\d", re.IGNORECASE)
_AMD_NAME = re.compile(r"\bAMD\b|Radeon|Instinct|\bVega\b", re.IGNORECASE)
_BUILD_TAGS = ("das", "dtk")


def recognise(signals) -> str | None:
    """gfx906 is AMD's Vega 20 too, so AMD's name rules it out."""
    if _AMD_NAME.search(signals.name):
        return None
    architecture = signals.gcn_arch.split(":")[0]
    if signals.hip_version and architecture in _ARCHITECTURES:
        return f"gcnArchName is {architecture}"
    if _NAME.search(signals.name):
        return f"the device's name is {signals.name!r}"
    if signals.has_hcu_version:
        return "torch.__hcu_version__ exists"
    for tag in _BUILD_TAGS:
        if version := signals.tagged(tag):
            return f"torch's version is {version}"
    return None
