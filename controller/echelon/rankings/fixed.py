"""A queue that never changes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every packet of the flow goes to this queue of each port on its path."""

    queue: int

    @property
    def queues(self) -> range:
        return range(self.queue, self.queue + 1)
