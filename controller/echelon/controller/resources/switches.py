"""Switches: their state, what they should hold and what they hold, and their queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from echelon.controller.resources.base import Resource
from echelon.planning.plan import LEVELS
from echelon.switches.southbound.lifecycle import State

_BITS = 8


class EntryResource(Resource):
    """A table entry, in the words of P4Info."""

    table: str
    match: dict[str, str]
    action: str
    priority: int = 0
    owner: str | None = None
    """The part of the intent that it belongs to: a job's name, or `fabric`."""


class QueueResource(Resource):
    port: int
    queue: int
    level: int
    weight: int
    min_rate_bps: int
    max_rate_bps: int | None


class IntentResource(Resource):
    switch: str
    entries: tuple[EntryResource, ...]
    queues: tuple[QueueResource, ...]


class SwitchDifference(Resource):
    """The difference between a switch and its intent, which is not written."""

    switch: str
    reachable: bool
    problem: str | None = None
    inserts: tuple[EntryResource, ...] = ()
    modifies: tuple[EntryResource, ...] = ()
    deletes: tuple[EntryResource, ...] = ()
    foreign: int = 0
    """Number of others' entries, which are left alone."""


class SwitchResource(Resource):
    name: str
    address: str
    target: str
    device_id: int
    state: State
    problem: str | None = None
    since: float
    """Time at which the switch came into that state."""
    election_id: int | None = None
    """The high word of the controller's election id, which is its term; the low word is 0."""
    entries: int | None = 0
    """Number of our entries on the switch; null: not known, because another controller has it."""
    foreign_entries: int = 0
    wanted_entries: int = 0
    sessions: int = 0
    """Number of sessions opened so far."""
    unwatched: str | None = None
    """The reason why the switch does not tell which ports are down; plans still use these."""
    drift_found: int = 0
    """Number of entries that an audit found different from what had been written, and repaired."""
    last_audit_at: float | None = None
    last_written_at: float | None = None


class QueueUse(Resource):
    """The counters of one queue of an egress port since the switch started."""

    port: int
    to: str
    """The host or switch at the other end of the port's link."""
    rate_bps: int
    """The rate of that link."""
    queue: int
    packets: int
    size_bytes: int
    dropped_packets: int


class SwitchQueues(Resource):
    """The counters of a switch's queues, read at this moment."""

    switch: str
    reachable: bool
    problem: str | None = None
    at: float
    """Time of the reading."""
    queues: tuple[QueueUse, ...] = ()
    """Empty if the switch's target does not count."""


class PortUse(Resource):
    """The rates of an egress port between the latest two readings of its switch."""

    switch: str
    port: int
    to: str
    """The host or switch at the other end of the port's link."""
    rate_bps: int
    """The rate of that link."""
    queues_bps: tuple[float, ...]
    """Bits per second of each queue, the lowest level first."""
    drops_per_s: float

    @property
    def use(self) -> float:
        """The part of the link's rate."""
        return sum(self.queues_bps) / self.rate_bps


def uses(before: Mapping[str, SwitchQueues], now: Mapping[str, SwitchQueues]) -> Sequence[PortUse]:
    """Return what each port has sent between two readings of its switch."""
    ports: list[PortUse] = []
    for name, reading in now.items():
        last = before.get(name)
        if last is not None and reading.at > last.at:
            ports += _port_uses(name, last, reading)
    return ports


def _port_uses(
    switch: str,
    last: SwitchQueues,
    reading: SwitchQueues,
) -> Iterator[PortUse]:
    duration_s = reading.at - last.at
    last_uses = {(use.port, use.queue): use for use in last.queues}
    ports: dict[int, list[QueueUse]] = {}
    for use in reading.queues:
        ports.setdefault(use.port, []).append(use)
    for port, queues in ports.items():
        rates_bps = [0.0] * LEVELS
        drops = 0
        for use in queues:
            former = last_uses.get((port, use.queue))
            if former is None or use.queue >= LEVELS:
                continue
            # A switch that was restarted has counted from zero again.
            if use.size_bytes >= former.size_bytes:
                rates_bps[use.queue] = (use.size_bytes - former.size_bytes) * _BITS / duration_s
                drops += max(0, use.dropped_packets - former.dropped_packets)
        yield PortUse(
            switch=switch,
            port=port,
            to=queues[0].to,
            rate_bps=queues[0].rate_bps,
            queues_bps=tuple(rates_bps),
            drops_per_s=drops / duration_s,
        )
