"""Measure what a service takes for many switches: ``python -m bench stubs [SWITCHES ...]``.

The switches acknowledge everything and are one other process (`bench.stubs.serving`). For each
number of them, a service is started with `--jobs` jobs in its store: rings of four hosts at two
leaves. Printed are the time until the first plan, until every switch has it, and how much processor
the service and the stubs took for each; its memory; its processor while nothing happens, audits
included; a link that is drained; and one more job. Sessions that were lost are counted, and the
event loop's lag is given by the buckets of its metric. Behind the rows, each figure has the
exponent with which it grows with the number of switches between the last two, and what follows for
`--extrapolate` switches: by that exponent, and by a line.

`--log FOLDER` keeps the log of each service, which says what became of sessions. `--patient` runs
it without deadlines: on a busy machine, the stubs may be starved for longer than those are.

`--profile FILE` runs the service of the last number under cProfile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from bench.bench_registered import processor_s
from bench.growth import growth_exponent
from bench.service import share_modules
from bench.stubs.scrape import Scrape, peak_bytes
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
    leaf_names = [f"leaf{number}" for number in range(leaves)]
    spine_names = [f"spine{number}" for number in range(spines)]
    hosts = []
    links = []
    for number in range(leaves * HOSTS_PER_LEAF):
        host = f"h{number}"
        leaf = leaf_names[number // HOSTS_PER_LEAF]
        hosts.append(host)
        links.append(_link(host, leaf))
    for leaf in leaf_names:
        for spine in spine_names:
            links.append(_link(leaf, spine))
    return {
        "fabric": "stubs",
        "hosts": hosts,
        "switches": leaf_names + spine_names,
        "links": links,
    }


def _link(first: str, second: str) -> dict[str, Any]:
    return {"between": [first, second], "rate": RATE}


def job(number: int, hosts: int) -> dict[str, Any]:
    """Return a ring of four hosts in a row, which begins in the middle of a leaf."""
    first = HOSTS_PER_LEAF * number + HOSTS_PER_LEAF // 2
    workers = []
    for place in range(first, first + WORKERS):
        workers.append(f"h{place % hosts}")
    size_mb = 10 + number % 7
    computing_ms = 10 + number % 50
    return ring(
        f"j{number}",
        workers,
        f"{size_mb} MB",
        f"{computing_ms} ms",
    )


@contextmanager
def served(
    switches: int,
    options: argparse.Namespace,
    profile: str | None,
) -> Iterator[tuple[Daemon, Stubs, int]]:
    """Start a service with jobs in its store beside stubs; yield it, them and the hosts' number."""
    jobs = options.jobs
    document = fabric(switches)
    hosts = len(document["hosts"])
    specs = [job(number, hosts) for number in range(jobs)]
    with TemporaryDirectory(prefix="bench-") as directory:
        folder = Path(directory)
        fabric_file = folder / "fabric.yaml"
        fabric_file.write_text(yaml.safe_dump(document))
        filling = fill_store(folder / "state.db", specs)
        asyncio.run(filling)
        with running(fabric_file) as stubs:
            config = _config(stubs, jobs, options.audit)
            path = folder / "echelon.yaml"
            path.write_text(yaml.safe_dump(config))
            if profile is not None:
                output = Path(profile).resolve()
                daemon: Daemon = _Variant(path, "cProfile", "-o", str(output), "-m", "echelon")
            elif options.patient:
                daemon = _Variant(path, "bench.stubs.patient")
            else:
                daemon = Daemon(path)
            try:
                yield daemon, stubs, hosts
            finally:
                _print_log(switches, daemon)
                if options.log is not None:
                    text = "\n".join(daemon.lines)
                    options.log.mkdir(parents=True, exist_ok=True)
                    file = options.log / f"{switches}.jsonl"
                    file.write_text(text)
                if profile is None:
                    daemon.kill()
                else:
                    # cProfile writes its file only when the service ends by itself.
                    daemon.terminate()


def _config(
    stubs: Stubs,
    jobs: int,
    audit: str,
) -> dict[str, Any]:
    """Return the settings of a service of stubs, beside whose jobs there is room for more."""
    switches = {}
    for name, address in stubs.addresses.items():
        switches[name] = {"address": address}
    parameters = {"plan": "rule"}
    return {
        "service": "bench",
        "fabric": "fabric.yaml",
        "policy": {"name": "echelon", "parameters": parameters},
        "switches": switches,
        "api": {"listen": "127.0.0.1:0"},
        "audit": audit,
        "limits": {"jobs": 2 * jobs + MORE_JOBS},
        "log": {"format": "json"},
    }


