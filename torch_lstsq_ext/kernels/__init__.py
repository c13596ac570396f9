"""The Triton kernels, by the name that a plan calls them."""

from .compact_wy import panel_kernel, reflect_kernel
from .embedded import embed_kernel, extract_kernel
from .equilibrate import exponents_kernel, finish_kernel, scaled_copy_kernel, squares_kernel
from .substitution import product_kernel, triangle_kernel
from .tile import tile_kernel
from .tsqr import tsqr_kernel

KERNELS = {
    "embed": embed_kernel,
    "exponents": exponents_kernel,
    "extract": extract_kernel,
    "finish": finish_kernel,
    "panel": panel_kernel,
    "product": product_kernel,
    "reflect": reflect_kernel,
    "scaled_copy": scaled_copy_kernel,
    "squares": squares_kernel,
    "tile": tile_kernel,
    "triangle": triangle_kernel,
    "tsqr": tsqr_kernel,
}
