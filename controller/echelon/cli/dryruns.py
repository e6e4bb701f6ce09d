"""What `--dry-run` prints: the entries and queues that a change would write, and the slowdowns of
jobs.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli import figures, tables
from echelon.cli.tables import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from echelon.controller.service.api.dryruns import DryRunResource, SwitchChange
    from echelon.controller.service.api.switches import QueueResource

DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Show what would be written and how slow jobs would be; change nothing."
    ),
]

_TABLES = (
    Column("switch"),
    Column("table"),
    *(Column(title, right=True) for title in ("added", "changed", "removed")),
)
_QUEUES = (
    Column("switch"),
    *(Column(title, right=True) for title in ("port", "queue", "level", "weight", "rate")),
)
_JOBS = (
    Column("job", wraps=True),
    Column("slowdown now", lambda of: figures.ratio(of.before), right=True),
    Column("then", lambda of: figures.ratio(of.after), right=True),
)


def show(found: DryRunResource) -> None:
    """Print what a change would do."""
    tables.show(
        _TABLES,
        [row for switch in found.switches for row in _rows(switch)],
        "nothing would be written",
    )
    if queues := [row for switch in found.switches for row in _queues(switch)]:
        typer.echo()
        tables.show(_QUEUES, queues, "")
    if found.jobs:
        typer.echo()
        tables.show_all(
            _JOBS, found.jobs, "", {job.job: job.problem for job in found.jobs if job.problem}
        )
    if found.unpredicted is not None:
        typer.echo(f"no slowdowns: {found.unpredicted}", err=True)


def show_all(found: Mapping[str, DryRunResource], as_json: bool) -> None:
    """Print what each of several changes would do by itself, below its title. A single change has
    no title, and its JSON is not a list."""
    if as_json:
        tables.show_json(
            list(found.values()) if len(found) > 1 else next(iter(found.values()), None)
        )
        return
    for number, (title, change) in enumerate(found.items()):
        if len(found) > 1:
            typer.echo(f"{'' if number == 0 else chr(10)}{title}")
        show(change)


def _rows(switch: SwitchChange) -> Iterator[tuple[str, ...]]:
    kinds = (switch.inserts, switch.modifies, switch.deletes)
    counts = [Counter(entry.table for entry in entries) for entries in kinds]
    for table in sorted({table for count in counts for table in count}):
        yield switch.switch, table, *(str(count[table]) for count in counts)
    if switch.queues:
        yield switch.switch, "queues", "0", str(len(switch.queues)), "0"


def _queues(switch: SwitchChange) -> Iterator[tuple[str, ...]]:
    def changed(of: Callable[[QueueResource], object]) -> str:
        before = of(change.before)
        after = of(change.after)
        if before == after:
            return f"{after}"
        return f"{before} > {after}"

    for change in switch.queues:
        levels = (
            changed(of) for of in (lambda queue: queue.level, lambda queue: queue.weight, _rates)
        )
        yield switch.switch, str(change.after.port), str(change.after.queue), *levels


def _rates(queue: QueueResource) -> str:
    if queue.max_rate_bps is None:
        most = ""
    else:
        most = f" up to {figures.rate(queue.max_rate_bps)}"
    return f"{figures.rate(queue.min_rate_bps)}{most}"
