"""The Triton kernels, by the name that a plan calls them."""

from .tile import tile_kernel
from .tsqr import tsqr_kernel

KERNELS = {
    "tile": tile_kernel,
    "tsqr": tsqr_kernel,
}
