"""A PyTorch device on host memory, for machines without an accelerator.

``activate()`` gives PyTorch a device type ``"simulator"`` (PrivateUse1). Dispatch, this extension's C++ and
planning, and its Triton kernels, which Triton's interpreter runs, then work as they do on an accelerator.

What it is not: a performance model, or a model of any vendor's hardware. There is one device, index 0; it is
synchronous, so streams and events exist but order nothing; its memory is the host's; an operator that nobody
registered for it runs on the CPU, on copies. Random numbers come from the CPU's default generator.
"""

import os
import sys

import torch

from . import device

NAME = "simulator"


def is_active():
    """Whether ``activate()`` has run in this process."""
    return getattr(torch, NAME, None) is device


def activate():
    """Create the device, for the rest of the process; a second call does nothing.

    Sets ``TRITON_INTERPRET=1``, which Triton reads as it is imported: call this before anything imports it,
    ``torch.testing._internal.common_device_type`` and ``torch.compile`` included.

    Raises:
        RuntimeError: another PrivateUse1 backend has a name already, or Triton functions were already
            decorated for compilation.
    """
    if is_active():
        return
    other = torch._C._get_privateuse1_backend_name()
    if other != "privateuseone":
        raise RuntimeError(f"cannot activate the simulator: the PrivateUse1 backend is already {other!r}")
    if compiled := _compiled_module():
        raise RuntimeError(
            f"cannot activate the simulator: {compiled} was imported without TRITON_INTERPRET=1; "
            "set it, or call activate() first"
        )

    from torch_lstsq_ext import _simulator, switch  # noqa: F401

    os.environ["TRITON_INTERPRET"] = "1"
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, device)
    torch.utils.generate_methods_for_privateuse1_backend()
    switch.take_in_private_backend()


def host_alias(tensor):
    """A CPU tensor on the same bytes: same sizes, strides, offset, dtype, conj and neg bits; no autograd.

    It keeps the memory alive, and is good until ``tensor``'s storage is resized. A tensor of another device
    is returned detached. Triton's interpreter accepts only CPU storages, hence this.
    """
    from torch_lstsq_ext import _simulator

    return _simulator.host_alias(tensor)


def poison(enabled):
    """Fill each new allocation with 0xFF bytes, which read as NaN: it shows reads of uninitialised memory.

    Off by default. Memory that was allocated before is left alone.
    """
    from torch_lstsq_ext import _simulator

    _simulator.poison(enabled)


def _compiled_module():
    for name in [*sys.modules]:
        if name == "triton.language.standard" or name.startswith("torch_lstsq_ext.kernels."):
            members = vars(sys.modules[name]).values()
            if any(type(member).__name__ == "JITFunction" for member in members):
                return name
    return None
