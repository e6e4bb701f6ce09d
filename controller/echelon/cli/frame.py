"""One frame of `echelon watch`, from the service's last answers: nothing here asks, waits or remembers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from echelon.cli import figures, tables

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from echelon.service.api.jobs import JobSummary
    from echelon.service.api.status import StatusResource
    from echelon.service.api.switches import SwitchResource

WIDE = 110
"""Number of columns from which there is room for more of them."""

_TABLE_LINES = 4
"""Lines of a table besides its rows: a blank line, two of heading, one that says what is left out."""
_LEAST_ROWS = 3
_TALL = 40
"""Number of lines from which there is room for more than one problem below a table."""
_PROBLEMS = 3
_HEAD_LINES = 2
"""Maximum number of lines of any one item at the top."""


@dataclass(frozen=True, slots=True)
class History:
    """The latest iterations of a job, oldest first, in seconds: those that were seen.

    Some are missing if iterations are shorter than the time between two looks.
    """

    iterations_s: tuple[float, ...] = ()
    tardiness_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """The contents of a frame."""

    url: str
    at: float
    """The time now, in seconds since the epoch."""
    status: StatusResource | None = None
    """The status; None: the service has not answered yet."""
    switches: Sequence[SwitchResource] = ()
    jobs: Sequence[JobSummary] = ()
    histories: Mapping[str, History] | None = None
    answered_at: float | None = None
    """Time of the answers."""
    problem: str | None = None
    """The reason why there is nothing newer."""


def frame(view: View, width: int, height: int) -> Group:
    """Return a picture of `width` columns and at most `height` lines, or as many as the minimum needs."""
    from rich.console import Group

    head = [line for part in _head(view) for line in _folded(part, width)]
    if view.status is None:
        return Group(*head)
    most = _PROBLEMS if height >= _TALL else 1
    switch_problems = _problems([(switch.name, switch.problem) for switch in view.switches], most, width)
    job_problems = _problems([(job.name, job.problem) for job in shown_jobs(view.jobs, len(view.jobs))], most, width)
    used = len(head) + len(switch_problems) + len(job_problems)
    switches, jobs = _shares(len(view.switches), len(view.jobs), height - used - 2 * _TABLE_LINES)
    return Group(*head, *_switches(view, switches, width), *switch_problems, *_jobs(view, jobs, width), *job_problems)


def shown_jobs(jobs: Sequence[JobSummary], most: int) -> Sequence[JobSummary]:
    """Return the jobs, those that are not installed first, so that no number of others hides them."""
    return sorted(jobs, key=lambda job: (job.state == "installed", job.name))[:most]


def _shares(switches: int, jobs: int, room: int) -> tuple[int, int]:
    """Divide `room` lines: half for each, unless one needs less."""
    half = max(room // 2, _LEAST_ROWS)
    room = max(room, 2 * _LEAST_ROWS)
    if switches <= half:
        return switches, room - switches
    if jobs <= room - half:
        return room - jobs, jobs
    return half, room - half


def _head(view: View) -> list[Text]:
    from rich.text import Text

    lines = []
    status = view.status
    if status is None:
        lines.append(Text(f"echelon at {view.url}", style="bold"))
    else:
        role = f"{status.role}, term {status.term}" if status.term is not None else status.role
        if status.role != "leader" and status.leader is not None:
            role += f" ({status.leader} leads)"
        lines.append(
            Text.assemble(
                (f"echelon {status.version}", "bold"),
                f" at {view.url}, fabric {status.fabric}, up {figures.age(view.at - status.started_at)}",
            )
        )
        lines.append(Text(role, style="" if status.role == "leader" else "yellow"))
        lines.append(
            Text(
                f"policy {status.policy}, plan {status.plan or 'none yet'}, "
                f"{status.installed_jobs} of {status.jobs} jobs installed"
            )
        )
        if status.plan_problem is not None:
            lines.append(Text(f"plan: {status.plan_problem}", style="red"))
    if view.problem is not None:
        since = "" if view.answered_at is None else f" for {figures.age(view.at - view.answered_at)}"
        lines.append(Text(f"no answer{since}: {view.problem}", style="bold red"))
    return lines


def _folded(line: Text, width: int) -> list[Text]:
    """Fold `line` into as many lines as it needs, up to `_HEAD_LINES`."""
    from textwrap import wrap

    from rich.text import Text

    if len(line) <= width:
        return [line]
    return [Text(part, style=line.style) for part in wrap(line.plain, width, max_lines=_HEAD_LINES, placeholder=" …")]


def _switches(view: View, most: int, width: int) -> list[Text | Table]:
    wide = width >= WIDE
    columns = [
        tables.Column("switch"),
        tables.Column("state"),
        tables.Column("for", right=True),
        *([tables.Column("target"), tables.Column("address")] if wide else []),
        tables.Column("entries", right=True),
        tables.Column("foreign", right=True),
        tables.Column("drift", right=True),
    ]
    ordered = sorted(view.switches, key=lambda switch: switch.state == "ready")
    rows = [
        (
            _clipped(switch.name, wide),
            switch.state,
            figures.age(view.at - switch.since),
            *((switch.target, switch.address) if wide else ()),
            figures.held(switch.entries, switch.wanted_entries),
            str(switch.foreign_entries),
            str(switch.drift_found),
        )
        for switch in ordered[:most]
    ]
    return _with_rest(tables.table(columns, rows), len(ordered) - len(rows), "switches")


def _jobs(view: View, most: int, width: int) -> list[Text | Table]:
    from rich.text import Text

    if not view.jobs:
        return [Text(), Text("no jobs", style="dim")]
    wide = width >= WIDE
    sparks = 22 if wide else 12
    histories = view.histories or {}
    columns = [
        tables.Column("job"),
        tables.Column("state"),
        *([tables.Column("flows", right=True)] if wide else []),
        tables.Column("iteration", right=True),
        tables.Column("latest"),
        tables.Column("tardiness", right=True),
        tables.Column("latest"),
    ]
    rows = []
    for job in shown_jobs(view.jobs, most):
        history = histories.get(job.name, History())
        rows.append(
            (
                _clipped(job.name, wide),
                job.state,
                *((str(job.flow_count),) if wide else ()),
                figures.measured(job.last_iteration_s),
                figures.sparkline(history.iterations_s, sparks),
                figures.measured(job.last_tardiness_s),
                figures.sparkline(history.tardiness_s, sparks),
            )
        )
    return _with_rest(tables.table(columns, rows), len(view.jobs) - len(rows), "jobs")


def _clipped(name: str, wide: bool) -> str:
    most = 32 if wide else 16
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _problems(named: Sequence[tuple[str, str | None]], most: int, width: int) -> list[Text]:
    from rich.text import Text

    texts = [f"{name}: {figures.problem(name, problem)}" for name, problem in named if problem]
    lines = [Text(text, style="red") for text in texts[:most]]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _with_rest(table: Table, left_out: int, what: str) -> list[Text | Table]:
    from rich.text import Text

    return [Text(), table, *([Text(f"and {left_out} more {what}", style="dim")] if left_out else [])]
