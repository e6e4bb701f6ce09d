"""The time of an event. The shell reads its clocks; the machine has none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Instant:
    """The time of an event."""

    s: float
    """Seconds of a clock that only grows."""
    epoch_s: float
    """Seconds since the epoch."""
