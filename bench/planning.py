"""`python -m bench planning`: how soon a service has a plan, a good one and the best one.

A fabric of 104 hosts, 32 softswitches in 4 processes, the real daemon. All jobs share links, so
that one search is about all of them. In each round one job more is submitted. `first`: the plan of
the rule is on all switches. `good`: the first plan is chosen whose score, by the last search, is at
most 1 % behind that of the final one. `final`: all searches have ended. Times are seconds since the
submission, medians over rounds. Beside them: how late the daemon's event loop was at most, for how
much of that the daemon was at work (`held`), and how late it was before, without any work (`idle`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from math import inf
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.hour import GROUP, grouped
from bench.service import LEAVES, Watched, await_choices, served
from echelon.controller.client import Client
from echelon.controller.resources.plan import ChoiceResource
from tests.echelon.service.lab import PATIENCE_S

JOBS = (2, 6, 20, 100)
ROUNDS = 5
WORKERS = 4
NEW = "new"
GOOD = 1.01
"""The score of a good plan, as a multiple of that of the final one."""
HEADS = (
    "jobs",
    "rounds",
    "first s",
    "brief s",
    "good s",
    "final s",
    "changes",
    "late ms",
    "held ms",
    "idle ms",
)


@dataclass(frozen=True)
class Round:
    """The times of a job, in seconds since its submission."""

    first_s: float
    brief_s: float
    """The end of the first search."""
    good_s: float
    final_s: float
    changes: int
    """The number of times that another plan replaced the one in force."""
    span_s: tuple[float, float]
    """The time of the round, by the monotonic clock."""


def spread(number: int, name: str | None = None) -> dict[str, object]:
    """Return a job that shares a host with the one before, and one with the one after."""
    spec = grouped(number, name)
    hosts = LEAVES * GROUP
    first = number * (WORKERS - 1)
    spec["workers"] = [f"h{(first + place) % hosts}" for place in range(WORKERS)]
    return spec


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench planning", description=__doc__)
    parser.add_argument("jobs", type=int, nargs="*", default=JOBS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args(words)
    table = Table(*HEADS)
    for jobs in options.jobs:
        row = measured(jobs, options.rounds)
        table.add_row(*row)
        print("\t".join(row), file=sys.stderr, flush=True)
    Console().print(table)


def measured(jobs: int, rounds: int) -> list[str]:
    """Return the row of a service with that many jobs, of which one is submitted in each round."""
    specs = [spread(number) for number in range(jobs - 1)]
    with served(specs, GROUP, Watched) as daemon:
        assert isinstance(daemon, Watched)
        with Client(daemon.wait_listening(), timeout_s=PATIENCE_S) as client:
            await_choices(client)
            # What is late without a search is the machine's, not ours.
            rested_s = time.monotonic()
            time.sleep(5)
            idle = rested_s, time.monotonic()
            seen = list(_rounds(client, daemon, jobs, rounds))
        daemon.terminate()
        lags = json.loads(daemon.lag.read_text())
    figures: list[float] = [jobs, rounds]
    for name in ("first_s", "brief_s", "good_s", "final_s"):
        times_s = [getattr(round_, name) for round_ in seen]
        figures.append(median(times_s))
    changes = sum(round_.changes for round_ in seen)
    spans_s = [round_.span_s for round_ in seen]
    late_ms, held_ms = _latest_ms(lags, spans_s)
    idle_ms, _ = _latest_ms(lags, [idle])
    figures += [changes, late_ms, held_ms, idle_ms]
    return [f"{figure:.3g}" for figure in figures]


def _rounds(
    client: Client,
    daemon: Watched,
    jobs: int,
    rounds: int,
) -> Iterator[Round]:
    for number in range(rounds):
        # Of the place of the last job, and of another size in each round.
        spec = grouped(2 * number + jobs - 1, NEW)
        spec["workers"] = spread(jobs - 1)["workers"]
        before = len(_choices(daemon))
        began_s = time.monotonic()
        began_at = time.time()
        client.register_job(spec)
        done = client.job(NEW, wait_s=PATIENCE_S)
        assert done.timings is not None
        first_s = time.monotonic() - began_s
        await_choices(client)
        ended_s = time.monotonic()
        searches = _choices(daemon)[before:]
        [why] = client.plan(NEW, why=True).why
        yield _round(first_s, searches, began_at, why, (began_s, ended_s))
        client.remove_job(NEW)
        await_choices(client)


def _choices(daemon: Watched) -> list[dict[str, Any]]:
    """Return the results of searches so far, in their order."""
    records = daemon.events("plan chosen") + daemon.events("plan kept")
    return sorted(records, key=_logged_at)


def _logged_at(record: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(record["time"]).timestamp()


def _round(
    first_s: float,
    searches: Sequence[Mapping[str, Any]],
    began_at: float,
    why: ChoiceResource,
    span_s: tuple[float, float],
) -> Round:
    """Return the times of a round. `began_at` is in seconds since the epoch."""
    plans = [(first_s, searches[0]["before"])]
    for record in searches:
        time_s = _logged_at(record) - began_at
        plans.append((time_s, record["by"]))
    scores = {tried.plan: tried.score or inf for tried in why.tried}
    limit = GOOD * scores[why.plan]
    # A plan that was not tried again is no good one.
    good_s = []
    for time_s, plan in plans:
        if scores.get(plan, inf) <= limit:
            good_s.append(time_s)
    changes = 0
    for (_, before), (_, after) in pairwise(plans):
        changes += before != after
    brief_s, _ = plans[1]
    final_s, _ = plans[-1]
    return Round(first_s, brief_s, good_s[0], final_s, changes, span_s)


def _latest_ms(
    lags: Sequence[tuple[float, float, float]], spans_s: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """Return how late the event loop was at most in these times, and while the daemon worked."""
    latest_s = 0.0
    longest_s = 0.0
    for began_s, ended_s in spans_s:
        for time_s, late_s, held_s in lags:
            if began_s <= time_s <= ended_s:
                latest_s = max(latest_s, late_s)
                longest_s = max(longest_s, held_s)
    return 1e3 * latest_s, 1e3 * longest_s
