"""Hostile programs by the thousand, each in Python and in C, in processes that may fall.

``python -m tests.soak hostile --programs 100000 --compiler tcc``; ``--compiler sanitized`` builds
with AddressSanitizer and UndefinedBehaviorSanitizer.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.soak.hostile.trial import FINE

TRIAL = ("-m", "tests.soak.hostile.trial")
BATCH = 100
"""The programs of one process: libraries stay loaded in it to its end."""


@dataclass(slots=True)
class Outcome:
    """What became of programs: how many of each kind, and a line about each fault."""

    kinds: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def trial(
    compiler: str,
    first: int,
    count: int,
    packets: int,
) -> Outcome:
    """Run the programs of some seeds in processes of their own, and go on after one that falls."""
    outcome = Outcome()
    end = first + count
    while first < end:
        first = _batch(compiler, first, min(BATCH, end - first), packets, outcome)
    return outcome


def _batch(
    compiler: str,
    first: int,
    count: int,
    packets: int,
    outcome: Outcome,
) -> int:
    """Run a batch; return the seed to go on with, behind one that has ended the process."""
    environment = dict(os.environ)
    if compiler == "sanitized":
        from tests.softswitch.native.twins import sanitizers

        environment |= sanitizers()
    numbers = [str(number) for number in (first, count, packets)]
    command = [sys.executable, *TRIAL, compiler, *numbers]
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            command,
            env={**environment, "XDG_CACHE_HOME": cache},
            capture_output=True,
            text=True,
            check=False,
        )
    lines = done.stdout.splitlines()
    for line in lines:
        seed, _, kind = line.partition(" ")
        if kind in FINE:
            outcome.kinds[kind] += 1
        elif kind:
            outcome.kinds["differs"] += 1
            outcome.faults.append(f"seed {seed}: {kind}")
    if not done.returncode:
        return first + count
    fallen = first + max(0, len(lines) - 1)
    outcome.kinds["fell"] += 1
    output = " ".join(done.stderr.split())[-1500:]
    outcome.faults.append(f"seed {fallen}: the process ended with {done.returncode}: {output}")
    return fallen + 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--programs", type=int, default=1_000, help="default %(default)s")
    add("--packets", type=int, default=10, help="of each program (default %(default)s)")
    add("--seed", type=int, default=0, help="of the first program (default %(default)s)")
    add("--compiler", default="tcc", help="tcc, cc, gcc or sanitized (default %(default)s)")


def run(options: argparse.Namespace) -> int:
    begun_s = time.monotonic()
    outcome = trial(options.compiler, options.seed, options.programs, options.packets)
    for fault in outcome.faults:
        print(fault)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(outcome.kinds.items()))
    took_s = time.monotonic() - begun_s
    print(f"{options.compiler}: {options.programs:,} programs in {took_s:.0f} s: {kinds}")
    return 1 if outcome.faults else 0
