"""The store of measured points: one file for each, so that an interrupted sweep continues where it was.

    DIRECTORY/points/NAME-DIGEST.json    {"identity": {...}, "result": {...}, "wall_s": SECONDS}

The identity holds everything that determines the result, including the version of the program; the digest is of the
identity. A file that cannot be read, or has another identity, counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

_DIGEST_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Stored:
    """A point that has been measured."""

    identity: Mapping[str, Any]
    result: Mapping[str, Any]
    wall_s: float
    """Duration of the measurement, in real seconds."""

    def text(self) -> str:
        """Return the point as one line of JSON."""
        document = {"identity": self.identity, "result": self.result, "wall_s": self.wall_s}
        return json.dumps(document, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def parsed(cls, text: str) -> Stored | None:
        """Return the point that `text` holds, or None if it holds none."""
        try:
            document = json.loads(text)
            identity, result, wall_s = document["identity"], document["result"], document["wall_s"]
        except (ValueError, TypeError, KeyError):
            return None
        if not isinstance(identity, dict) or not isinstance(result, dict) or not isinstance(wall_s, int | float):
            return None
        return cls(identity, result, float(wall_s))


class ResultStore(Protocol):
    """A place for measured points."""

    def get(self, name: str, identity: Mapping[str, Any]) -> Stored | None:
        """Return the point, if it has been measured."""

    def put(self, name: str, stored: Stored) -> None:
        """Keep the point, so that nothing but the loss of its disk loses it. Raise `OSError`."""


class PointStore:
    """The points below a directory, which is made when the first one is written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "points"

    def path(self, name: str, identity: Mapping[str, Any]) -> Path:
        """Return the file of a point; `name` is for people."""
        digest = hashlib.sha256(canonical(identity).encode()).hexdigest()[:_DIGEST_DIGITS]
        return self._directory / f"{name}-{digest}.json"

    def get(self, name: str, identity: Mapping[str, Any]) -> Stored | None:
        """Return the point, if it has been measured."""
        stored = _read(self.path(name, identity))
        return stored if stored is not None and canonical(stored.identity) == canonical(identity) else None

    def put(self, name: str, stored: Stored) -> None:
        """Write a point, whole or not at all. Raise `OSError`."""
        path = self.path(name, stored.identity)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(stored.text(), encoding="utf-8")
        partial.replace(path)

    def remove(self, name: str, identity: Mapping[str, Any]) -> None:
        """Remove a point, and the directory with the last one. An absent point is not an error."""
        path = self.path(name, identity)
        path.unlink(missing_ok=True)
        with suppress(OSError):  # it holds other points, or is not there
            path.parent.rmdir()

    def __iter__(self) -> Iterator[Stored]:
        """Yield all points that can be read, by name of the file."""
        for path in sorted(self._directory.glob("*.json")):
            stored = _read(path)
            if stored is not None:
                yield stored


def _read(path: Path) -> Stored | None:
    try:
        return Stored.parsed(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def canonical(identity: Mapping[str, Any]) -> str:
    """Return the text by which identities are compared."""
    return json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
