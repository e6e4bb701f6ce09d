"""A switch that aggregates, written from `docs/aggregation-protocol.md` and nothing else.

It knows no bytes and no shim: what a packet of the network has besides the protocol's packet is in
`Datagram`. Case numbers are those of the page.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import NamedTuple

from echelon_aggregation.wire import Flag, Kind, Packet

Address = tuple[str, int]
"""A host and its port of UDP."""


class Take(IntEnum):
    """Who may take the place of an incomplete sum of another tree."""

    OWN = 0
    FIRST = 1
    DEADLINE = 2


class Member(Enum):
    """Who is behind a port, for a tree."""

    CHILD = "child"
    PARENT = "parent"
    FALLBACK = "fallback"
    """A child, and the fallback."""


class Datagram(NamedTuple):
    """A packet on a link."""

    packet: Packet
    src: Address
    dst: Address
    due: int = 0
    """The time at which the packet's flow is due, as this switch knows it."""
    congested: bool = False
    """Whether the IP header says congestion experienced."""


@dataclass(frozen=True)
class Entry:
    """The state of a tree in a session at a switch."""

    first: int
    mask: int
    workers: int
    """All workers behind this switch's children."""
    children: tuple[tuple[int, Address | None], ...]
    """Ports that results go to, with the address of a worker; None for a switch."""
    start: int = 0
    take: Take = Take.OWN
    parent_port: int | None = None
    """None at the root."""


@dataclass
class Place:
    """A place of the memory that has an owner."""

    tree: int
    session: int
    block: int
    workers: int
    values: list[int] | None
    flags: int
    exponent: int
    next_exponent: int
    due: int
    complete: bool = False


class Reason(Enum):
    """The fate of a contribution or a result."""

    KEPT = "kept"
    COMPLETE = "complete"
    DUPLICATE = "duplicate"
    SENT_AGAIN = "sent again"
    PASSED = "passed"
    FLUSHED = "flushed"
    HANDED_OVER = "handed over"
    STALE = "stale"
    FORGED = "forged"
    UNKNOWN = "unknown"
    RESULTS = "results"


_STAY = Flag.OVERFLOW | Flag.MARKED
Sent = list[tuple[int, Datagram]]
"""Ports and what leaves there."""


