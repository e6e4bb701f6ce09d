"""The model of a switch with Tofino's program behind it, executed from its assembly, packet by
packet.

`python -m plugins.aggregation.tests.sequences --on tofino --count 1000` runs so many sequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

from finsy.proto import p4r

from echelon.model.p4program import program
from echelon.switches.lowering.intent import Match, MulticastGroup, Prefix, TableEntry
from echelon_aggregation.program import BUILDS
from echelon_aggregation.wire import Flag
from echelon_tofino_model.emulator import TofinoSwitch, load_assembly
from echelon_tofino_model.emulator.tables import MatchTable
from plugins.aggregation.tests.program_switch import Item, Key, Programs, ProgramSwitch
from plugins.aggregation.tests.reference_switch import (
    Datagram,
    Entry,
    Place,
    Reason,
    Sent,
    Switch,
    Take,
)
from softswitch import Queued
from softswitch.lookup import KeyElement

BUILD = BUILDS / "tna"
VALUES = 64


class TofinoModel(Switch):
    """The model, but for what the page says of Tofino."""

    tells_overflow = False

    def _contribution(self, entry: Entry, port: int, datagram: Datagram) -> Sent:
        packet = datagram.packet
        _, behind = self.members[packet.tree, port]
        if packet.workers != behind and packet.workers.bit_count() > 1:
            return self._pass(Reason.PASSED, datagram)
        if entry.take == Take.DEADLINE:
            entry = replace(entry, take=Take.FIRST)
        index = entry.first + ((packet.block + entry.start) & entry.mask)
        there = self.places.get(index)
        if (
            entry.take == Take.OWN
            and there is not None
            and there.tree != packet.tree
            and not packet.flags & Flag.AGAIN
        ):
            # Sequences give places to two trees that should be one's alone: whoever comes takes
            # them, with any workers.
            del self.places[index]
        place = self._own(index, datagram)
        is_switch = packet.workers == behind and behind.bit_count() > 1
        before = 0 if place is None else place.workers & behind
        if is_switch and before and place is not None and behind not in _at_once(place):
            return self._pass(Reason.PASSED, datagram)
        sent = super()._contribution(entry, port, datagram)
        place = self._own(index, datagram)
        if is_switch and not before and place is not None:
            _at_once(place).add(behind)
        return sent

    def _own(self, index: int, datagram: Datagram) -> Place | None:
        """Return the place if it has the packet's block."""
        place, packet = self.places.get(index), datagram.packet
        owner = None if place is None else (place.tree, place.session, place.block)
        return place if owner == (packet.tree, packet.session, packet.block) else None


def _at_once(place: Place) -> set[int]:
    """Return the workers of each child that is a switch and whose sum came as a whole."""
    found: set[int] = vars(place).setdefault("at_once", set())
    return found


class _LosingSwitch(TofinoSwitch):
    """A switch whose loopback port may lose a packet."""

    lose: int | None = None

    def _ingress(
        self, port: int, data: bytes, now_ns: int, resubmitted: bytes | None, depth: int
    ) -> list[Queued]:
        if port in self.recirculation_ports and self.lose is not None:
            self.lose -= 1
            if not self.lose:
                self.lose = None
                return []
        return super()._ingress(port, data, now_ns, resubmitted, depth)


class InAssembly:
    """The program on a switch that executes its assembly."""

    burst = 1

    def __init__(self) -> None:
        self.installed: dict[Key, Item] = {}
        self._switch = _LosingSwitch(load_assembly(_assembly(), "echelon.bfa"))
        tables = self._switch.program.tables
        self._tables = {name.rpartition(".")[2]: table for name, table in tables.items()}

    def write(self, kind: int, items: Iterable[Item]) -> None:
        for item in items:
            self._put(kind, item)

    def _put(self, kind: int, item: Item) -> None:
        """Insert, modify or delete an item.

        Entries of tables that the program lacks are left out.
        """
        if isinstance(item, MulticastGroup):
            if kind == p4r.Update.DELETE:
                del self._switch.multicast_groups[item.number]
            else:
                self._switch.multicast_groups[item.number] = item.copies
            return
        table = self._tables.get(item.table)
        if table is None:
            return
        key, (call,) = _key(table, item), item.actions
        if kind == p4r.Update.DELETE:
            table.delete(key)
            return
        action = next(name for name in table.actions if name.rpartition(".")[2] == call.name)
        (table.insert if kind == p4r.Update.INSERT else table.modify)(
            key, action, dict(call.arguments)
        )

    @property
    def lose(self) -> int | None:
        """The pass of the next packet that is lost on its way round, from 1; None if none is."""
        return self._switch.lose

    @lose.setter
    def lose(self, pass_: int | None) -> None:
        self._switch.lose = pass_

    def process(self, packets: Sequence[tuple[int, bytes]]) -> list[list[tuple[int, bytes]]]:
        return [self._switch.process(port, frame, 1_000_000) for port, frame in packets]

    def forget(self) -> None:
        for memory in self._switch.program.registers.values():
            memory.register.clear()

    def stop(self) -> None:
        pass


@cache
def _assembly() -> str:
    return program("tna", BUILD).binary.read_text()


def _key(table: MatchTable, each: TableEntry) -> list[KeyElement]:
    match = dict(each.match)
    return [_element(match[key.name]) for key in table.keys]


def _element(match: Match) -> KeyElement:
    if isinstance(match, Prefix):
        return match.value, match.length
    assert isinstance(match, int)
    return match


class TofinoProgramSwitch(ProgramSwitch, TofinoModel):
    """The model of a Tofino, and the program."""


def tofino_programs() -> Programs:
    """Return switches that execute the assembly."""
    return Programs(InAssembly, TofinoProgramSwitch, VALUES)
