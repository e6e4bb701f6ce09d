"""Two jobs that have fallen into step find it again after one of them was held up, with and without
a controller.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest

from tests.echelon.lab.hosts.conftest import Start

pytestmark = pytest.mark.quiet

LATE = 5
"""The iteration in which a worker is paused for half of an iteration's time; after it, the
controller is killed.
"""
RESTARTED = LATE + 2
"""The iteration in which the controller comes back, where it does."""


def two_jobs(**more: Any) -> dict[str, Any]:
    hosts = ["h1", "h2", "h3", "h4"]
    return {
        "scenario": "pair",
        "fabric": {
            "fabric": "dumbbell",
            "hosts": hosts,
            "switches": ["s1", "s2"],
            "links": [
                {"between": ["s1", "s2"], "rate": "10 Mbit/s"},
                *({"between": [host, switch], "rate": "100 Mbit/s"}
                  for host, switch in zip(hosts, ["s1", "s1", "s2", "s2"], strict=True)),
            ],
        },
        "jobs": [
            {
                "job": name,
                "parallelism": "pipeline",
                "workers": workers,
                "start": start,
                "pipeline": {"micro_batches": 1, "forward": "500 ms", "activation": "630 kB"},
            }
            for name, workers, start in (("a", ["h1", "h3"], "0 s"), ("b", ["h2", "h4"], "40 ms"))
        ],
        "transport": {"window": 16},
        "iterations": 13,
        "policies": ["fair", "echelon"],
        **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "arguments", "last"),
    [
        ({"stop_controller_after_iteration": LATE - 1}, (), LATE),
        ({}, ("--restart", str(LATE)), RESTARTED),
    ],
    ids=["controller dead", "controller restarted"],
)
def test_back_in_step_after_two_iterations(
    start: Start, more: dict[str, Any], arguments: tuple[str, ...], last: int
) -> None:
    """Iterations count from `last`, the last one in which the jobs were disturbed."""
    delays = [{"job": "a", "worker": "h1", "iteration": LATE, "delay": "750 ms"}]
    document = start(two_jobs(delays=delays, **more), *arguments, "echelon").document()
    for name, job in document["results"]["results"]["echelon"]["jobs"].items():
        times_s = job["iteration_times_s"]
        print(name, times_s)
        alone_s = job["alone_iteration_s"]
        before_s, after_s = median(times_s[2 : LATE - 1]), median(times_s[last + 2 :])
        assert before_s < 1.1 * alone_s, (
            "they have fallen into step (out of step, they take 1.3 times as long)"
        )
        if name == "a":
            assert times_s[LATE - 1] > 0.99 * alone_s + 0.75
        # Of the median: a machine that does something else for a moment pushes them out of step,
        # too.
        assert abs(after_s - before_s) <= 0.1 * before_s
    for switch in document["results"]["results"]["echelon"]["switches"].values():
        assert switch["entries"] > 0
