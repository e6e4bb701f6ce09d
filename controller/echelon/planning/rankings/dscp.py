"""Ranking by the code point that hosts mark (RFC 2474)."""

from __future__ import annotations

from dataclasses import dataclass

from echelon.planning.rankings.base import (
    IN_ORDER_OF_START,
    EngineKind,
    EngineRanking,
    HostOrder,
    StatelessExecution,
    ToNumber,
)
from echelon.planning.rankings.in_switches import (
    LevelProfile,
    RankingAction,
    SwitchNumbers,
    Units,
    steps,
)

_CLASS_SHIFT = 3
"""The upper three of the six bits of a code point are its class selector."""


@dataclass(frozen=True, slots=True)
class Dscp:
    """Ranking by class selector: its number is the queue, between `lowest` and `highest`.

    Hosts that know how urgent their packets are mark them. A switch marks each packet that it sends
    with the class selector of its queue (table `queue_to_dscp`), so all switches on the path choose
    the same queue.
    """

    lowest: int
    highest: int
    marked: int = 0
    """The code point that the fluid engine, which has no packets, takes the hosts to mark."""

    @property
    def queue(self) -> int:
        """The queue of packets with the code point `marked`."""
        return min(max(self.marked >> _CLASS_SHIFT, self.lowest), self.highest)

    @property
    def queues(self) -> range:
        return range(self.lowest, self.highest + 1)

    def action(self, switch: SwitchNumbers) -> RankingAction:
        if not 0 <= self.lowest <= self.highest < 1 << _CLASS_SHIFT:
            raise ValueError(
                f"code points cannot choose among queues {self.lowest} to {self.highest}; name the"
                f" lowest and highest of queues 0 to {(1 << _CLASS_SHIFT) - 1}"
            )
        content = "dscp", self.lowest, self.highest
        profile = switch.profile(content, lambda: self._profile(switch.units))
        return RankingAction("dscp", {"profile": profile})

    def _profile(self, units: Units) -> LevelProfile:
        edges = [queue << _CLASS_SHIFT for queue in self.queues[1:]]
        return units.profile(steps(edges, self.queues, units.key_bits))

    def at_host(self) -> HostOrder:
        return IN_ORDER_OF_START

    def in_engine(self) -> EngineRanking:
        return EngineRanking(EngineKind.FIXED, self.queue, self.queue)

    @staticmethod
    def execution(number: ToNumber) -> StatelessExecution:
        return StatelessExecution()
