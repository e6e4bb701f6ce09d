"""Multicast groups by the fixed tables `$pre.node` and `$pre.mgid`.

A node has the ports whose copies are of one instance. Node n * 2^16 + i is that of group n and
instance i.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from echelon.switches.lowering.intent import FIRST_GROUP, MulticastGroup
from echelon.switches.southbound.encoding import UpdateKind
from echelon_tofino.bfrt_proto import bfruntime_pb2 as bfrt
from echelon_tofino.target.fixed import FixedTable, fixed_tables

_NODE = "$pre.node"
_GROUP = "$pre.mgid"
_INSTANCE_BITS = 16
_NUMBER = "$MULTICAST_NODE_ID"


class MulticastTables:
    """The tables of a switch, as its description of fixed tables says.

    Raises ValueError if it has none.
    """

    def __init__(self, description: bytes) -> None:
        tables = fixed_tables(description, (_NODE, _GROUP))
        self._node = tables[_NODE]
        self._group = tables[_GROUP]

    def queries(self) -> list[bfrt.Entity]:
        """Return what reads all groups."""
        return [self._node.query({}), self._group.query({})]

    def groups(self, entries: Iterable[bfrt.TableEntry]) -> dict[int, MulticastGroup]:
        """Return our groups by number, from the entries that the queries found."""
        copies: dict[int, list[tuple[int, int]]] = {}
        members: dict[int, list[int]] = {}
        for entry in entries:
            is_node = entry.table_id == self._node.id
            table = self._node if is_node else self._group
            (number,) = table.key_of(entry).values()
            values = table.values(entry)
            if is_node:
                instance = values["$MULTICAST_RID"]
                ports = values.get("$DEV_PORT", ())
                copies[number] = [(port, instance) for port in ports]
            elif number >= FIRST_GROUP:
                members[number] = values.get(_NUMBER, [])

        groups = {}
        for number, nodes in members.items():
            in_group: list[tuple[int, int]] = []
            for node in nodes:
                in_group += copies.get(node, ())
            in_group.sort()
            groups[number] = MulticastGroup(number, tuple(in_group))
        return groups

    def updates(
        self,
        kind: UpdateKind,
        group: MulticastGroup,
        held: MulticastGroup | None,
    ) -> list[bfrt.Update]:
        """Return what inserts, modifies or deletes a group.

        A node is there as long as a group names it.

        Args:
            held: the group as it is.
        """
        updates = []
        wanted: dict[int, dict[str, Any]] = {}
        if kind is UpdateKind.DELETE:
            updates.append(_deletion(self._group, group.number))
        else:
            wanted = _nodes(group)
            for node, values in wanted.items():
                updates.append(_setting(self._node, node, values))
            count = len(wanted)
            values = {
                _NUMBER: list(wanted),
                "$MULTICAST_NODE_L1_XID_VALID": [False] * count,
                "$MULTICAST_NODE_L1_XID": [0] * count,
            }
            updates.append(_setting(self._group, group.number, values))

        before = {} if held is None else _nodes(held)
        for node in before:
            if node not in wanted:
                updates.append(_deletion(self._node, node))
        return updates


def _setting(
    table: FixedTable,
    number: int,
    values: dict[str, Any],
) -> bfrt.Update:
    (name,) = table.key
    return table.update({name: number}, values, bfrt.Update.INSERT_OR_MODIFY)


def _deletion(table: FixedTable, number: int) -> bfrt.Update:
    (name,) = table.key
    return table.update({name: number}, {}, bfrt.Update.DELETE)


def _nodes(group: MulticastGroup) -> dict[int, dict[str, Any]]:
    """Return the fields of each node of a group."""
    ports: dict[int, list[int]] = defaultdict(list)
    for port, instance in group.copies:
        ports[instance].append(port)
    nodes = {}
    for instance, in_node in ports.items():
        number = group.number << _INSTANCE_BITS | instance
        nodes[number] = {"$MULTICAST_RID": instance, "$MULTICAST_LAG_ID": [], "$DEV_PORT": in_node}
    return nodes
