"""Counters, meters and registers of match tables, and how an action addresses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from echelon_tofino_model.emulator.assembly import Mapping as Pairs
from echelon_tofino_model.emulator.assembly import mapping, number, refusal, text
from echelon_tofino_model.emulator.phv import FieldNames
from echelon_tofino_model.emulator.run import PacketRun
from echelon_tofino_model.emulator.stateful import StatefulRegister
from echelon_tofino_model.emulator.tables import TableEntry
from softswitch.stateful import GREEN, YELLOW, Counter, Meter

Index = Callable[[PacketRun, TableEntry | None], int | None]
"""A function for the index of a packet in a memory; None where the packet has none."""

Use = Callable[[PacketRun, TableEntry | None], None]

_RED = 3
"""The colour that Tofino's meters give to a red packet, unless the program says otherwise."""


@dataclass(frozen=True, slots=True)
class AttachedCounter:
    """A counter: an array, or one cell per entry of the table."""

    name: str
    array: Counter | None
    counts: str
    adjust_bytes: int

    def use(self, index: Index) -> Use:
        """Return a function that counts a packet."""
        array = self.array
        adjust = self.adjust_bytes

        def count(run: PacketRun, entry: TableEntry | None) -> None:
            octets = run.length_bytes + adjust
            if array is None:
                if entry is not None:
                    entry.packets += 1
                    entry.bytes += octets
                return
            cell = index(run, entry)
            if cell is not None and cell < array.size:
                array.packet_counts[cell] += 1
                array.byte_counts[cell] += octets

        return count


@dataclass(frozen=True, slots=True)
class AttachedMeter:
    """A meter: an array, or one cell per entry.

    ``colours`` are its outputs for green, yellow and red.
    """

    label: str
    name: str
    array: Meter | None
    unit: str
    colours: tuple[int, int, int]
    adjust_bytes: int

    def use(self, index: Index) -> Use:
        """Return a function that meters a packet and leaves the colour among the outputs."""
        array = self.array
        label = self.label
        green, yellow, red = self.colours
        colours = {GREEN: green, YELLOW: yellow}
        adjust = self.adjust_bytes
        by_bytes = self.unit == "bytes"

        def meter(run: PacketRun, entry: TableEntry | None) -> None:
            octets = run.length_bytes + adjust
            colour = GREEN
            if array is None:
                if entry is not None:
                    amount = octets if by_bytes else 1
                    colour = entry.meter.execute(amount, run.now_ns)
            else:
                cell = index(run, entry)
                if cell is not None and cell < array.size:
                    colour = array.execute(cell, octets, run.now_ns)
            run.outputs[label] = colours.get(colour, red)

        return meter


@dataclass(frozen=True, slots=True)
class AttachedRegister:
    """A register with its stateful ALU."""

    label: str
    register: StatefulRegister

    @property
    def name(self) -> str:
        return self.register.name

    def use(
        self,
        action: str,
        index: Index,
        line: int,
    ) -> Use:
        """Return a function that runs a RegisterAction and leaves its output among the outputs."""
        if action not in self.register.actions:
            raise refusal(line, f"the register '{self.name}' has no action '{action}'")
        chosen = self.register.actions[action]
        register = self.register
        label = self.label

        def execute(run: PacketRun, entry: TableEntry | None) -> None:
            cell = index(run, entry)
            if cell is not None:
                run.outputs[label] = register.execute(chosen, cell, run.before)

        return execute


Attached = AttachedCounter | AttachedMeter | AttachedRegister


def load_attached(
    kind: str,
    label: str,
    body: Pairs,
    names: FieldNames,
    stage: int,
    tables: Mapping[str, int],
) -> Attached:
    """Return the memory that a ``counter``, ``meter`` or ``stateful`` describes.

    ``tables`` has the sizes of the match tables by label, for registers with a cell per entry.
    """
    p4 = mapping(body.get("p4"))
    declared = p4.get("name")
    size = p4.get("size")
    name = label if declared is None else text(declared)
    adjust = number(body.get("bytecount_adjust"), 0)
    if kind == "counter":
        counts = body.get("count")
        array = None if size is None else Counter(name, number(size))
        return AttachedCounter(name, array, "packets" if counts is None else text(counts), adjust)
    if kind == "meter":
        how = body.get("type")
        if how is not None and text(how) != "standard":
            raise refusal(how.line, f"meters of type '{text(how)}' are not supported")
        for feature in ("pre_color", "color_aware"):
            setting = body.get(feature)
            if setting is not None:
                raise refusal(setting.line, "colour-aware meters are not supported")
        counts = body.get("count")
        unit = "bytes" if counts is None or text(counts) == "bytes" else "packets"
        green = number(body.get("green"), 0)
        yellow = number(body.get("yellow"), 1)
        red = number(body.get("red"), _RED)
        meters = None if size is None else Meter(name, number(size), unit)
        return AttachedMeter(label, name, meters, unit, (green, yellow, red), adjust)
    default_size = tables.get(label.partition("$salu")[0], 1)
    return AttachedRegister(label, StatefulRegister(body, name, names, stage, default_size))