def _print_log(switches: int, daemon: Daemon) -> None:
    """Print how often each event was logged: sessions that were lost show in it."""
    logged: Counter[str] = Counter()
    for line in list(daemon.lines):
        with suppress(ValueError):
            record = json.loads(line)
            event = str(record.get("event"))
            logged[event] += 1
    most_common = dict(logged.most_common(8))
    print(f"{switches} switches, log: {most_common}", file=sys.stderr)


class _Variant(Daemon):
    """A service that another module runs."""

    def __init__(self, config: Path, *module: str) -> None:
        share_modules()
        command = [sys.executable, "-m", *module]
        command += ["serve", "--config", str(config)]
        Process.__init__(self, config.stem, *command, cwd=config.parent)


def measure(
    switches: int,
    options: argparse.Namespace,
    profile: str | None,
) -> Figures:
    jobs = options.jobs
    began_s = time.monotonic()
    with served(switches, options, profile) as (daemon, stubs, hosts):
        stubs_up_s = time.monotonic() - began_s
        print(f"{switches} stubs and a store after {stubs_up_s:.1f} s", file=sys.stderr)
        began_s = time.monotonic()
        url = daemon.wait_listening()
        pid = daemon.pid
        figures = {}
        with Client(url, timeout_s=STARTED_S) as client:
            at_start = _scrape(client)
            _until(daemon, lambda: client.status().plan > 0)
            figures["first plan, s"] = time.monotonic() - began_s
            figures["... processor s"] = processor_s(pid)
            figures["... planning alone, s"] = _scrape(client).plan_s(at_start)

            _until(daemon, lambda: _is_installed(client, switches))
            figures["all switches ready, s"] = time.monotonic() - began_s
            figures["... processor s of all"] = processor_s(pid)
            figures["... processor s of the stubs"] = processor_s(stubs.pid)
            figures["updates acknowledged"] = stubs.updates()
            figures["memory, MB"] = bytes_of_process(pid) / 1e6
            ready = _scrape(client)
            figures |= _lags("until ready", at_start, ready)

            stubs_s = processor_s(stubs.pid)
            idle_share = _idle_share(pid, options.idle)
            figures["idle, % of a processor"] = 100 * idle_share
            stubs_s = processor_s(stubs.pid) - stubs_s
            figures["... % for the stubs"] = 100 * stubs_s / options.idle
            figures |= _lags("idle", ready, _scrape(client))
            figures["sessions lost"] = _sessions_lost(client)

            figures |= _drained(daemon, client, switches)
            took_ms, processor_ms = _more_jobs(client, pid, jobs, hosts)
            figures["one more job, p50 ms"] = took_ms
            figures["... processor ms"] = processor_ms
            figures["sessions lost in all"] = _sessions_lost(client)
            figures["peak memory, MB"] = peak_bytes(pid) / 1e6
    return figures


def _scrape(client: Client) -> Scrape:
    return Scrape.of_text(client.metrics())


def _lags(
    when: str,
    before: Scrape,
    now: Scrape,
) -> Figures:
    """Return the bounds of the buckets with the 99th percentile of the loop's lag and the worst."""
    return {
        f"lag of the event loop {when}, p99 ms": 1e3 * now.lag_s(before, 0.99),
        f"... worst ms, {when}": 1e3 * now.lag_s(before, 1),
    }


def _sessions_lost(client: Client) -> int:
    """Return how many sessions were opened beyond the first of each switch."""
    return sum(switch.sessions - 1 for switch in client.switches())


def _drained(
    daemon: Daemon,
    client: Client,
    switches: int,
) -> Figures:
    """Drain a link between a leaf and a spine; return what that took until all switches had it."""
    pid = daemon.pid
    before = _scrape(client)
    before_s = processor_s(pid)
    began_s = time.monotonic()
    client.set_link("leaf0", "spine0", "drained", force=True)
    _until(daemon, lambda: _is_installed(client, switches))
    took_s = time.monotonic() - began_s
    return {
        "a link drained, s": took_s,
        "... processor s of it": processor_s(pid) - before_s,
        "... planning alone, s of it": _scrape(client).plan_s(before),
    }


