"""A queue that never changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from echelon.allocation import ActiveFlow, Link, Number
from echelon.rankings.base import IN_ORDER_OF_START, HostOrder, Rank
from echelon.rankings.in_switches import RankingAction, SwitchNumbers


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every packet of the flow goes to this queue of each port on its path."""

    queue: int

    @property
    def queues(self) -> range:
        return range(self.queue, self.queue + 1)

    def action(self, at: SwitchNumbers) -> RankingAction:
        return RankingAction("fixed", {"queue": self.queue})

    def at_host(self) -> HostOrder:
        return IN_ORDER_OF_START

    @staticmethod
    def execution(number: Callable[[Fraction], Number]) -> FixedExecution:
        return FixedExecution()


class FixedExecution:
    """The execution of `Fixed`, which keeps no state."""

    def started(self, now_s: Number, flow: ActiveFlow, ranking: Fixed) -> None:
        pass

    def finished(self, now_s: Number, flow: ActiveFlow, ranking: Fixed) -> None:
        pass

    def ranks(self, now_s: Number, port: Link, flows: Sequence[tuple[ActiveFlow, Fixed]]) -> list[Rank]:
        return [Rank(ranking.queue) for _, ranking in flows]

    def neighbourhood(self, flow: ActiveFlow, ranking: Fixed) -> None:
        return None
