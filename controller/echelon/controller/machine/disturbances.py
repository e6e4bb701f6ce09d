"""Switches that others write to, and when that is a problem.

What others change is repaired, and a switch that they take is taken back. But whoever does so again
and again is not stopped by that: somebody has to look for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from echelon.controller.dates import utc_text
from echelon.controller.machine.effects import Effects, SetAlarm
from echelon.controller.machine.events import Alarm
from echelon.controller.machine.facts import SwitchDisturbed, SwitchRepaired
from echelon.controller.machine.instant import Instant
from echelon.switches.southbound.events import DriftRepaired

MOST_REPAIRS = 2
"""The most repairs without a quiet time between them that are no problem.

One may be an operator's mistake, and two the mistake and its correction. A takeover is a problem at
once: it needs an election id above the controller's, which nobody has by accident.
"""
QUIET_AUDITS = 20
"""The audits after which a switch counts as left alone: ten minutes at the default period."""


@dataclass(slots=True)
class _Disturbance:
    """The interventions of others in a switch since it was left alone."""

    since: str
    latest_s: float = 0.0
    detail: str = ""
    """The latest intervention."""
    counts: Counter[str] = field(default_factory=Counter)
    """The numbers of `repairs` and `takeovers`."""

    @property
    def problem(self) -> str | None:
        """The problem to report; None: it may have been a mistake."""
        repairs = self.counts["repairs"]
        takeovers = self.counts["takeovers"]
        if not takeovers and repairs <= MOST_REPAIRS:
            return None
        return (
            f"somebody else writes to it (repairs: {repairs}, takeovers: {takeovers},"
            f" since {self.since}, last: {self.detail})"
        )


class Disturbances:
    """The interventions of others in all switches."""

    def __init__(self, audit_s: float) -> None:
        self._quiet_s = QUIET_AUDITS * audit_s
        self._switches: dict[str, _Disturbance] = {}

    @property
    def problems(self) -> Sequence[str]:
        """The switches that others write to again and again, one line each."""
        lines = []
        for switch, seen in self._switches.items():
            if seen.problem:
                lines.append(f"switch {switch}: {seen.problem}")
        return lines

    def repaired(self, event: DriftRepaired, now: Instant) -> Effects:
        """Note that an audit has repaired a switch."""
        switch = event.switch
        numbers = []
        for kind, number in event.differences.items():
            numbers.append(f"{kind}: {number}")
        detail = ", ".join(numbers)
        if event.writer is not None:
            detail += f", by {event.writer}"

        out = self._note(switch, "repairs", detail, now)
        seen = self._switches[switch]
        times = seen.counts["repairs"]
        differences = sum(event.differences.values())
        out.append(SwitchRepaired(switch, differences, detail, times))
        # Told once; `problems` counts on.
        if times == MOST_REPAIRS + 1:
            out.append(SwitchDisturbed(switch, seen.problem))
        return out

    def taken(self, switch: str, election_id: int, now: Instant) -> Effects:
        """Note that another controller has taken a switch."""
        detail = f"taken by election id {election_id}"
        return self._note(switch, "takeovers", detail, now)

    def _note(
        self,
        switch: str,
        kind: str,
        detail: str,
        now: Instant,
    ) -> Effects:
        is_first = switch not in self._switches
        if is_first:
            self._switches[switch] = _Disturbance(utc_text(now.epoch_s))
        seen = self._switches[switch]
        seen.latest_s = now.s
        seen.detail = detail
        seen.counts[kind] += 1
        # One timer for each switch, however often: when it rings, `ring` sets what is left.
        if is_first:
            return self.ring(switch, now)
        return []

    def ring(self, switch: str, now: Instant) -> Effects:
        """Forget what was done to a switch, if it was left alone for long enough."""
        seen = self._switches[switch]
        left_s = seen.latest_s + self._quiet_s - now.s
        if left_s > 0:
            alarm = Alarm("quiet", switch=switch)
            return [SetAlarm(alarm, left_s)]
        del self._switches[switch]
        if seen.problem:
            return [SwitchDisturbed(switch, None)]
        return []
