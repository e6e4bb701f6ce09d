"""Calculations over fields, headers and payload, and the bytes that they cover."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from softswitch import ir

from .packet import ALWAYS, Get, HeaderSlots, PacketState, Slots

Piece = tuple[int, int, int]
"""The places of the validity and the value of some bits, and their width: 0 for a field of variable
length.
"""


def header_pieces(held: HeaderSlots) -> list[Piece]:
    """Return the fields of a header."""
    return [(held.start, slot.at, slot.field.width) for slot in held.fields]


def gather(pieces: Sequence[Piece]) -> Callable[[PacketState], bytes]:
    """Return the function that puts pieces one behind the other, filled up to a whole byte with
    zeros at the end.

    Fields of headers that are not valid are left out.
    """

    def gathered(p: PacketState) -> bytes:
        number = bits = 0
        values: list[Any] = p.values
        for valid, at, width in pieces:
            if values[valid]:
                value = values[at]
                if not width:
                    width = 8 * len(value)
                    value = int.from_bytes(value, "big")
                number = number << width | value & (1 << width) - 1
                bits += width
        spare = -bits % 8
        return (number << spare).to_bytes((bits + spare) // 8, "big")

    return gathered


def calculated(slots: Slots, calculation: ir.Calculation) -> Get:
    """Return the function for the value of a calculation over the packet's present state."""
    pieces: list[Piece] = []
    payload = False
    for item in calculation.inputs:
        if item.kind == "payload":
            payload = True
        elif isinstance(item.value, ir.HeaderRef):
            pieces += header_pieces(slots.headers[item.value.name])
        elif isinstance(item.value, ir.FieldRef):
            slot = slots.field(item.value.header, item.value.field)
            pieces.append((slots.headers[slot.header].start, slot.at, slot.field.width))
        elif isinstance(item.value, ir.Const):
            pieces.append((ALWAYS, slots.constant(item.value.value), item.width))
    covered = gather(pieces)
    name = calculation.name

    def value(p: PacketState) -> Any:
        data = covered(p)
        return p.switch.calculations[name](data + p.data[p.offset :] if payload else data)

    return value


def selected(slots: Slots, profile: str, selector: ir.Selector) -> Get:
    """Return the function for the hash that selects a member of a group."""
    fields = [(slots.number(ref.header, ref.field), width) for ref, width in selector.inputs]
    covered = gather([(slots.headers[slot.header].start, slot.at, width) for slot, width in fields])
    return lambda p: p.switch.selectors[profile](covered(p))
