"""Iluvatar on CoreX, for instance BI-V150. CoreX imitates CUDA: device type and torch.version.cuda are CUDA's."""

from __future__ import annotations

from .facts import Facts

FACTS = Facts(
    vendor="iluvatar",
    warp_size=64,
    threads_per_block=512,
    shared_memory=131072,
    private_bytes=None,
    multiprocessors=16,
    fp64=False,
    fp64_rate=None,
    fp64_dot=False,
    fp32_dot=True,
    dot_stages=None,
    min_dot=16,
    broken_reduction_lengths=(512,),
    fp64_error=(
        "torch.linalg.lstsq: Iluvatar CoreX devices cannot compute in float64: tl.dot and torch.matmul do not accept "
        "it, copies of float64 to the device can silently become zeros, and solves can return NaN. Convert A and B "
        "to float32 before they are moved to the device, or keep them on the CPU and solve there."
    ),
    sources={
        "warp_size": "FlagSparse vendor documents, BI-V150; FlagTree's iluvatar back end",
        "threads_per_block": "FlagGems launches 8 warps of 64; nothing wider is reported",
        "shared_memory": "FlagTree's iluvatar back end: 128 KiB on ivcore11, 192 KiB on ivcore30; "
        "FlagGems pull request 5390: no pressure at tiles of 72 KB",
        "private_bytes": "no limit reported",
        "multiprocessors": "FlagSparse vendor documents, BI-V150",
        "fp64": "FlagGems pull request 5390 and FlagSparse vendor documents, BI-V150: copies of float64 to the device "
        "can give zeros, a 256x256 solve returns NaN",
        "fp64_rate": "no float64",
        "fp64_dot": "FlagGems pull request 5390, BI-V150: does not compile; torch.matmul says 'gemm of double is not "
        "supported on CoreX'",
        "fp32_dot": "FlagGems: in use with each dimension >= 16; one operator's full-width tiles are reported wrong",
        "dot_stages": "no restriction reported",
        "min_dot": "FlagGems: each dimension >= 16",
        "broken_reduction_lengths": "FlagGems: tl.sum of 512 elements with 8 warps is wrong, of 1024 right",
    },
)


def recognise(signals) -> str | None:
    if "iluvatar" in signals.name.lower():
        return f"the device's name is {signals.name!r}"
    if signals.has_corex:
        return "torch.corex exists"
    if version := signals.tagged("corex"):
        return f"torch's version is {version}"
    if signals.triton_backend == "corex":
        return "Triton's backend is corex"
    return None
