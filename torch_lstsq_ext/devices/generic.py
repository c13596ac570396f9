"""Any other device, CUDA-like or PrivateUse1: cautious values. `auto` leaves it to stock."""

from __future__ import annotations

from .facts import Facts

FACTS = Facts(
    vendor="generic",
    warp_size=32,
    threads_per_block=512,
    shared_memory=49152,
    private_bytes=None,
    multiprocessors=None,
    fp64=True,
    fp64_rate=None,
    fp64_dot=False,
    fp32_dot=True,
    dot_stages=1,
    min_dot=16,
    recognised=False,
    sources={
        "warp_size": "assumed until measured",
        "threads_per_block": "assumed: the least of the known devices",
        "shared_memory": "assumed until measured: 48 KB, CUDA's static limit and below those of the known devices",
        "private_bytes": "no limit known",
        "multiprocessors": "unknown until measured",
        "fp64": "assumed: a device that has torch.float64 tensors adds and multiplies them",
        "fp64_rate": "unknown",
        "fp64_dot": "assumed unsound: one known device miscompiles it, others lack it",
        "fp32_dot": "assumed, with ieee",
        "dot_stages": "assumed: pipelined products are miscompiled on one known device",
        "min_dot": "Triton's semantic check of tl.dot: K >= 16",
        "broken_reduction_lengths": "none known",
    },
)


def recognise(signals) -> str | None:
    return f"no known vendor's signal on the {signals.device_type} device {signals.name!r}"
