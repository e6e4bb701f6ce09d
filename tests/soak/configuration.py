"""Random contents for everything of a switch that a controller can write."""

from __future__ import annotations

import random

from softswitch import (
    ActionProfile,
    CloneSession,
    DuplicateEntry,
    KeyElement,
    MeterConfig,
    Switch,
    Table,
    TableError,
    TableFull,
    ir,
)
from softswitch.valuesets import ValueElement
from tests.differential.vocabulary import Vocabulary

ENTRIES = 24
"""Entries that are tried per table."""
GROUPS = 16
"""Multicast groups and clone sessions, numbered from 1; one in eight is left out, so that programs
name absent ones.
"""
SMALL = 4
"""Identifiers that one table gives and another looks up are below this half of the time, so that
they meet.
"""
PORTS = 12
"""Ports that packets are sent to."""


class Configuration:
    """A configuration of `switch`; every value is drawn from `rng` and `vocabulary`, so a seed
    gives the same switch again.
    """

    def __init__(self, switch: Switch, vocabulary: Vocabulary, rng: random.Random) -> None:
        self._switch = switch
        self._vocabulary = vocabulary
        self._rng = rng
        spec = switch.program.ir
        self._by_metadata = {
            node.name: {
                place
                for place, key in enumerate(node.keys)
                if isinstance(key.value, ir.FieldRef) and spec.headers[key.value.header].metadata
            }
            for pipeline in (spec.ingress, spec.egress)
            for node in pipeline.nodes.values()
            if isinstance(node, ir.TableSpec)
        }

    def write(self) -> None:
        """Fill a new switch."""
        switch, rng = self._switch, self._rng
        for profile in switch.action_profiles.values():
            self._fill_profile(profile)
        for table in switch.tables.values():
            self._fill(table)
        for meter in switch.meters.values():
            for index in range(min(meter.size, 64)):
                if rng.random() < 0.7:
                    meter.configure(index, self._rates())
        for number in range(1, GROUPS + 1):
            if rng.random() < 7 / 8:
                switch.multicast_groups[number] = self._replicas()
            if rng.random() < 7 / 8:
                cut = rng.choice((None, None, 1, 20, 1500))
                switch.clone_sessions[number] = CloneSession(
                    self._replicas(), cut, rng.randrange(8)
                )

        for name, members in switch.value_sets.items():
            widths = value_set_widths(switch, name)
            for _ in range(rng.randrange(6)):
                members.add(tuple(self._member(width) for width in widths))

    def change(self) -> None:
        """Change something at random: entries come, go and are altered while packets pass."""
        tables = list(self._switch.tables.values())
        if not tables:
            return
        table = self._rng.choice(tables)
        if table.is_const or not table.key_names or self._rng.random() < 0.2:
            self._set_default(table)
            return
        handles = [entry.handle for entry in table.entries()]
        if handles and self._rng.random() < 0.5:
            table.delete(self._rng.choice(handles))
        else:
            self._insert(table)

    def _replicas(self) -> list[tuple[int, int]]:
        return [
            (self._rng.randrange(PORTS), self._rng.randrange(1 << 16))
            for _ in range(self._rng.randrange(1, 4))
        ]

    def _member(self, width: int) -> ValueElement:
        value = self._vocabulary.any(width)
        other = self._vocabulary.any(width)
        return self._rng.choice(
            (value, (value & other, other), range(min(value, other), max(value, other) + 1), None)
        )

    def _rates(self) -> MeterConfig:
        committed = self._rng.choice((0, 1, 1000, 10**6))
        return MeterConfig(
            committed, self._rng.randrange(2000), committed * 2 + 1, self._rng.randrange(4000)
        )

    def _fill(self, table: Table) -> None:
        if not table.is_const and table.key_names:
            for _ in range(min(ENTRIES, table.max_size)):
                self._insert(table)
            for entry in table.entries():
                if table.meter_unit is not None:
                    entry.meter.configure(self._rates())
        if self._rng.random() < 0.5:
            self._set_default(table)

    def _set_default(self, table: Table) -> None:
        """Set the program's default action, or another one."""
        if table.profile is not None:
            return
        table.reset_default()
        if self._rng.random() < 0.7:
            action, args = self._call(table)
            try:
                table.set_default(action, args)
            except TableError:
                return  # the program has made its default constant

    def _insert(self, table: Table) -> None:
        key = [
            self._element(table, place, kind, width)
            for place, (kind, width) in enumerate(
                zip(table.match_types, table.key_widths, strict=True)
            )
        ]
        priority = self._rng.randrange(1, 100)
        try:
            if table.profile is None:
                table.insert(key, priority, *self._call(table))
            elif table.profile.groups and self._rng.random() < 0.6:
                table.insert_indirect(
                    key, priority, group=self._rng.choice(list(table.profile.groups))
                )
            else:
                table.insert_indirect(
                    key, priority, member=self._rng.choice(list(table.profile.members))
                )
        except (DuplicateEntry, TableFull):
            return  # so be it: entries are random, and this one has no place

    def _element(self, table: Table, place: int, kind: str, width: int) -> KeyElement:
        rng, full = self._rng, (1 << width) - 1
        value = self._key(table, place, width)
        if kind == "exact":
            return value
        if rng.random() < 0.15:
            return None
        if kind == "lpm":
            length = rng.choice((width, width, rng.randrange(width + 1)))
            return value & ~(full >> length) & full, length
        if kind == "ternary":
            mask = rng.choice((full, full, rng.getrandbits(width)))
            return value & mask, mask
        low, high = sorted((value, self._key(table, place, width)))
        return low, high

    def _key(self, table: Table, place: int, width: int) -> int:
        """Return a value that packets carry; for metadata more often a small number, as other
        tables' actions give it.
        """
        if self._rng.random() < (0.7 if place in self._by_metadata[table.name] else 0.3):
            return self._small(width)
        return self._vocabulary.key(table.name, place, width)

    def _small(self, width: int) -> int:
        return self._rng.randrange(min(SMALL, 1 << width))

    def _call(self, table: Table) -> tuple[str, list[int]]:
        name = self._rng.choice(table.actions)
        return name, [self._argument(param.width) for param in table.action_params[name]]

    def _argument(self, width: int) -> int:
        if width == 9 and self._rng.random() < 0.9:
            return self._rng.randrange(PORTS)
        return self._small(width) if self._rng.random() < 0.5 else self._vocabulary.any(width)

    def _fill_profile(self, profile: ActionProfile) -> None:
        tables = [table for table in self._switch.tables.values() if table.profile is profile]
        for number in range(1, min(8, profile.max_size) + 1):
            profile.insert_member(number, *self._call(self._rng.choice(tables)))
        if profile.has_selector:
            for number in range(1, 5):
                members = self._rng.sample(
                    list(profile.members), self._rng.randrange(1, len(profile.members) + 1)
                )
                profile.insert_group(
                    number, {member: self._rng.randrange(1, 4) for member in members}
                )
            profile.insert_group(5, {})


def value_set_widths(switch: Switch, name: str) -> list[int]:
    """Return the widths of the fields that the parser looks up in a value set, none if it looks
    nothing up.
    """
    for state in switch.program.ir.parser.states.values():
        if any(transition.value_set == name for transition in state.transitions):
            return [part.width for part in state.key]
    return []
