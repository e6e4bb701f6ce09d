"""The intent: the table entries, queue settings and digests that one switch should hold.

It is in P4 terms, for no particular channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple, Self

FABRIC = "fabric"
"""Owner of what a switch holds whether or not there are jobs."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """A longest-prefix match."""

    value: int
    length: int


@dataclass(frozen=True, slots=True)
class Interval:
    """A range match, both ends included."""

    low: int
    high: int


Match = int | Prefix | Interval
"""The match of one key field; an `int` matches exactly."""


def prefixes(interval: Interval, bits: int) -> tuple[Prefix, ...]:
    """Return the fewest prefixes that together match `interval`, ascending.

    Values have `bits` bits, so there are fewer than 2 * `bits` prefixes.
    """
    blocks = []
    low = interval.low
    while low <= interval.high:
        # The largest block that begins here and does not exceed the interval.
        size = low & -low or 1 << bits
        while low + size - 1 > interval.high:
            size >>= 1
        length = bits - size.bit_length() + 1
        blocks.append(Prefix(low, length))
        low += size
    return tuple(blocks)


class ActionCall(NamedTuple):
    """An action and its arguments."""

    name: str
    arguments: tuple[tuple[str, int], ...] = ()


class TableEntry(NamedTuple):
    """One table entry, by the names in the P4Info.

    `actions` has one member, or several for a table with an action selector, which spreads packets
    over them evenly.
    """

    table: str
    match: tuple[tuple[str, Match], ...]
    actions: tuple[ActionCall, ...]
    priority: int = 0
    """The entry with the higher priority wins; 0 in tables whose keys need none."""

    @property
    def ports(self) -> frozenset[int]:
        """The ports that the entry names, in its match or in its actions."""
        named: list[tuple[str, Match]] = [*self.match]
        for action in self.actions:
            named += action.arguments
        return frozenset(
            value for name, value in named if name == "port" and isinstance(value, int)
        )


@dataclass(frozen=True, slots=True)
class QueueSetting:
    """The configuration of one queue of one egress port."""

    port: int
    queue: int
    level: int
    weight: int
    min_rate_bps: int
    max_rate_bps: int | None


@dataclass(frozen=True, slots=True)
class DigestSetting:
    """The reporting of a digest by a switch.

    Lists have at most `max_list_size` events, and are sent at most `max_timeout_ns` after the
    first.

    If `ack_timeout_ns` is 0 the switch does not wait for acknowledgements.
    """

    name: str
    max_list_size: int
    max_timeout_ns: int
    ack_timeout_ns: int


@dataclass(frozen=True, slots=True)
class MulticastGroup:
    """A multicast group: entries send a packet to its number, and the switch copies it."""

    number: int
    copies: tuple[tuple[int, int], ...]
    """The port of each copy, and its instance number, which tells copies on one port apart."""


FIRST_GROUP = 0x4000
"""The lowest number of a multicast group of ours; those below belong to others."""


class Resources(NamedTuple):
    """The entries and groups that a plug-in adds to a switch for a job, besides its flows."""

    entries: tuple[TableEntry, ...]
    groups: tuple[MulticastGroup, ...]


class KnownFlow(NamedTuple):
    """A flow that a switch recognises."""

    number: int
    """The number by which this switch reports the flow in digests."""
    job: str
    flow: str
    entry: TableEntry
    """The entry that holds the flow's path and ranking, and counts its bytes."""


@dataclass(frozen=True)
class Part:
    """Entries that come and go together, in the order in which they may be written.

    A part that did not change from one intent of a switch to the next is the same object, so that a
    comparison of intents can skip it. No two parts of an intent have an entry with the same key.
    """

    owner: str
    """The owner, shown to people: `FABRIC`, ``promotion``, ``profile N``, or the name of a job."""
    entries: tuple[TableEntry, ...]
    flows: tuple[KnownFlow, ...] = ()
    """The flows whose packets the part's entries recognise.

    Their entries are the first ones of the part, in the same order.
    """

    @property
    def job(self) -> str | None:
        """The job that the part is for; None: it is not for one job alone."""
        return self.owner if self.flows else None

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The index in `flows` of each flow."""
        return {flow.flow: index for index, flow in enumerate(self.flows)}

    def with_entries(self, entries: Mapping[str, TableEntry]) -> Self:
        """Return this part with other entries of some of its flows."""
        all_entries = list(self.entries)
        flows = list(self.flows)
        for flow, entry in entries.items():
            place = self.places[flow]
            all_entries[place] = entry
            flows[place] = flows[place]._replace(entry=entry)
        part = replace(
            self,
            entries=tuple(all_entries),
            flows=tuple(flows),
        )
        # The flows are the same ones, so the index need not be made again.
        part.__dict__["places"] = self.places
        return part


@dataclass(frozen=True)
class Intent:
    """The state that one switch should hold.

    It is the same object as before if nothing in it changed.

    Parts come in the order in which they may be written to an empty switch: a part needs nothing
    that comes after it.
    """

    switch: str
    parts: tuple[Part, ...]
    queues: tuple[QueueSetting, ...] = ()
    digests: tuple[DigestSetting, ...] = ()
    groups: tuple[MulticastGroup, ...] | None = None
    """The multicast groups that entries may name; None: the switch is not asked for any."""

    @cached_property
    def entries(self) -> tuple[TableEntry, ...]:
        """The entries of all parts."""
        return tuple(chain.from_iterable(part.entries for part in self.parts))

    @cached_property
    def size(self) -> int:
        """Number of entries, without putting them together."""
        return sum(len(part.entries) for part in self.parts)

    @cached_property
    def flows(self) -> Mapping[int, tuple[str, str]]:
        """(job, flow) by the number that this switch reports in digests. Numbers have gaps."""
        return {flow.number: (flow.job, flow.flow) for part in self.parts for flow in part.flows}

    @cached_property
    def jobs(self) -> Mapping[str, Part]:
        """The parts that have flows, by job."""
        return {part.owner: part for part in self.parts if part.flows}

    def flow_entry(self, job: str, flow: str) -> TableEntry:
        """Return the entry that ranks a flow and counts its bytes."""
        part = self.jobs[job]
        return part.flows[part.places[flow]].entry
