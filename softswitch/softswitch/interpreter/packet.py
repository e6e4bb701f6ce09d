"""A packet's state in the pipelines: a list of values.

Every field and every header has its place in the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any, NoReturn

from softswitch import ir
from softswitch.errors import ProgramError
from softswitch.trace import events
from softswitch.v1model import NEVER_TRUNCATED

ALWAYS = 0
"""The place of a value that is always 1: the validity of what belongs to no header."""


class PacketDropped(Exception):  # noqa: N818
    """The packet ends here, and is counted."""


class Unfit(Exception):  # noqa: N818
    """A construct that does not fit the place where the program has it.

    The message is that of a `ProgramError`.
    """


@contextmanager
def placed(place: str) -> Iterator[None]:
    """Turn an `Unfit` into a `ProgramError` that names the place."""
    try:
        yield
    except Unfit as unfit:
        raise ProgramError(place, str(unfit)) from None


@dataclass(slots=True)
class PacketState:
    """A packet on its way through the pipelines.

    ``tell`` is called with every step if the packet is traced, and None if it is not. ``args`` are
    the action's position and its arguments. ``clone`` is a session's number with bit 15 set, and
    ``clone_list``, ``resend_list`` and ``digest`` are numbers of lists of fields; all of them are 0
    for nothing to do. ``grown`` has the bytes by which headers that came and went by name make the
    packet longer.
    """

    switch: Any
    tell: events.Tracer | None
    data: bytes
    now_ns: int
    values: list[Any]
    offset: int = 0
    args: Sequence[Any] = ()
    truncated: int = NEVER_TRUNCATED
    clone: int = 0
    clone_list: int = 0
    resend_list: int = 0
    digest: int = 0
    grown: int = 0

    def copied(self) -> PacketState:
        """Return a copy with values of its own."""
        other = copy(self)
        other.values = self.values[:]
        return other

    def discard(self, reason: str) -> None:
        """Count the packet, or a copy that cannot be made of it, as dropped."""
        if self.tell is not None:
            self.tell(events.Dropped(reason))
        self.switch.discard(reason)

    def drop(self, reason: str) -> NoReturn:
        """Count the packet as dropped, and end its way."""
        self.discard(reason)
        raise PacketDropped


Get = Callable[[PacketState], Any]
"""An expression: a function that returns its value for a packet.

Bytes for a field of variable length, otherwise an integer without bounds, as in P4's arithmetic.
"""

Put = Callable[[PacketState, Any], None]
"""A field to be assigned to: a function that stores a value, cut to the field's width."""

Done = Callable[[PacketState], "int | None"]
"""A statement: a function that does it. A jump returns the position at which the action goes on."""


class FieldSlot:
    """A field and the place of its value.

    ``mask`` cuts a number to the field's width. ``half`` is the offset of a signed field, 0 for
    others: (number + half & mask) - half is the value.
    """

    def __init__(
        self,
        header: str,
        field: ir.Field,
        index: int,
    ) -> None:
        self.header = header
        self.field = field
        self.index = index
        self.mask = (1 << field.width) - 1
        self.half = 1 << field.width >> 1 if field.signed else 0

    def get(self) -> Get:
        """Return the expression for the field."""
        index = self.index
        return lambda p: p.values[index]

    def put(self) -> Put:
        """Return what assigns to the field."""
        index = self.index
        mask = self.mask
        half = self.half
        varies = self.field.varbit

        def store(p: PacketState, value: Any) -> None:
            if not varies:
                value = (value + half & mask) - half
            if p.tell is not None:
                name = f"{self.header}.{self.field.name}"
                p.tell(events.Wrote(name, p.values[index], value, self.width(value)))
            p.values[index] = value

        return store

    def width(self, value: Any) -> int:
        """Return the width of a value of the field, in bits."""
        return self.field.width or 8 * len(value)


