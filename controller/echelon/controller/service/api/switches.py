"""Switches: their state, what they should hold and what they hold, and what has passed their
queues.
"""

import ipaddress
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from echelon.controller.service.api.settings import Resource
from echelon.planning.plan import LEVELS
from echelon.switches.lowering.intent import Intent, Interval, Match, Prefix, TableEntry
from echelon.switches.southbound.errors import SouthboundError
from echelon.switches.southbound.lifecycle import State

if TYPE_CHECKING:
    from fastapi import APIRouter

    from echelon.controller.service.controller import ControllerService
    from echelon.model.fabric.model import Fabric
    from echelon.switches.southbound.codec import EntryText
    from echelon.switches.southbound.connection import ConnectionSnapshot
    from echelon.switches.southbound.queues import QueueCount

_BITS = 8


class EntryResource(Resource):
    """A table entry, in the words of P4Info."""

    table: str
    match: dict[str, str]
    action: str
    priority: int = 0
    owner: str | None = None
    """The part of the intent that it belongs to: a job's name, or `fabric`."""

    @classmethod
    def of(cls, entry: TableEntry, owner: str | None = None) -> "EntryResource":
        """Return an entry of an intent."""
        calls = (
            f"{call.name}({', '.join(f'{name}={_number(name, value)}' for name, value in call.arguments)})"
            for call in entry.actions
        )
        return cls(
            table=entry.table,
            match={name: _match(name, value) for name, value in entry.match},
            action="; ".join(calls),
            priority=entry.priority,
            owner=owner,
        )

    @classmethod
    def read(cls, entries: "Iterable[EntryText]") -> "tuple[EntryResource, ...]":
        """Return entries of a switch."""
        return tuple(cls.model_validate(one, from_attributes=True) for one in entries)


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

    @classmethod
    def of(cls, intent: Intent) -> "IntentResource":
        """Return what a switch should hold."""
        return cls(
            switch=intent.switch,
            entries=tuple(
                EntryResource.of(one, part.owner) for part in intent.parts for one in part.entries
            ),
            queues=tuple(
                QueueResource.model_validate(one, from_attributes=True) for one in intent.queues
            ),
        )


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
    """The reason why the switch does not tell which of its ports are down, so that plans do not
    lead around these.
    """
    drift_found: int = 0
    """Number of entries that an audit found different from what had been written, and repaired."""
    last_audit_at: float | None = None
    last_written_at: float | None = None

    @classmethod
    def of(cls, seen: "ConnectionSnapshot") -> "SwitchResource":
        """Return a switch as its connection sees it."""
        return cls.model_validate(seen, from_attributes=True).model_copy(
            update={"election_id": seen.term}
        )


class QueueUse(Resource):
    """What has passed one queue of an egress port since the switch started."""

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
    """What an egress port has sent between the latest two readings of its switch."""

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


def listed(service: "ControllerService") -> Sequence[SwitchResource]:
    """Return all switches."""
    return [SwitchResource.of(seen) for seen in service.leader.switches.snapshots()]


async def queues(service: "ControllerService", switch: str) -> SwitchQueues:
    """Read the counters of a switch's queues."""
    connection = service.leader.switches[switch]
    try:
        counts = await connection.queue_counts()
    except SouthboundError as error:
        return SwitchQueues(switch=switch, reachable=False, problem=str(error), at=time.time())
    used = tuple(_queues_of(switch, counts, service.fabric))
    return SwitchQueues(switch=switch, reachable=True, at=time.time(), queues=used)


def _queues_of(
    switch: str, counts: "Mapping[tuple[int, int], QueueCount]", fabric: "Fabric"
) -> Iterator[QueueUse]:
    """Yield the counts of the ports that the fabric uses."""
    for (port, queue), count in sorted(counts.items()):
        if (switch, port) in fabric.neighbour:
            to = fabric.neighbour[switch, port]
            yield QueueUse(
                port=port,
                to=to,
                rate_bps=fabric.rate_bps[switch, to],
                queue=queue,
                packets=count.packets,
                size_bytes=count.size_bytes,
                dropped_packets=count.dropped_packets,
            )


