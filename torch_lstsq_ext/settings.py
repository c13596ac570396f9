"""Every environment variable of this package. Nothing else reads the environment for itself.

TORCH_LSTSQ_EXT         0, 1 or auto (default)  never answer; answer on every device; on recognised devices
TORCH_LSTSQ_EXT_VENDOR  a vendor's name         use that vendor's device profile, whatever the device
TORCH_LSTSQ_EXT_ROUTES  names, with commas      only these routes answer; all by default
TORCH_LSTSQ_EXT_LOG     0 (default) or 1        say on stderr, once per problem class, which route answered
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from .devices.vendors import VENDOR_NAMES

MODES = ("0", "1", "auto")
LOG_LEVELS = ("0", "1")


@dataclass(frozen=True)
class Settings:
    mode: str = "auto"  # one of MODES
    vendor: str | None = None  # one of VENDOR_NAMES
    routes: tuple[str, ...] | None = None  # names in plan.ROUTES; None: all
    log: bool = False


def _choice(environment, name: str, allowed: tuple[str, ...], default: str | None) -> str | None:
    value = environment.get(name, "").strip().lower()
    if not value:
        return default
    if value not in allowed:
        raise ValueError(f"{name}={environment[name]!r}: allowed values are {', '.join(allowed)}")
    return value


def read(environment=os.environ) -> Settings:
    """The settings that `environment` asks for. ValueError, naming the allowed values, for any other."""
    return Settings(
        mode=_choice(environment, "TORCH_LSTSQ_EXT", MODES, "auto"),
        vendor=_choice(environment, "TORCH_LSTSQ_EXT_VENDOR", VENDOR_NAMES, None),
        routes=tuple(environment.get("TORCH_LSTSQ_EXT_ROUTES", "").lower().replace(",", " ").split()) or None,
        log=_choice(environment, "TORCH_LSTSQ_EXT_LOG", LOG_LEVELS, "0") == "1",
    )


def check_routes(settings: Settings, allowed: tuple[str, ...]) -> None:
    """ValueError where the settings name a route that is not in `allowed`. At the first call: routes load late."""
    if settings.routes and not set(settings.routes) <= set(allowed):
        value = ",".join(settings.routes)
        raise ValueError(f"TORCH_LSTSQ_EXT_ROUTES={value!r}: allowed values are {', '.join(allowed)}")


def serving_every_device(environment=os.environ) -> dict[str, str]:
    """`environment` for a process in which torch.linalg.lstsq is answered on any device."""
    return {**environment, "TORCH_LSTSQ_EXT": "1"}


CURRENT = read()
