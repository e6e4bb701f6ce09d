"""The traffic manager of one egress port.

It has queues, strict levels, weighted shares, and rates in integer time.

The next packet, whenever the port's line is free, comes from:

1. a queue whose minimum rate is owed service ("guaranteed" service): of those at the highest
   guaranteed level, each in its turn;
2. else the highest strict level that has an eligible queue (7 before 0);
3. inside that level, a queue chosen so that shares follow the weights, in bytes.

A queue above its maximum rate, or one that is not scheduled, is not eligible. Service is not
preemptive: a packet on the line finishes.

Sharing by weight is *earliest eligible virtual deadline first* (EEVDF: Stoica et al., "A
Proportional Share Resource Allocation Algorithm for Real-Time, Time-Shared Systems", RTSS 1996),
which picks packets as WF2Q+ does (Bennett and Zhang, "Hierarchical Packet Fair Queueing
Algorithms", SIGCOMM 1996). Chips use deficit round robin (DWRR) for the same long-run shares. EEVDF
keeps every backlogged queue within one packet of its share at all times, so that weights 1:2 come
out as 2 1 2, 2 1 2 and not as bursts of a quantum. Queues share what the minimum rates leave over:
guaranteed service is not charged to a queue's share.

Rates are exact. All times are integer nanoseconds and must not decrease from call to call. The
queues themselves are in C (`native/tm.c`); here is what others tell them and read of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = [
    "LEVELS",
    "MAX_QUEUES",
    "MAX_WEIGHT",
    "QUEUES",
    "STRICT_QUEUES",
    "PortQueues",
    "QueueConfig",
    "QueueStats",
    "check_number",
]

QUEUES = 8
"""The queues of a port unless it is given more."""
MAX_QUEUES = 32
"""The most queues of a port: all those of a Tofino's port group."""
LEVELS = 8
MAX_WEIGHT = 1023


def check_number(
    field: str,
    value: int,
    low: int,
    high: int | None = None,
) -> None:
    """Raise ValueError, naming the field, for anything but a whole number in this range."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{field}: {value!r} is not a whole number")
    if high is None:
        if value < low:
            raise ValueError(f"{field}: {value} is not at least {low}")
    elif not low <= value <= high:
        raise ValueError(f"{field}: {value} is not in {low}..{high}")


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """The service of one queue. Raises ValueError, naming the field, for a value out of range."""

    level: int = 0
    """The strict level, 0 (last) to 7 (first)."""
    weight: int = 1
    """The share among the queues of the level, 1 to 1023."""
    min_rate_bps: int = 0
    """Bits per second served before any level; 0 means no guarantee.

    A port keeps guarantees only if its rate covers their sum.
    """
    max_rate_bps: int | None = None
    """Bits per second never exceeded, at least `min_rate_bps`; None means no limit."""
    depth_bytes: int = 1 << 20
    """The depth. A packet that would make the queue longer is dropped."""
    guaranteed_level: int = 0
    """The level among queues whose minimum rates are owed service, 0 (last) to 7 (first)."""
    scheduled: bool = True
    """Whether packets leave the queue at all.

    If not, they wait until they do or until the queue is full.
    """

    def __post_init__(self) -> None:
        check_number("level", self.level, 0, LEVELS - 1)
        check_number("guaranteed_level", self.guaranteed_level, 0, LEVELS - 1)
        check_number("weight", self.weight, 1, MAX_WEIGHT)
        check_number("min_rate_bps", self.min_rate_bps, 0)
        check_number("depth_bytes", self.depth_bytes, 0)
        if self.max_rate_bps is not None:
            check_number("max_rate_bps", self.max_rate_bps, 1)
            if self.max_rate_bps < self.min_rate_bps:
                raise ValueError(
                    f"max_rate_bps: {self.max_rate_bps} is below min_rate_bps {self.min_rate_bps}"
                )


STRICT_QUEUES: tuple[QueueConfig, ...] = tuple(QueueConfig(level=queue) for queue in range(QUEUES))
"""Queue i at level i, as with `simple_switch --priority-queues 8`.

A port that is not configured uses this.
"""


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The totals of one queue since it was made, and its present backlog."""

    enqueued_packets: int
    enqueued_bytes: int
    dequeued_packets: int
    dequeued_bytes: int
    dropped_packets: int
    dropped_bytes: int
    queued_packets: int
    queued_bytes: int
    peak_bytes: int
    """The most bytes that ever waited at once."""


class PortQueues(Protocol):
    """The queues in front of one line, as they are configured and read."""

    @property
    def rate_bps(self) -> int | None: ...
    def set_rate(self, rate_bps: int | None, now_ns: int) -> None: ...
    def config(self, queue: int) -> QueueConfig: ...
    def configure(
        self,
        queue: int,
        config: QueueConfig,
        now_ns: int,
    ) -> None: ...
    @property
    def queues(self) -> int: ...
    def set_queues(self, count: int, now_ns: int) -> None: ...
    @property
    def queued_packets(self) -> int: ...
    @property
    def unknown_queue_packets(self) -> int: ...
    @property
    def stats(self) -> tuple[QueueStats, ...]: ...
