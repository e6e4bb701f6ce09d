"""Links of a page to files of the repository, which the site shows on pages of their own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)(#[^)\s]*)?(?=\))")
"""The target of a link in Markdown, and its anchor."""
FENCE = re.compile(r"^ *```")
ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "controller/README.md": "controller.md",
    "deploy/README.md": "deployment.md",
    "p4src/README.md": "p4src.md",
    "ptf/README.md": "ptf.md",
}
"""The pages beside `docs/`, and their places on the site."""
DOCS = "docs"
NOTEBOOK = "research/notebook"
"""The folder of the pages with what was measured once."""
SOURCES = "source"
"""The folder of the site that shows files of the repository."""
MAX_BYTES = 200_000
"""A longer file is not shown."""
_SKIPPED = {"__pycache__", ".git", ".venv"}


def targets(text: str, place: PurePosixPath) -> Iterator[str]:
    """Yield the paths in the repository to which a page at `place` links."""
    for line in _outside_code(text):
        for match in LINK.finditer(line):
            yield _resolved(place, match[1])


def rewritten(text: str, place: PurePosixPath, page: PurePosixPath) -> str:
    """Return the text of the file at `place` in the repository, for the site's page at `page`."""

    def moved(match: re.Match[str]) -> str:
        link = on_site(_resolved(place, match[1]))
        return os.path.relpath(link, page.parent) + (match[2] or "")

    lines, in_code = [], False
    for line in text.splitlines():
        in_code ^= bool(FENCE.match(line))
        lines.append(line if in_code else LINK.sub(moved, line))
    return "\n".join(lines) + "\n"


def on_site(path: str) -> str:
    """Return the place on the site of a file or directory of the repository."""
    if path in ROOT_PAGES:
        return ROOT_PAGES[path]
    inside = PurePosixPath(path)
    if inside.is_relative_to(DOCS):
        return str(inside.relative_to(DOCS))
    if inside.is_relative_to(NOTEBOOK):
        return str(inside.relative_to("research"))
    return f"{SOURCES}/{path}.md"


def is_source(path: str) -> bool:
    return on_site(path).startswith(f"{SOURCES}/")


def source_pages(root: Path, wanted: str) -> Iterator[tuple[str, str]]:
    """Yield place and text of the pages for a file, or for a directory with all that is in it."""
    path = root / wanted
    if path.is_dir():
        inside = [
            one
            for one in sorted(path.iterdir())
            if one.name not in _SKIPPED
            and (one.is_dir() or _shown(one))
            and not one.name.startswith(".")
        ]
        for one in inside:
            yield from source_pages(root, f"{wanted}/{one.name}")
        names = "\n".join(
            f"* [`{one.name}{'/' if one.is_dir() else ''}`]({path.name}/{one.name}.md)"
            for one in inside
        )
        yield on_site(wanted), f"{_HEAD}# {wanted}\n\n{names}\n"
    elif path.is_file() and _shown(path):
        # More backquotes than any file has.
        fence = "`" * 8
        language = path.suffix.lstrip(".").replace("p4", "c").replace("txtpb", "text")
        yield (
            on_site(wanted),
            f"{_HEAD}# {wanted}\n\n{fence}{language}\n{path.read_text()}\n{fence}\n",
        )


_HEAD = "---\nsearch:\n  exclude: true\n---\n\n"


def _shown(path: Path) -> bool:
    if path.stat().st_size > MAX_BYTES:
        return False
    try:
        path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _resolved(place: PurePosixPath, link: str) -> str:
    return os.path.normpath(place.parent / link)


def _outside_code(text: str) -> Iterator[str]:
    in_code = False
    for line in text.splitlines():
        in_code ^= bool(FENCE.match(line))
        if not in_code:
            yield line
