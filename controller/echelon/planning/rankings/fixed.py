"""A queue that never changes."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from echelon.planning.rankings.base import (
    IN_ORDER_OF_START,
    EngineKind,
    EngineRanking,
    HostOrder,
    StatelessExecution,
    Steps,
    ToNumber,
)
from echelon.planning.rankings.in_switches import RankingAction, SwitchNumbers


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every packet of the flow goes to this queue of each port on its path."""

    queue: int

    @property
    def queues(self) -> range:
        return range(self.queue, self.queue + 1)

    def action(self, switch: SwitchNumbers) -> RankingAction:
        return RankingAction("fixed", {"queue": self.queue})

    def at_host(self) -> HostOrder:
        return IN_ORDER_OF_START

    def in_engine(self) -> EngineRanking:
        return EngineRanking(EngineKind.FIXED, self.queue, self.queue)

    @staticmethod
    def execution(number: ToNumber) -> StatelessExecution:
        return StatelessExecution()


@dataclass(frozen=True, slots=True)
class InTurn(Fixed):
    """A queue for good, like `Fixed`, of a job that sends in turn from one host to another.

    So does a TCP connection or a queue pair with its messages: in the order in which they start.
    Where a job has several queues between two hosts, the higher one goes first.
    """

    def at_host(self) -> HostOrder:
        # Steps of age share a window (`shares_window`); this age never comes.
        urgency = float(self.queue)
        return HostOrder(Steps((inf,), (urgency, urgency), 0.0))