class Switch:
    """The model. Tables are filled by whoever makes it."""

    tells_overflow = True
    """Whether an addition that leaves the range of 32 bits sets OVERFLOW."""

    def __init__(self) -> None:
        self.members: dict[tuple[int, int], tuple[Member, int]] = {}
        """Who is at a port, for a tree, and the bitmap of the workers behind a child."""
        self.trees: dict[tuple[int, int], Entry | None] = {}
        """The entry of each tree in a session; None for a switch without memory for it."""
        self.holders: dict[tuple[int, int], tuple[Address, Address]] = {}
        """Addresses of a worker and of the fallback, for a sum that a tree hands over in a session.
        """
        self.routes: dict[str, int] = {}
        """Ports by host."""
        self.places: dict[int, Place] = {}
        self.counted: Counter[Reason] = Counter()

    def receive(self, port: int, datagram: Datagram) -> Sent:
        """Take a packet that came in at a port, and return what leaves."""
        packet = datagram.packet
        key = packet.tree, packet.session
        member, behind = self.members.get((packet.tree, port), (None, 0))
        if key not in self.trees:
            return self._end(Reason.UNKNOWN)
        entry = self.trees[key]
        if packet.kind in (Kind.RESULT, Kind.REQUEST):
            if member not in (Member.PARENT, Member.FALLBACK):
                return self._end(Reason.FORGED)
            if entry is None or packet.kind == Kind.REQUEST:
                return self._forward(datagram)
            self.counted[Reason.RESULTS] += 1
            if member == Member.PARENT or entry.parent_port is None:
                return self._to_children(entry, datagram)
            return [(entry.parent_port, datagram)]
        if member != Member.PARENT and (
            member is None or packet.workers & ~behind or not packet.workers
        ):
            return self._end(Reason.FORGED)
        if member == Member.PARENT or entry is None or packet.kind == Kind.ANSWER:
            return self._forward(datagram)
        if datagram.congested:
            packet = replace(packet, flags=packet.flags | Flag.MARKED)
        return self._contribution(entry, port, datagram._replace(packet=packet))

    def _contribution(self, entry: Entry, port: int, datagram: Datagram) -> Sent:
        packet = datagram.packet
        index = entry.first + ((packet.block + entry.start) & entry.mask)
        place = self.places.get(index)
        again = bool(packet.flags & Flag.AGAIN)
        if place is not None and (place.tree, place.session, place.block) == (
            packet.tree,
            packet.session,
            packet.block,
        ):
            if not packet.workers & place.workers:
                return self._add(entry, index, place, datagram)  # case 1
            if packet.workers & ~place.workers:
                return self._pass(Reason.PASSED, datagram)  # case 3
            if place.complete:  # case 2
                self.counted[Reason.SENT_AGAIN] += 1
                if again and entry.parent_port is not None:
                    del self.places[index]
                return self._sum_goes_on(entry, self._loaded(place, datagram), back_to=port)
            if not again:
                return self._end(Reason.DUPLICATE)
            return self._flush(index, place, datagram)
        if again:
            return self._pass(Reason.PASSED, datagram)  # case 4
        if place is not None and (place.tree, place.session) == (packet.tree, packet.session):
            if place.block > packet.block:
                return self._end(Reason.STALE)  # case 6
            return self._take(entry, index, datagram)
        if place is None or place.complete or place.tree == packet.tree:
            return self._take(entry, index, datagram)  # case 5, and the last sentence of case 7
        holder = self.holders.get((place.tree, place.session))
        if holder is None:
            return self._take(entry, index, datagram)  # case 5, of a run that has ended
        if packet.workers == entry.workers:
            self.counted[Reason.COMPLETE] += 1
            return self._sum_goes_on(entry, datagram)
        if entry.take == Take.OWN:
            return self._take(entry, index, datagram)
        if entry.take == Take.DEADLINE and datagram.due < place.due:
            self._take(entry, index, datagram)
            self.counted[Reason.HANDED_OVER] += 1
            src, dst = holder
            return self._forward(
                self._loaded(place, datagram._replace(src=src, dst=dst, due=place.due))
            )
        return self._pass(Reason.PASSED, datagram)

    def _take(self, entry: Entry, index: int, datagram: Datagram) -> Sent:
        """Give a place to a packet."""
        packet = datagram.packet
        values = None if packet.flags & Flag.EMPTY else _whole(packet.values)
        complete = packet.workers == entry.workers
        self.places[index] = Place(
            packet.tree,
            packet.session,
            packet.block,
            packet.workers,
            values,
            packet.flags & _STAY,
            packet.exponent,
            packet.next_exponent,
            datagram.due,
            complete,
        )
        if not complete:
            return self._end(Reason.KEPT)
        self.counted[Reason.COMPLETE] += 1
        return self._sum_goes_on(entry, datagram)

    def _add(self, entry: Entry, index: int, place: Place, datagram: Datagram) -> Sent:
        packet = datagram.packet
        place.workers |= packet.workers
        place.next_exponent = max(place.next_exponent, packet.next_exponent)
        place.flags |= packet.flags & _STAY
        if not packet.flags & Flag.EMPTY:
            theirs = _whole(packet.values)
            if place.values is None:
                place.values = theirs
            else:
                sums = [one + other for one, other in zip(place.values, theirs, strict=True)]
                place.values = [(total + 2**31) % 2**32 - 2**31 for total in sums]
                if sums != place.values and self.tells_overflow:
                    place.flags |= Flag.OVERFLOW
        if place.workers == entry.workers:
            place.complete = True
            self.counted[Reason.COMPLETE] += 1
            return self._sum_goes_on(entry, self._loaded(place, datagram))
        if packet.flags & Flag.AGAIN:
            return self._flush(index, place, datagram)
        return self._end(Reason.KEPT)

    def _flush(self, index: int, place: Place, datagram: Datagram) -> Sent:
        """Send the sum so far to the fallback, and free the place."""
        del self.places[index]
        return self._pass(Reason.FLUSHED, self._loaded(place, datagram))

    def _sum_goes_on(self, entry: Entry, datagram: Datagram, back_to: int | None = None) -> Sent:
        if entry.parent_port is not None:
            return [(entry.parent_port, datagram)]
        packet = datagram.packet
        result = replace(packet, kind=Kind.RESULT, flags=packet.flags & ~Flag.AGAIN)
        if back_to is not None:
            return [(back_to, datagram._replace(packet=result, src=datagram.dst, dst=datagram.src))]
        return self._to_children(entry, datagram._replace(packet=result, src=datagram.dst))

    def _to_children(self, entry: Entry, datagram: Datagram) -> Sent:
        return [
            (port, datagram._replace(dst=address or datagram.dst))
            for port, address in entry.children
        ]

    def _loaded(self, place: Place, datagram: Datagram) -> Datagram:
        """Return the datagram with what the place has, instead of what it brought."""
        flags = (datagram.packet.flags & Flag.AGAIN) | place.flags
        packet = Packet(
            Kind.CONTRIBUTION,
            place.tree,
            place.session,
            place.block,
            place.workers,
            place.exponent,
            place.next_exponent,
            flags if place.values is not None else flags | Flag.EMPTY,
            b"".join(value.to_bytes(4, "big", signed=True) for value in place.values or ()),
        )
        return datagram._replace(packet=packet)

    def _pass(self, reason: Reason, datagram: Datagram) -> Sent:
        self.counted[reason] += 1
        return self._forward(datagram)

    def _forward(self, datagram: Datagram) -> Sent:
        return [(self.routes[datagram.dst[0]], datagram)]

    def _end(self, reason: Reason) -> Sent:
        self.counted[reason] += 1
        return []


def _whole(values: bytes) -> list[int]:
    return [
        int.from_bytes(values[at : at + 4], "big", signed=True) for at in range(0, len(values), 4)
    ]