def uses(before: Mapping[str, SwitchQueues], now: Mapping[str, SwitchQueues]) -> Sequence[PortUse]:
    """Return what each port has sent between two readings of its switch."""
    found = []
    for name, seen in now.items():
        was = before.get(name)
        if was is None or seen.at <= was.at:
            continue
        seconds = seen.at - was.at
        earlier = {(use.port, use.queue): use for use in was.queues}
        ports: dict[int, list[QueueUse]] = {}
        for use in seen.queues:
            ports.setdefault(use.port, []).append(use)
        for port, used in ports.items():
            bits = [0.0] * LEVELS
            drops = 0.0
            for use in used:
                old = earlier.get((port, use.queue))
                # A switch that was restarted has counted from zero again.
                if old is not None and use.size_bytes >= old.size_bytes and use.queue < LEVELS:
                    bits[use.queue] = (use.size_bytes - old.size_bytes) * _BITS / seconds
                    drops += max(0, use.dropped_packets - old.dropped_packets) / seconds
            found.append(
                PortUse(
                    switch=name,
                    port=port,
                    to=used[0].to,
                    rate_bps=used[0].rate_bps,
                    queues_bps=tuple(bits),
                    drops_per_s=drops,
                )
            )
    return found


def routes() -> "APIRouter":
    """Return the endpoints."""
    from fastapi import Response

    from echelon.controller.machine.events import TakeSwitch
    from echelon.controller.service.api.answers import errors
    from echelon.controller.service.api.routing import TheService, answer, router
    from echelon.controller.service.trail import ORIGIN

    made = router("switches")

    @made.get("/switches", responses=errors())
    async def list_switches(service: TheService) -> Sequence[SwitchResource]:
        """List all switches of the fabric and their states."""
        return listed(service)

    @made.get("/switches/{name}", responses=errors(404))
    async def show_switch(service: TheService, name: str) -> SwitchResource:
        """Return one switch."""
        return SwitchResource.of(service.leader.switches[name].snapshot())

    @made.post("/switches/{name}/take", status_code=202, responses=errors(404))
    async def take_switch(service: TheService, name: str) -> SwitchResource:
        """Take the switch back from another controller, to which this one has left it.

        It happens after the answer.
        """
        found = SwitchResource.of(service.leader.switches[name].snapshot())
        service.leader.record("take switch", name, ORIGIN.get())
        service.leader.submit(TakeSwitch(name))
        return found

    @made.get("/switches/{name}/intent", response_model=IntentResource, responses=errors(404))
    async def show_intent(service: TheService, name: str) -> Response:
        """Return what the switch should hold."""
        planned = service.in_force.planned
        return answer(
            IntentResource.of(planned.intents[service.leader.switches[name].name]), "entries"
        )

    @made.get("/switches/{name}/difference", responses=errors(404))
    async def show_difference(service: TheService, name: str) -> SwitchDifference:
        """Read the switch and return what would be written to it; write nothing."""
        connection = service.leader.switches[name]
        intent = service.in_force.planned.intents[name]
        try:
            found = await connection.difference(intent)
        except SouthboundError as error:
            return SwitchDifference(switch=name, reachable=False, problem=str(error))
        return SwitchDifference(
            switch=name,
            reachable=True,
            inserts=EntryResource.read(found.inserts),
            modifies=EntryResource.read(found.modifies),
            deletes=EntryResource.read(found.deletes),
            foreign=found.foreign,
        )

    @made.get("/switches/{name}/queues", responses=errors(404))
    async def show_queues(service: TheService, name: str) -> SwitchQueues:
        """Read what has passed each queue of the switch's ports."""
        return await queues(service, name)

    return made


def _match(name: str, match: Match) -> str:
    match match:
        case Prefix(value, length):
            return f"{ipaddress.IPv4Address(value)}/{length}"
        case Interval(low, high):
            return f"{low}..{high}"
        case int():
            return _number(name, match)


_ADDRESSES = frozenset({"src", "dst", "dst_mac"})
_MAC_FROM = 1 << 32


def _number(name: str, value: int) -> str:
    """Return an address as it is usually written, and any other number in decimal."""
    if name not in _ADDRESSES:
        return str(value)
    if value < _MAC_FROM and name != "dst_mac":
        return str(ipaddress.IPv4Address(value))
    return ":".join(f"{byte:02x}" for byte in value.to_bytes(6, "big"))
