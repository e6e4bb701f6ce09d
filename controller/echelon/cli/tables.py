"""Lists: on a terminal as tables, and in pipes as columns that no width cuts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelon.cli.usage import fail

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print the result as JSON (docs/command-line.md has its fields)."),
]

OutFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="The file to write; default: standard output.",
        metavar="FILE",
    ),
]

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
    "down": "red",
    "refused": "red",
}
"""Colours of the words for states, on a terminal."""


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    value: Callable[[Any], object] | str = ""
    """The function or the attribute from the thing in a row to its cell; empty: as the title."""
    form: Callable[[Any], object] | None = None
    """The function that writes the value."""
    right: bool = False
    wraps: bool = False
    """Whether a cell may take several lines if the terminal is narrow."""

    def cell(self, thing: Any) -> str:
        """Return the text of the cell of `thing`, which is a dash if there is nothing to say."""
        if callable(self.value):
            value = self.value(thing)
        else:
            value = getattr(thing, self.value or self.title)
        if self.form is not None:
            value = self.form(value)
        if value is None:
            return "-"
        return str(value)


def number_column(
    title: str,
    value: Callable[[Any], object] | str = "",
    form: Callable[[Any], object] | None = None,
) -> Column:
    """Return a column whose cells end below each other."""
    return Column(title, value, form, right=True)


def show_all(
    columns: Sequence[Column],
    things: Iterable[Any],
    nothing: str = "",
    problems: Mapping[str, str] | None = None,
) -> None:
    """Print a row for each of `things`, as `show` does."""
    show(columns, cells(columns, things), nothing, problems)


def cells(columns: Sequence[Column], things: Iterable[Any]) -> list[list[str]]:
    return [[column.cell(thing) for column in columns] for thing in things]


def line(text: str, style: str = "") -> Text:
    """Return a text for a terminal that takes one line, however narrow that is."""
    from rich.text import Text

    return Text(
        text,
        style,
        no_wrap=True,
        overflow="ellipsis",
    )


def show(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    nothing: str,
    problems: Mapping[str, str] | None = None,
) -> None:
    """Print `rows` of text below `columns`.

    On a terminal, `nothing` is printed if there are none. `problems` are by the text in the first
    column. A terminal shows them in lines of their own below the table, since they are long; a pipe
    shows them as a last column.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        if problems is not None:
            columns = [*columns, Column("problem")]
            rows = [(*row, problems.get(row[0], "")) for row in rows]
        typer.echo(plain(columns, rows), nl=False)
        return
    console.print(table(columns, rows) if rows else nothing)
    for name, problem in (problems or {}).items():
        console.print(Text(f"{name}: {problem}", style="red"))


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    for column in columns:
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            overflow="fold" if column.wraps else "ellipsis",
            no_wrap=not column.wraps,
        )
    for row in rows:
        table.add_row(*map(_state_text, row))
    return table


def plain(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> str:
    """Return a line of titles and one line per row, in columns."""
    titles = [column.title.upper() for column in columns]
    lines = [titles, *rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    text = ""
    for line in lines:
        cells = []
        for cell, width, column in zip(line, widths, columns, strict=True):
            if column.right:
                cells.append(cell.rjust(width))
            else:
                cells.append(cell.ljust(width))
        text += "  ".join(cells).rstrip() + "\n"
    return text


def pairs(facts: Iterable[tuple[str, object]]) -> None:
    """Print facts about one thing, one on a line; those without a value are left out."""
    from rich.console import Console
    from rich.table import Table

    texts = {name: str(value) for name, value in facts if value not in (None, "")}
    console = Console(highlight=False)
    if not console.is_terminal:
        width = max(map(len, texts), default=0)
        for name, text in texts.items():
            typer.echo(f"{name.ljust(width)}  {text}")
        return
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for name, text in texts.items():
        grid.add_row(name, _state_text(text))
    console.print(grid)


def _state_text(text: str) -> Text:
    """Return a text in its colour, if it is the word for a state."""
    from rich.text import Text

    # As text: what looks like markup in a name or a reason is not markup.
    return Text(text, style=STYLES.get(text, ""))


def write_text(text: str, out: Path | None) -> None:
    """Write a file that the command has made, to standard output if `out` is None."""
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"--out: {out}: {error.strerror or error} (name a file that can be written)")


def show_json(result: object) -> None:
    """Print a result as one JSON document.

    It is an answer of the API, a dataclass, or mappings and lists of such.
    """
    typer.echo(
        json.dumps(
            result,
            indent=2,
            ensure_ascii=False,
            default=_plain,
        )
    )


def _plain(value: object) -> object:
    """Return what `json` can write instead of `value`."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")
