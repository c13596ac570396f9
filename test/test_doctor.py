"""The doctor: what it finds, how it survives, and wrong products in float64 injected as MetaX's compiler makes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from _support import DEVICE, ON_SIMULATOR, PROLOGUE, assert_answers, matrix, randn

from torch_lstsq_ext import doctor, plan, solve
from torch_lstsq_ext.devices import hygon, iluvatar, metax, nvidia, simulator
from torch_lstsq_ext.devices.facts import DEVICE_FACTS
from torch_lstsq_ext.doctor import checks, process, solves, worker

on_simulator = pytest.mark.skipif(not ON_SIMULATOR, reason="needs Triton's interpreter")
HARDWARE = ["warp_size", "threads_per_block", "shared_memory", "private_bytes", "multiprocessors"]
HARDWARE += ["fp64_rate", "dot_stages", "min_dot"]


def within(device, probe, arguments, declared, timeout):
    """process.run in this process: the same worker, without the seconds that a new interpreter takes."""
    lines = []

    class File:
        def __enter__(self):
            return self

        def __exit__(self, *exc):
            return False

        def write(self, text):
            lines.append(text)

        def flush(self):
            pass

    worker.open = lambda *args, **kwargs: File()
    try:
        worker.main(device, probe, json.dumps(arguments), json.dumps(declared), "")
        failure = ""
    except Exception as error:
        failure = f"failed: {type(error).__name__}: {error}"
    finally:
        del worker.open
    return process.Outcome(json.loads(lines[-1]) if lines else None, failure)


@pytest.fixture
def profile(monkeypatch):
    """profile(facts): the facts in force for the device under test; the doctor then runs in this process."""
    monkeypatch.setattr(process, "run", within)
    monkeypatch.setattr(solve, "_prepared", {})

    def force(facts):
        facts = replace(facts, interpreted=ON_SIMULATOR, recognised=True)
        monkeypatch.setitem(solve._facts, torch.device(DEVICE), facts)

    return force


def examine(tmp_path, *arguments) -> tuple[int, dict]:
    """The exit status, and the findings by name."""
    file = tmp_path / "findings.json"
    code = doctor.main(["--device", DEVICE, "--json", str(file), *arguments])
    return code, {finding["name"]: finding for finding in json.loads(file.read_text())["findings"]}


@on_simulator
def test_the_simulator_is_as_declared(profile, tmp_path, capsys):
    profile(simulator.FACTS)
    code, found = examine(tmp_path)
    text = capsys.readouterr().out
    assert code == 0, text
    assert {*DEVICE_FACTS, "fp64_copy"} <= {*found}
    for name, finding in found.items():
        assert finding["verdict"] == ("not measurable" if name in HARDWARE else "ok"), finding
        (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
        assert line.endswith(finding["verdict"])
    for route, _ in plan.ROUTES:
        assert any(name.startswith(f"{route} float32") for name in found)
        assert any(name.startswith(f"{route} float64") for name in found)
    assert {"tile float32 tall", "tile float64 square", "tile float32 wide", "tsqr float64 tall"} <= {*found}


@pytest.mark.parametrize("facts", [nvidia.FACTS, iluvatar.FACTS], ids=lambda f: f.vendor)
def test_the_plan_chooses_a_case_for_every_route(facts):
    dtypes = ["float32", "float64"] if facts.fp64 else ["float32"]
    found = solves.cases(facts)
    assert [(route, dtype) for route, dtype, _ in found] == [(r, d) for r, _ in plan.ROUTES for d in dtypes]
    for route, dtype, shapes in found:
        for orientation, cases in shapes.items():
            for batch, m, n, k in cases:
                problem = plan.Problem(m=m, n=n, k=k, dtype=dtype, groups=(1, 1, batch))
                assert plan.make_plan(problem, facts, (route,)).route == route
                assert orientation == ("tall" if m > n else "wide" if m < n else "square")
    names = {check.name for check in checks.for_device(facts)}
    assert ("float64 refused" in names) == (not facts.fp64)


class NoCase:
    @staticmethod
    def covers(problem, facts):
        return False


def test_a_route_without_a_case_is_reported(profile, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "ROUTES", (*plan.ROUTES, ("nowhere", NoCase)))
    profile(simulator.FACTS)
    code, found = examine(tmp_path, "--only", "nowhere float32", "fp64_copy")
    assert found["nowhere float32"]["verdict"] == "not measurable"
    assert found["nowhere float32"]["detail"] == "no problem tried takes this route"
    assert code == 0


def test_a_wrong_answer_and_a_strayed_solve_differ(profile, tmp_path, monkeypatch):
    profile(simulator.FACTS)
    lstsq = torch.linalg.lstsq

    def wrong(A, B, **options):
        result = lstsq(A, B, **options)
        return torch.return_types.linalg_lstsq((result.solution * 1.001, *result[1:])) if not A.is_cpu else result

    monkeypatch.setattr(torch.linalg, "lstsq", wrong)
    code, found = examine(tmp_path, "--only", "tile float64 wide")
    assert (code, found["tile float64 wide"]["verdict"]) == (1, "differs")

    monkeypatch.setattr(torch.linalg, "lstsq", lambda A, B, **o: lstsq(A.cpu(), B.cpu(), driver="gels"))
    code, found = examine(tmp_path, "--only", "tile float64 wide")
    assert (code, found["tile float64 wide"]["verdict"]) == (1, "differs")
    assert "did not take the route" in found["tile float64 wide"]["detail"]


@on_simulator
def test_a_device_without_float64_refuses_it(profile, tmp_path):
    profile(iluvatar.FACTS)
    code, found = examine(tmp_path, "--only", "float64 refused", "fp64", "broken_reduction_lengths")
    assert found["float64 refused"]["verdict"] == "ok"
    # A right answer does not prove the arithmetic sound, but the lengths come out right that are declared broken.
    assert found["fp64"]["verdict"] == "not measurable"
    assert found["broken_reduction_lengths"]["verdict"] == "differs"
    assert code == 1


# Wrong products -----------------------------------------------------------------------------------------------------


@pytest.fixture
def broken_fp64_dot(monkeypatch):
    """tl.dot on float64 with a relative error of about 1, in Triton's interpreter."""
    from triton.runtime.interpreter import InterpreterBuilder

    right = InterpreterBuilder.create_dot

    def create_dot(self, a, b, d, *rest):
        product = right(self, a, b, d, *rest)
        if a.data.dtype == "float64":
            product.data = d.data - 0.5 * (product.data - d.data)
        return product

    monkeypatch.setattr(InterpreterBuilder, "create_dot", create_dot)


