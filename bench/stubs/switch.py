# ruff: noqa: N802 - methods have the names of the calls of P4Runtime and gNMI
"""A switch that acknowledges everything it is told by P4Runtime and gNMI, and remembers it.

It checks nothing and passes no packets; a read returns what was written. Messages that the service
sends most, writes of entries, are the only ones whose cost matters here.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
from finsy.proto import gnmi, gnmi_grpc, p4r, p4r_grpc

ENTRIES_PER_ANSWER = 1000


class StubSwitch(p4r_grpc.P4RuntimeServicer):
    """The P4Runtime of one switch."""

    def __init__(self, device_id: int, ports: int) -> None:
        self.device_id = device_id
        self.queues = StubQueues(ports)
        self._cookie: int | None = None
        """All that is kept of the program, which has megabytes."""
        self._entities: dict[str | None, dict[bytes, p4r.Entity]] = defaultdict(dict)
        """The entities of each kind, by their keys."""
        self._written: list[Any] = []
        """The Writes that are not among them yet.

        A real switch has a processor of its own: to sort entries would take that of the service.
        """
        self.updates = 0

    async def StreamChannel(self, requests: AsyncIterator[Any], _: Any) -> AsyncIterator[Any]:
        """Make each client that claims the switch its primary."""
        async for request in requests:
            if request.HasField("arbitration"):
                yield p4r.StreamMessageResponse(arbitration=request.arbitration)

    async def Capabilities(self, _request: Any, _: Any) -> p4r.CapabilitiesResponse:
        return p4r.CapabilitiesResponse(p4runtime_api_version="1.4.1")

    async def SetForwardingPipelineConfig(self, request: Any, _: Any) -> Any:
        self._cookie = request.config.cookie.cookie
        self._written.clear()
        self._entities.clear()
        return p4r.SetForwardingPipelineConfigResponse()

    async def GetForwardingPipelineConfig(self, _request: Any, context: Any) -> Any:
        if self._cookie is None:
            code = grpc.StatusCode.FAILED_PRECONDITION
            await context.abort(code, "no forwarding pipeline config has been set")
        assert self._cookie is not None
        config = p4r.ForwardingPipelineConfig()
        config.cookie.cookie = self._cookie
        return p4r.GetForwardingPipelineConfigResponse(config=config)

    async def Write(self, request: Any, _: Any) -> p4r.WriteResponse:
        self._written.append(request)
        self.updates += len(request.updates)
        return p4r.WriteResponse()

    def _take_up(self) -> None:
        """Take up what was written since the last reading."""
        for request in self._written:
            for update in request.updates:
                entity = update.entity
                kind = entity.WhichOneof("entity")
                entities = self._entities[kind]
                key = _key(entity)
                if update.type == p4r.Update.DELETE:
                    entities.pop(key, None)
                else:
                    entities[key] = entity
        self._written.clear()

    async def Read(self, request: Any, _: Any) -> AsyncIterator[p4r.ReadResponse]:
        self._take_up()
        entities = []
        for query in request.entities:
            entities += self._selected(query)
        for first in range(0, len(entities), ENTRIES_PER_ANSWER):
            part = entities[first : first + ENTRIES_PER_ANSWER]
            yield p4r.ReadResponse(entities=part)

    def _selected(self, query: p4r.Entity) -> list[p4r.Entity]:
        """Return the entry that a query names, or all entities of its kind."""
        entities = self._entities[query.WhichOneof("entity")]
        if not query.table_entry.table_id:
            return list(entities.values())
        key = _key(query)
        if key in entities:
            return [entities[key]]
        return []


def _key(entity: p4r.Entity) -> bytes:
    """Return the key of an entity: its content without what a modification changes."""
    if entity.HasField("table_entry"):
        entry = entity.table_entry
        # Actions, meters and counters are what a modification changes.
        key = p4r.TableEntry(
            table_id=entry.table_id,
            match=entry.match,
            priority=entry.priority,
            is_default_action=entry.is_default_action,
        )
        return key.SerializeToString(deterministic=True)
    if entity.HasField("digest_entry"):
        digest = entity.digest_entry
        return b"digest %d" % digest.digest_id
    replication = entity.packet_replication_engine_entry
    group = replication.multicast_group_entry
    return b"group %d" % group.multicast_group_id


class StubQueues(gnmi_grpc.gNMIServicer):
    """The gNMI of one switch: its ports are up, and its queues are as they were set."""

    def __init__(self, ports: int) -> None:
        self._ports = ports
        self._leaves: dict[bytes, gnmi.Update] = {}
        self._set: list[gnmi.Update] = []
        """What was set and is not among the leaves yet."""

    async def Capabilities(self, _request: Any, _: Any) -> gnmi.CapabilityResponse:
        return gnmi.CapabilityResponse(gNMI_version="0.8.0")

    async def Get(self, request: Any, _: Any) -> gnmi.GetResponse:
        """Return all leaves of queues' configurations; there are no counts."""
        notification = gnmi.Notification()
        if any(map(_is_configuration, request.path)):
            self._take_up()
            notification.update.extend(self._leaves.values())
        return gnmi.GetResponse(notification=[notification])

    async def Set(self, request: Any, _: Any) -> gnmi.SetResponse:
        self._set += request.update
        return gnmi.SetResponse()

    def _take_up(self) -> None:
        for update in self._set:
            for leaf in _leaves(update):
                path = leaf.path.SerializeToString(deterministic=True)
                self._leaves[path] = leaf
        self._set.clear()

    async def Subscribe(self, requests: AsyncIterator[Any], _: Any) -> AsyncIterator[Any]:
        """Say that all ports are up, and no more."""
        async for request in requests:
            if not request.HasField("subscribe"):
                continue
            ports = range(1, self._ports + 1)
            notification = gnmi.Notification()
            notification.update.extend(map(_port_up, ports))
            yield gnmi.SubscribeResponse(update=notification)
            yield gnmi.SubscribeResponse(sync_response=True)
        # The stream stays open, because its end would be a failure.
        never = asyncio.Event()
        await never.wait()


def _is_configuration(path: gnmi.Path) -> bool:
    names = [elem.name for elem in path.elem]
    return "config" in names


def _leaves(update: gnmi.Update) -> Iterator[gnmi.Update]:
    """Yield an update of each leaf of a queue's configuration, which is set as JSON."""
    settings = json.loads(update.val.json_ietf_val)
    for name, value in settings.items():
        if name == "name":
            continue
        leaf = gnmi.Update(path=update.path)
        leaf.path.elem.add(name=name)
        leaf.val.uint_val = int(value)
        yield leaf


def _port_up(port: int) -> gnmi.Update:
    update = gnmi.Update()
    elems = update.path.elem
    elems.add(name="interfaces")
    interface = elems.add(name="interface")
    interface.key["name"] = str(port)
    elems.add(name="state")
    elems.add(name="oper-status")
    update.val.string_val = "UP"
    return update
