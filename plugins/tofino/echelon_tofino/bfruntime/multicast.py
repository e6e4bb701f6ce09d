"""The fixed tables of multicast: nodes, and the groups that name them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from echelon_tofino.bfruntime.device import Data, Entries, Key
from echelon_tofino.bfruntime.fixed import GROUP, NODE, fixed_schema
from echelon_tofino.bfruntime.store import MatchEntries
from softswitch.rpc.status import Code, RefusedError

__all__ = ["Multicast"]

_NODES = "$MULTICAST_NODE_ID"

Groups = Mapping[int, Sequence[tuple[int, int]]]
"""The port and the instance of each copy, by group."""


class Multicast:
    """The tables `$pre.node` and `$pre.mgid`. Each change is told to `changed`.

    Ports and instances of nodes have their effect; exclusion ids and link aggregation are kept without any.
    """

    def __init__(self, changed: Callable[[Groups], None]) -> None:
        self._changed = changed
        self._nodes, self._groups = _Watched(NODE, self._check), _Watched(GROUP, self._check)
        self._tables: Mapping[str, Entries] = {NODE: self._nodes, GROUP: self._groups}

    def entries(self, table: str) -> Entries | None:
        """Return the entries of one of the two tables; None for another one."""
        return self._tables.get(table)

    def reset(self) -> None:
        """Remove all groups and nodes."""
        self._groups.clear()
        self._nodes.clear()

    def _check(self) -> None:
        """Tell what the tables say. Raise RefusedError if a group names a node that is not there."""
        nodes = {int(key[0]): data.fields for key, data in self._nodes.all()}
        groups: dict[int, list[tuple[int, int]]] = {}
        for key, data in self._groups.all():
            copies = groups[int(key[0])] = []
            for node in data.fields[_NODES]:
                if node not in nodes:
                    text = f"{GROUP}: group {key[0]} names node {node}, which is not in {NODE}"
                    raise RefusedError(Code.INVALID_ARGUMENT, text)
                rid = int(nodes[node]["$MULTICAST_RID"])
                copies += [(int(port), rid) for port in nodes[node]["$DEV_PORT"]]
        self._changed(groups)


class _Watched(MatchEntries):
    """Entries whose changes are checked, and undone if they are refused."""

    def __init__(self, table: str, check: Callable[[], None]) -> None:
        super().__init__(fixed_schema().tables[table])
        self._check = check

    def insert(self, key: Key, data: Data) -> None:
        super().insert(key, data)
        self._checked(lambda: MatchEntries.delete(self, key))

    def modify(self, key: Key, data: Data) -> None:
        before = self.get(key)
        super().modify(key, data)
        self._checked(lambda: MatchEntries.modify(self, key, before))

    def delete(self, key: Key) -> None:
        before = self.get(key)
        super().delete(key)
        self._checked(lambda: MatchEntries.insert(self, key, before))

    def clear(self) -> None:
        for key, _ in self.all():
            self.delete(key)

    def _checked(self, undo: Callable[[], None]) -> None:
        try:
            self._check()
        except RefusedError:
            undo()
            raise
