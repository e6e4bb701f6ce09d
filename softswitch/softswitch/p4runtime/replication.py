"""Multicast groups and clone sessions (specification: "PacketReplicationEngineEntry").

A replica with backup replicas goes to the first port of its list that is up. If no port is up, or
there is no backup replica, it goes to its primary port: egress runs and counts as always, and the
port decides what becomes of the packet.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

from finsy.proto import p4r

from softswitch import CloneSession, Switch
from softswitch.p4runtime.bytestring import OutOfRangeError, decode, encode
from softswitch.p4runtime.past import selected
from softswitch.rpc.status import Code, RefusedError
from softswitch.tm import QUEUES

__all__ = ["ReplicationStore"]

# The widths of v1model's egress_port, egress_rid and mcast_grp, and the reference switch's number
# of sessions.
_PORT_BITS = 9
_INSTANCE_MAX = 0xFFFF
_GROUP_MAX = 0xFFFF
_SESSION_MAX = 0x7FFF

Replica = tuple[int, int]
"""(port, instance)."""


@dataclass(frozen=True, slots=True)
class _Session:
    """The settings of a clone session besides its replicas."""

    truncate_bytes: int | None
    queue: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """The replicas of one group or session.

    Each is a list to choose from, most preferred first; `session` is None for a multicast group.
    """

    choices: tuple[tuple[Replica, ...], ...]
    session: _Session | None = None

    @property
    def watched(self) -> frozenset[int]:
        """Return the ports whose state makes a difference."""
        ports: set[int] = set()
        for choice in self.choices:
            if len(choice) > 1:
                ports.update(port for port, _ in choice)
        return frozenset(ports)


class ReplicationStore:
    """PacketReplicationEngineEntry entities. The written messages are kept for reading back."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch
        self._groups: dict[int, p4r.MulticastGroupEntry] = {}
        self._sessions: dict[int, p4r.CloneSessionEntry] = {}
        self._group_plans: dict[int, _Plan] = {}
        self._session_plans: dict[int, _Plan] = {}
        self._watchers: dict[int, set[tuple[bool, int]]] = {}
        """The (whether a clone session, number) of everything that depends on a port, by port."""
        self._down: set[int] = set()

    def write(self, kind: int, entity: p4r.PacketReplicationEngineEntry) -> None:
        """Apply an INSERT, MODIFY or DELETE of a multicast group or a clone session."""
        entry_type = entity.WhichOneof("type")
        if entry_type == "multicast_group_entry":
            group = p4r.MulticastGroupEntry()
            group.CopyFrom(entity.multicast_group_entry)
            number = group.multicast_group_id
            place = f"multicast group {number}"
            _check_presence(kind, place, number, _GROUP_MAX, self._groups)
            if kind == p4r.Update.DELETE:
                self._unwatch(number, self._group_plans.pop(number))
                _remove(number, self._groups, self._switch.multicast_groups)
                return
            self._install(number, _Plan(_choices(group, place)), self._group_plans)
            self._groups[number] = group
        elif entry_type == "clone_session_entry":
            session = p4r.CloneSessionEntry()
            session.CopyFrom(entity.clone_session_entry)
            number = session.session_id
            place = f"clone session {number}"
            _check_presence(kind, place, number, _SESSION_MAX, self._sessions)
            if kind == p4r.Update.DELETE:
                self._unwatch(number, self._session_plans.pop(number))
                _remove(number, self._sessions, self._switch.clone_sessions)
                return
            plan = _Plan(_choices(session, place), _session(session, place))
            self._install(number, plan, self._session_plans)
            self._sessions[number] = session
        else:
            raise RefusedError(
                Code.INVALID_ARGUMENT, "the packet replication engine entry is empty"
            )

    def set_port_up(self, port: int, up: bool) -> None:
        """Choose again where `port` makes a difference."""
        if up:
            self._down.discard(port)
        else:
            self._down.add(port)
        for is_session, number in self._watchers.get(port, ()):
            plans = self._session_plans if is_session else self._group_plans
            self._realize(number, plans[number])

    def _install(
        self,
        number: int,
        plan: _Plan,
        plans: dict[int, _Plan],
    ) -> None:
        if number in plans:
            self._unwatch(number, plans[number])
        plans[number] = plan
        watcher = (plan.session is not None, number)
        for port in plan.watched:
            self._watchers.setdefault(port, set()).add(watcher)
        self._realize(number, plan)

    def _unwatch(self, number: int, plan: _Plan) -> None:
        for port in plan.watched:
            watchers = self._watchers[port]
            watchers.remove((plan.session is not None, number))
            if not watchers:
                del self._watchers[port]

    def _realize(self, number: int, plan: _Plan) -> None:
        replicas = tuple(self._best(choice) for choice in plan.choices)
        session = plan.session
        if session is None:
            self._switch.multicast_groups[number] = replicas
        else:
            realized = CloneSession(replicas, session.truncate_bytes, session.queue)
            self._switch.clone_sessions[number] = realized

    def _best(self, choice: tuple[Replica, ...]) -> Replica:
        """Return the first replica whose port is up, or the first if none is."""
        for replica in choice:
            if replica[0] not in self._down:
                return replica
        return choice[0]

    def read(self, query: p4r.PacketReplicationEngineEntry) -> Iterator[p4r.Entity]:
        """Yield one group or session, or all of that kind if the id is 0."""
        entry_type = query.WhichOneof("type")
        if entry_type == "multicast_group_entry":
            wanted = query.multicast_group_entry.multicast_group_id
            for _, group in selected(self._groups, wanted):
                entry = p4r.PacketReplicationEngineEntry(multicast_group_entry=group)
                yield p4r.Entity(packet_replication_engine_entry=entry)
        elif entry_type == "clone_session_entry":
            wanted = query.clone_session_entry.session_id
            for _, session in selected(self._sessions, wanted):
                entry = p4r.PacketReplicationEngineEntry(clone_session_entry=session)
                yield p4r.Entity(packet_replication_engine_entry=entry)
        else:
            raise RefusedError(
                Code.INVALID_ARGUMENT, "the packet replication engine entry is empty"
            )

    def current(self, entity: p4r.PacketReplicationEngineEntry) -> Iterator[p4r.Entity]:
        """Yield the group or session that an update of `entity` would change."""
        if entity.multicast_group_entry.multicast_group_id or entity.clone_session_entry.session_id:
            yield from self.read(entity)

    def everything(self) -> Iterator[p4r.Entity]:
        """Yield the queries that select all groups and sessions."""
        group = p4r.MulticastGroupEntry()
        entry = p4r.PacketReplicationEngineEntry(multicast_group_entry=group)
        yield p4r.Entity(packet_replication_engine_entry=entry)
        session = p4r.CloneSessionEntry()
        entry = p4r.PacketReplicationEngineEntry(clone_session_entry=session)
        yield p4r.Entity(packet_replication_engine_entry=entry)


