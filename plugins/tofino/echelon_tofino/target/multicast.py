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

_NODE, _GROUP = "$pre.node", "$pre.mgid"
_INSTANCE_BITS = 16
_NUMBER = "$MULTICAST_NODE_ID"


class MulticastTables:
    """The tables of a switch, as its description of fixed tables says.

    Raises ValueError if it has none.
    """

    def __init__(self, description: bytes) -> None:
        tables = fixed_tables(description, (_NODE, _GROUP))
        self._node, self._group = tables[_NODE], tables[_GROUP]

    def queries(self) -> list[bfrt.Entity]:
        """Return what reads all groups."""
        return [self._node.query({}), self._group.query({})]

    def groups(self, entries: Iterable[bfrt.TableEntry]) -> dict[int, MulticastGroup]:
        """Return our groups by number, from the entries that the queries found."""
        copies: dict[int, list[tuple[int, int]]] = {}
        members: dict[int, list[int]] = {}
        for entry in entries:
            if entry.table_id == self._node.id:
                table = self._node
            else:
                table = self._group
            ((_, number),), values = table.key_of(entry).items(), table.values(entry)
            if table is self._node:
                copies[number] = [
                    (port, values["$MULTICAST_RID"]) for port in values.get("$DEV_PORT", ())
                ]
            elif number >= FIRST_GROUP:
                members[number] = values.get(_NUMBER, [])
        return {
            number: MulticastGroup(
                number, tuple(sorted(copy for node in nodes for copy in copies.get(node, ())))
            )
            for number, nodes in members.items()
        }

    def updates(
        self, kind: UpdateKind, group: MulticastGroup, held: MulticastGroup | None
    ) -> list[bfrt.Update]:
        """Return what inserts, modifies or deletes a group: a node is there as long as a group
        names it.

        Args:
            held: the group as it is.
        """
        if kind is not UpdateKind.DELETE:
            wanted = _nodes(group)
        else:
            wanted = {}
        before = {} if held is None else _nodes(held)
        made = [
            self._update(self._node, node, kind=bfrt.Update.INSERT_OR_MODIFY, values=values)
            for node, values in wanted.items()
        ]
        nodes = list(wanted)
        values = {
            _NUMBER: nodes,
            "$MULTICAST_NODE_L1_XID_VALID": [False] * len(nodes),
            "$MULTICAST_NODE_L1_XID": [0] * len(nodes),
        }
        if kind is UpdateKind.DELETE:
            changed = self._update(self._group, group.number, kind=bfrt.Update.DELETE, values={})
        else:
            changed = self._update(
                self._group, group.number, kind=bfrt.Update.INSERT_OR_MODIFY, values=values
            )
        gone = [
            self._update(self._node, node, kind=bfrt.Update.DELETE, values={})
            for node in before
            if node not in wanted
        ]
        return [*made, changed, *gone]

    @staticmethod
    def _update(
        table: FixedTable, number: int, *, kind: bfrt.Update.Type, values: dict[str, Any]
    ) -> bfrt.Update:
        (name,) = table.key
        return table.update({name: number}, values, kind)


def _nodes(group: MulticastGroup) -> dict[int, dict[str, Any]]:
    """Return the fields of each node of a group."""
    ports: dict[int, list[int]] = defaultdict(list)
    for port, instance in group.copies:
        ports[instance].append(port)
    return {
        group.number << _INSTANCE_BITS | instance: {
            "$MULTICAST_RID": instance,
            "$MULTICAST_LAG_ID": [],
            "$DEV_PORT": at,
        }
        for instance, at in ports.items()
    }
