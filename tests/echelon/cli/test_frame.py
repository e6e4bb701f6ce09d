"""Frames of `echelon watch`, at every size of a terminal, and the arithmetic of ports and jobs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from echelon.cli.watch import View, first_jobs, frame, slowdown
from echelon.controller.resources.jobs import JobSummary
from echelon.controller.resources.status import StatusResource
from echelon.controller.resources.switches import QueueUse, SwitchQueues, SwitchResource, uses
from echelon.controller.states import JobState
from echelon.switches.southbound.lifecycle import State
from tests.drawing import examples

NOW = 1_000_000.0


def status(**changes: object) -> StatusResource:
    facts = StatusResource(
        version="1.2",
        fabric="lab",
        role="leader",
        term=77,
        leader="http://ctl:8080",
        started_at=NOW - 7300,
        policy="echelon",
        jobs=2,
        installed_jobs=1,
        plan=12,
        switches={"ready": 1},
        jobs_by_state={"installed": 1},
    )
    return facts.model_copy(update=changes)


def switch(name: str, state: State = "ready", problem: str | None = None) -> SwitchResource:
    return SwitchResource(
        name=name,
        address=f"{name}.example:9559",
        target="softswitch",
        device_id=1,
        state=state,
        problem=problem,
        since=NOW - 90,
        entries=40 if state == "ready" else 12,
        wanted_entries=40,
        foreign_entries=3,
    )


def job(
    name: str,
    state: JobState = "installed",
    problem: str | None = None,
    iteration_s: float | None = None,
    alone_s: float | None = None,
) -> JobSummary:
    return JobSummary(
        name=name,
        state=state,
        problem=problem,
        parallelism="data",
        workers=("h1", "h2"),
        flow_count=4,
        last_iteration_s=iteration_s,
        last_tardiness_s=None if iteration_s is None else iteration_s / 100,
        alone_iteration_s=alone_s,
    )


def picture(view: View, width: int, height: int, now: float = NOW) -> list[str]:
    console = Console(
        file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None
    )
    with patch("time.time", return_value=now):
        console.print(frame(view, width, height))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


BUSY = View(
    NOW,
    status(problems=("plan: job big: too large", "switch s2: connection refused")),
    switches=[switch("s1"), switch("s2", "away", "switch s2: connection refused")],
    jobs=[job("bert", iteration_s=1.25, alone_s=1.0), job("big", "unplanned", "too large")],
)


def test_a_picture_of_80_columns() -> None:
    assert picture(BUSY, 80, 24) == [
        "service   echelon 1.2, fabric lab, up 2 h",
        "leader    http://ctl:8080, term 77",
        "policy    echelon",
        "plan      12, being written",
        "switches  1 ready",
        "jobs      1 installed",
        "plan: job big: too large",
        "switch s2: connection refused",
        "job big: too large",
        "",
        "switch  state    for  entries  foreign  drift",
        "─────────────────────────────────────────────",
        "s2      away   1 min    12/40        3      0",
        "s1      ready  1 min       40        3      0",
        "",
        "job   state      iteration    alone  slowdown  tardiness",
        "────────────────────────────────────────────────────────",
        "big   unplanned          -        -         -          -",
        "bert  installed    1.250 s  1.000 s     1.250   12.50 ms",
    ]


def test_a_wide_one_has_more_of_it() -> None:
    assert "s1      ready  1 min  softswitch  s1.example:9559       40        3      0" in picture(
        BUSY, 120, 40
    )


def test_before_the_first_answer_and_after_the_last() -> None:
    assert picture(View(NOW, problem="connection refused"), 80, 24) == [
        "no answer: connection refused"
    ]
    lines = picture(replace(BUSY, problem="refused"), 80, 24, now=NOW + 61)
    assert lines[6] == "no answer for 1 min: refused"
    assert lines[9] == "and 1 more problems (echelon status)"
    assert "s1      ready  2 min       40        3      0" in lines


def test_a_standby_says_who_leads() -> None:
    view = View(NOW, status(role="standby", term=None, leader="https://ctl2", jobs=0, plan=0))
    assert picture(view, 80, 24)[1] == "leader    https://ctl2 (this one stands by)"
    assert "no jobs" in picture(view, 80, 24)


def _shown(lines: Sequence[str], names: Sequence[str]) -> list[str]:
    first = {line.split(" ")[0] for line in lines}
    return [name for name in names if name in first]


@settings(max_examples=examples(50), deadline=None)
@given(
    st.integers(0, 90),
    st.integers(0, 90),
    st.integers(80, 200),
    st.integers(24, 100),
    st.booleans(),
    st.booleans(),
)
def test_it_fits_and_says_what_it_leaves_out(
    switches: int, jobs: int, width: int, height: int, ill: bool, ports: bool
) -> None:
    problem = "no way from here to there " * 9 if ill else None
    view = View(
        NOW,
        status(problems=() if problem is None else (problem,) * 2),
        switches=[
            switch(f"s{index}", "refused" if ill else "ready", problem) for index in range(switches)
        ],
        jobs=[
            job(f"j{index}", "unplanned" if ill else "installed", problem, 1.0)
            for index in range(jobs)
        ],
        counters={} if ports else None,
    )
    lines = picture(view, width, height)
    assert max(map(len, lines)) <= width
    assert len(lines) <= height
    for kind, count in (("switches", switches), ("jobs", jobs)):
        shown = len(_shown(lines, [f"{kind[0]}{index}" for index in range(count)]))
        assert shown >= min(count, 2)
        left_out = f"and {count - shown} more {kind}"
        assert (left_out in lines) == (shown < count)


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(1, 60), st.integers(0, 59))
def test_what_is_not_installed_comes_first(count: int, place: int) -> None:
    place = min(place, count - 1)
    jobs = [
        job(f"j{index:02}", "unplanned" if index == place else "installed")
        for index in range(count)
    ]
    view = View(NOW, status(), switches=[switch("s1")], jobs=jobs)
    assert f"j{place:02}  unplanned" in "\n".join(picture(view, 80, 24))


def reading(at: float, *sizes: tuple[int, int, int], drops: int = 0) -> SwitchQueues:
    """Return a reading of (port, queue, bytes)."""
    return SwitchQueues(
        switch="s1",
        reachable=True,
        at=at,
        queues=tuple(
            QueueUse(port=port, to=f"h{port}", rate_bps=10**6, queue=queue, packets=0, size_bytes=size,
                     dropped_packets=drops)
            for port, queue, size in sizes
        ),
    )  # fmt: skip


def test_use_is_what_a_queue_sent_between_two_readings() -> None:
    """A million bits a second is 125,000 bytes: in 2 s, 62,500 bytes are a quarter."""
    before = {"s1": reading(10.0, (1, 0, 1000), (1, 7, 0), (2, 0, 5))}
    now = {"s1": reading(12.0, (1, 0, 63_500), (1, 7, 125_000), (2, 0, 5), drops=6)}
    busy, idle = uses(before, now)
    assert (busy.port, busy.queues_bps[0], busy.queues_bps[7]) == (1, 250_000, 500_000)
    assert busy.use == 0.75
    assert busy.drops_per_s == 6.0, "3 a second in each queue"
    assert (idle.port, idle.use) == (2, 0.0)
    view = View(NOW, status(), counters=now, ports=[busy, idle])
    line, _ = (line for line in picture(view, 120, 40) if line.startswith("s1 "))
    assert line.split() == [
        *(["s1", "1", "h1", "1", "Mbit/s", "75.0%", "25.0%"]),
        *"------",
        "50.0%",
        "6",
    ]


def test_a_switch_that_was_restarted_shows_nothing_once() -> None:
    assert [
        one.use
        for one in uses({"s1": reading(1.0, (1, 0, 9000))}, {"s1": reading(2.0, (1, 0, 10))})
    ] == [0.0]
    assert uses({}, {"s1": reading(2.0, (1, 0, 10))}) == []


def test_the_slowest_come_first() -> None:
    times = {"a": (None, 1.0), "b": (1.0, 1.0), "c": (3.0, 2.0), "d": (9.0, None)}
    jobs = [
        job(name, iteration_s=last_s, alone_s=alone_s) for name, (last_s, alone_s) in times.items()
    ]
    assert [slowdown(one) for one in jobs] == [None, 1.0, 1.5, None]
    assert [one.name for one in first_jobs(jobs)] == ["c", "b", "a", "d"]
