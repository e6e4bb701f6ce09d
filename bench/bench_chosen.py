"""The time from `POST /jobs` to the first plan and to the plan that simulation chooses: the real
daemon and 32 softswitches in 4 processes.

`python -m bench.bench_chosen JOBS ... [--rounds N]` takes the jobs of `hour`, in groups of four
that share hosts. One job more joins a group in each round, and leaves it when the plan of the group
is chosen. Beside the times: how late the daemon's event loop is, what its processes take, and how
many entries the chosen plan changes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from bench.hour import GROUP, grouped
from bench.service import Watched, await_choices, served
from echelon.controller.client import Client
from tests.echelon.service.lab import PATIENCE_S

ROUNDS = 20

Row = tuple[str, float, str]


def bench() -> list[Row]:
    rows: list[Row] = []
    for jobs in (4, 20):
        rows += measured(jobs, 5)
    return rows


def measured(jobs: int, rounds: int) -> Iterator[Row]:
    """Yield the figures with that many jobs."""
    with served([grouped(number) for number in range(jobs)], GROUP, Watched) as daemon:
        assert isinstance(daemon, Watched)
        began_s = time.monotonic()
        with Client(daemon.wait_listening(), timeout_s=PATIENCE_S) as client:
            await_choices(client)
            yield (
                f"{jobs} jobs in groups of {GROUP}: start until all plans are chosen",
                time.monotonic() - began_s,
                "s",
            )
            first_s = time.monotonic()
            yield from _rounds(client, daemon.pid, jobs, rounds)
        daemon.terminate()
        late_ms = []
        for time_s, late_s, _ in json.loads(daemon.lag.read_text()):
            if time_s > first_s:
                late_ms.append(1e3 * late_s)
        centiles = statistics.quantiles(
            late_ms,
            n=100,
            method="inclusive",
        )
        yield "  event loop late meanwhile, p50", centiles[49], "ms"
        yield "  the same, p99", centiles[98], "ms"
        yield "  the same, most", max(late_ms), "ms"


def _rounds(
    client: Client,
    pid: int,
    jobs: int,
    rounds: int,
) -> Iterator[Row]:
    first_ms = []
    chosen_ms = []
    changed = []
    before_s = _processor_s(pid)
    for number in range(rounds):
        place = number % jobs
        # Another job on the workers of one of the first.
        spec = grouped(jobs * (number + 1) + place, "new")
        spec["workers"] = grouped(place)["workers"]
        began_s = time.perf_counter()
        client.register_job(spec)
        done = client.job("new", wait_s=PATIENCE_S)
        assert done.state == "installed"
        assert done.timings is not None
        first_ms.append(1e3 * done.timings.total_s)
        written = _written(client)
        await_choices(client)
        chosen_ms.append(1e3 * (time.perf_counter() - began_s))
        if more := _written(client) - written:
            changed.append(more)
        client.remove_job("new")
        await_choices(client)
    for label, took_ms in (
        ("first plan on all switches", first_ms),
        ("chosen plan on all switches", chosen_ms),
    ):
        centiles = statistics.quantiles(
            took_ms,
            n=100,
            method="inclusive",
        )
        yield f"  one job more: acceptance to {label}, p50", centiles[49], "ms"
        yield "  the same, p99", centiles[98], "ms"
    yield f"  {rounds} rounds: chosen plans that differ", len(changed), ""
    yield (
        "  entries that such a plan changes, on 32 switches, median",
        statistics.median(changed or [0]),
        "",
    )
    yield "  the same, most", max(changed, default=0), ""
    yield (
        "  processor time a round, all processes of the daemon",
        (_processor_s(pid) - before_s) / rounds,
        "s",
    )


def _written(client: Client) -> int:
    counts = re.findall(
        r"^echelon_entries_written_total{.*} (\S+)$", client.metrics(), re.MULTILINE
    )
    return round(sum(map(float, counts)))


def _processor_s(pid: int) -> float:
    """Return the seconds of a processor that a process and its children have taken."""
    children = [
        int(child)
        for path in Path(f"/proc/{pid}/task").glob("*/children")
        for child in path.read_text().split()
    ]
    ticks = 0
    for process in (pid, *children):
        # The name of a process, in parentheses, may have spaces; the fields after it are numbers.
        _, _, fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")
        ticks += sum(map(int, fields.split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", type=int, nargs="+")
    parser.add_argument(
        "--rounds",
        type=int,
        default=ROUNDS,
    )
    options = parser.parse_args()
    for jobs in options.jobs:
        for label, figure, unit in measured(jobs, options.rounds):
            print(f"{label:80} {figure:10.4g} {unit}", flush=True)


if __name__ == "__main__":
    main()
