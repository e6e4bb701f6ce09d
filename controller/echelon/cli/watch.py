"""`echelon watch`: the service at a glance, again and again.

It is also shown below the progress of a run on real hosts.
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
from echelon.cli.tables import Column, number_column
from echelon.cli.usage import fail

if TYPE_CHECKING:
    from rich.console import Console, Group, RenderableType
    from rich.text import Text

    from echelon.cli.progress import ShownProgress
    from echelon.controller.client import Client
    from echelon.controller.resources.jobs import JobSummary
    from echelon.controller.resources.status import StatusResource
    from echelon.controller.resources.switches import PortUse, SwitchQueues, SwitchResource

_TIMEOUT_S = 5.0
_RUN_PERIOD_S = 0.5
"""Time between two frames below a run."""
_WIDE = 110
"""Columns of a terminal from which there is room for more of a table's."""
_WIDE_NAME = 32
_NARROW_NAME = 16
_TABLE_LINES = 4
"""Lines of a table besides rows: a blank line, two of heading, one that says what is left out."""
_LEAST_ROWS = 2
_PROBLEMS = 3
"""The most problems that are shown."""
_ALL_LINES = 10**6

WithPorts = Annotated[
    bool, typer.Option("--ports", help="Also show how busy ports and their queues are.")
]
Once = Annotated[bool, typer.Option("--once", help="Show one frame and exit.")]
Interval = Annotated[
    float,
    typer.Option(
        help="Seconds between frames.",
        min=0.1,
        max=3600,
    ),
]


@dataclass(frozen=True, slots=True)
class View:
    """The last answers of the service, and why there are no newer ones."""

    time_s: float
    """The time of the answers, in seconds since the epoch."""
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
    ports: WithPorts = False,
    once: Once = False,
    interval: Interval = 1.0,
    as_json: tables.AsJson = False,
) -> None:
    """Watch switches and jobs live: states, iteration times, slowdown, tardiness. Ctrl-C ends it.

    If the service does not answer, it keeps trying. Queues are numbered from 0, the lowest, to 7.

    Example: echelon watch --ports --interval 2
    """
    from rich.console import Console

    console = Console(highlight=False)
    view = View(time.time(), counters={} if ports else None)
    if once:
        _show_once(client, view, interval, None if as_json else console)
        return
    if as_json:
        fail("watch: one document is one frame (use --once)")
    if not console.is_terminal:
        fail("watch: the output is not a terminal (use --once)")
    _show_always(client, view, interval, console)


def _show_always(
    client: Client,
    view: View,
    interval_s: float,
    console: Console,
) -> None:
    from rich.live import Live

    live = Live(
        console=console,
        screen=True,
        auto_refresh=False,
    )
    with suppress(KeyboardInterrupt), live:
        while True:
            view = next_view(client, view)
            live.update(frame(view, console.width, console.height), refresh=True)
            time.sleep(interval_s)


def _show_once(
    client: Client,
    view: View,
    interval_s: float,
    console: Console | None,
) -> None:
    """Show one frame; without a console as JSON."""
    has_ports = view.counters is not None
    view = look(client, view)
    if has_ports:
        # What a port sends is known from two readings of its counters.
        time.sleep(interval_s)
        view = look(client, view)
    if console is not None:
        console.print(frame(view, console.width, _ALL_LINES))
        return
    document: dict[str, object] = {"status": view.status}
    document["switches"] = view.switches
    document["jobs"] = view.jobs
    if has_ports:
        document["ports"] = view.ports
        document["problems"] = view.unread
    tables.show_json(document)


@contextmanager
def shown_below(progress: ShownProgress, url: str) -> Iterator[None]:
    """Show the service at `url` below `progress`, on a terminal."""
    from echelon.controller.client import Client, ClientError

    def show() -> None:
        view = View(time.time())
        # The run says what is wrong.
        with Client(url, timeout_s=_TIMEOUT_S) as client, suppress(ClientError):
            while progress.on_terminal and not over.wait(_RUN_PERIOD_S):
                view = next_view(client, view)
                progress.below = frame(view, *progress.room)

    over = threading.Event()
    thread = threading.Thread(
        target=show,
        name="live view",
        daemon=True,
    )
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
    from echelon.controller.resources.switches import uses

    switches = client.switches()
    seen = View(time.time(), client.status(), switches, client.jobs())
    if last.counters is None:
        return seen
    counters = {switch.name: client.queues(switch.name) for switch in switches}
    ports = sorted(uses(last.counters, counters), key=_busiest_first)
    unread = [reading.problem for reading in counters.values() if reading.problem is not None]
    return replace(
        seen,
        counters=counters,
        ports=ports,
        unread=unread,
    )