def _until(daemon: Daemon, condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + STARTED_S
    while not condition():
        assert daemon.alive, daemon.lines[-20:]
        assert time.monotonic() < give_up_at, daemon.lines[-5:]
        time.sleep(POLL_S)


def _is_installed(client: Client, switches: int) -> bool:
    status = client.status()
    states = {"ready": switches}
    return status.settled and status.switches == states


def _idle_share(pid: int, seconds: float) -> float:
    before_s = processor_s(pid)
    time.sleep(seconds)
    spent_s = processor_s(pid) - before_s
    return spent_s / seconds


def _more_jobs(
    client: Client,
    pid: int,
    jobs: int,
    hosts: int,
) -> tuple[float, float]:
    """Return the median time of one more job to its last entry, and the processor's time for it."""
    before_s = processor_s(pid)
    took_ms = []
    for number in range(jobs, jobs + MORE_JOBS):
        spec = job(number, hosts)
        began_s = time.monotonic()
        client.register_job(spec)
        _wait_installed(client, spec["job"])
        took_s = time.monotonic() - began_s
        took_ms.append(1e3 * took_s)
    spent_s = processor_s(pid) - before_s
    return median(took_ms), 1e3 * spent_s / MORE_JOBS


def _wait_installed(client: Client, name: str) -> None:
    state = ""
    while state != "installed":
        resource = client.job(name, wait_s=PATIENCE_S)
        state = resource.state


@dataclass(frozen=True)
class Growth:
    """The growth of a figure with the number of switches, by the last two sizes."""

    exponent: float
    by_power: float
    """The figure at the size in question, if it goes on with this exponent."""
    by_line: float
    """The figure if it goes on along a line, as it does where most of it is due to the jobs."""


def growth(
    sizes: Sequence[int],
    values: Sequence[float],
    far: int,
) -> Growth:
    """Return the growth of positive values, and what follows for another size."""
    before, after = values[-2:]
    small, large = sizes[-2:]
    slope = (after - before) / (large - small)
    by_line = after + slope * (far - large)
    exponent = growth_exponent((small, large), (before, after))
    if exponent is None:
        return Growth(0.0, after, by_line)
    by_power = after * (far / large) ** exponent
    return Growth(exponent, by_power, by_line)


def main(arguments: Sequence[str]) -> None:
    options = _parser().parse_args(arguments)
    sizes = options.sizes
    rows = []
    for place, size in enumerate(sizes, start=1):
        profile = None
        if place == len(sizes):
            profile = options.profile
        figures = measure(size, options, profile)
        rows.append(figures)
        for name, value in figures.items():
            print(f"{size} switches, {options.jobs} jobs: {name}: {value:,.1f}", flush=True)
    averages = [f"{load:.1f}" for load in os.getloadavg()]
    print(f"load averages of the machine: {', '.join(averages)}")
    if len(rows) > 1:
        _print_growth(sizes, rows, options.extrapolate)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench stubs",
        description=__doc__,
    )
    parser.add_argument(
        "sizes",
        nargs="*",
        type=int,
        default=list(SIZES),
        metavar="SWITCHES",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=JOBS,
        help="default %(default)s",
    )
    parser.add_argument(
        "--idle",
        type=float,
        default=60.0,
        help="seconds to watch an idle service",
    )
    parser.add_argument(
        "--audit",
        default="60 s",
        help="the service's setting (default %(default)s)",
    )
    parser.add_argument(
        "--extrapolate",
        type=int,
        default=1000,
        metavar="SWITCHES",
        help="default %(default)s",
    )
    parser.add_argument(
        "--log",
        type=Path,
        metavar="FOLDER",
        help="for the log of each service",
    )
    parser.add_argument(
        "--patient",
        action="store_true",
        help="run the service without deadlines",
    )
    parser.add_argument(
        "--profile",
        metavar="FILE",
        help="of the service of the last number",
    )
    return parser


def _print_growth(
    sizes: Sequence[int],
    rows: Sequence[Figures],
    far: int,
) -> None:
    """Print what follows from the rows of figures for `far` switches."""
    for name in rows[-1]:
        values = [row[name] for row in rows]
        if not all(map(math.isfinite, values)):
            continue
        grows = growth(sizes, values, far)
        print(
            f"{far} switches: {name}: {grows.by_power:,.0f} by the exponent"
            f" {grows.exponent:.2f}, {grows.by_line:,.0f} by a line"
        )
