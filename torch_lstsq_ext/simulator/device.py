"""What ``torch.simulator`` is: the functions PyTorch expects of a device's module."""

import torch


def is_available():
    return True


def is_initialized():
    return True


def device_count():
    return 1


def current_device():
    return 0


def set_device(device):
    _index(device)


def synchronize(device=None):
    """Returns at once: every operator has finished before it returns."""
    _index(device)


def manual_seed(seed):
    torch.default_generator.manual_seed(seed)


manual_seed_all = manual_seed


def initial_seed():
    return torch.default_generator.initial_seed()


def get_rng_state(device=None):
    _index(device)
    return torch.default_generator.get_state()


def set_rng_state(state, device=None):
    _index(device)
    torch.default_generator.set_state(state)


def get_amp_supported_dtype():
    return [torch.bfloat16, torch.float16]


class device:
    """Context manager that makes a device current; with one device there is nothing to do."""

    def __init__(self, device):
        _index(device)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False


def _is_in_bad_fork():
    return False


def _index(device):
    index = device if isinstance(device, int) else torch.device(device or "simulator").index
    if index not in (None, -1, 0):
        raise ValueError(f"the simulator is one device, there is no index {index}")
