"""Measure what a service takes for many switches: ``python -m bench stubs [SWITCHES ...]``.

The switches acknowledge everything and are one other process (`bench.stubs.serving`). For each
number of them, a service is started with `--jobs` jobs in its store: rings of four hosts at two
leaves. Printed are the time until the first plan, until every switch has it, and how much processor
the service took for each; its memory; its processor while nothing happens, audits included; and one
more job. Behind the rows, each figure has the exponent with which it grows with the number of
switches between the last two, and what follows for `--extrapolate` switches: by that exponent, and
by a line.

`--profile FILE` runs the service of the last number under cProfile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from bench.bench_registered import processor_s
from bench.stubs.serving import Stubs, running
from echelon.controller.client import Client
from tests.echelon.service.lab import PATIENCE_S, Daemon, Process, fill_store, ring
from tests.soak.memory import bytes_of_process

SIZES = (75, 150, 300)
JOBS = 1000
SPINES = 8
HOSTS_PER_LEAF = 4
WORKERS = 4
RATE = "100 Gbit/s"
MORE_JOBS = 10
POLL_S = 0.2
STARTED_S = 3600.0

Figures = Mapping[str, float]


def fabric(switches: int) -> dict[str, Any]:
    """Return a leaf-spine of so many switches, each leaf with four hosts and eight links.

    Links so grow with the number of switches, as those of fabrics with more stages do.
    """
    spines = min(SPINES, switches // 2)
    leaves = switches - spines
    hosts = [f"h{number}" for number in range(leaves * HOSTS_PER_LEAF)]
    links = []
    for number, host in enumerate(hosts):
        links.append({"between": [host, f"leaf{number // HOSTS_PER_LEAF}"], "rate": RATE})
    for leaf in range(leaves):
        for spine in range(spines):
            links.append({"between": [f"leaf{leaf}", f"spine{spine}"], "rate": RATE})
    names = [f"leaf{number}" for number in range(leaves)]
    names += [f"spine{number}" for number in range(spines)]
    return {"fabric": "stubs", "hosts": hosts, "switches": names, "links": links}


def job(number: int, hosts: int) -> dict[str, Any]:
    """Return a ring of four hosts in a row, which begins in the middle of a leaf."""
    first = HOSTS_PER_LEAF * number + HOSTS_PER_LEAF // 2
    workers = [f"h{(first + place) % hosts}" for place in range(WORKERS)]
    return ring(f"j{number}", workers, f"{10 + number % 7} MB", f"{10 + number % 50} ms")


@contextmanager
def served(
    switches: int,
    jobs: int,
    audit: str,
    profile: str | None,
) -> Iterator[tuple[Daemon, Stubs, int]]:
    """Start a service with jobs in its store beside stubs; yield it, them and the hosts' number."""
    document = fabric(switches)
    hosts = len(document["hosts"])
    with TemporaryDirectory(prefix="bench-") as directory:
        folder = Path(directory)
        (folder / "fabric.yaml").write_text(yaml.safe_dump(document))
        asyncio.run(fill_store(folder / "state.db", (job(each, hosts) for each in range(jobs))))
        with running(folder / "fabric.yaml") as stubs:
            config = {
                "service": "bench",
                "fabric": "fabric.yaml",
                "policy": {"name": "echelon", "parameters": {"plan": "rule"}},
                "switches": {name: {"address": each} for name, each in stubs.addresses.items()},
                "api": {"listen": "127.0.0.1:0"},
                "audit": audit,
                "limits": {"jobs": 2 * jobs + MORE_JOBS},
                "log": {"format": "json"},
            }
            path = folder / "echelon.yaml"
            path.write_text(yaml.safe_dump(config))
            daemon = Daemon(path) if profile is None else _Profiled(path, profile)
            try:
                yield daemon, stubs, hosts
            finally:
                _print_log(switches, daemon)
                if profile is None:
                    daemon.kill()
                else:
                    daemon.terminate()


def _print_log(switches: int, daemon: Daemon) -> None:
    """Print how often each event was logged: sessions that were lost show in it."""
    logged: Counter[str] = Counter()
    for line in list(daemon.lines):
        with suppress(ValueError):
            logged[str(json.loads(line).get("event"))] += 1
    print(f"{switches} switches, log: {dict(logged.most_common(8))}", file=sys.stderr)


class _Profiled(Daemon):
    """A service under cProfile, whose figures are in a file once it has ended."""

    def __init__(self, config: Path, profile: str) -> None:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))
        command = [sys.executable, "-m", "cProfile", "-o", str(Path(profile).resolve())]
        command += ["-m", "echelon", "serve", "--config", str(config)]
        Process.__init__(self, config.stem, *command, cwd=config.parent)


