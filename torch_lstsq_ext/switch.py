"""On and off. Registration with the dispatcher lives from enable() to disable()."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import torch

from . import _C, settings

_lock = threading.Lock()
_enabled = False


def _set_solver(solver) -> None:
    dynamo = getattr(torch._C, "_dynamo", None)
    _C.set_solver(solver, dynamo and dynamo.eval_frame.set_eval_frame)


def _solver(*arguments) -> bool:
    # The first call brings in Triton; later ones go straight to solve.answer.
    try:
        from . import launch  # noqa: F401
        from .solve import answer
    except ImportError as error:
        import warnings

        _C.set_solver(None, None)
        warnings.warn(
            f"torch_lstsq_ext: no usable triton ({error}); torch.linalg.lstsq stays stock",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    _set_solver(answer)
    return answer(*arguments)


def _private_backend_is_ours() -> bool:
    """A PrivateUse1 backend's own kernel is replaced only if we know the backend or the user asked for it."""
    if settings.CURRENT.mode == "1":
        return True
    return torch._C._get_privateuse1_backend_name() == "simulator"


def enable() -> None:
    """Answer torch.linalg.lstsq from now on, in every thread. A second call does nothing."""
    global _enabled
    with _lock:
        if not _enabled:
            _set_solver(_solver)
        _C.enable("CUDA")
        if _private_backend_is_ours():
            _C.enable("PrivateUse1")
        _enabled = True


def take_in_private_backend() -> None:
    """For a PrivateUse1 backend that has come since enable(); nothing while disabled."""
    if is_enabled():
        enable()


def disable() -> None:
    """Take the registration back: torch.linalg.lstsq is what it was before, to the bit."""
    global _enabled
    with _lock:
        _C.disable("CUDA")
        _C.disable("PrivateUse1")
        _enabled = False


def is_enabled() -> bool:
    """Whether torch.linalg.lstsq is answered by this package, on the devices that it serves."""
    return _enabled


@contextmanager
def disabled():
    """Within it, this thread's calls of torch.linalg.lstsq go to stock. Other threads are not affected."""
    before = _C.set_bypass(True)
    try:
        yield
    finally:
        _C.set_bypass(before)
