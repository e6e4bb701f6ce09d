"""Ranking by the length of packets: short ones go first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from echelon.planning.allocation import Number
from echelon.planning.rankings.base import IN_ORDER_OF_START, HostOrder, StatelessExecution
from echelon.planning.rankings.in_switches import (
    LevelProfile,
    RankingAction,
    SwitchNumbers,
    Units,
    steps,
)


@dataclass(frozen=True, slots=True)
class Short:
    """Packets whose IPv4 length is at most `limit_bytes` go to the queue `upper`, others to
    `lower`.
    """

    limit_bytes: int
    lower: int
    upper: int

    @property
    def queue(self) -> int:
        """The queue that the fluid engine uses: it has no packets, and most bytes are in long
        ones.
        """
        return self.lower

    @property
    def queues(self) -> range:
        return range(self.lower, self.upper + 1)

    def action(self, switch: SwitchNumbers) -> RankingAction:
        content = ("short", self.limit_bytes, self.lower, self.upper)
        return RankingAction(
            "short", {"profile": switch.profile(content, lambda: self._profile(switch.units))}
        )

    def _profile(self, units: Units) -> LevelProfile:
        return units.profile(
            steps([self.limit_bytes + 1], [self.upper, self.lower], units.key_bits)
        )

    def at_host(self) -> HostOrder:
        return IN_ORDER_OF_START

    @staticmethod
    def execution(number: Callable[[Fraction], Number]) -> StatelessExecution:
        return StatelessExecution()
