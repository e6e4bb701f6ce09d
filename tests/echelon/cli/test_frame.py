"""Frames of `echelon watch`, at every size of a terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from echelon.cli.frame import History, View, frame
from echelon.control.progress import JobState
from echelon.service.api.jobs import JobSummary
from echelon.service.api.status import StatusResource
from echelon.service.api.switches import SwitchResource
from echelon.southbound.lifecycle import State
from tests.drawing import examples

NOW = 1_000_000.0


def status(**changes: object) -> StatusResource:
    facts = StatusResource(
        version="1.2",
        fabric="lab",
        role="leader",
        term=77,
        leader=None,
        started_at=NOW - 7300,
        policy="echelon",
        jobs=2,
        installed_jobs=1,
        plan=12,
        switches={"ready": 1},
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
    name: str, state: JobState = "installed", problem: str | None = None, iteration_s: float | None = None
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
    )


def picture(view: View, width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    console.print(frame(view, width, height))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


BUSY = View(
    url="http://ctl:8080",
    at=NOW,
    status=status(plan_problem="job big: too large"),
    switches=[switch("s1"), switch("s2", "away", "switch s2: connection refused")],
    jobs=[job("bert", iteration_s=1.25), job("big", "unplanned", "too large")],
    histories={"bert": History((1.0, 1.5, 1.25), (0.01, 0.02, 0.0125))},
    answered_at=NOW,
)


def test_a_picture_of_80_columns() -> None:
    assert picture(BUSY, 80, 24) == [
        "echelon 1.2 at http://ctl:8080, fabric lab, up 2 h",
        "leader, term 77",
        "policy echelon, plan 12, 1 of 2 jobs installed",
        "plan: job big: too large",
        "",
        "switch  state    for  entries  foreign  drift",
        "─────────────────────────────────────────────",
        "s2      away   1 min    12/40        3      0",
        "s1      ready  1 min       40        3      0",
        "s2: connection refused",
        "",
        "job   state      iteration  latest  tardiness  latest",
        "─────────────────────────────────────────────────────",
        "big   unplanned          -                  -",
        "bert  installed    1.250 s  ▁█▅      12.50 ms  ▁█▃",
        "big: too large",
    ]


def test_a_wide_one_has_more_of_it() -> None:
    lines = picture(BUSY, 120, 40)
    assert "s1      ready  1 min  softswitch  s1.example:9559       40        3      0" in lines
    assert any(line.startswith("job   state      flows") for line in lines)


def test_before_the_first_answer_and_after_the_last() -> None:
    nothing = View(url="http://ctl:8080", at=NOW, problem="connection refused")
    assert picture(nothing, 80, 24) == ["echelon at http://ctl:8080", "no answer: connection refused"]
    stale = View(**{field: getattr(BUSY, field) for field in BUSY.__slots__} | {"at": NOW + 61, "problem": "refused"})
    lines = picture(stale, 80, 24)
    assert lines[4] == "no answer for 1 min: refused"
    assert "s1      ready  2 min       40        3      0" in lines


def test_a_standby_says_who_leads() -> None:
    view = View(url="u", at=NOW, status=status(role="standby", term=None, leader="https://ctl2", jobs=0, plan=0))
    assert picture(view, 80, 24)[1] == "standby (https://ctl2 leads)"
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
)
def test_it_fits_and_says_what_it_leaves_out(switches: int, jobs: int, width: int, height: int, ill: bool) -> None:
    problem = "no way from here to there " * 9 if ill else None
    view = View(
        url="http://ctl:8080",
        at=NOW,
        status=status(plan_problem=problem),
        switches=[switch(f"s{index}", "refused" if ill else "ready", problem) for index in range(switches)],
        jobs=[job(f"j{index}", "unplanned" if ill else "installed", problem, 1.0) for index in range(jobs)],
        histories={f"j{index}": History((1.0, 2.0) * 40, (1.0, 2.0) * 40) for index in range(jobs)},
        answered_at=NOW,
    )
    lines = picture(view, width, height)
    assert max(map(len, lines)) <= width
    assert len(lines) <= height
    for kind, count in (("switches", switches), ("jobs", jobs)):
        shown = len(_shown(lines, [f"{kind[0]}{index}" for index in range(count)]))
        assert shown >= min(count, 3)
        left_out = f"and {count - shown} more {kind}"
        assert (left_out in lines) == (shown < count)


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(1, 60), st.integers(0, 59))
def test_what_is_not_installed_comes_first(count: int, place: int) -> None:
    place = min(place, count - 1)
    jobs = [job(f"j{index:02}", "unplanned" if index == place else "installed") for index in range(count)]
    view = View(url="u", at=NOW, status=status(), switches=[switch("s1")], jobs=jobs, answered_at=NOW)
    assert f"j{place:02}  unplanned" in "\n".join(picture(view, 80, 24))
