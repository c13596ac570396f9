"""The vendors, one row each."""

from __future__ import annotations

from . import hygon, iluvatar, metax, nvidia

# In the order in which they are tried: the first three imitate CUDA, so NVIDIA comes last.
VENDORS = {
    "metax": metax,
    "iluvatar": iluvatar,
    "hygon": hygon,
    "nvidia": nvidia,
}
VENDOR_NAMES = tuple(VENDORS)
