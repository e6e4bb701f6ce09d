"""The output of `--dry-run`: what a change would write, and the slowdowns of jobs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli import figures, tables
from echelon.cli.tables import Column, number_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from echelon.controller.resources.dryruns import DryRunResource, SwitchChange
    from echelon.controller.resources.switches import QueueResource

Row = tuple[str, ...]

DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Show what would be written and how slow jobs would be; change nothing."
    ),
]

_TABLES = (
    Column("switch"),
    Column("table"),
    *map(number_column, ("added", "changed", "removed")),
)
_QUEUES = (
    Column("switch"),
    *map(number_column, ("port", "queue", "level", "weight", "rate")),
)
_JOBS = (
    Column("job", wraps=True),
    number_column("slowdown now", "before", figures.ratio),
    number_column("then", "after", figures.ratio),
)


def show(change: DryRunResource) -> None:
    """Print what a change would do."""
    rows: list[Row] = []
    queues: list[Row] = []
    for switch in change.switches:
        rows += _rows(switch)
        queues += _queues(switch)
    tables.show(_TABLES, rows, "nothing would be written")
    if queues:
        typer.echo()
        tables.show(_QUEUES, queues, "")
    if change.jobs:
        typer.echo()
        problems = {job.job: job.problem for job in change.jobs if job.problem}
        tables.show_all(_JOBS, change.jobs, "", problems)
    if change.unpredicted is not None:
        typer.echo(f"no slowdowns: {change.unpredicted}", err=True)


def show_all(changes: Mapping[str, DryRunResource], as_json: bool) -> None:
    """Print what each of several changes would do by itself, below its title.

    A single change has no title, and its JSON is not a list.
    """
    several = len(changes) > 1
    if as_json:
        documents = list(changes.values())
        tables.show_json(documents if several else next(iter(documents), None))
        return
    blank = ""
    for title, change in changes.items():
        if several:
            typer.echo(f"{blank}{title}")
            blank = "\n"
        show(change)


def _rows(switch: SwitchChange) -> Iterator[Row]:
    kinds = (switch.inserts, switch.modifies, switch.deletes)
    counts = [Counter(entry.table for entry in entries) for entries in kinds]
    for table in sorted(set().union(*counts)):
        numbers = [str(count[table]) for count in counts]
        yield switch.switch, table, *numbers
    if switch.queues:
        yield switch.switch, "queues", "0", str(len(switch.queues)), "0"


def _queues(switch: SwitchChange) -> Iterator[Row]:
    for change in switch.queues:
        before = change.before
        after = change.after
        level = _difference(before.level, after.level)
        weight = _difference(before.weight, after.weight)
        rates = _difference(_rates(before), _rates(after))
        yield switch.switch, str(after.port), str(after.queue), level, weight, rates


def _difference(before: object, after: object) -> str:
    if before == after:
        return f"{after}"
    return f"{before} > {after}"


def _rates(queue: QueueResource) -> str:
    least = figures.rate(queue.min_rate_bps)
    if queue.max_rate_bps is None:
        return least
    return f"{least} up to {figures.rate(queue.max_rate_bps)}"
