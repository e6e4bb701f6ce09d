"""The settings that all workers of a group and its fallback share."""

from __future__ import annotations

from dataclasses import dataclass

from echelon_aggregation.wire import MAX_WORKERS


@dataclass(frozen=True, slots=True)
class Group:
    """The workers of one tree in one session.

    Raises `ValueError` for numbers that the protocol does not allow.
    """

    workers: int
    tree: int = 1
    session: int = 1
    window: int = 64
    """The number of slots, W, a power of two."""
    values: int = 32
    """Values of 32 bits in a packet."""
    shared_memory: bool = False
    """Switches may give a place of this tree to another (`first`, `deadline`)."""
    least_timeout_s: float = 0.005
    """The shortest time after which a packet is sent again."""
    most_timeout_s: float = 1.0
    by_tree: bool = True
    """The tree's switches spread a result of the fallback.

    Otherwise it sends one to each worker.
    """

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= MAX_WORKERS:
            raise ValueError(f"workers: {self.workers} is not from 1 to {MAX_WORKERS}")
        if self.window < 1 or self.window & (self.window - 1):
            raise ValueError(f"window: {self.window} is not a power of two")
        if self.values < 1:
            raise ValueError(f"values: {self.values} is not positive")
        if not 0 < self.least_timeout_s <= self.most_timeout_s:
            raise ValueError(
                f"least_timeout_s: {self.least_timeout_s} is not between 0 and"
                f" {self.most_timeout_s}"
            )

    @property
    def everyone(self) -> int:
        """Return the bitmap of all workers."""
        return (1 << self.workers) - 1
