"""The lines that tell what an import read, derived and ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from echelon_importers.workload import ReadCounts


def print_tally(tally: ReadCounts) -> None:
    """Print the counts of a tally and its notes, each indented."""
    typer.echo(f"  read: {listed(tally.read)}")
    typer.echo(f"  derived: {listed(tally.derived)}")
    typer.echo(f"  ignored: {listed(tally.ignored)}")
    for note in tally.notes:
        typer.echo(f"  {note}")


def listed(counts: Mapping[str, int]) -> str:
    """Return the counts with their nouns, as in *4 hosts, 3 switches*, without those of 0."""
    parts = [f"{count} {noun}" for noun, count in counts.items() if count]
    return ", ".join(parts) or "nothing"
