"""Patience with another controller that keeps taking a switch.

Two controllers of different services that both take a switch back at once would do so for ever, many times a second.
"""

from __future__ import annotations

FREE_TAKEOVERS = 3
"""Number of takeovers that are answered at once: another controller may have taken the switch by mistake."""
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 300.0
QUIET_S = 1800.0
"""Time without a takeover after which the next one counts as the first."""


class Contest:
    """The takeovers of one switch by other controllers."""

    def __init__(self) -> None:
        self.takeovers = 0
        """Number of takeovers since the last quiet time."""
        self._last_s = 0.0

    def lost(self, now_s: float) -> float:
        """Note a takeover, and return how long to wait before taking the switch back, in seconds.

        The pause is 0 for the first takeovers and then doubles up to `LONGEST_PAUSE_S`.
        """
        if now_s - self._last_s >= QUIET_S:
            self.takeovers = 0
        self._last_s = now_s
        self.takeovers += 1
        paused = self.takeovers - FREE_TAKEOVERS
        return 0.0 if paused <= 0 else min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(paused - 1, 30))
