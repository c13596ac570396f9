"""enable(), disable(), is_enabled(), disabled() and the environment variables."""

from __future__ import annotations

import threading

import pytest
import torch
from _support import DEVICE, assert_close, gels64, matrix, python, python_output, randn

import torch_lstsq_ext
from torch_lstsq_ext import solve


@pytest.fixture(autouse=True)
def leave_it_enabled():
    yield
    torch_lstsq_ext.enable()


A, B = matrix(6, 3, dtype=torch.float32), randn(6, 2, dtype=torch.float32, seed=7)
EXPECTED = gels64(A, B).solution


def answered_by_us(device=DEVICE) -> bool:
    """Solve, check the answer, and say whether our kernels gave it."""
    before = sum(solve.counts().values())
    assert_close(torch.linalg.lstsq(A.to(device), B.to(device), driver="gels").solution, EXPECTED)
    return sum(solve.counts().values()) > before


# Switches -----------------------------------------------------------------------------------------------------------


def test_disable_and_enable():
    assert torch_lstsq_ext.is_enabled() and answered_by_us()
    torch_lstsq_ext.disable()
    assert not torch_lstsq_ext.is_enabled() and not answered_by_us()
    torch_lstsq_ext.enable()
    assert torch_lstsq_ext.is_enabled() and answered_by_us()


@pytest.mark.parametrize("times", [2, 5], ids=["twice", "five-times"])
def test_switching_again_changes_nothing(times):
    for _ in range(times):
        torch_lstsq_ext.enable()
    assert answered_by_us()
    for _ in range(times):
        torch_lstsq_ext.disable()
    assert not answered_by_us()
    torch_lstsq_ext.enable()
    assert answered_by_us()


def test_many_switches():
    for _ in range(200):
        torch_lstsq_ext.disable()
        torch_lstsq_ext.enable()
    assert answered_by_us()


def test_out_is_switched_too():
    def into():
        out = (
            *(torch.empty(0, device=DEVICE) for _ in range(2)),
            torch.empty(0, dtype=torch.int64, device=DEVICE),
            torch.empty(0, device=DEVICE),
        )
        before = sum(solve.counts().values())
        torch.linalg.lstsq(A.to(DEVICE), B.to(DEVICE), driver="gels", out=out)
        assert_close(out[0], EXPECTED)
        return sum(solve.counts().values()) > before

    assert into()
    with torch_lstsq_ext.disabled():
        assert not into()
    assert into()


def test_the_cpu_is_left_alone():
    assert not answered_by_us("cpu")
    assert torch.linalg.lstsq(A, B).rank.item() == 3  # gelsy, the CPU's own default
    torch_lstsq_ext.disable()
    assert not answered_by_us("cpu")


# The context manager ------------------------------------------------------------------------------------------------


def test_disabled():
    with torch_lstsq_ext.disabled():
        assert not answered_by_us()
    assert answered_by_us()


def test_disabled_nests():
    with torch_lstsq_ext.disabled():
        with torch_lstsq_ext.disabled():
            assert not answered_by_us()
        assert not answered_by_us()
    assert answered_by_us()


def test_disabled_ends_with_an_exception():
    with pytest.raises(ZeroDivisionError), torch_lstsq_ext.disabled():
        raise ZeroDivisionError
    assert answered_by_us()
    with pytest.raises(RuntimeError, match="should match"), torch_lstsq_ext.disabled():
        torch.linalg.lstsq(A.to(DEVICE), B[:4].to(DEVICE))
    assert answered_by_us()


def test_disabled_as_a_decorator():
    assert not torch_lstsq_ext.disabled()(answered_by_us)()
    assert answered_by_us()


def test_disabled_while_disabled():
    torch_lstsq_ext.disable()
    with torch_lstsq_ext.disabled():
        assert not answered_by_us()
        torch_lstsq_ext.enable()
        assert torch_lstsq_ext.is_enabled()
        assert not answered_by_us()
    assert answered_by_us()


