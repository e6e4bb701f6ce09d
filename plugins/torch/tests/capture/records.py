"""Records of ranks for tests, written as the observer writes them, from a clock that only moves
when told.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Rank:
    """A rank that computes, calls and waits."""

    def __init__(
        self,
        rank: int,
        ranks: int,
        groups: dict[str, list[int]] | None = None,
        backend: str = "gloo",
    ) -> None:
        self.rank, self.ranks, self.now = rank, ranks, 100.0
        self.groups = {
            name: {"ranks": members, "backend": backend}
            for name, members in (groups or {"0": list(range(ranks))}).items()
        }
        self.iterations: list[dict[str, Any]] = []
        self._begin()

    def _begin(self) -> None:
        self.start, self.calls, self.waits = self.now, [], []  # type: ignore[var-annotated]

    def compute(self, seconds: float) -> None:
        self.now += seconds

    def call(
        self, kind: str, size: int, *, group: str = "0", backward: bool = False, **more: Any
    ) -> int:
        number = len(self.calls)
        times = {"start_s": self.now, "returned_s": self.now, "end_s": None}
        call = {"number": number, "kind": kind, "group": group, "bytes": size, "backward": backward}
        self.calls.append({**call, **times, **more})
        return number

    def wait(self, *calls: int, lasts_s: float = 0.5, backward: bool = False) -> None:
        end = self.now + lasts_s
        self.waits.append(
            {"start_s": self.now, "end_s": end, "calls": list(calls), "backward": backward}
        )
        for call in calls:
            self.calls[call]["end_s"] = end
        self.now = end

    def both(self, kind: str, size: int, **more: Any) -> None:
        """Call an operation and wait for it at once."""
        self.wait(self.call(kind, size, **more))

    def step(self, delayed_s: float = 0.0) -> None:
        part = {"calls": self.calls, "waits": self.waits, "delayed_s": delayed_s}
        self.iterations.append({"start_s": self.start, "end_s": self.now, **part})
        self._begin()

    def write(self, directory: Path) -> None:
        unmarked = None if self.iterations else {"calls": self.calls, "waits": self.waits}
        record = {
            "echelon_capture": 1,
            "rank": self.rank,
            "ranks": self.ranks,
            "host": "host",
            "torch": "2.13.0",
            "device": "cpu",
            "groups": self.groups,
            "iterations": self.iterations,
            "unmarked": unmarked,
        }
        (directory / f"rank-{self.rank}.json").write_text(json.dumps(record))


def write(directory: Path, *ranks: Rank) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for rank in ranks:
        rank.write(directory)
    return directory
