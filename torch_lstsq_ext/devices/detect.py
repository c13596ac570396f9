"""Which vendor a device is of, from what torch and Triton say. Nothing is asked of a device before facts_for()."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass, replace

import torch

from . import generic, simulator
from .facts import Facts
from .vendors import VENDOR_NAMES, VENDORS

_PROFILES = {"simulator": simulator, **VENDORS, "generic": generic}


@dataclass(frozen=True)
class Signals:
    """What may tell a vendor. Empty or None where torch does not say.

    name, gcn_arch, warp_size, multiprocessors, capability (major, minor): torch's device properties. cuda_version,
    hip_version, maca_version: torch.version's. has_corex, has_hcu_version: whether torch.corex and
    torch.__hcu_version__ exist. torch_version:
    torch.__version__; torch_metadata_version: that of the installed package, which keeps a vendor's tag where
    torch.__version__ drops it. triton_backend: the backend of Triton's current target.
    """

    device_type: str = "cuda"
    name: str = ""
    torch_version: str = ""
    torch_metadata_version: str = ""
    cuda_version: str | None = None
    hip_version: str | None = None
    maca_version: str | None = None
    gcn_arch: str = ""
    has_corex: bool = False
    has_hcu_version: bool = False
    triton_backend: str | None = None
    warp_size: int | None = None
    multiprocessors: int | None = None
    capability: tuple[int, int] | None = None

    def tagged(self, tag: str) -> str | None:
        """torch's version, or else its package's, whose local part ("+...") contains `tag`."""
        versions = (self.torch_version, self.torch_metadata_version)
        return next((version for version in versions if tag in version.partition("+")[2].lower()), None)


def collect_signals(device: torch.device) -> Signals:
    """The signals of `device`. Initialises it and imports Triton; what cannot be read is left empty."""
    module = getattr(torch, device.type, None)
    properties = _ask(lambda: module.get_device_properties(device))
    name = getattr(properties, "name", None) or _ask(lambda: module.get_device_name(device))
    return Signals(
        device_type=device.type,
        name=str(name or ""),
        torch_version=str(getattr(torch, "__version__", "")),
        torch_metadata_version=_ask(lambda: importlib.metadata.version("torch")) or "",
        cuda_version=getattr(torch.version, "cuda", None),
        hip_version=getattr(torch.version, "hip", None),
        maca_version=getattr(torch.version, "maca", None),
        gcn_arch=getattr(properties, "gcnArchName", None) or "",
        has_corex=hasattr(torch, "corex"),
        has_hcu_version=hasattr(torch, "__hcu_version__"),
        triton_backend=_ask(_triton_backend),
        warp_size=getattr(properties, "warp_size", None) or None,
        multiprocessors=getattr(properties, "multi_processor_count", None) or None,
        capability=_ask(lambda: (properties.major, properties.minor)),
    )


def recognise(signals: Signals) -> tuple[str, str]:
    """(profile, reason): a key of VENDORS, "simulator" or "generic", and the signal that matched."""
    for name, profile in _PROFILES.items():
        if reason := profile.recognise(signals):
            return name, reason
    raise AssertionError("generic takes every device")


def profile_facts(vendor: str) -> Facts:
    """What the profile of that name declares, whatever a device says."""
    return _PROFILES[vendor].FACTS


def facts_for(device: torch.device, *, forced: str | None = None, limits: dict | None = None) -> Facts:
    """The facts of `device`. Asks the device, so not to be called at import.

    limits: values of Triton's driver, any of shared_memory (bytes a block), multiprocessors, warp_size.
    forced: one of VENDOR_NAMES, whose profile takes the place of the device's own. What a recognised device cannot
    do, and what was measured, still bounds it; the simulator bounds nothing.
    ValueError for another name.
    """
    if forced is not None and forced not in VENDORS:
        raise ValueError(f"unknown vendor {forced!r}: allowed are {', '.join(VENDOR_NAMES)}")
    if device.type == "simulator":
        profile = VENDORS[forced].FACTS if forced else simulator.FACTS
        return replace(profile, interpreted=True, recognised=True)
    signals = collect_signals(device)
    measured = {"warp_size": signals.warp_size, "multiprocessors": signals.multiprocessors}
    measured.update({name: value for name, value in (limits or {}).items() if value})
    module = _PROFILES[recognise(signals)[0]]
    own = module.FACTS
    if hasattr(module, "measured"):
        measured.update(module.measured(signals))
    if forced is None:
        return own.with_limits(**measured)
    profile = VENDORS[forced].FACTS
    # Of a device that nobody recognised only the measurements are known; generic's values are mere caution.
    bounds = own if own.recognised else profile
    return profile.restricted_to(bounds.with_limits(**measured))


def _triton_backend() -> str | None:
    from triton.runtime import driver

    return driver.active.get_current_target().backend


def _ask(question):
    try:
        return question()
    except Exception:  # builds without the device, the property, the package, or with a driver that fails
        return None
