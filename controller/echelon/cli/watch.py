"""`echelon watch`: the service at a glance, again and again; also below the progress of a run on
real hosts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelon.cli import calls, figures, tables
from echelon.cli.service import SWITCHES, facts
from echelon.cli.usage import fail

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.text import Text

    from echelon.cli.progress import ShownProgress
    from echelon.controller.client import Client
    from echelon.controller.service.api.jobs import JobSummary
    from echelon.controller.service.api.status import StatusResource
    from echelon.controller.service.api.switches import PortUse, SwitchQueues, SwitchResource

_TIMEOUT_S, _BESIDE_RUN_S = 5.0, 0.5
_WIDE = 110  # columns, from which there is room for more of them
_TABLE_LINES = 4  # besides rows: a blank line, two of heading, one that says what is left out
_LEAST_ROWS, _PROBLEMS = 2, 3


@dataclass(frozen=True, slots=True)
class View:
    """The service's last answers, at a time in seconds since the epoch, and why there is nothing
    newer.
    """

    at: float
    status: StatusResource | None = None
    """The status; None: the service has not answered yet."""
    switches: Sequence[SwitchResource] = ()
    jobs: Sequence[JobSummary] = ()
    counters: Mapping[str, SwitchQueues] | None = None
    """The counters of each switch; None: ports are not asked for."""
    ports: Sequence[PortUse] = ()
    unread: Sequence[str] = ()
    """The reasons why switches could not be read."""
    problem: str | None = None


@partial(calls.on_service, timeout_s=_TIMEOUT_S)
def watch(
    client: Client,
    ports: Annotated[
        bool, typer.Option("--ports", help="Also show how busy ports and their queues are.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Show one frame and exit.")] = False,
    interval: Annotated[
        float, typer.Option(help="Seconds between frames.", min=0.1, max=3600)
    ] = 1.0,
    as_json: tables.AsJson = False,
) -> None:
    """Watch switches and jobs live: states, iteration times, slowdown, tardiness. Ctrl-C ends it.

    If the service does not answer, it keeps trying. Queues are numbered from 0, the lowest, to 7.

    Example: echelon watch --ports --interval 2
    """
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    view = View(time.time(), counters={} if ports else None)
    if not once and (as_json or not console.is_terminal):
        fail(
            f"watch: {'one document is one frame' if as_json else 'the output is not a terminal'}"
            " (use --once)"
        )
    if not once:
        with (
            suppress(KeyboardInterrupt),
            Live(console=console, screen=True, auto_refresh=False) as live,
        ):
            while True:
                view = next_view(client, view)
                live.update(frame(view, console.width, console.height), refresh=True)
                time.sleep(interval)
        return
    view = look(client, view)
    if ports:
        time.sleep(interval)
        view = look(client, view)
    if as_json:
        if ports:
            counted = {"ports": view.ports, "problems": view.unread}
        else:
            counted = {}
        tables.show_json(
            {"status": view.status, "switches": view.switches, "jobs": view.jobs, **counted}
        )
    else:
        console.print(frame(view, console.width, 10**6))


@contextmanager
def shown_below(progress: ShownProgress, url: str) -> Iterator[None]:
    """Show the service at `url` below `progress`, on a terminal."""
    from echelon.controller.client import Client, ClientError

    def show() -> None:
        view = View(time.time())
        with (
            Client(url, timeout_s=_TIMEOUT_S) as client,
            suppress(ClientError),
        ):  # the run says what is wrong
            while progress.on_terminal and not over.wait(_BESIDE_RUN_S):
                view = next_view(client, view)
                progress.below = frame(view, *progress.room)

    over = threading.Event()
    thread = threading.Thread(target=show, name="live view", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        progress.below = None


def next_view(client: Client, last: View) -> View:
    """Return the state now, or the last one with what is wrong.

    Raise `ClientError` if waiting cannot help.
    """
    from echelon.controller.client import ClientError

    try:
        return look(client, last)
    except ClientError as error:
        if error.status is not None and error.status < 500:
            raise
        return replace(last, problem=error.reason)


def look(client: Client, last: View) -> View:
    """Return the service's state now. Raise `ClientError`."""
    from echelon.controller.service.api.switches import uses

    switches = client.switches()
    if last.counters is None:
        counters = None
    else:
        counters = {switch.name: client.queues(switch.name) for switch in switches}
    ports = sorted(
        uses(last.counters or {}, counters or {}), key=lambda of: (-of.use, of.switch, of.port)
    )
    unread = [of.problem for of in (counters or {}).values() if of.problem is not None]
    return View(time.time(), client.status(), switches, client.jobs(), counters, ports, unread)


