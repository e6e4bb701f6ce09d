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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_DIGEST_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Stored:
    """A point that has been measured."""

    identity: Mapping[str, Any]
    result: Mapping[str, Any]
    wall_s: float
    """Duration of the measurement, in real seconds."""


class PointStore:
    """The points below a directory, which is made when the first one is written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "points"

    def path(self, name: str, identity: Mapping[str, Any]) -> Path:
        """Return the file of a point; `name` is for people."""
        digest = hashlib.sha256(_canonical(identity).encode()).hexdigest()[:_DIGEST_DIGITS]
        return self._directory / f"{name}-{digest}.json"

    def get(self, name: str, identity: Mapping[str, Any]) -> Stored | None:
        """Return the point, if it has been measured."""
        stored = _read(self.path(name, identity))
        return stored if stored is not None and _canonical(stored.identity) == _canonical(identity) else None

    def put(self, name: str, stored: Stored) -> None:
        """Write a point, whole or not at all. Raise `OSError`."""
        path = self.path(name, stored.identity)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        document = {"identity": stored.identity, "result": stored.result, "wall_s": stored.wall_s}
        partial.write_text(json.dumps(document, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")
        partial.replace(path)

    def __iter__(self) -> Iterator[Stored]:
        """Yield all points that can be read, by name of the file."""
        for path in sorted(self._directory.glob("*.json")):
            stored = _read(path)
            if stored is not None:
                yield stored


def _read(path: Path) -> Stored | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        identity, result, wall_s = document["identity"], document["result"], document["wall_s"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    if not isinstance(identity, dict) or not isinstance(result, dict) or not isinstance(wall_s, int | float):
        return None
    return Stored(identity, result, float(wall_s))


def _canonical(identity: Mapping[str, Any]) -> str:
    return json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
