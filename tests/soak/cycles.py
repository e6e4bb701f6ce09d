"""The memory of a real service and of its switches over many equal cycles.

Cycles are jobs that are submitted and removed, each with a name of its own; dry runs; and audits,
of which a day has 2,880 at the default of two a minute: here they come as fast as `--audit` says.
Memory is taken twenty times in each part. A line through all but the first fifth of them gives the
growth of a cycle. The exit status is 1 if memory grew by more than a quarter after that fifth.

Numbers of flows and of pairs of hosts are taken in turn, and what one means is kept until it is
taken again: 16,384 flows are some 5,500 cycles, less than a fifth of the default. The stories of
the last 2,000 jobs are kept, too. Shorter runs show the growth until then.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression
from tempfile import TemporaryDirectory

from echelon.controller.client import Client
from tests.echelon.service.lab import PATIENCE_S, RULE, Daemon, ring, settle
from tests.echelon.service.site import TRIANGLE, site
from tests.soak.memory import bytes_of_process, memory_faults
from tests.soak.processes import command_line, descendants

SAMPLES = 20
HELD = 10
"""The number of jobs that are there all the while."""
WAIT_EVERY = 10
"""The number of jobs that wait together until they are installed."""
HOSTS = ("h1", "h2", "h3", "h4")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--cycles", type=int, default=100_000, help="submissions and removals (%(default)s)")
    add("--dry-runs", type=int, default=10_000, help="default %(default)s")
    add("--audits", type=int, default=2880, help="of each switch (default %(default)s: a day's)")
    add("--audit", type=float, default=0.2, help="seconds between audits (default %(default)s)")
    add("--seed", type=int, default=0, help="of the jobs (default %(default)s)")


@dataclass
class Part:
    """The time and the memory that one kind of cycles took."""

    name: str
    count: int
    took_s: float = 0.0
    resident: dict[str, list[int]] = field(default_factory=dict)
    """The bytes of each process, from before the first cycle to after the last."""

    def sample(self, processes: Mapping[str, int]) -> None:
        for name, pid in processes.items():
            self.resident.setdefault(name, []).append(bytes_of_process(pid))

    def report(self) -> list[str]:
        """Print what the cycles took; return the faults."""
        faults = []
        rate = self.count / self.took_s
        print(f"{self.name}: {self.count:,} in {self.took_s:.0f} s, {rate:.1f} a second")
        for name, sizes in self.resident.items():
            early = sizes[len(sizes) // 5]
            later = sizes[len(sizes) // 5 :]
            line = linear_regression(range(len(later)), later)
            slope = line.slope * (len(sizes) - 1) / self.count
            megabytes = ", ".join(f"{size / 1e6:.1f}" for size in (sizes[0], early, sizes[-1]))
            print(f"  {name}: {megabytes} MB at first, after a fifth, at last; {slope:+.1f} B each")
            faults += [f"{self.name}, {name}: {fault}" for fault in memory_faults(early, sizes[-1])]
        return faults


def run(options: argparse.Namespace) -> int:
    faults: list[str] = []
    with TemporaryDirectory(prefix="soak-") as directory, site(Path(directory), TRIANGLE) as lab:
        lab.check_invariants = False
        daemon = lab.daemon("state.db", audit=f"{options.audit:g} s")
        with lab.client(daemon) as client:
            client.set_policy("echelon", RULE)
            cycles = _Cycles(daemon, client, options)
            for number in range(HELD):
                client.register_job(cycles.job(f"held{number}"))
            settle(client)
            for name, count, step in (
                ("submit and remove", options.cycles, cycles.submit_and_remove),
                ("dry runs", options.dry_runs, cycles.rehearse),
                ("audits", options.audits, cycles.await_audit),
            ):
                if count:
                    faults += cycles.repeat(name, count, step).report()
        assert daemon.alive, daemon.lines[-20:]
        faults += [str(record) for record in lab.records() if "exception" in record]
    print(f"load average {os.getloadavg()[0]:.1f}")
    print(*faults, sep="\n", file=sys.stderr)
    return 1 if faults else 0


class _Cycles:
    """A service, and the steps that are repeated with it."""

    def __init__(self, daemon: Daemon, client: Client, options: argparse.Namespace) -> None:
        self._client = client
        self._rng = random.Random(options.seed)
        self._audit_s = options.audit
        self._numbers = itertools.count()
        self._waiting: list[str] = []
        switches = [
            pid for pid in descendants(os.getpid()) if "switch_process" in command_line(pid)
        ]
        self._processes = {"service": daemon.pid, "switches": switches[0]}

    def job(self, name: str) -> dict[str, object]:
        workers = self._rng.sample(HOSTS, self._rng.randint(2, 4))
        compute = f"{self._rng.randint(10, 90)} ms"
        return ring(name, workers, f"{self._rng.randint(1, 9)} MB", compute)

    def repeat(self, name: str, count: int, step: Callable[[], None]) -> Part:
        part = Part(name, count)
        began_s = time.monotonic()
        part.sample(self._processes)
        for number in range(1, count + 1):
            step()
            if number * SAMPLES // count > (number - 1) * SAMPLES // count:
                part.sample(self._processes)
                print(f"{name}: {number:,} of {count:,}", file=sys.stderr)
        part.took_s = time.monotonic() - began_s
        return part

    def submit_and_remove(self) -> None:
        name = f"cycle{next(self._numbers)}"
        self._client.register_job(self.job(name))
        self._waiting.append(name)
        if len(self._waiting) < WAIT_EVERY:
            return
        self._client.job(name, wait_s=PATIENCE_S)
        for waiting in self._waiting:
            self._client.remove_job(waiting)
        self._waiting.clear()

    def rehearse(self) -> None:
        self._client.rehearse_job(self.job("rehearsed"))

    def await_audit(self) -> None:
        """Wait for the next audit of each switch."""
        time.sleep(self._audit_s)
