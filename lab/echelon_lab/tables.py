"""Tables as data: written as CSV, shown as Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

Cell = str | int | float | None
"""A cell; None: not measured, or not published."""
_NONE = "–"


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows of equal length."""

    name: str
    """Name of its file, without the suffix."""
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]

    def markdown(self) -> str:
        """Return the table as Markdown, with its title above."""
        return f"**{self.title}**\n\n{markdown_table(self.columns, self.texts())}"

    def texts(self) -> list[list[str]]:
        """Return the cells as people read them, row by row."""
        return [[_shown(cell) for cell in row] for row in self.rows]

    def csv(self) -> str:
        """Return the table as CSV: numbers with six significant digits; an empty cell is None."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        for row in self.rows:
            writer.writerow(_csv_cell(cell) for cell in row)
        return out.getvalue()

    def write(self, directory: Path) -> Path:
        """Write NAME.csv in `directory`. Raise `OSError`."""
        path = directory / f"{self.name}.csv"
        path.write_text(self.csv(), encoding="utf-8")
        return path


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as Markdown."""
    lines = []
    for cells in (columns, ["---"] * len(columns), *rows):
        escaped = [cell.replace("|", "\\|") for cell in cells]
        lines.append(f"| {' | '.join(escaped)} |")
    return "\n".join(lines)


def with_half_width(mean: float | None, half_width: float | None) -> str:
    """Return a mean with the half width of its 95 % interval, as people read it."""
    if mean is None:
        return _NONE
    if half_width is None:
        return f"{mean:.3f} ± {_NONE}"
    return f"{mean:.3f} ± {half_width:.3f}"


def _csv_cell(cell: Cell) -> str | int:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.6g}"
    return cell


def percent(ours: float | None, other: float | None) -> float | None:
    """Return by how much ours exceeds the other, in percent."""
    if ours is None or not other:
        return None
    return (ours / other - 1) * 100


def _shown(cell: Cell) -> str:
    if cell is None:
        return _NONE
    if isinstance(cell, float):
        if abs(cell) >= 1000:
            return f"{cell:.0f}"
        return f"{cell:.3g}"
    return str(cell)
