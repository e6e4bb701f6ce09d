"""Multicast groups and clone sessions (specification: "PacketReplicationEngineEntry")."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

from finsy.proto import p4r

from softswitch import CloneSession, Switch
from softswitch.p4runtime.bytestring import OutOfRangeError, decode, encode
from softswitch.p4runtime.status import Code, RefusedError
from softswitch.tm import QUEUES

__all__ = ["ReplicationStore"]

# Widths of v1model's egress_port, egress_rid and mcast_grp; sessions as many as the reference switch has.
_PORT_BITS = 9
_INSTANCE_MAX = 0xFFFF
_GROUP_MAX = 0xFFFF
_SESSION_MAX = 0x7FFF

Replicas = tuple[tuple[int, int], ...]


class ReplicationStore:
    """PacketReplicationEngineEntry entities. What was written is kept as it was, for reading back."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch
        self._groups: dict[int, p4r.MulticastGroupEntry] = {}
        self._sessions: dict[int, p4r.CloneSessionEntry] = {}

    def write(self, kind: int, entity: p4r.PacketReplicationEngineEntry) -> None:
        """INSERT, MODIFY or DELETE a multicast group or a clone session."""
        which = entity.WhichOneof("type")
        if which == "multicast_group_entry":
            group = p4r.MulticastGroupEntry()
            group.CopyFrom(entity.multicast_group_entry)
            number = group.multicast_group_id
            place = f"multicast group {number}"
            _check_presence(kind, place, number, _GROUP_MAX, self._groups)
            if kind == p4r.Update.DELETE:
                _remove(number, self._groups, self._switch.multicast_groups)
                return
            self._switch.multicast_groups[number] = _replicas(group, place)
            self._groups[number] = group
        elif which == "clone_session_entry":
            session = p4r.CloneSessionEntry()
            session.CopyFrom(entity.clone_session_entry)
            number = session.session_id
            place = f"clone session {number}"
            _check_presence(kind, place, number, _SESSION_MAX, self._sessions)
            if kind == p4r.Update.DELETE:
                _remove(number, self._sessions, self._switch.clone_sessions)
                return
            self._switch.clone_sessions[number] = _clone_session(session, place)
            self._sessions[number] = session
        else:
            raise RefusedError(Code.INVALID_ARGUMENT, "the packet replication engine entry is empty")

    def read(self, query: p4r.PacketReplicationEngineEntry) -> Iterator[p4r.Entity]:
        """Yield one group or session, or all of that kind where the id is 0."""
        which = query.WhichOneof("type")
        if which == "multicast_group_entry":
            wanted = query.multicast_group_entry.multicast_group_id
            for number, group in self._groups.items():
                if wanted in (0, number):
                    entry = p4r.PacketReplicationEngineEntry(multicast_group_entry=group)
                    yield p4r.Entity(packet_replication_engine_entry=entry)
        elif which == "clone_session_entry":
            wanted = query.clone_session_entry.session_id
            for number, session in self._sessions.items():
                if wanted in (0, number):
                    entry = p4r.PacketReplicationEngineEntry(clone_session_entry=session)
                    yield p4r.Entity(packet_replication_engine_entry=entry)
        else:
            raise RefusedError(Code.INVALID_ARGUMENT, "the packet replication engine entry is empty")

    def current(self, entity: p4r.PacketReplicationEngineEntry) -> Iterator[p4r.Entity]:
        """Yield the group or session that an update of `entity` would change."""
        if entity.multicast_group_entry.multicast_group_id or entity.clone_session_entry.session_id:
            yield from self.read(entity)

    def everything(self) -> Iterator[p4r.Entity]:
        """Yield the queries that select all groups and sessions."""
        for entry in (
            p4r.PacketReplicationEngineEntry(multicast_group_entry=p4r.MulticastGroupEntry()),
            p4r.PacketReplicationEngineEntry(clone_session_entry=p4r.CloneSessionEntry()),
        ):
            yield p4r.Entity(packet_replication_engine_entry=entry)


def _check_presence(kind: int, place: str, number: int, most: int, known: dict[int, Any]) -> None:
    if not 1 <= number <= most:
        raise RefusedError(Code.INVALID_ARGUMENT, f"{place}: the id is not in 1..{most}")
    if kind == p4r.Update.INSERT and number in known:
        raise RefusedError(Code.ALREADY_EXISTS, f"{place} exists")
    if kind != p4r.Update.INSERT and number not in known:
        raise RefusedError(Code.NOT_FOUND, f"{place} does not exist")


def _remove(number: int, messages: dict[int, Any], realized: MutableMapping[int, Any]) -> None:
    del messages[number]
    realized.pop(number, None)


def _replicas(entry: p4r.MulticastGroupEntry | p4r.CloneSessionEntry, place: str) -> Replicas:
    """Return (port, instance) pairs, and bring the ports in `entry` to canonical form."""
    found: list[tuple[int, int]] = []
    for replica in entry.replicas:
        if replica.backup_replicas:
            raise RefusedError(Code.UNIMPLEMENTED, f"{place}: backup replicas are not supported")
        if replica.WhichOneof("port_kind") == "port":
            try:
                port = decode(replica.port, _PORT_BITS)
            except OutOfRangeError as error:
                raise RefusedError(Code.INVALID_ARGUMENT, f"{place}: port: {error}") from None
            replica.port = encode(port)
        else:
            port = replica.egress_port
            if port >> _PORT_BITS:
                raise RefusedError(Code.INVALID_ARGUMENT, f"{place}: port {port} does not fit bit<{_PORT_BITS}>")
        if replica.instance > _INSTANCE_MAX:
            raise RefusedError(Code.INVALID_ARGUMENT, f"{place}: instance {replica.instance} is above {_INSTANCE_MAX}")
        if (port, replica.instance) in found:
            raise RefusedError(
                Code.INVALID_ARGUMENT, f"{place}: port {port} with instance {replica.instance} is given twice"
            )
        found.append((port, replica.instance))
    return tuple(found)


def _clone_session(entry: p4r.CloneSessionEntry, place: str) -> CloneSession:
    replicas = _replicas(entry, place)
    if entry.class_of_service >= QUEUES:
        raise RefusedError(
            Code.INVALID_ARGUMENT, f"{place}: class of service {entry.class_of_service} is not in 0..{QUEUES - 1}"
        )
    if entry.packet_length_bytes < 0:
        raise RefusedError(Code.INVALID_ARGUMENT, f"{place}: packet_length_bytes is negative")
    return CloneSession(replicas, entry.packet_length_bytes or None, entry.class_of_service)