FP64_DOT = {
    "nvidia": (nvidia.FACTS, 1, "differs"),
    "metax": (metax.FACTS, 0, "ok"),
    "hygon": (hygon.FACTS, 0, "ok"),
}


@on_simulator
@pytest.mark.parametrize(("facts", "code", "verdict"), FP64_DOT.values(), ids=FP64_DOT)
def test_a_miscompiled_dot_is_found(broken_fp64_dot, profile, tmp_path, facts, code, verdict):
    profile(facts)
    status, found = examine(tmp_path, "--only", "fp64_dot", "fp32_dot", "fp64")
    assert status == code
    assert found["fp64_dot"]["declared"] is facts.fp64_dot
    assert found["fp64_dot"]["measured"] is False
    assert found["fp64_dot"]["verdict"] == verdict
    assert found["fp32_dot"]["verdict"] == found["fp64"]["verdict"] == "ok"


@on_simulator
def test_without_the_fault_the_metax_profile_differs(profile, tmp_path):
    profile(metax.FACTS)
    code, found = examine(tmp_path, "--only", "fp64_dot")
    assert (code, found["fp64_dot"]["measured"], found["fp64_dot"]["verdict"]) == (1, True, "differs")


@on_simulator
def test_the_metax_profile_answers_right_beside_a_miscompiled_dot(broken_fp64_dot, profile):
    """Every route, tall, square and wide: no kernel under this profile multiplies float64 by tl.dot."""
    profile(metax.FACTS)
    taken = set()
    for route, name, shapes in solves.cases(solve.device_facts(torch.device(DEVICE))):
        dtype = getattr(torch, name)
        for (batch, m, n, k), *_ in shapes.values():
            A, B = matrix(batch, m, n, dtype=dtype), randn(batch, m, k, dtype=dtype)
            before = solve.counts().get(route, 0)
            with solve.restricted_to(route):
                assert_answers(torch.linalg.lstsq(A.to(DEVICE), B.to(DEVICE)), A, B)
            assert solve.counts()[route] == before + 1
            taken.add((route, name))
    assert taken == {(route, name) for route, _ in plan.ROUTES for name in ("float32", "float64")}


