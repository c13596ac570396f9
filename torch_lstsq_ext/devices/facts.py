"""Facts: everything device-specific that a plan may depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

MEASURED = "measured: Triton's driver or torch's device properties"

# What the hardware and its software do. Facts.sources has an entry for each of them.
DEVICE_FACTS = (
    "warp_size",
    "threads_per_block",
    "shared_memory",
    "private_bytes",
    "multiprocessors",
    "fp64",
    "fp64_rate",
    "fp64_dot",
    "fp32_dot",
    "dot_stages",
    "min_dot",
    "broken_reduction_lengths",
)


@dataclass(frozen=True)
class Facts:
    """One device, or one vendor's declared defaults. Hashable; `sources` takes no part in comparisons.

    vendor: the profile's name.
    warp_size: threads that Triton's num_warps=1 launches.
    threads_per_block: the most threads a launch may have.
    shared_memory: bytes a block, the limit that Triton enforces (`max_shared_mem` of its driver's properties).
    private_bytes: bytes of registers' spill space a thread; None where no limit is known.
    multiprocessors: how many run blocks at once; None if unknown.
    fp64: float64 arithmetic is sound.
    fp64_rate: float64 operations in the time of one of float32; None if unknown.
    fp64_dot: tl.dot on float64 is sound; None where that depends on the Triton build and must be tried.
    fp32_dot: tl.dot on float32 with input_precision="ieee" is sound.
    dot_stages: the num_stages that a launch with tl.dot must use; None leaves it free.
    min_dot: the smallest extent of any dimension of a tl.dot.
    broken_reduction_lengths: element counts over which tl.sum is wrong.
    interpreted: kernels run in Triton's interpreter.
    recognised: the mode `auto` serves the device.
    fp64_error: the NotImplementedError that a float64 call gets where fp64 is False.
    sources: where each of DEVICE_FACTS was measured or said, by the field's name.
    """

    vendor: str
    warp_size: int
    threads_per_block: int
    shared_memory: int
    private_bytes: int | None
    multiprocessors: int | None
    fp64: bool
    fp64_rate: float | None
    fp64_dot: bool | None
    fp32_dot: bool
    dot_stages: int | None
    min_dot: int
    broken_reduction_lengths: tuple[int, ...] = ()
    interpreted: bool = False
    recognised: bool = True
    fp64_error: str = ""
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def shared_memory_budget(self) -> int:
        """Bytes of shared memory that a block may plan with: half the limit.

        A tile that fills the limit leaves nothing for Triton's own overhead of about 1 KB and lets one block reside
        a multiprocessor. Half took the tall float32 shapes on a C550 from a geometric mean of 7.24 to 8.59 times
        stock (FlagGems pull request 5390).
        """
        return self.shared_memory // 2

    @property
    def wide_dot(self) -> bool:
        """Whether products of float32 data are better made in float64, by tl.dot: exact, and as fast."""
        return self.fp64_dot is True and (self.fp64_rate or 0) >= 0.5

    @property
    def max_warps(self) -> int:
        """The largest num_warps of a launch."""
        return self.threads_per_block // self.warp_size

    def with_limits(
        self,
        *,
        shared_memory: int | None = None,
        multiprocessors: int | None = None,
        warp_size: int | None = None,
        fp64_rate: float | None = None,
        source: str = MEASURED,
    ) -> Facts:
        """These facts with measured values (bytes, a count, threads, a ratio) for the declared; None keeps a value."""
        values = {"shared_memory": shared_memory, "multiprocessors": multiprocessors, "warp_size": warp_size}
        values["fp64_rate"] = fp64_rate
        values = {name: value for name, value in values.items() if value is not None}
        return replace(self, **values, sources={**self.sources, **dict.fromkeys(values, source)})

    def restricted_to(self, real: Facts) -> Facts:
        """This profile on the hardware that `real` describes: the lesser of the two in every limit and ability.

        The warp size is the real one, because num_warps counts real warps.
        """
        values = {
            "warp_size": real.warp_size,
            "threads_per_block": min(self.threads_per_block, real.threads_per_block),
            "shared_memory": min(self.shared_memory, real.shared_memory),
            "private_bytes": _least(self.private_bytes, real.private_bytes),
            "multiprocessors": _least(self.multiprocessors, real.multiprocessors),
            "fp64": self.fp64 and real.fp64,
            "fp64_rate": _least(self.fp64_rate, real.fp64_rate) if self.fp64_rate and real.fp64_rate else None,
            "fp64_dot": _both(self.fp64_dot, real.fp64_dot),
            "fp32_dot": self.fp32_dot and real.fp32_dot,
            "dot_stages": _least(self.dot_stages, real.dot_stages),
            "min_dot": max(self.min_dot, real.min_dot),
            "broken_reduction_lengths": tuple(sorted({*self.broken_reduction_lengths, *real.broken_reduction_lengths})),
        }
        taken = {name for name, value in values.items() if value != getattr(self, name)}
        sources = {name: (real if name in taken else self).sources.get(name, "") for name in DEVICE_FACTS}
        return replace(self, **values, fp64_error=self.fp64_error or real.fp64_error, sources=sources)


def _least(a: int | None, b: int | None) -> int | None:
    return min((value for value in (a, b) if value is not None), default=None)


def _both(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True
