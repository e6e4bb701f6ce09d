"""Multicast groups and clone sessions in the way of BMv2's command line."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Protocol

from softswitch import CloneSession


class Replicating(Protocol):
    """A switch with multicast groups and clone sessions."""

    @property
    def multicast_groups(self) -> MutableMapping[int, Sequence[tuple[int, int]]]: ...
    @property
    def clone_sessions(self) -> MutableMapping[int, CloneSession]: ...


class Replication:
    """Nodes, which are made first and then associated with groups.

    Raises ValueError with one line for an impossible command.
    """

    def __init__(self, switch: Replicating) -> None:
        self._switch = switch
        self._nodes: list[tuple[int, tuple[int, ...]]] = []
        self._groups: dict[int, list[int]] = {}
        self._sessions: dict[int, tuple[int | None, int | None]] = {}

    def mc_mgrp_create(self, group: int) -> None:
        if group in self._groups:
            raise ValueError(f"multicast group {group} exists")
        self._groups[group] = []
        self._apply()

    def mc_node_create(self, rid: int, *ports: int) -> None:
        self._nodes.append((rid, ports))

    def mc_node_update(self, node: int, *ports: int) -> None:
        rid, _ = self._node(node)
        self._nodes[node] = rid, ports
        self._apply()

    def mc_node_associate(self, group: int, node: int) -> None:
        self._node(node)
        if group not in self._groups:
            raise ValueError(f"there is no multicast group {group}")
        if any(node in members for members in self._groups.values()):
            raise ValueError(f"node {node} is in a group")
        self._groups[group].append(node)
        self._apply()

    def mirroring_add(self, session: int, port: int) -> None:
        _, group = self._sessions.get(session, (None, None))
        self._sessions[session] = port, group
        self._apply()

    def mirroring_add_mc(self, session: int, group: int) -> None:
        port, _ = self._sessions.get(session, (None, None))
        self._sessions[session] = port, group
        self._apply()

    def mirroring_delete(self, session: int) -> None:
        self.mirroring_get(session)
        del self._sessions[session]
        self._apply()

    def mirroring_get(self, session: int) -> None:
        if session not in self._sessions:
            raise ValueError(f"there is no mirroring session {session}")

    def _node(self, node: int) -> tuple[int, tuple[int, ...]]:
        if node >= len(self._nodes):
            raise ValueError(
                f"there is no node {node}: nodes are numbered from 0 in the order they are created"
            )
        return self._nodes[node]

    def _apply(self) -> None:
        groups: dict[int, list[tuple[int, int]]] = {}
        for number, members in self._groups.items():
            groups[number] = []
            for node in members:
                rid, ports = self._nodes[node]
                groups[number] += [(port, rid) for port in ports]
        self._switch.multicast_groups.clear()
        self._switch.multicast_groups.update(groups)
        self._switch.clone_sessions.clear()
        for session, (port, group) in self._sessions.items():
            replicas: list[tuple[int, int]] = []
            if port is not None:
                replicas.append((port, 0))
            if group is not None:
                replicas += groups.get(group, [])
            self._switch.clone_sessions[session] = CloneSession(replicas)