def in_thread(function):
    """What `function` returns, or raises, in a thread of its own."""
    outcome = []

    def run():
        try:
            outcome.append((function(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    value, error = outcome[0]
    if error:
        raise error
    return value


def test_disabled_is_of_one_thread():
    with torch_lstsq_ext.disabled():
        assert in_thread(answered_by_us)
        assert not answered_by_us()


def test_disabled_in_another_thread():
    def elsewhere():
        with torch_lstsq_ext.disabled():
            return answered_by_us()

    assert not in_thread(elsewhere)
    assert answered_by_us()


def test_disable_is_of_all_threads():
    torch_lstsq_ext.disable()
    assert not in_thread(answered_by_us)
    in_thread(torch_lstsq_ext.enable)
    assert answered_by_us()


# Threads ------------------------------------------------------------------------------------------------------------


def run_together(*functions):
    """All at once in threads; the first exception of any."""
    errors = []
    ready = threading.Barrier(len(functions))

    def run(function):
        ready.wait()
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def solver(shape, seed, repeats):
    matrix_, rhs = matrix(*shape, dtype=torch.float64, seed=seed), randn(shape[0], 1, seed=seed)
    expected = gels64(matrix_, rhs).solution

    def run():
        on_device = matrix_.to(DEVICE), rhs.to(DEVICE)
        for _ in range(repeats):
            assert_close(torch.linalg.lstsq(*on_device, driver="gels").solution, expected)

    return run


def test_threads_that_solve(real_size):
    repeats = 200 if real_size else 4
    run_together(*(solver(shape, seed, repeats) for seed, shape in enumerate([(6, 3), (3, 6), (4, 4), (6, 3)])))


def test_threads_that_solve_while_others_switch(real_size):
    """The switch may fall before or after a call, never within one."""
    repeats = 300 if real_size else 6
    done = threading.Event()
    working = threading.Semaphore(0)

    def switch():
        while not done.is_set():
            torch_lstsq_ext.disable()
            torch_lstsq_ext.enable()

    def hide():
        while not done.is_set():
            with torch_lstsq_ext.disabled():
                assert_close(torch.linalg.lstsq(A.to(DEVICE), B.to(DEVICE), driver="gels").solution, EXPECTED)

    def then_stop(run):
        def both():
            try:
                run()
            finally:
                working.release()

        return both

    def stop():
        for _ in range(2):
            working.acquire()
        done.set()

    solvers = [then_stop(solver(shape, seed, repeats)) for seed, shape in enumerate([(6, 3), (3, 6)])]
    run_together(switch, hide, stop, *solvers)
    torch_lstsq_ext.enable()
    assert answered_by_us()


# Environment --------------------------------------------------------------------------------------------------------

SOLVE = f"""
import torch_lstsq_ext
from torch_lstsq_ext import solve
torch.linalg.lstsq(torch.eye(4, 3, device={DEVICE!r}), torch.ones(4, device={DEVICE!r}))
print(torch_lstsq_ext.is_enabled(), sum(solve.counts().values()))
"""


@pytest.mark.parametrize("mode", ["1", "auto", "AUTO", "", None], ids=repr)
def test_modes_that_enable(mode):
    assert python_output(SOLVE, TORCH_LSTSQ_EXT=mode) == "True 1"


VALUES = {
    "TORCH_LSTSQ_EXT": ("yes", ["0", "1", "auto"]),
    "TORCH_LSTSQ_EXT_VENDOR": ("amd", ["metax", "iluvatar", "hygon", "nvidia"]),
    "TORCH_LSTSQ_EXT_LOG": ("2", ["0", "1"]),
}


@pytest.mark.parametrize("name", list(VALUES))
def test_a_bad_value_is_an_error_that_names_the_allowed_ones(name):
    value, allowed = VALUES[name]
    done = python("print('reached')", prologue="import torch\n", **{name: value})
    assert done.returncode != 0 and "reached" not in done.stdout
    assert f"{name}={value!r}: allowed values are {', '.join(allowed)}" in done.stderr


@pytest.mark.parametrize("vendor", VALUES["TORCH_LSTSQ_EXT_VENDOR"][1])
def test_a_forced_profile(vendor):
    code = f"""
import torch_lstsq_ext
A, b = torch.eye(4, 3, device={DEVICE!r}), torch.ones(4, device={DEVICE!r})
print(torch_lstsq_ext.explain(A, b).vendor, torch.linalg.lstsq(A, b).solution.tolist())
"""
    assert python_output(code, TORCH_LSTSQ_EXT_VENDOR=vendor) == f"{vendor} [1.0, 1.0, 1.0]"


def test_log_off_is_silent():
    assert python(SOLVE).stderr == ""