def _check_presence(
    kind: int,
    place: str,
    number: int,
    most: int,
    existing: dict[int, Any],
) -> None:
    if not 1 <= number <= most:
        raise RefusedError(Code.INVALID_ARGUMENT, f"{place}: the id is not in 1..{most}")
    if kind == p4r.Update.INSERT and number in existing:
        raise RefusedError(Code.ALREADY_EXISTS, f"{place} exists")
    if kind != p4r.Update.INSERT and number not in existing:
        raise RefusedError(Code.NOT_FOUND, f"{place} does not exist")


def _remove(
    number: int,
    messages: dict[int, Any],
    realized: MutableMapping[int, Any],
) -> None:
    del messages[number]
    realized.pop(number, None)


def _choices(
    entry: p4r.MulticastGroupEntry | p4r.CloneSessionEntry, place: str
) -> tuple[tuple[Replica, ...], ...]:
    """Return the choices of each replica, and bring the ports in `entry` to canonical form."""
    choices: list[tuple[Replica, ...]] = []
    seen: set[Replica] = set()
    for replica in entry.replicas:
        if replica.WhichOneof("port_kind") == "port":
            port, replica.port = _port(replica.port, place)
        else:
            port = replica.egress_port
            if port >> _PORT_BITS:
                raise RefusedError(
                    Code.INVALID_ARGUMENT, f"{place}: port {port} does not fit bit<{_PORT_BITS}>"
                )
        choice = [(port, replica.instance)]
        for backup in replica.backup_replicas:
            backup_port, backup.port = _port(backup.port, place)
            if backup_port == port:
                raise RefusedError(
                    Code.INVALID_ARGUMENT,
                    f"{place}: port {port} is the backup of a replica to the same port",
                )
            choice.append((backup_port, backup.instance))
        for number, instance in choice:
            if instance > _INSTANCE_MAX:
                raise RefusedError(
                    Code.INVALID_ARGUMENT, f"{place}: instance {instance} is above {_INSTANCE_MAX}"
                )
            if (number, instance) in seen:
                raise RefusedError(
                    Code.INVALID_ARGUMENT,
                    f"{place}: port {number} with instance {instance} is given twice",
                )
            seen.add((number, instance))
        choices.append(tuple(choice))
    return tuple(choices)


def _port(data: bytes, place: str) -> tuple[int, bytes]:
    """Return the port and its canonical byte string."""
    try:
        port = decode(data, _PORT_BITS)
    except OutOfRangeError as error:
        raise RefusedError(Code.INVALID_ARGUMENT, f"{place}: port: {error}") from None
    return port, encode(port)


def _session(entry: p4r.CloneSessionEntry, place: str) -> _Session:
    if entry.class_of_service >= QUEUES:
        raise RefusedError(
            Code.INVALID_ARGUMENT,
            f"{place}: class of service {entry.class_of_service} is not in 0..{QUEUES - 1}",
        )
    if entry.packet_length_bytes < 0:
        raise RefusedError(Code.INVALID_ARGUMENT, f"{place}: packet_length_bytes is negative")
    return _Session(entry.packet_length_bytes or None, entry.class_of_service)
