"""MetaX on MACA, for instance C550. MACA imitates CUDA: device type and torch.version.cuda are CUDA's."""

from __future__ import annotations

from .facts import Facts

FACTS = Facts(
    vendor="metax",
    warp_size=64,
    threads_per_block=512,
    shared_memory=65536,
    private_bytes=4096,
    multiprocessors=104,
    fp64=True,
    fp64_rate=None,
    fp64_dot=False,
    fp32_dot=True,
    dot_stages=1,
    min_dot=16,
    sources={
        "warp_size": "FlagSparse vendor documents, C550",
        "threads_per_block": "FlagGems pull request 5390, C550: at most 8 warps of 64",
        "shared_memory": "FlagGems pull request 5390, C550; FlagSparse vendor documents",
        "private_bytes": "FlagGems pull request 5390, C550: a driver setting; beyond it Triton reports "
        "'memory size or pointer value too large to fit in 32 bit'",
        "multiprocessors": "FlagSparse vendor documents, C550",
        "fp64": "FlagGems pull request 5390, C550: right elementwise",
        "fp64_rate": "not published",
        "fp64_dot": "FlagGems pull request 5390, C550: miscompiled, relative error about 1 at every shape",
        "fp32_dot": "FlagGems pull request 5390, C550: 1.1e-7 with ieee",
        "dot_stages": "FlagGems pull requests 5390 and 5586, C550: more stages miscompile V T V^T for some sizes "
        "(5e-2 against 2e-7)",
        "min_dot": "Triton's semantic check of tl.dot: K >= 16",
        "broken_reduction_lengths": "none known",
    },
)


def recognise(signals) -> str | None:
    if signals.maca_version:
        return f"torch.version.maca is {signals.maca_version}"
    if "metax" in signals.name.lower():
        return f"the device's name is {signals.name!r}"
    if version := signals.tagged("metax"):
        return f"torch's version is {version}"
    if signals.triton_backend in ("maca", "metax"):
        return f"Triton's backend is {signals.triton_backend}"
    return None
