"""Hostile programs by the thousand, each in Python and in C, in processes that may fall.

``python -m tests.soak hostile --programs 100000 --compiler tcc``; ``--compiler sanitized`` builds
with AddressSanitizer and UndefinedBehaviorSanitizer. With ``--record FILE``, finished batches of
programs are noted there, and the same command goes on with the rest, however a run ended. Ranges of
seeds (``--seed``, ``--programs``) may run beside each other or on several machines.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock

from tests.soak.hostile.trial import FINE, compiler_named

TRIAL = ("-m", "tests.soak.hostile.trial")
BATCH = 100
"""The programs of one process: libraries stay loaded in it to its end."""


@dataclass(slots=True)
class Outcome:
    """What became of programs: how many of each kind, and a line about each fault."""

    kinds: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


class Record:
    """The outcomes of batches by their first seeds, and the file that keeps them."""

    def __init__(self, path: Path | None, compiler: str, packets: int) -> None:
        self._path = path
        self._settings = {"compiler": compiler, "packets": packets}
        self._lock = Lock()
        self.batches: dict[int, Outcome] = {}
        self.programs = 0
        """The number of programs that were added since the start."""
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                batch = json.loads(line)
                if self._settings.items() <= batch.items():
                    outcome = Outcome(Counter(batch["kinds"]), batch["faults"])
                    self.batches[batch["first"]] = outcome

    def add(self, first: int, count: int, outcome: Outcome) -> None:
        batch = {**self._settings, "first": first, "kinds": outcome.kinds, "faults": outcome.faults}
        with self._lock:
            self.batches[first] = outcome
            self.programs += count
            # A batch that was cut short, the last one, is done anew by a longer run.
            if self._path is not None and count == BATCH:
                with self._path.open("a") as file:
                    file.write(json.dumps(batch) + "\n")

    def total(self, firsts: Iterable[int]) -> Outcome:
        """Return the outcome of those of the batches that are done."""
        total = Outcome()
        for first in firsts:
            outcome = self.batches.get(first, Outcome())
            total.kinds += outcome.kinds
            total.faults += outcome.faults
        return total


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
    add("--compiler", default="tcc", help="tcc, cc or sanitized (default %(default)s)")
    add("--processes", type=int, default=1, help="at a time (default %(default)s)")
    add(
        "--record",
        type=Path,
        metavar="FILE",
        help="what is done; a later run goes on with the rest",
    )
    add("--seconds", type=float, default=math.inf, help="begin nothing after so long")


def run(options: argparse.Namespace) -> int:
    # A compiler that is not there would end each process.
    compiler_named(options.compiler)
    begun_s = time.monotonic()
    record = Record(options.record, options.compiler, options.packets)
    end = options.seed + options.programs
    firsts = range(options.seed, end, BATCH)
    waiting = [first for first in firsts if first not in record.batches]
    ended = Event()

    def work(first: int) -> None:
        if not ended.is_set() and time.monotonic() - begun_s < options.seconds:
            count = min(BATCH, end - first)
            record.add(first, count, trial(options.compiler, first, count, options.packets))

    with ThreadPoolExecutor(options.processes) as pool:
        try:
            for _ in pool.map(work, waiting):
                pass
        except KeyboardInterrupt:
            # Batches that run are noted, and no further ones begin.
            ended.set()
    total = record.total(firsts)
    for fault in total.faults:
        print(fault)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(total.kinds.items()))
    took_s = time.monotonic() - begun_s
    rate = record.programs / took_s
    print(
        f"{options.compiler}: {record.programs:,} programs in {took_s:.0f} s, {rate:.1f} a second;"
        f" {total.kinds.total():,} of {options.programs:,} in all: {kinds}"
    )
    return 1 if total.faults else 0
