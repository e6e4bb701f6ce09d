"""What every port of a switch does with packets, in terms of no vendor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from math import gcd

from echelon.planning.plan import LEVELS

CODE_POINTS = 64
"""The values of the six bits of DSCP (RFC 2474)."""
_SELECTOR_SHIFT = 3
"""The upper three bits are the class selector."""


class QueueError(ValueError):
    """What a switch cannot be told; the message says which queue, why, and what to do."""


@dataclass(frozen=True, slots=True)
class QueueService:
    """The service of a queue of an egress port."""

    level: int
    """The strict level; 0 is served last."""
    weight: int = 1
    """The share in bytes among the queues of the level."""


QueueServices = tuple[QueueService, ...]
"""The LEVELS queues of a port, indexed by queue."""

STRICT: QueueServices = tuple(QueueService(level) for level in range(LEVELS))
"""One queue at each level, as `echelon.planning.policies.levels.strict` has them."""


@dataclass(frozen=True, slots=True)
class EcnMarking:
    """The marks of congestion, as a queue of `min_bytes` to `max_bytes` gives them."""

    min_bytes: int
    max_bytes: int
    percent: int
    """The part of packets that is marked as the queue reaches `max_bytes`; beyond it, all are."""


@dataclass(frozen=True, slots=True)
class PortQueues:
    """What every port of a switch does with packets."""

    queue_by_code_point: Sequence[int]
    """The queue of each of the 64 code points."""
    services: QueueServices
    lossless: frozenset[int] | None = None
    """The queues that priority flow control protects; None: as the switch has it."""
    marking: EcnMarking | None = None
    """The marks that the queues of jobs give; None: as the switch has it."""


def queues_by_code_point(roce_marks: Sequence[int] = ()) -> list[int]:
    """Return the queue of each code point: its class selector, unless it is in `roce_marks`.

    `roce_marks` has the code point of RoCE packets for each queue (the fabric file's). Raises
    `QueueError` if a code point stands for two queues.
    """
    queues = [code_point >> _SELECTOR_SHIFT for code_point in range(CODE_POINTS)]
    # What is not RoCE keeps the class selectors, so no mark may be that of another queue.
    owners = {queue << _SELECTOR_SHIFT: queue for queue in range(LEVELS)}
    for queue, code_point in enumerate(roce_marks):
        owner = owners.setdefault(code_point, queue)
        if owner != queue:
            raise QueueError(
                f"{code_point} is the code point of queue {owner} and of queue {queue}, and these"
                " switches tell queues by nothing else (give each queue a code point of its own)"
            )
        queues[code_point] = queue
    return queues


def strict_queues(services: QueueServices) -> frozenset[int]:
    """Return the queues that are served in strict order, a higher one first.

    All others share what these leave, by their weights. Raises `QueueError` for another order:
    switches of fixed function have no other.
    """
    for queue, (below, service) in enumerate(pairwise(services), start=1):
        if service.level < below.level:
            raise QueueError(
                f"queue {queue} is served after queue {queue - 1}, and these switches serve a"
                " higher queue first (choose another policy)"
            )
    sizes = Counter(service.level for service in services)
    lowest = services[0].level
    for level, size in sizes.items():
        if size > 1 and level != lowest:
            shared = [queue for queue, service in enumerate(services) if service.level == level]
            raise QueueError(
                f"queues {shared[0]} to {shared[-1]} share what they get before queue 0 is served,"
                " and these switches share only what is left to the lowest queues (choose another"
                " policy)"
            )
    return frozenset(queue for queue, service in enumerate(services) if sizes[service.level] == 1)


def shares(services: QueueServices, largest: int) -> tuple[int, ...]:
    """Return the weights of queues in the same proportion, none above `largest`.

    Raises `QueueError` if there are none.
    """
    # Rounded weights would be other shares than the plan's.
    divisor = reduce(gcd, (service.weight for service in services))
    weights = tuple(service.weight // divisor for service in services)
    heaviest = max(weights)
    if heaviest > largest:
        raise QueueError(
            f"queue {weights.index(heaviest)} has {heaviest} times the smallest share, and these"
            f" switches have weights from 1 to {largest} (choose other weights)"
        )
    return weights
