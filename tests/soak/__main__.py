"""``python -m tests.soak WHAT``: the long runs that the default suite has in short.

Each module of `RUNS` has `add_arguments(parser)` and `run(options) -> int`, the exit status: 0, or
1 for a run that showed a fault. The table goes to stdout, progress to stderr.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

RUNS = {
    "packets": ("tests.soak.packets", "random and mutated packets through every program"),
    "day": ("tests.soak.day", "a day of virtual time, ten million packets through a fabric"),
    "control": (
        "tests.soak.control",
        "random sequences of events, crashes included, through the controller",
    ),
    "kills": ("tests.soak.kills", "SIGKILLs of a real service at random moments"),
    "spines": ("tests.soak.spines", "SIGKILLs of a spine at random moments, under load"),
    "moves": ("tests.soak.moves", "moves of links in a running fabric while jobs send"),
    "agents": ("tests.soak.agents", "SIGKILLs of agents at random moments"),
    "tcp": ("tests.soak.tcp", "random pairs of jobs over the kernel's TCP"),
    "requests": ("tests.soak.requests", "random requests to a real service"),
    "attacks": (
        "tests.soak.attacks.command",
        "attacks on a real service and its switches, beside an operator",
    ),
    "strangers": (
        "tests.soak.strangers",
        "clients without a token that hold connections, against an operator",
    ),
    "handshakes": (
        "tests.soak.handshakes",
        "clients that begin a TLS handshake and go no further, against an operator",
    ),
    "work": (
        "tests.soak.work",
        "job files at and over the limits to a real service, and the lag of its event loop",
    ),
    "cycles": ("tests.soak.cycles", "memory over many equal cycles of a real service"),
    "lying": ("tests.soak.lying", "a real service whose switches lie"),
    "restarts": ("tests.soak.restarts", "random changes to a real service, killed after each"),
    "hostile": ("tests.soak.hostile.run", "hostile programs, in Python and in C"),
    "p4runtime": ("tests.soak.fuzz_p4runtime", "random and mutated P4Runtime and gNMI messages"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description="Long runs of the switch and the controller."
    )
    commands = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    given = sys.argv[1:] if arguments is None else list(arguments)
    for name, (module, text) in RUNS.items():
        command = commands.add_parser(name, help=text, description=text)
        if name in given[:1]:
            importlib.import_module(module).add_arguments(command)
    options = parser.parse_args(given)
    return int(importlib.import_module(RUNS[options.what][0]).run(options))


if __name__ == "__main__":
    sys.exit(main())
