"""The model of a switch with Tofino's program behind it, executed from its assembly, packet by packet.

`python -m plugins.aggregation.tests.tofino_switch --count 1000` runs as many sequences, each from its own seed, and
says how many packets went which way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

from echelon.extras import shipped
from echelon.lowering.intent import Match, MulticastGroup, Prefix, TableEntry
from echelon.p4program import program
from echelon_tofino.emulator import TofinoSwitch, load_assembly
from echelon_tofino.emulator.tables import MatchTable
from plugins.aggregation.tests.program_switch import ComparedSwitch
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
        before = place.workers if place is not None and self._owns(place, datagram) else 0
        if is_child and before & behind and place is not None and behind not in _at_once(place):
            return self._pass(Reason.PASSED, datagram)
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


class LoadedSwitch:
    """A switch that executes the assembly."""

    def __init__(self) -> None:
        self._switch = TofinoSwitch(load_assembly(_assembly(), "echelon.bfa"))
        self._held: dict[object, TableEntry] = {}
        tables = self._switch.program.tables
        self._tables = {name.rpartition(".")[2]: table for name, table in tables.items()}

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Return what leaves, with its port."""
        return self._switch.process(port, frame, 1_000_000)

    def update(self, entries: Iterable[TableEntry], groups: Iterable[MulticastGroup]) -> None:
        """Have these entries and groups, and no others. Those of tables that the program lacks are left out."""
        held = self._held
        wanted = {(each.table, each.match): each for each in entries if each.table in self._tables}
        for key in [key for key, each in held.items() if wanted.get(key) != each]:
            gone = held.pop(key)
            self._tables[gone.table].delete(_key(self._tables[gone.table], gone))
        for key, each in wanted.items():
            if key not in held:
                table, (call,) = self._tables[each.table], each.actions
                action = next(name for name in table.actions if name.rpartition(".")[2] == call.name)
                table.insert(_key(table, each), action, dict(call.arguments))
                held[key] = each
        self._switch.multicast_groups = {group.number: group.copies for group in groups}

    def forget(self) -> None:
        """Clear all registers."""
        for memory in self._switch.program.registers.values():
            memory.register.clear()


@cache
def _assembly() -> str:
    return program("tna", shipped() / BUILD).binary.read_text()


def _key(table: MatchTable, each: TableEntry) -> list[KeyElement]:
    match = dict(each.match)
    return [_element(match[key.name]) for key in table.keys]


def _element(match: Match) -> KeyElement:
    if isinstance(match, Prefix):
        return match.value, match.length
    assert isinstance(match, int)
    return match


class TofinoProgramSwitch(ComparedSwitch, TofinoModel):
    """The model, and the program."""

    def __init__(self, loaded: LoadedSwitch) -> None:
        super().__init__()
        self._loaded = loaded

    def _install(self) -> None:
        self._loaded.update(self._entries(), self._groups())

    def _forget(self) -> None:
        self._loaded.forget()

    def _process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        return self._loaded.process(port, frame)


class Bench:
    """Switches for one sequence after the other: to load the assembly takes longer than to clear the registers."""

    def __init__(self) -> None:
        self._switches: list[LoadedSwitch] = []
        self._used = 0

    def run(self, seed: int) -> Counter[str]:
        """Run one sequence."""
        self._used = 0
        return run_many(range(seed, seed + 1), self._make, VALUES)

    def _make(self) -> TofinoProgramSwitch:
        if self._used == len(self._switches):
            self._switches.append(LoadedSwitch())
        loaded = self._switches[self._used]
        self._used += 1
        loaded.update((), ())
        loaded.forget()
        return TofinoProgramSwitch(loaded)


def run_sequences(seeds: range) -> Counter[str]:
    """Run the sequences of these seeds through the program."""
    bench, happened = Bench(), Counter[str]()
    for seed in seeds:
        happened.update(bench.run(seed))
    return happened


if __name__ == "__main__":
    main(run_sequences, 1000, __doc__)
