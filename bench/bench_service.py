"""The time from `POST /jobs` to the last entry acknowledged: the real daemon, 32 softswitches in 4
processes, and a new job of 1,000 flows in each round.

Each round's job has other sizes than all before, so that nothing about it is known. Entries are
encoded while switches are at work on others, so that the shares come to more than 100 % together.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from rich.progress import track

from bench.service import LEAVES, SPINES, served
from echelon.controller.client import Client
from echelon.controller.resources.jobs import Timings
from tests.echelon.service.lab import PATIENCE_S, settle

STAGES = 26
MICRO_BATCHES = 20
FLOWS = 2 * (STAGES - 1) * MICRO_BATCHES
ROUNDS = 40
PHASES = ("queued", "policy", "lowering", "encoding", "rpc")


def job(number: int) -> dict[str, Any]:
    """Return a job of its own for each number."""
    return {
        "job": "bench",
        "parallelism": "pipeline",
        "workers": [f"h{n}" for n in range(STAGES)],
        "pipeline": {
            "micro_batches": MICRO_BATCHES,
            "forward": "10 ms",
            "backward": "20 ms",
            "activation": f"{2_000_000 + number} B",
        },
    }


def bench() -> list[tuple[str, float, str]]:
    with served() as daemon:
        daemon.wait_event("leading")
        with Client(daemon.wait_listening(), timeout_s=PATIENCE_S) as client:
            settle(client)
            return _rows(*_measure(client))


def _measure(client: Client) -> tuple[list[float], list[Timings]]:
    seen_s = []
    timings = []
    for number in track(range(ROUNDS), "submitting a job of 1,000 flows"):
        began = time.perf_counter()
        client.register_job(job(number))
        done = client.job("bench", wait_s=60)
        seen_s.append(time.perf_counter() - began)
        assert done.state == "installed"
        assert done.flow_count == FLOWS
        assert done.timings is not None
        timings.append(done.timings)
        client.remove_job("bench")
        settle(client)
    return seen_s, timings


def _rows(seen_s: list[float], timings: list[Timings]) -> list[tuple[str, float, str]]:
    totals_s = [timing.total_s for timing in timings]
    centiles = statistics.quantiles(
        totals_s,
        n=100,
        method="inclusive",
    )
    total_s = sum(totals_s)
    shares = {
        phase: sum(getattr(timing, f"{phase}_s") for timing in timings) / total_s
        for phase in PHASES
    }
    return [
        (
            f"{FLOWS} flows, {LEAVES + SPINES} switches, accepted to last acknowledgement, p50",
            centiles[49] * 1e3,
            "ms",
        ),
        ("the same, p99", centiles[98] * 1e3, "ms"),
        (
            "the same as the client sees it, from POST /jobs, median",
            statistics.median(seen_s) * 1e3,
            "ms",
        ),
        *((f"share of {phase}", 100 * share, "%") for phase, share in shares.items()),
    ]
