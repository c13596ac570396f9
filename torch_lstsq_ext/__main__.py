"""python -m torch_lstsq_ext <command>"""

from __future__ import annotations

import sys

USAGE = """\
usage: python -m torch_lstsq_ext <command>

  demo    solve NIST's certified data sets and a workload at size by plain torch.linalg.lstsq (demo --help)
  doctor  measure what is declared of the device, and solve through every route (doctor --help)
"""


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["demo"]:
        from .demo import main as demo

        return demo(arguments[1:])
    if arguments[:1] == ["doctor"]:
        from .doctor import main as doctor

        return doctor(arguments[1:])
    print(USAGE, end="", file=sys.stdout if arguments in ([], ["-h"], ["--help"]) else sys.stderr)
    return 0 if arguments in (["-h"], ["--help"]) else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
