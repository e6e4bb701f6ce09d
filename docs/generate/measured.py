r"""The tables of measured figures, which one page collects from the pages that explain them.

A line ``<!-- table: PAGE.md "| first cells of its head" -->`` stands for the table of that page
that begins so; ``\n`` is the end of a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

MARK = re.compile(r'^<!-- table: (\S+) "(.+)" -->$', re.MULTILINE)


class NoTableError(ValueError):
    """The error for a mark that stands for no table, or for several."""


def expanded(text: str, root: Path) -> str:
    """Return the page with the tables in the places of their marks; `root` is the directory of the
    repository.
    """
    return MARK.sub(lambda match: marked(root, match[1], head_of(match)), text)


def head_of(match: re.Match[str]) -> str:
    return match[2].replace("\\n", "\n")


def marked(root: Path, page: str, head: str) -> str:
    """Return the table of a page whose head begins so. Raises `NoTableError`."""
    found = [
        table
        for table in tables((root / page).read_text(encoding="utf-8"))
        if table.startswith(head)
    ]
    if len(found) != 1:
        raise NoTableError(f"{page} has {len(found)} tables that begin with {head!r}, not one")
    return found[0]


def tables(text: str) -> Iterator[str]:
    """Yield the tables of a page."""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            lines.append(line)
        elif lines:
            yield "\n".join(lines)
            lines = []
