"""torch.linalg.lstsq on accelerators. Importing torch is enough: this package loads itself through torch.backends.

enable(), disable(), is_enabled(), disabled(): on and off. explain(A, B): what answers a call.
simulator.activate(): a device on host memory, where there is no accelerator.
"""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = ["__version__", "disable", "disabled", "enable", "explain", "is_enabled"]

_LAZY = {
    "enable": "switch",
    "disable": "switch",
    "is_enabled": "switch",
    "disabled": "switch",
    "explain": "explanation",
}


_SUBMODULES = ("simulator",)


def __getattr__(name: str):
    from importlib import import_module

    if name in _LAZY:
        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    if name in _SUBMODULES:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _autoload() -> None:
    """The torch.backends entry point: torch calls it at the end of its own import. Touches no device."""
    from . import settings

    if settings.CURRENT.mode == "0":
        return
    try:
        from . import switch

        switch.enable()
    except Exception as error:  # whatever is wrong with this package, torch must import
        import warnings

        warnings.warn(
            f"torch_lstsq_ext stays off: it does not fit this torch, reinstall it ({type(error).__name__}: {error})",
            RuntimeWarning,
            stacklevel=2,
        )
