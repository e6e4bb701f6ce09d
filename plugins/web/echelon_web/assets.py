"""The files of the page, read once and compressed."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

Source = Literal["service", "results"]
"""The source of the page: a running service, or the results of a finished run."""

PREFIX = "/web/"
"""The beginning of the path of every file but the page itself."""

ICON = "/favicon.ico"
"""The path at which browsers look for the icon of documents that name none."""

_DIRECTORY = Path(__file__).parent / "assets"
_PAGE = _DIRECTORY / "index.html"
_SOURCE = 'data-source="service"'
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is sent."""

    content: bytes
    compressed: bytes
    """The same with gzip."""
    media_type: str
    etag: str


@cache
def names() -> Mapping[str, Path]:
    """Return the files by their path below `PREFIX`."""
    by_name = {}
    for path in sorted(_DIRECTORY.rglob("*")):
        if path.is_file() and path != _PAGE:
            name = path.relative_to(_DIRECTORY)
            by_name[name.as_posix()] = path
    return by_name


@cache
def asset(name: str) -> Asset:
    """Return a file. Raises `KeyError` for a name that is not among `names`."""
    path = names()[name]
    return _asset(path.read_bytes(), path.suffix)


@cache
def page(source: Source) -> Asset:
    """Return the page itself."""
    text = _PAGE.read_text(encoding="utf-8")
    with_source = text.replace(_SOURCE, f'data-source="{source}"', 1)
    return _asset(with_source.encode(), _PAGE.suffix)


@cache
def paths() -> frozenset[str]:
    """Return the paths of the page and its files. They say nothing of any service or run."""
    files = [PREFIX + name for name in names()]
    return frozenset({"/", ICON, *files})


def _asset(content: bytes, suffix: str) -> Asset:
    digest = hashlib.sha256(content).hexdigest()[:32]
    # Without a time, the same content is always the same bytes.
    compressed = gzip.compress(content, mtime=0)
    return Asset(content, compressed, _TYPES[suffix], f'"{digest}"')
