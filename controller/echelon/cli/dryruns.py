"""What `--dry-run` prints: the entries and queues that a change would write, and the slowdowns of jobs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli import figures, tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from echelon.service.api.dryruns import DryRunResource, SwitchChange
    from echelon.service.api.switches import QueueResource

DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Show what would be written and how slow jobs would be; change nothing."),
]


def show(found: DryRunResource, as_json: bool) -> None:
    """Print what a change would do."""
    if as_json:
        tables.show_json(found)
        return
    columns = [
        tables.Column("switch"),
        tables.Column("table"),
        tables.Column("added", right=True),
        tables.Column("changed", right=True),
        tables.Column("removed", right=True),
    ]
    tables.show(columns, [row for switch in found.switches for row in _rows(switch)], "nothing would be written")
    queues = [row for switch in found.switches for row in _queues(switch)]
    if queues:
        typer.echo()
        columns = [
            tables.Column("switch"),
            tables.Column("port", right=True),
            tables.Column("queue", right=True),
            tables.Column("level", right=True),
            tables.Column("weight", right=True),
            tables.Column("rate", right=True),
        ]
        tables.show(columns, queues, "")
    if found.jobs:
        typer.echo()
        _show_jobs(found)
    if found.unpredicted is not None:
        typer.echo(f"no slowdowns: {found.unpredicted}", err=True)


def show_all(found: Mapping[str, DryRunResource], as_json: bool) -> None:
    """Print what each of several changes would do by itself, below its title. One alone has no title, and as JSON it
    is no list."""
    if as_json and len(found) > 1:
        tables.show_json(list(found.values()))
        return
    for number, (title, change) in enumerate(found.items()):
        if len(found) > 1:
            typer.echo(f"{'' if number == 0 else chr(10)}{title}")
        show(change, as_json)


def _rows(switch: SwitchChange) -> Iterator[tuple[str, ...]]:
    kinds = (switch.inserts, switch.modifies, switch.deletes)
    counts = [Counter(entry.table for entry in entries) for entries in kinds]
    for table in sorted({table for count in counts for table in count}):
        yield switch.switch, table, *(str(count[table]) for count in counts)
    if switch.queues:
        yield switch.switch, "queues", "0", str(len(switch.queues)), "0"


def _queues(switch: SwitchChange) -> Iterator[tuple[str, ...]]:
    for change in switch.queues:
        before, after = change.before, change.after
        yield (
            switch.switch,
            str(after.port),
            str(after.queue),
            _changed(str(before.level), str(after.level)),
            _changed(str(before.weight), str(after.weight)),
            _changed(_rates(before), _rates(after)),
        )


def _rates(queue: QueueResource) -> str:
    most = "" if queue.max_rate_bps is None else f" up to {figures.rate(queue.max_rate_bps)}"
    return f"{figures.rate(queue.min_rate_bps)}{most}"


def _changed(before: str, after: str) -> str:
    return after if before == after else f"{before} > {after}"


def _show_jobs(found: DryRunResource) -> None:
    columns = [
        tables.Column("job", wraps=True),
        tables.Column("slowdown now", right=True),
        tables.Column("then", right=True),
    ]
    rows: Sequence[tuple[str, ...]] = [(job.job, _slowdown(job.before), _slowdown(job.after)) for job in found.jobs]
    tables.show(columns, rows, "", {job.job: job.problem for job in found.jobs if job.problem})


def _slowdown(value: float | None) -> str:
    return figures.NONE if value is None else f"{value:.3f}"
