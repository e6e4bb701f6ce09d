"""The pages of the project, and the fenced blocks in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from docs.generate.links import NOTEBOOK, ROOT_PAGES

ROOT = Path(__file__).parents[2]
BESIDE = [ROOT / name for name in ROOT_PAGES]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
EXERCISES = sorted((ROOT / "examples" / "exercises").rglob("*.md"))
RECORDS = sorted((ROOT / NOTEBOOK).glob("*.md"))
"""The records of what was measured once.

Their commands need root, hours or a quiet machine.
"""
PAGES = [*BESIDE, *DOCS, *EXERCISES, *RECORDS]


class Block(NamedTuple):
    language: str
    title: str | None
    """The path of the file whose contents the block shows."""
    text: str


_FENCED = re.compile(r'^( *)```(\w*)(?: title="(.*?)")?\n(.*?)^\1```$', re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page, in their order."""
    for indent, language, title, text in _FENCED.findall(page.read_text(encoding="utf-8")):
        yield Block(
            language,
            title or None,
            "".join(line.removeprefix(indent) for line in text.splitlines(True)),
        )