# Processes ----------------------------------------------------------------------------------------------------------

# Comes in with every interpreter of the doctor, its own and its checks'.
INJECTED = """
import os, sys, time
if "torch_lstsq_ext" in " ".join(sys.orig_argv):
    from torch_lstsq_ext.doctor import checks
    def late_crash(bench):
        bench.report(7, True)
        os.abort()
    checks.PROBES.update(crash=lambda bench: os.abort(), hang=lambda bench: time.sleep(600), late=late_crash)
    checks.for_device = lambda facts: [
        checks.Check("crashes", 1, "crash"),
        checks.Check("hangs", True, "hang"),
        checks.Check("crashes_late", 7, "late"),
    ]
"""


@pytest.fixture
def command(tmp_path):
    def run(*arguments, injected=""):
        (tmp_path / "sitecustomize.py").write_text(injected)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
        for name in ("TRITON_INTERPRET", "TORCH_LSTSQ_EXT_VENDOR"):
            environment.pop(name, None)
        words = [sys.executable, "-m", "torch_lstsq_ext", "doctor", "--device", DEVICE, *arguments]
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)

    return run


def test_crashes_and_hangs_are_failed_checks(command, tmp_path):
    file = tmp_path / "found.json"
    start = time.monotonic()
    done = command("--timeout", "8", "--json", str(file), injected=INJECTED)
    assert done.returncode == 1, done.stdout + done.stderr
    assert time.monotonic() - start < 60
    assert "Traceback" not in done.stdout + done.stderr
    found = {finding["name"]: finding for finding in json.loads(file.read_text())["findings"]}
    verdicts = {name: (finding["verdict"], finding["detail"]) for name, finding in found.items()}
    assert verdicts == {
        "crashes": ("differs", "crashed (SIGABRT)"),
        "hangs": ("differs", "no end after 8 s"),
        "crashes_late": ("ok", "crashed (SIGABRT)"),
    }
    assert found["crashes_late"]["measured"] == 7
    assert done.stdout.splitlines()[-1] == "DIFFERS: crashes, hangs"


@pytest.mark.parametrize(("declared", "verdict"), [(True, "differs"), (False, "ok"), (None, "differs")], ids=str)
def test_what_is_declared_unsound_may_fail(profile, tmp_path, monkeypatch, declared, verdict):
    def raises(bench, dtype):
        raise ArithmeticError("no such unit")

    monkeypatch.setitem(checks.PROBES, "dot", raises)
    profile(replace(simulator.FACTS, fp64_dot=declared))
    code, found = examine(tmp_path, "--only", "fp64_dot")
    assert code == (verdict == "differs")
    assert found["fp64_dot"]["verdict"] == verdict
    assert found["fp64_dot"]["detail"] == "failed: ArithmeticError: no such unit"


def test_a_device_that_is_not_there(capsys):
    assert doctor.main(["--device", "cpu"]) == 1
    assert capsys.readouterr().out.startswith("no device profile: failed: on the CPU")


def test_an_unknown_check_is_refused(profile, capsys):
    profile(simulator.FACTS)
    with pytest.raises(SystemExit) as info:
        doctor.main(["--device", DEVICE, "--only", "fp128"])
    assert info.value.code == 2
    assert "unknown checks fp128; known: warp_size" in capsys.readouterr().err


def test_importing_the_doctor_imports_no_triton():
    code = PROLOGUE + "import sys, torch_lstsq_ext.doctor.worker\nprint('triton' in sys.modules)"
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "False", done.stderr