def _busiest_first(port: PortUse) -> tuple[float, str, int]:
    return (-port.use, port.switch, port.port)


def slowdown(job: JobSummary) -> float | None:
    """Return the latest iteration's time over that of the job alone; None: one is not known."""
    if job.last_iteration_s and job.alone_iteration_s:
        return job.last_iteration_s / job.alone_iteration_s
    return None


def _share(queue: int, port: PortUse) -> str:
    return figures.percent(port.queues_bps[queue] / port.rate_bps)


def _drops(port: PortUse) -> str | None:
    if port.drops_per_s:
        return f"{port.drops_per_s:.3g}"
    return None


def first_jobs(jobs: Sequence[JobSummary]) -> Sequence[JobSummary]:
    """Return jobs in the order in which people look at them: not installed, slow, by name."""

    def rank(job: JobSummary) -> tuple[bool, float, str]:
        return (job.state == "installed", -(slowdown(job) or 0.0), job.name)

    return sorted(jobs, key=rank)


_PORTS = (
    Column("switch"),
    number_column("port"),
    Column("to"),
    number_column("rate", "rate_bps", figures.rate),
    number_column("use", "use", figures.percent),
    *(number_column(f"q{queue}", partial(_share, queue)) for queue in range(8)),
    number_column("drops/s", _drops),
)
_JOBS = (
    Column("state"),
    number_column("iteration", "last_iteration_s", figures.measured),
    number_column("alone", "alone_iteration_s", figures.measured),
    number_column("slowdown", slowdown, figures.ratio),
    number_column("tardiness", "last_tardiness_s", figures.measured),
)


def frame(
    view: View,
    width: int,
    height: int,
) -> Group:
    """Return a picture of at most `height` lines, or as many as the least rows need.

    What is not ready comes first.
    """
    from rich.console import Group

    lines: list[RenderableType] = list(_head(view))
    if view.status is None:
        return Group(*lines)
    parts = _parts(view, width)
    room = height - len(lines)
    for index, (things_name, columns, things) in enumerate(parts):
        # The tables that are left share the room that is left.
        rows = room // (len(parts) - index) - _TABLE_LINES
        visible = things[: max(rows, _LEAST_ROWS)]
        room -= len(visible) + _TABLE_LINES
        lines.append("")
        if visible:
            lines.append(tables.table(columns, tables.cells(columns, visible)))
        else:
            lines.append(f"no {things_name}")
        if len(visible) < len(things):
            more = len(things) - len(visible)
            lines.append(tables.line(f"and {more} more {things_name}", "dim"))
    return Group(*lines)


Part = tuple[str, Sequence[Column], Sequence[Any]]
"""A table: what its rows are, its columns, and the things in its rows."""


def _parts(view: View, width: int) -> list[Part]:
    """Return the tables for a terminal of that width."""
    is_wide = width >= _WIDE
    longest_name = _WIDE_NAME if is_wide else _NARROW_NAME
    name = Column("switch", "name", partial(figures.clipped, most=longest_name))
    columns: Sequence[Column] = SWITCHES[1:]
    if not is_wide:
        columns = [column for column in columns if column.title not in ("target", "address")]
    switches = sorted(view.switches, key=lambda switch: switch.state == "ready")
    parts: list[Part] = [("switches", [name, *columns], switches)]
    if view.counters is not None:
        parts.append(("ports", _PORTS, view.ports))
    job_columns = [replace(name, title="job"), *_JOBS]
    parts.append(("jobs", job_columns, first_jobs(view.jobs)))
    return parts


def _head(view: View) -> Iterator[Text]:
    """Yield the lines above the tables: facts and problems."""
    problems = list(view.unread)
    since = ""
    if view.status is not None:
        for name, text in facts(view.status).items():
            yield tables.line(f"{name:8}  {text}")
        jobs = [f"job {job.name}: {job.problem}" for job in view.jobs if job.problem]
        problems = [*view.status.problems, *problems, *jobs]
        since = f" for {figures.age(time.time() - view.time_s)}"
    if view.problem is not None:
        problems.insert(0, f"no answer{since}: {view.problem}")
    for problem in problems[:_PROBLEMS]:
        yield tables.line(problem, "red")
    if len(problems) > _PROBLEMS:
        yield tables.line(f"and {len(problems) - _PROBLEMS} more problems (echelon status)", "red")
