"""A service with many registered jobs: its start, its idle time, its list of jobs, and the plan of
one change.

The jobs are rings of two, of fifty computing times and seven sizes. The switches are those of
`bench_service`; `JOBS` jobs are written into the store before the service starts (environment:
``ECHELON_BENCH_JOBS``).
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.service import LEAVES, served
from echelon.controller.client import Client
from tests.echelon.service.lab import PATIENCE_S, ring

JOBS = int(os.environ.get("ECHELON_BENCH_JOBS", "1000"))
CHANGES = 100
IDLE_S = 20.0
STARTED_S = 600.0


def job(number: int) -> dict[str, Any]:
    leaf = number % LEAVES
    other_leaf = (leaf + 1 + number // LEAVES % (LEAVES - 1)) % LEAVES
    return ring(
        f"j{number}",
        [f"h{leaf}", f"h{other_leaf}"],
        f"{1 + number % 7} MB",
        f"{10 + number % 50} ms",
    )


def bench() -> list[tuple[str, float, str]]:
    with served(map(job, range(JOBS)), limits={"jobs": 2 * JOBS}) as daemon:
        began_s = time.monotonic()
        with Client(daemon.wait_listening(), timeout_s=STARTED_S) as client:
            _until(lambda: client.not_ready() is None)
            planned_s = time.monotonic() - began_s
            planned_cpu_s = processor_s(daemon.pid)
            _until(lambda: client.status().settled)
            installed_s = time.monotonic() - began_s
            idle = _idle_share(daemon.pid)
            return [
                (f"{JOBS} jobs: start to readiness", planned_s, "s"),
                ("the same, processor time", planned_cpu_s, "s"),
                ("start to the last entry", installed_s, "s"),
                ("idle", 100 * idle, "% of a processor"),
                *_lists(client),
                *_changes(client),
            ]


def _until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + STARTED_S
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.05)


def processor_s(pid: int) -> float:
    text = Path(f"/proc/{pid}/stat").read_text()
    # A program's name, in brackets, may hold blanks.
    _, _, behind_name = text.rpartition(")")
    fields = behind_name.split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _idle_share(pid: int) -> float:
    """Return the part of a processor that the daemon takes once that falls no more."""
    last = float("inf")
    while True:
        before_s = processor_s(pid)
        time.sleep(IDLE_S)
        share = (processor_s(pid) - before_s) / IDLE_S
        if 0.9 * last < share < 0.5:
            return share
        last = share


def _lists(client: Client) -> list[tuple[str, float, str]]:
    out = []
    for size in (100, 1000):
        took_s = []
        for _ in range(20):
            began_s = time.perf_counter()
            client.jobs(limit=size)
            took_s.append(time.perf_counter() - began_s)
        median_ms = statistics.median(took_s) * 1e3
        slowest_ms = max(took_s) * 1e3
        out.append((f"GET /jobs, first page of {size}, median", median_ms, "ms"))
        out.append(("the same, the slowest of 20", slowest_ms, "ms"))
    return out


def _changes(client: Client) -> list[tuple[str, float, str]]:
    planned_s = []
    installed_s = []
    for number in range(JOBS, JOBS + CHANGES):
        client.register_job(job(number))
        done = client.job(f"j{number}", wait_s=PATIENCE_S)
        assert done.state == "installed"
        assert done.timings is not None
        planned_s.append(done.timings.policy_s + done.timings.lowering_s)
        installed_s.append(done.timings.total_s)
    out = []
    for label, took_s in (
        ("plan of one job more", planned_s),
        ("its acceptance to the last entry", installed_s),
    ):
        centiles = statistics.quantiles(
            took_s,
            n=100,
            method="inclusive",
        )
        out += [
            (f"{label}, p50", centiles[49] * 1e3, "ms"),
            ("the same, p99", centiles[98] * 1e3, "ms"),
        ]
    return out
