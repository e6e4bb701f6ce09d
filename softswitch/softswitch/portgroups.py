"""The port groups of a Tofino 1.

They say how ports share 32 physical queues, and how logical queue numbers map to them. No other
module of softswitch uses them: they are for plug-ins that serve BF Runtime's tables of them.

A group has four neighbouring ports. Each port has some of the group's queues: those of the first
port come first, and so on. A program names a *logical* queue of a port, 0 to 31 (`qid`); the port's
map leads to one of the port's own queues (`queue_nr`, counted from 0 for each port). The same queue
counted in the group is its `pg_queue`, by which control planes name it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

__all__ = [
    "GROUPS_PER_PIPE",
    "LOGICAL_QUEUES",
    "PIPES",
    "PORTS_PER_GROUP",
    "PortGroup",
    "group_of",
    "port_of",
]

PIPES = 4
GROUPS_PER_PIPE = 18
PORTS_PER_GROUP = 4
LOGICAL_QUEUES = 32
"""The logical queues of a port, and the physical queues of a group."""

_PORTS_PER_PIPE_BITS = 7


def group_of(port: int) -> tuple[int, int, int]:
    """Return the pipe of a port, its group in the pipe, and its number in the group.

    Raise ValueError for a number that is no port of a Tofino.
    """
    pipe = port >> _PORTS_PER_PIPE_BITS
    local = port & ((1 << _PORTS_PER_PIPE_BITS) - 1)
    if not 0 <= pipe < PIPES or local >= GROUPS_PER_PIPE * PORTS_PER_GROUP:
        raise ValueError(
            f"port {port} is not a port of a Tofino: it has 0 to 71 of each pipe,"
            " at 128 times the pipe"
        )
    return pipe, local // PORTS_PER_GROUP, local % PORTS_PER_GROUP


def port_of(
    pipe: int,
    group: int,
    number: int,
) -> int:
    """Return the port of that number in a group."""
    return pipe << _PORTS_PER_PIPE_BITS | group * PORTS_PER_GROUP + number


def _sequence(count: int) -> tuple[int, ...]:
    if count:
        return tuple(qid % count for qid in range(LOGICAL_QUEUES))
    return ()


@dataclass(frozen=True, slots=True)
class PortGroup:
    """The division of a group's queues among its ports.

    By default, each port has eight, and logical queue n is the port's queue n modulo 8.
    """

    counts: tuple[int, ...] = (8,) * PORTS_PER_GROUP
    """The number of queues of each port."""
    maps: tuple[tuple[int, ...], ...] = (_sequence(8),) * PORTS_PER_GROUP
    """The `queue_nr` of each logical queue, for each port; empty for a port without queues."""

    def __post_init__(self) -> None:
        if len(self.counts) != PORTS_PER_GROUP or any(count < 0 for count in self.counts):
            raise ValueError(
                f"port_queue_count: {_shown(self.counts)} is not a count for each of"
                f" {PORTS_PER_GROUP} ports"
            )
        if sum(self.counts) > LOGICAL_QUEUES:
            raise ValueError(
                f"port_queue_count: {_shown(self.counts)} are {sum(self.counts)} queues; a group"
                f" has {LOGICAL_QUEUES}"
            )
        ports = zip(self.counts, self.maps, strict=True)
        for port, (count, of_port) in enumerate(ports):
            if len(of_port) != (LOGICAL_QUEUES if count else 0):
                raise ValueError(
                    f"ingress_qid_map_{port}: has {len(of_port)} items instead of {LOGICAL_QUEUES}"
                )
            if any(not 0 <= queue_nr < count for queue_nr in of_port):
                raise ValueError(
                    f"ingress_qid_map_{port}: {max(of_port)} is not below {count},"
                    " the port's queues"
                )

    @classmethod
    def sequential(cls, counts: Sequence[int]) -> PortGroup:
        """Map logical queues to each port's queues in turn. Raise ValueError as the class does."""
        maps = [_sequence(max(0, count)) for count in counts]
        return cls(tuple(counts), tuple(maps))

    @classmethod
    def even(cls, counts: Sequence[int]) -> PortGroup:
        """Map a run of neighbouring logical queues to each of a port's queues.

        Those left over go to queue 0. Raise ValueError as the class does.
        """
        maps: list[tuple[int, ...]] = []
        for count in counts:
            run = LOGICAL_QUEUES // count if count > 0 else 0
            if run:
                queues = [qid // run for qid in range(LOGICAL_QUEUES)]
                maps.append(tuple(nr if nr < count else 0 for nr in queues))
            else:
                maps.append(())
        return cls(tuple(counts), tuple(maps))

    def cropped(self, counts: Sequence[int]) -> PortGroup:
        """Keep the maps, but for logical queues of a queue that a port no longer has.

        They go to its queue 0. Raise ValueError as the class does.
        """
        maps: list[tuple[int, ...]] = []
        for count, of_port in zip(counts, self.maps, strict=True):
            if count > 0:
                queues = of_port or _sequence(1)
                maps.append(tuple(nr if nr < count else 0 for nr in queues))
            else:
                maps.append(())
        return PortGroup(tuple(counts), tuple(maps))

    def first_queue(self, port: int) -> int:
        """Return the `pg_queue` of the first queue of a port of the group."""
        return sum(self.counts[:port])

    def queues_of(self, port: int) -> tuple[int, ...]:
        """Return the `pg_queue` of each logical queue of a port of the group."""
        first = self.first_queue(port)
        return tuple(first + queue_nr for queue_nr in self.maps[port])

    def owner(self, pg_queue: int) -> tuple[int, int] | None:
        """Return the port in the group that has a queue, and its `queue_nr` there.

        Return None if no port has it.
        """
        for port, end in enumerate(accumulate(self.counts)):
            if pg_queue < end:
                return port, pg_queue - end + self.counts[port]
        return None


def _shown(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))
