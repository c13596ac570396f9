"""A profile's limits, held against every launch before it runs: whether the device or the user chose the profile."""

from __future__ import annotations

import re

_DOT = re.compile(r"\btt\.dot .*: tensor<([\dx]+)x(\w+)[^*]*> \* tensor<([\dx]+)x")
_REDUCE = re.compile(r'"tt\.reduce"\(.*?axis = (\d+).*?\}\) : \(tensor<([\dx]+)x', re.DOTALL)


class LimitExceeded(RuntimeError):
    """A launch that asks for more than the device's profile allows."""


def _extents(text: str) -> list[int]:
    return [int(extent) for extent in text.split("x")]


def dots(ttir: str) -> list[tuple[str, int]]:
    """(element type, least of M, N, K) of every tl.dot in Triton's IR of a kernel; types as "f32" and "f64"."""
    return [(kind, min(*_extents(a)[-2:], _extents(b)[-1])) for a, kind, b in _DOT.findall(ttir)]


def reduction_lengths(ttir: str) -> set[int]:
    """How many elements each reduction in Triton's IR of a kernel takes together."""
    return {_extents(shape)[int(axis)] for axis, shape in _REDUCE.findall(ttir)}


def check_launch(launch, facts) -> None:
    """LimitExceeded where the plan's launch breaks the profile; what only the compiler knows is check_compiled's."""
    threads = launch.num_warps * facts.warp_size
    _hold(launch.kernel, facts, "threads a block", threads, facts.threads_per_block)


def check_compiled(kernel: str, compiled, facts) -> None:
    """LimitExceeded where a kernel as Triton compiled and loaded it breaks the profile."""
    _hold(kernel, facts, "bytes of shared memory a block", compiled.metadata.shared, facts.shared_memory)
    words = getattr(compiled, "n_spills", None)  # 32-bit, of local memory; set by loading
    if words is not None and facts.private_bytes is not None:
        _hold(kernel, facts, "bytes of private memory a thread", 4 * words, facts.private_bytes)

    ttir = compiled.asm.get("ttir") or ""
    for length in reduction_lengths(ttir) & {*facts.broken_reduction_lengths}:
        raise LimitExceeded(f"{kernel}_kernel reduces {length} elements, which profile {facts.vendor} declares broken")
    found = dots(ttir)
    if not found:
        return
    stages = getattr(compiled.metadata, "num_stages", None)
    if stages is not None and facts.dot_stages is not None:
        _hold(kernel, facts, "stages beside tl.dot", stages, facts.dot_stages)
    for kind, sound in (("f64", facts.fp64_dot), ("f32", facts.fp32_dot)):
        if sound is False and any(kind == other for other, _ in found):
            raise LimitExceeded(f"{kernel}_kernel uses tl.dot on {kind}, which profile {facts.vendor} declares unsound")
    least = min(extent for _, extent in found)
    if least < facts.min_dot:
        raise LimitExceeded(
            f"{kernel}_kernel has a tl.dot of extent {least}, profile {facts.vendor} asks for at least {facts.min_dot}"
        )


def _hold(kernel: str, facts, what: str, asked: int, allowed: int) -> None:
    if asked > allowed:
        raise LimitExceeded(f"{kernel}_kernel asks for {asked} {what}, profile {facts.vendor} allows {allowed}")
