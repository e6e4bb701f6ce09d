"""Ranking by the time of a period at which a packet arrives (CASSINI)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from echelon.planning.allocation import ActiveFlow, Link, Number
from echelon.planning.rankings.base import (
    IN_ORDER_OF_START,
    EngineKind,
    EngineRanking,
    HostOrder,
    Rank,
    ToNumber,
    UncoupledExecution,
)
from echelon.planning.rankings.in_switches import (
    LevelProfile,
    RankingAction,
    SwitchNumbers,
    Units,
    shifted,
    steps,
)


@dataclass(frozen=True, slots=True)
class Window:
    """Ranking by a window of each period: `inside` from `begin_s` to `end_s`, else `outside`.

    Periods of `period_s` follow each other from the start of the first iteration of the flow's job
    that the switch sees. If `begin_s` is after `end_s`, the window extends into the next period.
    """

    period_s: Fraction
    begin_s: Fraction
    end_s: Fraction
    inside: int
    outside: int

    @property
    def queues(self) -> range:
        lowest, highest = sorted((self.inside, self.outside))
        return range(lowest, highest + 1)

    def action(self, switch: SwitchNumbers) -> RankingAction:
        units = switch.units
        period = units.time.unsigned("the period of", self.period_s, units.offset_bits)
        if not period:
            raise ValueError(
                f"a period of {float(self.period_s):g} s is too short: switches count"
                f" {units.time.plural}"
            )
        content = "window", self.period_s, self.begin_s, self.end_s, self.inside, self.outside
        profile = switch.profile(content, lambda: self._profile(period, units))
        arguments = {"group": switch.group("window"), "profile": profile}
        arguments[f"period_{units.time.suffix}"] = period
        return RankingAction("window", arguments)

    def _profile(self, period: int, units: Units) -> LevelProfile:
        """Return what maps keys to queues.

        A key is the time left in the period: `period` at its beginning, 1 at its end, and a part of
        it if the switch shifts it.
        """
        right = units.right_shift(period, units.key_bits)
        begin = shifted(period - units.time.count(self.begin_s) + 1, right)
        end = shifted(period - units.time.count(self.end_s) + 1, right)
        if begin < end:
            edges = begin, end
            order = self.inside, self.outside, self.inside
        else:
            edges = end, begin
            order = self.outside, self.inside, self.outside
        return units.profile(steps(edges, order, units.key_bits), right)

    def at_host(self) -> HostOrder:
        return IN_ORDER_OF_START

    def in_engine(self) -> EngineRanking:
        times_s = {
            "period_s": float(self.period_s),
            "begin_s": float(self.begin_s),
            "end_s": float(self.end_s),
        }
        return EngineRanking(EngineKind.WINDOW, self.outside, self.inside, "", times=times_s)

    @staticmethod
    def execution(number: ToNumber) -> WindowExecution:
        return WindowExecution(number)


class WindowExecution(UncoupledExecution):
    """The execution of `Window`: when the periods of each job began, which all switches share."""

    def __init__(self, number: ToNumber) -> None:
        self._number = number
        self._begin_s: dict[str, Number] = {}
        """The time when the first flow of each job started."""

    def started(
        self,
        now_s: Number,
        flow: ActiveFlow,
        ranking: Window,
    ) -> None:
        self._begin_s.setdefault(flow.job, now_s)

    def ranks(
        self,
        now_s: Number,
        port: Link,
        flows: Sequence[tuple[ActiveFlow, Window]],
    ) -> list[Rank]:
        ranks = []
        for flow, ranking in flows:
            origin_s = self._begin_s[flow.job]
            ranks.append(self._rank(now_s, origin_s, ranking))
        return ranks

    def _rank(
        self,
        now_s: Number,
        origin_s: Number,
        window: Window,
    ) -> Rank:
        period_s = self._number(window.period_s)
        begin_s = self._number(window.begin_s)
        end_s = self._number(window.end_s)
        if begin_s == end_s:
            return Rank(window.outside)
        # Rounding may put `now_s` into the period before, so that is where the search begins.
        period = int((now_s - origin_s) // period_s) - 1
        while True:
            open_s = origin_s + (period * period_s + begin_s)
            close_s = origin_s + (period * period_s + end_s)
            # Until the window opens, a flow is outside, and until it closes, inside.
            changes = [(open_s, window.outside), (close_s, window.inside)]
            if close_s < open_s:
                changes.reverse()
            for change_s, queue in changes:
                if change_s > now_s:
                    return Rank(queue, change_s)
            period += 1
