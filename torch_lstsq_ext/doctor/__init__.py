"""`python -m torch_lstsq_ext doctor`: a device's declared facts, measured again, and a solve through every route.

checks.py lists what is checked; each check runs in a process of its own (process.py, worker.py), which may crash or
hang; hardware.py, arithmetic.py and solves.py hold the probes, kernels.py their kernels.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass

from ..devices.detect import profile_facts
from ..devices.facts import Facts
from . import checks, process
from .checks import Check

DIFFERS = 1

OK, DIFFERENT, NOT_MEASURABLE = "ok", "differs", "not measurable"


@dataclass(frozen=True)
class Finding:
    """One line. declared, measured: values of JSON; verdict: OK, DIFFERENT or NOT_MEASURABLE."""

    name: str
    declared: object
    measured: object
    verdict: str
    detail: str = ""


def main(argv: list[str] | None = None) -> int:
    """Run the doctor with command-line arguments `argv` (sys.argv's when None) and print a line for each fact.

    Returns 0, or 1 when a measurement differs from what is declared, a solve is wrong, or a check crashed or hung.
    """
    parser = argparse.ArgumentParser(prog="python -m torch_lstsq_ext doctor", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--device", default="", help="cuda, simulator, ...; default: an accelerator, else the simulator"
    )
    parser.add_argument("--timeout", type=float, default=60, metavar="SECONDS", help="for each check; default: 60")
    parser.add_argument("--json", metavar="FILE", help="write the findings there too")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run these checks alone")
    options = parser.parse_args(argv)

    profile = process.run(options.device, "profile", (), None, options.timeout)
    if profile.result is None:
        print(f"no device profile: {profile.failure}")
        return DIFFERS
    device, facts = profile.result["device"], _facts(profile.result["facts"])
    known, chosen, only = [], [], {*(options.only or ())}
    for check in checks.for_device(facts):
        known.append(check.name)
        if not only or check.name in only:
            chosen.append(check)
            if len(chosen) == len(only):
                break
    if unknown := only - {*known}:
        parser.error(f"unknown checks {', '.join(sorted(unknown))}; known: {', '.join(known)}")

    print(profile.result["headline"])
    print(f"profile {facts.vendor}: {profile.result['reason']}\n")
    _print_line("fact", "declared", "measured", "")
    findings = []
    for check in chosen:
        findings.append(_examine(check, device, facts, options.timeout))
        _print_finding(findings[-1], facts)
    different = [finding.name for finding in findings if finding.verdict == DIFFERENT]
    print(f"\nDIFFERS: {', '.join(different)}" if different else "\nNothing differs from what is declared.")
    if options.json:
        report = {**profile.result, "findings": [asdict(finding) for finding in findings]}
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
    return DIFFERS if different else 0


def _facts(values: dict) -> Facts:
    return Facts(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def _examine(check: Check, device: str, facts: Facts, timeout: float) -> Finding:
    if check.probe is None:
        return Finding(check.name, check.declared, None, NOT_MEASURABLE, check.detail)
    if check.hardware and facts.interpreted:
        return Finding(check.name, check.declared, None, NOT_MEASURABLE, "kernels are interpreted")
    outcome = process.run(device, check.probe, check.arguments, check.declared, timeout)
    if outcome.result is None:
        # What is declared unsound may well end its process.
        verdict = OK if check.declared is False else DIFFERENT
        return Finding(check.name, check.declared, None, verdict, outcome.failure)
    detail = "; ".join(filter(None, (outcome.result["detail"], outcome.failure)))
    verdict = {True: OK, False: DIFFERENT, None: NOT_MEASURABLE}[outcome.result["agrees"]]
    return Finding(check.name, check.declared, outcome.result["measured"], verdict, detail)


def _print_finding(finding: Finding, facts: Facts) -> None:
    name = finding.name
    declared = _text(name, finding.declared)
    default = getattr(profile_facts(facts.vendor), name, finding.declared)
    if default != getattr(facts, name, finding.declared):  # the device's own limits took its place
        declared += f" (profile: {_text(name, default)})"
    measured = finding.detail
    if finding.measured is not None or not measured:
        measured = _text(name, finding.measured) + (f" ({finding.detail})" if finding.detail else "")
    _print_line(name, declared, measured, finding.verdict)


_NONE = {"private_bytes": "no limit known", "dot_stages": "any"}


def _text(name: str, value) -> str:
    if value is None:
        return _NONE.get(name, "unknown")
    if isinstance(value, bool):
        return "sound" if value else "unsound"
    return ", ".join(map(str, value)) or "none" if isinstance(value, (list, tuple)) else str(value)


def _print_line(name: str, declared: str, measured: str, verdict: str) -> None:
    print(f"{name:<26} {declared:<20} {measured:<56} {verdict}".rstrip(), flush=True)
