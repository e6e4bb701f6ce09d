"""A store of many small points: one line of JSON for each, appended to one file.

    {"identity": {...}, "result": {...}, "wall_s": SECONDS}

A line that was cut off when the machine stopped counts as absent, and so does any other that cannot
be read. Of several lines with one identity the last counts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from echelon_lab.points.store import Stored, canonical


class LineStore:
    """The points in a file, which is made when the first one is written."""

    def __init__(self, file: Path) -> None:
        """Read the file. Raise `OSError` if it is there but cannot be read."""
        self._file = file
        self._points: dict[str, Stored] = {}
        try:
            text = file.read_text(
                encoding="utf-8",
                errors="replace",
            )
        except FileNotFoundError:
            text = ""
        self._torn = not text.endswith("\n") and bool(text)
        for line in text.splitlines():
            stored = Stored.parsed(line)
            if stored is not None:
                self._points[canonical(stored.identity)] = stored

    def __len__(self) -> int:
        return len(self._points)

    def get(self, name: str, identity: Mapping[str, Any]) -> Stored | None:
        """Return the point, if it has been measured."""
        return self._points.get(canonical(identity))

    def put(self, name: str, stored: Stored) -> None:
        """Append the point and wait until it is on the disk. Raise `OSError`."""
        self._file.parent.mkdir(
            parents=True,
            exist_ok=True,
        )
        with self._file.open("a", encoding="utf-8") as file:
            # The rest of a line that was cut off must not spoil this one.
            file.write("\n" + stored.text() if self._torn else stored.text())
            file.flush()
            os.fsync(file.fileno())
        self._torn = False
        self._points[canonical(stored.identity)] = stored
