"""The model of a switch with Tofino's program behind it, executed from its assembly, packet by packet.

`python -m plugins.aggregation.tests.tofino_switch --count 1000` runs as many sequences, each from its own seed, and says
how many packets went which way.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from echelon.extras import shipped
from echelon.lowering.intent import MulticastGroup, Prefix, TableEntry
from echelon.p4program import program
from echelon_tofino.emulator import TofinoSwitch, load_assembly
from plugins.aggregation.tests.program_switch import ProgramSwitch
from plugins.aggregation.tests.reference_switch import Datagram, Entry, Place, Reason, Sent, Switch, Take
from plugins.aggregation.tests.sequences import main, run_many
from softswitch.lookup import KeyElement

BUILD = Path("p4src/build/tna-aggregation")
VALUES = 64


class TofinoModel(Switch):
    """The model, but for what the page says of Tofino."""

    tells_overflow = False

    def _contribution(self, entry: Entry, port: int, datagram: Datagram) -> Sent:
        packet = datagram.packet
        _, behind = self.members[packet.tree, port]
        is_child = packet.workers == behind and behind.bit_count() > 1
        if packet.workers != behind and packet.workers.bit_count() > 1:
            return self._pass(Reason.PASSED, datagram)
        if entry.take == Take.DEADLINE:
            entry = replace(entry, take=Take.FIRST)
        index = entry.first + ((packet.block + entry.start) & entry.mask)
        place = self.places.get(index)
        if is_child and place is not None and self._owns(place, datagram) and place.workers & behind:
            if behind not in _at_once(place):
                return self._pass(Reason.PASSED, datagram)
        before = place.workers if place is not None and self._owns(place, datagram) else 0
        sent = super()._contribution(entry, port, datagram)
        after = self.places.get(index)
        if is_child and after is not None and self._owns(after, datagram) and not before & behind:
            _at_once(after).add(behind)
        return sent

    @staticmethod
    def _owns(place: Place, datagram: Datagram) -> bool:
        packet = datagram.packet
        return (place.tree, place.session, place.block) == (packet.tree, packet.session, packet.block)


def _at_once(place: Place) -> set[int]:
    """Return the workers of each child that is a switch and whose sum is in the place as a whole."""
    found: set[int] = vars(place).setdefault("at_once", set())
    return found


@cache
def _source() -> str:
    return program("tna", shipped() / BUILD).binary.read_text()


_idle: list[TofinoSwitch] = []
"""Switches of ended sequences: to load the assembly takes longer than to clear what it holds."""


def _switch() -> TofinoSwitch:
    if _idle:
        return _idle.pop()
    return TofinoSwitch(load_assembly(_source(), "echelon.bfa"))


class TofinoProgramSwitch(ProgramSwitch, TofinoModel):
    """The model and the program."""

    def __init__(self) -> None:
        Switch.__init__(self)
        self._switch = _switch()
        self._held: dict[object, TableEntry] = {}
        self._hosts: dict[str, int] = {}
        self._had_places = False

    def __del__(self) -> None:
        for key in self._held:
            self._delete(self._held[key])
        self._switch.multicast_groups.clear()
        self._forget()
        _idle.append(self._switch)

    def _process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        return self._switch.process(port, frame, 1_000_000)

    def _install(self) -> None:
        tables = self._switch.program.tables
        names = {name.rpartition(".")[2] for name in tables}
        wanted = {(each.table, each.match): each for each in self._entries() if each.table in names}
        for key in [key for key, held in self._held.items() if wanted.get(key) != held]:
            self._delete(self._held.pop(key))
        for key, each in wanted.items():
            if key not in self._held:
                ((action, arguments),) = ((call.action, dict(call.arguments)) for call in each.actions)
                table = self._table(each.table)
                named = next(name for name in table.actions if name.rpartition(".")[2] == action)
                table.insert(_key(each), named, {name: int(value) for name, value in arguments.items()})
                self._held[key] = each
        self._switch.multicast_groups = {group.number: tuple(group.copies) for group in self._groups()}
