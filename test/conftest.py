"""One set of tests for every device: a GPU if there is one, else the PrivateUse1 backend that is installed, else
the simulator, which is activated here, before anything imports triton."""

from __future__ import annotations

import warnings

import _support
import pytest
import torch

import torch_lstsq_ext


def _describe() -> str:
    try:
        import triton

        triton_version = triton.__version__
    except ImportError:
        triton_version = "none"
    name = torch.cuda.get_device_name() if _support.ON_CUDA else _support.DEVICE_TYPE
    profile = " ".join(_support.route_profile().split())
    return f"lstsq on {_support.DEVICE} ({name}), torch {torch.__version__}, triton {triton_version}; {profile}"


def pytest_configure(config):
    # A route that fails answers by way of stock, with a warning: right, and yet a failure here.
    config.addinivalue_line("filterwarnings", "error:torch_lstsq_ext:RuntimeWarning")


def pytest_report_header(config):
    return _describe()


def pytest_terminal_summary(terminalreporter):
    if terminalreporter.verbosity < 0:  # -q prints no header
        terminalreporter.write_line(_describe())


@pytest.fixture(scope="session")
def device() -> str:
    return _support.DEVICE


@pytest.fixture(scope="session")
def real_size() -> bool:
    return _support.REAL_SIZE


@pytest.fixture(scope="session", autouse=True)
def live():
    """Nothing that follows proves anything unless plain torch.linalg.lstsq reaches our kernels."""
    if not torch_lstsq_ext.is_enabled():
        torch_lstsq_ext.enable()
    from torch_lstsq_ext import solve

    before = sum(solve.counts().values())
    torch.linalg.lstsq(torch.eye(4, 3, device=_support.DEVICE), torch.ones(4, device=_support.DEVICE))
    assert sum(solve.counts().values()) > before, "torch.linalg.lstsq does not reach the override"


@pytest.fixture(autouse=True)
def poison():
    """Memory that nobody wrote holds NaN."""
    if _support.ON_SIMULATOR:
        torch_lstsq_ext.simulator.poison(True)
        yield
        torch_lstsq_ext.simulator.poison(False)
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*deterministic.*")
        yield
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])
