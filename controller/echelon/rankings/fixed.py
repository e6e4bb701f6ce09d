"""A queue that never changes."""

from __future__ import annotations

from dataclasses import dataclass

from echelon.rankings.base import RankingAction, SwitchNumbers


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every packet of the flow goes to this queue of each port on its path."""

    queue: int

    @property
    def queues(self) -> range:
        return range(self.queue, self.queue + 1)

    def action(self, at: SwitchNumbers) -> RankingAction:
        return RankingAction("fixed", {"queue": self.queue})
