"""A clock that a test sets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Clock:
    """A clock for what must put nothing off."""

    now_ns: int = 0

    def call_at(self, time_ns: int, call: object, *arguments: object) -> None:
        raise AssertionError("nothing is put off")
