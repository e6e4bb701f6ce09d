"""The time from `POST /jobs` to the first plan and to the plan that simulation chooses: the real daemon and 32
softswitches in 4 processes, with 4, 20 or 100 jobs.

Jobs are rings of two to four and pipelines of four stages, on 104 hosts at 26 leaves, in groups of four that share
hosts. One job more joins a group in each round, and leaves it when the plan of the group is chosen. Beside the times:
how late the event loop of the daemon is, what its processes take, and how many entries the chosen plan changes.

``python -m tests.bench.bench_chosen JOBS... [--group N] [--rounds N]`` measures other numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from echelon.client import Client
from tests.echelon.service.lab import PATIENCE_S, Daemon, Process, fill_store
from tests.echelon.service.switch_process import running

LEAVES, SPINES, HOSTS_PER_LEAF = 26, 6, 4
GROUP = 4
"""Jobs of a group, and hosts that they share."""
ROUNDS = 20
PROCESSES = 4
POLL_S = 0.02
CHOSEN_S = 1800.0

Row = tuple[str, float, str]


def fabric() -> dict[str, Any]:
    leaves, spines = [f"leaf{n}" for n in range(LEAVES)], [f"spine{n}" for n in range(SPINES)]
    hosts = [f"h{n}" for n in range(LEAVES * HOSTS_PER_LEAF)]
    return {
        "fabric": "bench",
        "hosts": hosts,
        "switches": [*leaves, *spines],
        "links": [
            *({"between": [host, leaves[n % LEAVES]], "rate": "10 Gbit/s"} for n, host in enumerate(hosts)),
            *({"between": [leaf, spine], "rate": "10 Gbit/s"} for leaf in leaves for spine in spines),
        ],
    }


def job(number: int, group: int, name: str | None = None) -> dict[str, Any]:
    """Return a job of its own for each number, on hosts of its group, which are at one leaf, or anywhere if it is
    larger than `GROUP`."""
    rng = Random(number)
    hosts = [f"h{number // group % LEAVES + LEAVES * n}" for n in range(HOSTS_PER_LEAF)]
    if group > GROUP:
        hosts = [f"h{n}" for n in rng.sample(range(LEAVES), 4)]
    spec: dict[str, Any] = {"job": name or f"j{number}", "workers": rng.sample(hosts, 4 if number % 2 else 2)}
    if number % 4 == 1:
        return spec | {
            "parallelism": "pipeline",
            "pipeline": {
                "micro_batches": 8,
                "forward": f"{rng.randint(5, 8)} ms",
                "activation": f"{rng.randint(1, 8)} MB",
            },
        }
    compute, gradient = f"{rng.randint(40, 60)} ms", f"{rng.randint(20, 60)} MB"
    return spec | {"parallelism": "data", "data": {"compute": compute, "gradient": gradient}}


class _Watched(Daemon):
    """A daemon whose event loop is watched."""

    def __init__(self, config: Path, lag: Path) -> None:
        command = [sys.executable, "-m", "tests.bench.lag", lag, "serve", "--config", config]
        Process.__init__(self, config.stem, command, cwd=config.parent)


def bench() -> list[Row]:
    return [row for jobs in (4, 20) for row in measured(jobs, GROUP, 5)]


def measured(jobs: int, group: int, rounds: int) -> Iterator[Row]:
    """Yield the figures with that many jobs in groups of that many."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))
    with TemporaryDirectory() as directory:
        here = Path(directory)
        (here / "fabric.yaml").write_text(yaml.safe_dump(fabric()))
        asyncio.run(fill_store(here / "state.db", [job(number, group) for number in range(jobs)]))
        with running(here / "fabric.yaml", PROCESSES) as addresses:
            config = {
                "service": "bench",
                "fabric": "fabric.yaml",
                "switches": {name: {"address": address} for name, address in addresses.items()},
                "api": {"listen": "127.0.0.1:0"},
                "audit": "1 h",
                "log": {"format": "json"},
            }
            (here / "echelon.yaml").write_text(yaml.safe_dump(config))
            began_s = time.monotonic()
            daemon = _Watched(here / "echelon.yaml", here / "lag.json")
            try:
                with Client(daemon.wait_listening(), timeout_s=PATIENCE_S) as client:
                    _until_chosen(client)
                    what = f"{jobs} jobs in groups of {group}"
                    yield f"{what}: start until all plans are chosen", time.monotonic() - began_s, "s"
                    first_s = time.monotonic()
                    yield from _rounds(client, daemon.pid, jobs, group, rounds)
                daemon.terminate()
                late_ms = [
                    1e3 * late_s for at_s, late_s in json.loads((here / "lag.json").read_text()) if at_s > first_s
                ]
                centiles = statistics.quantiles(late_ms, n=1000, method="inclusive")
                yield "  event loop late meanwhile, p50", centiles[499], "ms"
                yield "  the same, p99", centiles[989], "ms"
                yield "  the same, most", max(late_ms), "ms"
            finally:
                daemon.kill()


def _rounds(client: Client, pid: int, jobs: int, group: int, rounds: int) -> Iterator[Row]:
    first_ms, chosen_ms, changed = [], [], []
    before_s = _processor_s(pid)
    for number in range(rounds):
        spec = job(jobs * (number + 1) + number % jobs, group, "new")
        spec["workers"] = job(number % jobs, group)["workers"]
        began_s = time.perf_counter()
        client.register_job(spec)
        done = client.job("new", wait_s=PATIENCE_S)
        assert done.state == "installed"
        assert done.timings is not None
        first_ms.append(1e3 * done.timings.total_s)
        written = _written(client)
        _until_chosen(client)
        chosen_ms.append(1e3 * (time.perf_counter() - began_s))
        if more := _written(client) - written:
            changed.append(more)
        client.remove_job("new")
        _until_chosen(client)
    for what, took_ms in (("first plan on all switches", first_ms), ("chosen plan on all switches", chosen_ms)):
        centiles = statistics.quantiles(took_ms, n=100, method="inclusive")
        yield f"  one job more: acceptance to {what}, p50", centiles[49], "ms"
        yield "  the same, p99", centiles[98], "ms"
    yield f"  {rounds} rounds: chosen plans that differ", len(changed), ""
    yield "  entries that such a plan changes, on 32 switches, median", statistics.median(changed or [0]), ""
    yield "  the same, most", max(changed, default=0), ""
    yield "  processor time a round, all processes of the daemon", (_processor_s(pid) - before_s) / rounds, "s"


def _until_chosen(client: Client) -> None:
    give_up_at = time.monotonic() + CHOSEN_S
    while not (status := client.status()).settled or status.searching or set(status.switches) != {"ready"}:
        assert time.monotonic() < give_up_at
        time.sleep(POLL_S)


def _written(client: Client) -> int:
    found = re.findall(r"^echelon_entries_written_total{.*} (\S+)$", client.metrics(), re.MULTILINE)
    return round(sum(map(float, found)))


def _processor_s(pid: int) -> float:
    """Return what a process and its children have taken."""
    out = 0.0
    for path in (Path(f"/proc/{pid}"), *(Path(f"/proc/{child}") for child in _children(pid))):
        fields = (path / "stat").read_text().rpartition(")")[2].split()
        out += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return out


def _children(pid: int) -> list[str]:
    return [child for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", type=int, nargs="+")
    parser.add_argument("--group", type=int, default=GROUP)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    for jobs in options.jobs:
        for what, figure, unit in measured(jobs, options.group, options.rounds):
            print(f"{what:80} {figure:10.4g} {unit}", flush=True)


if __name__ == "__main__":
    main()