class HeaderSlots:
    """A header and the place of its validity, ``start``.

    Its fields follow, and ``end`` is the place behind them.

    ``blank`` are its values while it is not valid; metadata always is. ``union`` are the other
    members of its union, and ``varying`` the places of fields of variable length.
    """

    def __init__(self, header: ir.Header, start: int) -> None:
        self.header = header
        self.start = start
        self.fields = [
            FieldSlot(header.name, field, index)
            for index, field in enumerate(header.type.fields, start + 1)
        ]
        self.end = start + 1 + len(self.fields)
        self.blank: list[Any] = [int(header.metadata)]
        for field in header.type.fields:
            self.blank.append(b"" if field.varbit else 0)
        self.fixed_bytes = header.type.width // 8
        self.shape = [(slot.index, slot.field.width, slot.half, slot.mask) for slot in self.fields]
        self.varying = [slot.index for slot in self.fields if slot.field.varbit]
        self.union: tuple[HeaderSlots, ...] = ()

    def size(self, p: PacketState) -> int:
        """Return the header's length in bytes."""
        size = self.fixed_bytes
        for index in self.varying:
            size += len(p.values[index])
        return size

    def invalidate(self, p: PacketState) -> None:
        """Make the header invalid, and its fields zero.

        A table's key reads zeros from an invalid header.
        """
        if p.tell is not None and p.values[self.start]:
            p.tell(events.Validity(self.header.name, False))
        p.values[self.start : self.end] = self.blank

    def validate(self, p: PacketState) -> None:
        """Make the header valid, with fields that are zero."""
        if p.tell is not None:
            p.tell(events.Validity(self.header.name, True))
        p.values[self.start : self.end] = [1, *self.blank[1:]]
        self.end_others(p)

    def end_others(self, p: PacketState) -> None:
        """Make the other members of the header's union invalid once this one is valid."""
        for other in self.union:
            other.invalidate(p)

    def copy_from(self, p: PacketState, source: HeaderSlots) -> None:
        """Make the header equal to another one, validity included."""
        p.values[self.start : self.end] = p.values[source.start : source.end]
        if p.tell is not None:
            is_valid = bool(p.values[source.start])
            p.tell(events.Copied(self.header.name, source.header.name, is_valid))

    def equals(self, p: PacketState, other: HeaderSlots) -> bool:
        """Return whether both headers are invalid, or both are valid with the same fields."""
        if not p.values[self.start]:
            return not p.values[other.start]
        values = p.values[self.start : self.end]
        return bool(values == p.values[other.start : other.end])


class Slots:
    """The places of everything that belongs to a packet of a program. Metadata comes first."""

    def __init__(self, program: ir.ProgramIR) -> None:
        self.program = program
        self.blank: list[Any] = [1]
        """The values of a packet that is not parsed yet."""
        self.headers: dict[str, HeaderSlots] = {}
        self._fields: dict[tuple[str, str], FieldSlot] = {}
        metadata = [header for header in program.headers.values() if header.metadata]
        for header in metadata:
            self._add(header)
        self.metadata_end = len(self.blank)
        for header in program.headers.values():
            if not header.metadata:
                self._add(header)
        for union in program.unions.values():
            members = [self.headers[name] for name in union.headers]
            for member in members:
                member.union = tuple(other for other in members if other is not member)
        self.next_index: dict[str, int] = {}
        """The place of the number of elements that were extracted to each stack."""
        for name in (*program.stacks, *program.union_stacks):
            self.next_index[name] = len(self.blank)
            self.blank.append(0)
        self._intrinsics: dict[str, FieldSlot] = {}
        for name, ref in program.intrinsics.items():
            self._intrinsics[name] = self.field(ref.header, ref.field)

    def _add(self, header: ir.Header) -> None:
        held = HeaderSlots(header, len(self.blank))
        self.headers[header.name] = held
        self.blank += held.blank
        for slot in held.fields:
            self._fields[header.name, slot.field.name] = slot

    def field(self, header: str, name: str) -> FieldSlot:
        """Return the place of a field."""
        return self._fields[header, name]

    def constant(self, value: int) -> int:
        """Return the place of a new value that never changes."""
        self.blank.append(value)
        return len(self.blank) - 1

    def number(self, header: str, name: str) -> FieldSlot:
        """Return the place of a field of fixed width."""
        slot = self.field(header, name)
        if slot.field.varbit:
            raise Unfit(f"variable-length field '{header}.{name}' is not a number")
        return slot

    def set(
        self,
        p: PacketState,
        intrinsic: str,
        value: int,
    ) -> None:
        """Set a field that the switch provides, if the program has it."""
        slot = self._intrinsics.get(intrinsic)
        if slot is not None:
            p.values[slot.index] = value & slot.mask

    def get(self, p: PacketState, intrinsic: str) -> int:
        """Return a field that the switch reads, 0 if the program does not have it."""
        slot = self._intrinsics.get(intrinsic)
        return 0 if slot is None else p.values[slot.index]

    def elements(self, stack: str) -> list[tuple[HeaderSlots, ...]]:
        """Return the headers of each element of a stack of headers or of unions.

        An element that is a header has one.
        """
        if stack in self.program.stacks:
            return [(self.headers[name],) for name in self.program.stacks[stack].headers]
        elements: list[tuple[HeaderSlots, ...]] = []
        for union in self.program.union_stacks[stack].unions:
            members = self.program.unions[union].headers
            elements.append(tuple(self.headers[name] for name in members))
        return elements
