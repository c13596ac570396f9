"""A process for each check, ended when its time is up."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .. import settings


@dataclass(frozen=True)
class Outcome:
    """result: the last that worker.py wrote, None if nothing; failure: how the process ended, if not well."""

    result: dict | None
    failure: str = ""


def run(device: str, probe: str, arguments: tuple, declared, timeout: float) -> Outcome:
    """What `probe` measures on `device` within `timeout` seconds."""
    with tempfile.TemporaryDirectory() as folder:
        results, output = Path(folder, "results"), Path(folder, "output")
        command = [sys.executable, "-m", "torch_lstsq_ext.doctor.worker", device, probe]
        command += [json.dumps(arguments), json.dumps(declared), str(results)]
        with output.open("wb") as stream:
            # A session of its own: what the probe starts, compilers above all, ends with it.
            child = subprocess.Popen(
                command, stdout=stream, stderr=stream, env=settings.serving_every_device(), start_new_session=True
            )
            try:
                code = child.wait(timeout)
                failure = "" if code == 0 else _how(code, output)
            except subprocess.TimeoutExpired:
                failure = f"no end after {timeout:g} s"
            finally:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)
                    _reap(child)
        lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    return Outcome(json.loads(lines[-1]) if lines else None, failure)


def _reap(child: subprocess.Popen) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):  # held by a driver, beyond the reach of signals
        child.wait(5)


def _how(code: int, output: Path) -> str:
    if code < 0:
        return f"crashed ({signal.Signals(-code).name})"
    last = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    return f"failed: {last[0][:160]}" if last else f"failed (exit status {code})"
