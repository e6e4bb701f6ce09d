"""Switches: their state, their intents and entries, and what has passed their queues."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fastapi import Response

from echelon.controller.machine.events import TakeSwitch
from echelon.controller.resources.switches import (
    EntryResource,
    IntentResource,
    QueueResource,
    QueueUse,
    SwitchDifference,
    SwitchQueues,
    SwitchResource,
)
from echelon.controller.service.api.answers import errors
from echelon.controller.service.api.routing import TheService, answer_in_pieces, router
from echelon.controller.service.trail import ORIGIN
from echelon.switches.lowering.intent import Interval, Match, Prefix
from echelon.switches.southbound.errors import SouthboundError

if TYPE_CHECKING:
    from echelon.controller.service.controller import ControllerService
    from echelon.model.fabric.model import Fabric
    from echelon.switches.lowering.intent import ActionCall, Intent, QueueSetting, TableEntry
    from echelon.switches.southbound.codec import EntryText
    from echelon.switches.southbound.connection import ConnectionSnapshot
    from echelon.switches.southbound.queues import QueueCount

_ADDRESSES = frozenset({"src", "dst", "dst_mac"})
"""The fields and parameters that hold addresses."""
_SMALLEST_MAC = 1 << 32
"""The smallest number that is a MAC address, where a field holds one or an IPv4 address."""


def switch_resource(snapshot: ConnectionSnapshot) -> SwitchResource:
    """Return a switch as its connection sees it."""
    switch = SwitchResource.model_validate(snapshot, from_attributes=True)
    return switch.model_copy(update={"election_id": snapshot.term})


def intent_resource(intent: Intent) -> IntentResource:
    """Return what a switch should hold."""
    entries = []
    for part in intent.parts:
        entries += [entry_resource(entry, part.owner) for entry in part.entries]
    return IntentResource(
        switch=intent.switch,
        entries=tuple(entries),
        queues=tuple(map(queue_resource, intent.queues)),
    )


def queue_resource(setting: QueueSetting) -> QueueResource:
    """Return the setting of a queue."""
    return QueueResource.model_validate(setting, from_attributes=True)


def entry_resource(entry: TableEntry, owner: str | None = None) -> EntryResource:
    """Return an entry of an intent."""
    return EntryResource(
        table=entry.table,
        match={name: _match_text(name, value) for name, value in entry.match},
        action="; ".join(map(_call_text, entry.actions)),
        priority=entry.priority,
        owner=owner,
    )


def entry_resources(entries: Iterable[EntryText]) -> tuple[EntryResource, ...]:
    """Return entries of a switch."""
    resources = [EntryResource.model_validate(entry, from_attributes=True) for entry in entries]
    return tuple(resources)


def _call_text(call: ActionCall) -> str:
    arguments = [f"{name}={_number_text(name, value)}" for name, value in call.arguments]
    return f"{call.name}({', '.join(arguments)})"


def _match_text(name: str, match: Match) -> str:
    match match:
        case Prefix(value, length):
            return f"{ipaddress.IPv4Address(value)}/{length}"
        case Interval(low, high):
            return f"{low}..{high}"
        case int():
            return _number_text(name, match)


def _number_text(name: str, value: int) -> str:
    """Return an address as it is usually written, and any other number in decimal."""
    if name not in _ADDRESSES:
        return str(value)
    if value < _SMALLEST_MAC and name != "dst_mac":
        return str(ipaddress.IPv4Address(value))
    return value.to_bytes(6, "big").hex(":")


def listed(service: ControllerService) -> Sequence[SwitchResource]:
    """Return all switches."""
    snapshots = service.leader.switches.snapshots()
    return [switch_resource(snapshot) for snapshot in snapshots]


async def queues(service: ControllerService, switch: str) -> SwitchQueues:
    """Read the counters of a switch's queues."""
    connection = service.leader.switches[switch]
    try:
        counts = await connection.queue_counts()
    except SouthboundError as error:
        return SwitchQueues(
            switch=switch,
            reachable=False,
            problem=str(error),
            at=time.time(),
        )
    return SwitchQueues(
        switch=switch,
        reachable=True,
        at=time.time(),
        queues=tuple(_queue_uses(switch, counts, service.fabric)),
    )


def _queue_uses(
    switch: str,
    counts: Mapping[tuple[int, int], QueueCount],
    fabric: Fabric,
) -> Iterator[QueueUse]:
    """Yield the counts of the ports that the fabric uses."""
    for (port, queue), count in sorted(counts.items()):
        neighbour = fabric.neighbour.get((switch, port))
        if neighbour is None:
            continue
        yield QueueUse(
            port=port,
            to=neighbour,
            rate_bps=fabric.rate_bps[switch, neighbour],
            queue=queue,
            packets=count.packets,
            size_bytes=count.size_bytes,
            dropped_packets=count.dropped_packets,
        )


routes = router("switches")


@routes.get("/switches", responses=errors())
async def list_switches(service: TheService) -> Sequence[SwitchResource]:
    """List all switches of the fabric and their states."""
    return listed(service)


@routes.get("/switches/{name}", responses=errors(404))
async def show_switch(service: TheService, name: str) -> SwitchResource:
    """Return one switch."""
    connection = service.leader.switches[name]
    return switch_resource(connection.snapshot())


@routes.post(
    "/switches/{name}/take",
    status_code=202,
    responses=errors(404),
)
async def take_switch(service: TheService, name: str) -> SwitchResource:
    """Take the switch back from another controller, to which this one has left it.

    It happens after the answer.
    """
    leader = service.leader
    switch = switch_resource(leader.switches[name].snapshot())
    leader.record("take switch", name, ORIGIN.get())
    leader.submit(TakeSwitch(name))
    return switch


@routes.get(
    "/switches/{name}/intent",
    response_model=IntentResource,
    responses=errors(404),
)
async def show_intent(service: TheService, name: str) -> Response:
    """Return what the switch should hold."""
    planned = service.in_force.planned
    connection = service.leader.switches[name]
    intent = planned.intents[connection.name]
    return answer_in_pieces(intent_resource(intent), "entries")


@routes.get("/switches/{name}/difference", responses=errors(404))
async def show_difference(service: TheService, name: str) -> SwitchDifference:
    """Read the switch and return what would be written to it; write nothing."""
    connection = service.leader.switches[name]
    intent = service.in_force.planned.intents[name]
    try:
        difference = await connection.difference(intent)
    except SouthboundError as error:
        return SwitchDifference(
            switch=name,
            reachable=False,
            problem=str(error),
        )
    return SwitchDifference(
        switch=name,
        reachable=True,
        inserts=entry_resources(difference.inserts),
        modifies=entry_resources(difference.modifies),
        deletes=entry_resources(difference.deletes),
        foreign=difference.foreign,
    )


@routes.get("/switches/{name}/queues", responses=errors(404))
async def show_queues(service: TheService, name: str) -> SwitchQueues:
    """Read what has passed each queue of the switch's ports."""
    return await queues(service, name)
