"""The simulator of this package: host memory, and kernels in Triton's interpreter. Limits as NVIDIA's."""

from __future__ import annotations

from .facts import Facts

_INTERPRETER = "Triton's interpreter: numpy on the host"
_PLANNED = "chosen as NVIDIA's: the interpreter has no such limit"

FACTS = Facts(
    vendor="simulator",
    warp_size=32,
    threads_per_block=1024,
    shared_memory=232448,
    private_bytes=None,
    multiprocessors=None,
    fp64=True,
    fp64_rate=1.0,
    fp64_dot=True,
    fp32_dot=True,
    dot_stages=None,
    min_dot=16,
    interpreted=True,
    sources={
        "warp_size": _PLANNED,
        "threads_per_block": _PLANNED,
        "shared_memory": _PLANNED,
        "private_bytes": _INTERPRETER,
        "multiprocessors": _INTERPRETER + ", one program after another",
        "fp64": _INTERPRETER,
        "fp64_rate": _INTERPRETER,
        "fp64_dot": _INTERPRETER,
        "fp32_dot": _INTERPRETER,
        "dot_stages": _INTERPRETER,
        "min_dot": _PLANNED,
        "broken_reduction_lengths": _INTERPRETER,
    },
)


def recognise(signals) -> str | None:
    return "the device type is simulator" if signals.device_type == "simulator" else None
