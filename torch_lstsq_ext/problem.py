"""One call as plain numbers: what csrc/contract.cpp made of the caller's tensors."""

from __future__ import annotations

from dataclasses import dataclass

# c10::ScalarType
DTYPES = {6: "float32", 7: "float64", 9: "complex64", 10: "complex128"}
# The data types that the routes solve
ITEM_BYTES = {"float32": 4, "float64": 8}
# The real type of a complex one, whose problems routes/embedded.py makes real
REAL = {"complex64": "float32", "complex128": "float64"}


@dataclass(frozen=True)
class Problem:
    """min ||b - A x|| for a batch of A (m, n) and B (m, k).

    The broadcast batch is three nested loops, outermost first. Strides are in elements and may be 0.
    What a plan depends on is m, n, k, dtype and the batch; the rest says where the data lies.
    """

    m: int
    n: int
    k: int = 1
    dtype: str = "float32"
    groups: tuple[int, int, int] = (1, 1, 1)
    a_batch_strides: tuple[int, int, int] = (0, 0, 0)
    a_strides: tuple[int, int] = (0, 0)  # row, column
    b_batch_strides: tuple[int, int, int] = (0, 0, 0)
    b_strides: tuple[int, int] = (0, 0)  # row, column

    @property
    def batch(self) -> int:
        return self.groups[0] * self.groups[1] * self.groups[2]

    @property
    def wide(self) -> bool:
        """Fewer rows than columns: the answer is the solution of minimum norm."""
        return self.m < self.n

    @property
    def has_residuals(self) -> bool:
        return self.m > self.n

    @property
    def item_bytes(self) -> int:
        return ITEM_BYTES[self.dtype]

    def __str__(self) -> str:
        return f"{self.batch}x{self.m}x{self.n}, {self.k}, {self.dtype}"


def from_geometry(geometry: tuple[int, ...]) -> Problem:
    """The Problem of the 20 numbers that csrc/dispatch.cpp sends: dtype, device type and index,
    alignment, m, n, k, batch groups (3), strides of A (3 batch, row, column) and of B (the same)."""
    dtype, _, _, _, m, n, k, *rest = geometry
    return Problem(
        m=m,
        n=n,
        k=k,
        dtype=DTYPES[dtype],
        groups=tuple(rest[0:3]),
        a_batch_strides=tuple(rest[3:6]),
        a_strides=tuple(rest[6:8]),
        b_batch_strides=tuple(rest[8:11]),
        b_strides=tuple(rest[11:13]),
    )
