"""The rate at which the messages of one stream are read."""

from __future__ import annotations

__all__ = ["Pace"]

_TAKEN_S = 1 / 10_000
"""The time that a packet-out or an acknowledgement stands for.

Python takes some 30 us for one, so a stream has a third of the interpreter at most, and the others'
calls the rest.
"""

_OTHER_S = 1 / 100
"""The time that any other message stands for: an arbitration, or what is refused with an answer.

A controller sends a few of them in a session.
"""

_BURST_S = 1.0
"""The time by which a stream may be early: 10,000 packet-outs, or 100 other messages, at once."""


class Pace:
    """The rate of one stream: a bucket that holds time."""

    def __init__(self) -> None:
        self._due_s = float("-inf")

    def pause_s(self, is_taken: bool, now_s: float) -> float:
        """Return how long to wait after a message, in seconds, before the next one is read."""
        cost_s = _TAKEN_S if is_taken else _OTHER_S
        self._due_s = max(self._due_s, now_s - _BURST_S) + cost_s
        return max(0.0, self._due_s - now_s)