def measure(
    switches: int,
    options: argparse.Namespace,
    profile: str | None,
) -> Figures:
    began_s = time.monotonic()
    with served(switches, options.jobs, options.audit, profile) as (daemon, stubs, hosts):
        stubs_up_s = time.monotonic() - began_s
        print(f"{switches} stubs and a store after {stubs_up_s:.1f} s", file=sys.stderr)
        began_s = time.monotonic()
        with Client(daemon.wait_listening(), timeout_s=STARTED_S) as client:
            _until(daemon, lambda: client.status().plan > 0)
            figures = {
                "first plan, s": time.monotonic() - began_s,
                "... processor s": processor_s(daemon.pid),
            }
            _until(daemon, lambda: _is_installed(client, switches))
            figures["all switches ready, s"] = time.monotonic() - began_s
            figures["... processor s of all"] = processor_s(daemon.pid)
            figures["updates acknowledged"] = stubs.updates()
            figures["memory, MB"] = bytes_of_process(daemon.pid) / 1e6
            figures["idle, % of a processor"] = 100 * _idle_share(daemon.pid, options.idle)
            figures["one more job, p50 ms"], figures["... processor ms"] = _one_more(
                client, daemon.pid, options.jobs, hosts
            )
    return figures


def _until(daemon: Daemon, condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + STARTED_S
    while not condition():
        assert daemon.alive, daemon.lines[-20:]
        assert time.monotonic() < give_up_at, daemon.lines[-5:]
        time.sleep(POLL_S)


def _is_installed(client: Client, switches: int) -> bool:
    status = client.status()
    return status.settled and status.switches == {"ready": switches}


def _idle_share(pid: int, seconds: float) -> float:
    before_s = processor_s(pid)
    time.sleep(seconds)
    return (processor_s(pid) - before_s) / seconds


def _one_more(
    client: Client,
    pid: int,
    jobs: int,
    hosts: int,
) -> tuple[float, float]:
    """Return the median time of one more job to its last entry, and the processor's time for it."""
    before_s = processor_s(pid)
    took_ms = []
    for number in range(jobs, jobs + MORE_JOBS):
        began_s = time.monotonic()
        client.register_job(job(number, hosts))
        while client.job(f"j{number}", wait_s=PATIENCE_S).state != "installed":
            pass
        took_ms.append(1e3 * (time.monotonic() - began_s))
    return median(took_ms), 1e3 * (processor_s(pid) - before_s) / MORE_JOBS


@dataclass(frozen=True)
class Growth:
    """How a figure grows with the number of switches, by the last two sizes."""

    exponent: float
    by_power: float
    """The figure at the size in question, if it goes on with this exponent."""
    by_line: float
    """... if it goes on along a line, as it does where most of it is due to the jobs."""


def growth(sizes: Sequence[int], values: Sequence[float], far: int) -> Growth:
    """Return the growth of positive values, and what follows for another size."""
    before, after = values[-2:]
    small, large = sizes[-2:]
    by_line = after + (after - before) / (large - small) * (far - large)
    if min(before, after) <= 0:
        return Growth(0.0, after, by_line)
    exponent = log(after / before) / log(large / small)
    return Growth(exponent, after * (far / large) ** exponent, by_line)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench stubs", description=__doc__)
    add = parser.add_argument
    add("sizes", nargs="*", type=int, default=list(SIZES), metavar="SWITCHES")
    add("--jobs", type=int, default=JOBS, help="default %(default)s")
    add("--idle", type=float, default=60.0, help="seconds to watch an idle service")
    add("--audit", default="60 s", help="the service's setting (default %(default)s)")
    add("--extrapolate", type=int, default=1000, metavar="SWITCHES", help="default %(default)s")
    add("--profile", metavar="FILE", help="of the service of the last number")
    options = parser.parse_args(arguments)
    rows = []
    for place, size in enumerate(options.sizes, start=1):
        is_last = place == len(options.sizes)
        rows.append(measure(size, options, options.profile if is_last else None))
        for name, value in rows[-1].items():
            print(f"{size} switches, {options.jobs} jobs: {name}: {value:,.1f}", flush=True)
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"load averages of the machine: {load}")
    if len(rows) < 2:
        return
    for name in rows[-1]:
        grows = growth(options.sizes, [row[name] for row in rows], options.extrapolate)
        print(
            f"{options.extrapolate} switches: {name}: {grows.by_power:,.0f} by the exponent"
            f" {grows.exponent:.2f}, {grows.by_line:,.0f} by a line"
        )