def slowdown(job: JobSummary) -> float | None:
    """Return the latest iteration's time over that of the job alone; None: one of them is not
    known.
    """
    if job.last_iteration_s and job.alone_iteration_s:
        return job.last_iteration_s / job.alone_iteration_s
    return None


def _share(queue: int, of: PortUse) -> str:
    return figures.percent(of.queues_bps[queue] / of.rate_bps)


def first_jobs(jobs: Sequence[JobSummary]) -> Sequence[JobSummary]:
    return sorted(jobs, key=lambda of: (of.state == "installed", -(slowdown(of) or 0.0), of.name))


_PORTS = (
    tables.Column("switch"),
    tables.Column("port", right=True),
    tables.Column("to"),
    tables.Column("rate", lambda of: figures.rate(of.rate_bps), right=True),
    tables.Column("use", lambda of: figures.percent(of.use), right=True),
    *(tables.Column(f"q{queue}", partial(_share, queue), right=True) for queue in range(8)),
    tables.Column(
        "drops/s", lambda of: f"{of.drops_per_s:.3g}" if of.drops_per_s else None, right=True
    ),
)
_JOBS = (
    tables.Column("state"),
    tables.Column("iteration", lambda of: figures.measured(of.last_iteration_s), right=True),
    tables.Column("alone", lambda of: figures.measured(of.alone_iteration_s), right=True),
    tables.Column("slowdown", lambda of: figures.ratio(slowdown(of)), right=True),
    tables.Column("tardiness", lambda of: figures.measured(of.last_tardiness_s), right=True),
)


def frame(view: View, width: int, height: int) -> Group:
    """Return a picture of at most `height` lines, or as many as the minimum needs; what is not
    ready comes first.
    """
    from rich.console import Group

    most = 32 if width >= _WIDE else 16
    switches = [
        column
        for column in SWITCHES[1:]
        if width >= _WIDE or column.title not in ("target", "address")
    ]
    name = tables.Column("switch", lambda of: figures.clipped(of.name, most))
    parts: list[tuple[str, Sequence[tables.Column], Sequence[Any]]] = [
        ("switches", [name, *switches], sorted(view.switches, key=lambda of: of.state == "ready")),
        *([] if view.counters is None else [("ports", _PORTS, view.ports)]),
        ("jobs", [replace(name, title="job"), *_JOBS], first_jobs(view.jobs)),
    ]
    lines: list[RenderableType] = list(_head(view))
    room = height - len(lines)
    for left, (what, columns, things) in zip(
        range(len(parts), 0, -1), parts if view.status else (), strict=False
    ):
        shown = things[: max(room // left - _TABLE_LINES, _LEAST_ROWS)]
        room -= len(shown) + _TABLE_LINES
        lines += [
            "",
            tables.table(columns, tables.cells(columns, shown)) if shown else f"no {what}",
        ]
        if len(shown) < len(things):
            lines.append(tables.line(f"and {len(things) - len(shown)} more {what}", "dim"))
    return Group(*lines)


def _head(view: View) -> Iterator[Text]:
    """Yield the lines above the tables: facts and problems."""
    problems = list(view.unread)
    if view.status is not None:
        yield from (tables.line(f"{name:8}  {text}") for name, text in facts(view.status))
        jobs = [f"job {of.name}: {of.problem}" for of in view.jobs if of.problem]
        problems = [*view.status.problems, *problems, *jobs]
    if view.problem is not None:
        if view.status is None:
            since = ""
        else:
            since = f" for {figures.age(time.time() - view.at)}"
        problems.insert(0, f"no answer{since}: {view.problem}")
    yield from (tables.line(text, "red") for text in problems[:_PROBLEMS])
    if len(problems) > _PROBLEMS:
        yield tables.line(f"and {len(problems) - _PROBLEMS} more problems (echelon status)", "red")
