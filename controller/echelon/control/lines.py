"""What the machine knows of a switch, in one record."""

from __future__ import annotations

from dataclasses import dataclass

from echelon.southbound.lifecycle import State

FREE_TAKEOVERS = 3
"""Number of takeovers that are answered at once: another controller may have taken the switch by mistake."""
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 300.0
QUIET_S = 1800.0
"""Time without a takeover after which the next one counts as the first."""


@dataclass(slots=True)
class SwitchLine:
    """What is known of one switch."""

    state: State = "connecting"
    holds: int = 0
    """The version of the last intents that it acknowledged as a whole, in this session or an earlier one; 0: none."""
    is_sure: bool = False
    """Whether it holds them now: not if there is no session, and not if it has refused part of an intent since."""
    refusal: str | None = None
    """The reason why it refuses part of its intent."""
    takeovers: int = 0
    """Number of times that another controller took it since the last quiet time."""
    _taken_s: float = 0.0

    def acknowledge(self, version: int) -> None:
        """Note that it holds the intent of `version`. The same again changes nothing."""
        self.holds, self.is_sure, self.refusal = version, True, None

    def refuse(self, problem: str) -> None:
        """Note that it refuses part of its intent."""
        self.is_sure, self.refusal = False, problem

    def lose(self) -> None:
        """Note that there is no session, so that its entries are not known."""
        self.is_sure, self.refusal = False, None

    def surely_holds(self, version: int) -> bool:
        """Return whether it holds the intent of that version, or of a later one, now."""
        return self.is_sure and self.holds >= version

    def take_over(self, now_s: float) -> float:
        """Note a takeover by another controller, and return how long to wait before taking it back, in seconds.

        The pause is 0 for the first takeovers and then doubles up to `LONGEST_PAUSE_S`: two controllers of different
        services that both take a switch back at once would do so for ever, many times a second.
        """
        if now_s - self._taken_s >= QUIET_S:
            self.takeovers = 0
        self._taken_s = now_s
        self.takeovers += 1
        paused = self.takeovers - FREE_TAKEOVERS
        return 0.0 if paused <= 0 else min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(paused - 1, 30))
