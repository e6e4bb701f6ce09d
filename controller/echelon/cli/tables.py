"""Lists: on a terminal as tables, and in pipes as columns that no width cuts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from echelon.service.resources import Resource

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer of the API as JSON.")]

STYLES = {
    "installed": "green",
    "ready": "green",
    "up": "green",
    "planned": "yellow",
    "accepted": "yellow",
    "writing": "yellow",
    "connecting": "yellow",
    "backup": "yellow",
    "drained": "yellow",
    "unplanned": "red",
    "away": "red",
    "refused": "red",
}
"""Colours of the words for states, on a terminal."""


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    right: bool = False
    wraps: bool = False
    """Whether a cell may take several lines if the terminal is narrow."""


def show(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], nothing: str, problems: Mapping[str, str] | None = None
) -> None:
    """Print `rows` of text below `columns`; or, on a terminal, the line `nothing` if there are none.

    `problems` are by the text in the first column. A terminal shows them in lines of their own below the table, since
    they are long; a pipe shows them as a last column.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        if problems is not None:
            columns, rows = [*columns, Column("problem")], [(*row, problems.get(row[0], "")) for row in rows]
        typer.echo(plain(columns, rows), nl=False)
        return
    console.print(table(columns, rows) if rows else nothing)
    for name, problem in (problems or {}).items():
        console.print(Text(f"{name}: {problem}", style="red"))


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    out = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        out.add_column(
            column.title,
            justify="right" if column.right else "left",
            overflow="fold" if column.wraps else "ellipsis",
            no_wrap=not column.wraps,
        )
    for row in rows:
        # As text: what looks like markup in a name or a reason is not markup.
        out.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    return out


def plain(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> str:
    """Print a line of titles and one line per row, in columns."""
    lines = [[column.title.upper() for column in columns], *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    out = []
    for line in lines:
        cells = (
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        )
        out.append("  ".join(cells).rstrip())
    return "".join(f"{line}\n" for line in out)


def pairs(facts: Iterable[tuple[str, str]]) -> None:
    """Print facts about one thing, one on a line; those without a value are left out."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = [(name, value) for name, value in facts if value]
    console = Console(highlight=False)
    if not console.is_terminal:
        width = max((len(name) for name, _ in shown), default=0)
        typer.echo("".join(f"{name.ljust(width)}  {value}\n" for name, value in shown), nl=False)
        return
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for name, value in shown:
        grid.add_row(name, Text(value, style=STYLES.get(value, "")))
    console.print(grid)


def show_json(resources: Resource | Sequence[Resource]) -> None:
    """Print what the API answers as JSON."""
    if isinstance(resources, Sequence):
        data: object = [resource.model_dump(mode="json") for resource in resources]
    else:
        data = resources.model_dump(mode="json")
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
