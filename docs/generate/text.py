"""Pieces of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, or nothing if it has no rows."""
    lines = [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    return (
        "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines, ""])
        if lines
        else ""
    )


def tables(text: str) -> Iterator[str]:
    """Yield the tables of a page."""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            lines.append(line)
        elif lines:
            yield "\n".join(lines)
            lines = []


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def summary(docstring: str | None) -> str:
    """Return the first paragraph of a docstring in one line."""
    return " ".join((docstring or "").strip().partition("\n\n")[0].split())


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
