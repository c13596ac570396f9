"""python -m torch_lstsq_ext.doctor.worker DEVICE PROBE ARGUMENTS DECLARED FILE: one probe, reports as lines of FILE.

ARGUMENTS and DECLARED are JSON. The probe "profile" reports the device and its facts.
"""

from __future__ import annotations

import json
import sys
from dataclasses import fields

import torch

import torch_lstsq_ext

from .. import settings
from ..demo import choose_device, headline


def main(device_name: str, probe: str, arguments: str, declared: str, path: str) -> None:
    chosen = choose_device(device_name or None)  # activates the simulator, before anything imports Triton
    if chosen.type == "cpu":
        sys.exit("on the CPU torch.linalg.lstsq is PyTorch's own; the simulator runs the kernels there")
    torch_lstsq_ext.enable()
    device = torch.empty(0, device=chosen).device
    if device.type == "cuda":
        torch.cuda.set_device(device)
    with open(path, "a", encoding="utf-8") as file:

        def write(result: dict) -> None:
            file.write(json.dumps(result) + "\n")
            file.flush()

        if probe == "profile":
            write(_profile(device))
            return
        from ..solve import device_facts
        from .bench import Bench
        from .checks import PROBES

        PROBES[probe](Bench(device, device_facts(device), json.loads(declared), write), *json.loads(arguments))


def _profile(device: torch.device) -> dict:
    from ..devices.detect import collect_signals, recognise
    from ..solve import device_facts

    facts = device_facts(device)
    own, reason = recognise(collect_signals(device))
    return {
        "device": str(device),
        "headline": headline(device),
        "reason": f"forced upon {own}" if settings.CURRENT.vendor else reason,
        "facts": {field.name: getattr(facts, field.name) for field in fields(facts) if field.name != "sources"},
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
