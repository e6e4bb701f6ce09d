"""The TNA program's digests as the reports that the control plane reads.

The program tells a time in 32 bits of ticks, which wrap after 73 minutes, an iteration in 32 bits,
and the two parts of an event by themselves. Reports have microseconds, epochs modulo 256, and the
event as one number.
"""

from __future__ import annotations

from collections.abc import Mapping

from echelon.model.p4program import constants
from echelon.planning.rankings.in_switches import MICROSECONDS, TICKS

_WRAP = 1 << 32
_HALF_WRAP = _WRAP // 2
_EPOCHS = 256


class TnaFlowEvents:
    """The flow events of one switch in one session, in the order in which they come."""

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None
        """The ticks of the last event, continued over wraps, and when it came."""

    def report(self, fields: Mapping[str, int], now_s: float) -> Mapping[str, int]:
        """Return the report of a digest that came at `now_s` of a clock that only grows.

        The report of another digest is the digest itself.
        """
        if "time_ticks" not in fields:
            return fields
        numbers = constants("tna")
        bias = numbers["SLACK_BIAS"]
        start = fields["first"] * numbers["EVENT_START"]
        finish = fields["last"] * numbers["EVENT_FINISH"]
        slack_us = _microseconds(bias - fields["slack_key"])
        ticks = self._continued(fields["time_ticks"], now_s)
        return {
            "event": start | finish,
            "flow": fields["flow"],
            "epoch": fields["epoch"] % _EPOCHS,
            "slack_key": bias - slack_us,
            "time_us": _microseconds(ticks),
        }

    def _continued(self, ticks: int, now_s: float) -> int:
        """Return a time without wraps.

        Events may come a little out of order, from several pipes.
        """
        if self._last is not None:
            before, before_s = self._last
            # The difference lies within half a wrap, in either direction.
            ahead = (ticks - before + _HALF_WRAP) % _WRAP - _HALF_WRAP
            elapsed_ns = int((now_s - before_s) * 1_000_000_000)
            elapsed = elapsed_ns // TICKS.nanoseconds
            # The clock counts the wraps in which no event came.
            wraps = (elapsed - ahead + _HALF_WRAP) // _WRAP
            ticks = before + ahead + max(0, wraps) * _WRAP
        self._last = ticks, now_s
        return ticks


def _microseconds(ticks: int) -> int:
    return ticks * TICKS.nanoseconds // MICROSECONDS.nanoseconds
