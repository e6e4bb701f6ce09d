"""A device behind BF Runtime that executes the TNA program's sources, rewritten for v1model.

It stands for the compiled program where p4c's Tofino back end is not installed. Direct counters
stay 0, and tables that the rewritten program does not have keep their entries without effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from echelon_tofino_model.bfruntime.device import BfrtProgram, Data, Key
from echelon_tofino_model.bfruntime.schema import BfrtTable
from echelon_tofino_model.bfruntime.store import MatchEntries, StoredDevice
from echelon_tofino_model.bfruntime.traffic import TrafficManager
from softswitch import Switch, load_program
from softswitch.tables import Table

_PRIORITY = "$MATCH_PRIORITY"


class SourceDevice(StoredDevice):
    """The device; it hands each program that is loaded to `on_switch`."""

    def __init__(self, traffic: TrafficManager, on_switch: Callable[[Any], object]) -> None:
        super().__init__(traffic)
        self._on_switch = on_switch

    def load(self, program: BfrtProgram) -> None:
        super().load(program)
        switch = Switch(load_program(program.binary, program.name))
        for name, described in program.schema.tables.items():
            table = switch.tables.get(name.partition(".")[2])
            if table is not None:
                self._entries[name] = _Entries(described, table)
        (digest,) = program.schema.digests.values()
        executed = _Executed(switch)

        def learned(_now_ns: int, _name: str, fields: Mapping[str, int]) -> None:
            if self.on_digest is not None:
                self.on_digest(digest.name, [fields])

        executed.on_digest = learned
        names = [field.name for field in digest.fields]
        switch.on_digest = lambda now_ns, name, _list, values: executed.on_digest(
            now_ns, name, dict(zip(names, values, strict=True))
        )
        self._on_switch(executed)


class _Executed:
    """A switch whose digests have names for their fields, as those of a `TofinoSwitch` have."""

    def __init__(self, switch: Switch) -> None:
        self.ingress, self.egress = switch.ingress, switch.egress
        self.on_digest: Callable[[int, str, Mapping[str, int]], None]


class _Entries(MatchEntries):
    """Entries that are passed on to a table of the switch."""

    def __init__(self, described: BfrtTable, table: Table) -> None:
        super().__init__(described)
        self._described = described
        self._passed = table
        self._handles: dict[Key, int] = {}

    def insert(self, key: Key, data: Data) -> None:
        super().insert(key, data)
        parts = [tuple(part) if isinstance(part, tuple) else part for part in key]
        # A Tofino looks at the lowest number first, BMv2 at the highest.
        priority = (1 << 24) - parts.pop() if self._described.key[-1].name == _PRIORITY else 0
        self._handles[key] = self._with_action(
            key, partial(self._passed.insert, tuple(parts), priority)
        )

    def modify(self, key: Key, data: Data) -> None:
        super().modify(key, data)
        self._with_action(key, partial(self._passed.modify, self._handles[key]))

    def delete(self, key: Key) -> None:
        super().delete(key)
        self._passed.delete(self._handles.pop(key))

    def _with_action(self, key: Key, call: Callable[[str, list[int]], Any]) -> Any:
        data = super().get(key)
        assert data.action is not None
        action = self._described.action_by_name[data.action]
        name = (
            action.name if action.name in self._passed.actions else action.name.rpartition(".")[2]
        )
        return call(name, [data.fields[field.name] for field in action.fields])
