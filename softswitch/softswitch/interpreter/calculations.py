"""Calculations over fields, headers and payload, and the bytes that they cover."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from softswitch import ir

from .packet import ALWAYS, Get, HeaderSlots, PacketState, Slots

Piece = tuple[int, int, int]
"""The places of the validity and the value of some bits, and their width.

The width of a field of variable length is 0.
"""


def header_pieces(held: HeaderSlots) -> list[Piece]:
    """Return the fields of a header."""
    return [(held.start, slot.index, slot.field.width) for slot in held.fields]


def gather(pieces: Sequence[Piece]) -> Callable[[PacketState], bytes]:
    """Return the function that puts pieces one behind the other.

    They are filled up to a whole byte with zeros at the end.

    Fields of headers that are not valid are left out.
    """

    def gathered(p: PacketState) -> bytes:
        number = bits = 0
        values: list[Any] = p.values
        for valid, index, width in pieces:
            if not values[valid]:
                continue
            value = values[index]
            if not width:
                width = 8 * len(value)
                value = int.from_bytes(value, "big")
            mask = (1 << width) - 1
            number = number << width | value & mask
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
            header = slots.headers[slot.header]
            pieces.append((header.start, slot.index, slot.field.width))
        elif isinstance(item.value, ir.Const):
            index = slots.constant(item.value.value)
            pieces.append((ALWAYS, index, item.width))
    covered = gather(pieces)
    name = calculation.name

    def value(p: PacketState) -> Any:
        data = covered(p)
        if payload:
            data += p.data[p.offset :]
        calculate = p.switch.calculations[name]
        return calculate(data)

    return value


def selected(
    slots: Slots,
    profile: str,
    selector: ir.Selector,
) -> Get:
    """Return the function for the hash that selects a member of a group."""
    pieces: list[Piece] = []
    for ref, width in selector.inputs:
        slot = slots.number(ref.header, ref.field)
        header = slots.headers[slot.header]
        pieces.append((header.start, slot.index, width))
    covered = gather(pieces)
    return lambda p: p.switch.selectors[profile](covered(p))
