"""`echelon top`: which ports and queues are busy, and which jobs are late, again and again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli import calls, figures, tables
from echelon.cli.usage import fail

if TYPE_CHECKING:
    from rich.console import Console, Group

    from echelon.client import Client
    from echelon.service.api.jobs import JobSummary
    from echelon.service.api.switches import PortUse, SwitchQueues

_TIMEOUT_S = 5.0
"""Timeout of an answer; meanwhile no key is read."""
_QUEUES = 8
_HEAD_LINES = 2
_TABLE_LINES = 3
"""Lines of a table besides its rows."""
_LEAST_ROWS = 3

Counts = Mapping[str, "SwitchQueues"]
"""The counters of each switch."""


def top(
    once: Annotated[bool, typer.Option("--once", help="Look twice, show the use in between, and exit.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between looks.", min=0.1, max=3600)] = 2.0,
    url: calls.Url = calls.DEFAULT_URL,
    token_file: calls.TokenFile = None,
    ca: calls.Authority = None,
    certificate: calls.Certificate = None,
    as_json: tables.AsJson = False,
) -> None:
    """Show live how busy ports and their queues are, and which jobs are late. q or Ctrl-C ends it.

    Queues are numbered from 0, the lowest, to 7. Off a terminal, --once prints plain text.

    Example: echelon top --once
    """
    from rich.console import Console

    console = Console(highlight=False)
    if not once and (as_json or not console.is_terminal):
        fail(f"top: {'one document is one look' if as_json else 'the output is not a terminal'} (use --once)")
    with calls.service(url, token_file, ca, certificate, timeout_s=_TIMEOUT_S, as_json=as_json) as client:
        names = [switch.name for switch in client.switches()]
        if not once:
            try:
                _watch(client, names, console, interval)
            except KeyboardInterrupt:
                return
            return
        before = _look(client, names)
        time.sleep(interval)
        view = PortsView(client.jobs(), before, _look(client, names))
        if as_json:
            tables.show_json({"ports": view.ports, "jobs": view.late, "problems": view.problems})
        elif console.is_terminal:
            console.print(_frame(view, len(view.ports), len(view.jobs)))
        else:
            typer.echo(tables.plain(_PORTS, _port_rows(view.ports)))
            typer.echo(tables.plain(_JOBS, _job_rows(view.late)), nl=False)
            for problem in view.problems:
                typer.echo(problem, err=True)


@dataclass(frozen=True, slots=True)
class PortsView:
    """The service between two looks."""

    jobs: Sequence[JobSummary]
    before: Counts
    now: Counts

    @property
    def ports(self) -> Sequence[PortUse]:
        """The ports of all switches that count, the busiest first."""
        from echelon.service.api.switches import uses

        return sorted(uses(self.before, self.now), key=lambda one: (-one.use, one.switch, one.port))

    @property
    def late(self) -> Sequence[JobSummary]:
        """The jobs, the slowest first, by their latest iteration over that alone; those that were not seen last."""
        return sorted(self.jobs, key=lambda job: (-(slowdown(job) or 0.0), -(job.last_tardiness_s or 0.0), job.name))

    @property
    def problems(self) -> Sequence[str]:
        """The reasons why switches could not be read."""
        return [seen.problem for seen in self.now.values() if seen.problem is not None]


def slowdown(job: JobSummary) -> float | None:
    """Return the latest iteration's time over that of the job alone; None: one of them is not known."""
    if job.last_iteration_s is None or not job.alone_iteration_s:
        return None
    return job.last_iteration_s / job.alone_iteration_s


def _look(client: Client, names: Sequence[str]) -> Counts:
    return {name: client.queues(name) for name in names}


def _watch(client: Client, names: Sequence[str], console: Console, interval_s: float) -> None:
    from rich.live import Live

    from echelon.cli.keys import single_keys
    from echelon.client import ClientError

    with single_keys() as key, Live(console=console, screen=True, auto_refresh=False) as live:
        view = PortsView(client.jobs(), {}, _look(client, names))
        problem = None
        while True:
            rows = max(console.height - _HEAD_LINES - 2 * _TABLE_LINES, 2 * _LEAST_ROWS)
            jobs = min(len(view.jobs), max(_LEAST_ROWS, rows // 3))
            live.update(_frame(view, rows - jobs, jobs, problem), refresh=True)
            if key(interval_s) in ("q", "Q"):
                return
            try:
                view, problem = PortsView(client.jobs(), view.now, _look(client, names)), None
            except ClientError as error:
                if error.status is not None and error.status < 500:
                    raise
                problem = error.reason


_PORTS = (
    tables.Column("switch"),
    tables.Column("port", right=True),
    tables.Column("to"),
    tables.Column("rate", right=True),
    tables.Column("use", right=True),
    *(tables.Column(f"q{queue}", right=True) for queue in range(_QUEUES)),
    tables.Column("drops/s", right=True),
)
_JOBS = (
    tables.Column("job", wraps=True),
    tables.Column("state"),
    tables.Column("iteration", right=True),
    tables.Column("alone", right=True),
    tables.Column("slowdown", right=True),
    tables.Column("tardiness", right=True),
)


def _frame(view: PortsView, ports: int, jobs: int, problem: str | None = None) -> Group:
    from rich.console import Group
    from rich.text import Text

    problems = [*view.problems[:1], *([] if problem is None else [f"no answer: {problem}"])]
    return Group(
        tables.table(_PORTS, _port_rows(view.ports[:ports])),
        Text(),
        tables.table(_JOBS, _job_rows(view.late[:jobs])),
        *(Text(line, style="red") for line in problems),
    )


def _port_rows(ports: Sequence[PortUse]) -> list[tuple[str, ...]]:
    return [
        (
            one.switch,
            str(one.port),
            one.to,
            figures.rate(one.rate_bps),
            _percent(one.use),
            *(_percent(bits / one.rate_bps) for bits in one.queues_bps),
            f"{one.drops_per_s:.3g}" if one.drops_per_s else figures.NONE,
        )
        for one in ports
    ]


def _percent(part: float) -> str:
    return f"{part:.1%}" if part else figures.NONE


def _job_rows(jobs: Sequence[JobSummary]) -> list[tuple[str, ...]]:
    return [
        (
            job.name,
            job.state,
            figures.measured(job.last_iteration_s),
            figures.measured(job.alone_iteration_s),
            figures.NONE if (times := slowdown(job)) is None else f"{times:.3f}",
            figures.measured(job.last_tardiness_s),
        )
        for job in jobs
    ]
