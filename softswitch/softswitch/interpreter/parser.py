"""The parser: a function for each state, which returns the name of the next one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from softswitch import ir
from softswitch.numerals import numeral
from softswitch.trace import events
from softswitch.v1model import STATE_LIMIT

from .expressions import ParserStopped, need
from .packet import Done, Get, HeaderSlots, PacketState, Slots, placed
from .statements import PlainStatements

State = Callable[[PacketState], "str | None"]
"""A state: a function that returns the name of the next one, None at the end."""


class PlainParser:
    """A program's parser."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.program = slots.program
        self._statements = PlainStatements(slots, "parser")
        self._states: dict[str, State] = {}
        for name, state in self.program.parser.states.items():
            self._states[name] = self._state(state)

    def parse(self, p: PacketState, original: bool) -> None:
        """Parse a packet. An error is counted and stored unless it is that of a copy."""
        name = self.program.parser.initial
        visits = 0
        if original:
            self.slots.set(p, "parser_error", self.program.errors["NoError"])
        try:
            while name is not None:
                visits += 1
                if visits > STATE_LIMIT:
                    raise ParserStopped("ParserTimeout")
                name = self._states[name](p)
        except ParserStopped as stopped:
            if original:
                self._report(p, stopped.error)

    def _report(self, p: PacketState, error: str | int) -> None:
        """Count an error, and store its code for the program."""
        if isinstance(error, str):
            code = self.program.errors[error]
        else:
            code = error
        if p.tell is not None:
            names = {code: name for name, code in self.program.errors.items()}
            p.tell(events.ParserError(names.get(code) or numeral(code)))
        p.switch.parser_error(code)
        self.slots.set(p, "parser_error", code)

    def _state(self, state: ir.ParserState) -> State:
        steps = [self._step(op) for op in state.ops]
        choose = self._choice(state)

        def run(p: PacketState) -> str | None:
            if p.tell is not None:
                p.tell(events.State(state.name))
            for step in steps:
                step(p)
            return choose(p)

        return run

    def _choice(self, state: ir.ParserState) -> State:
        """Return the function that chooses the next state.

        It is that of the first arm of the select that matches.
        """
        full_masks = tuple((1 << part.width) - 1 for part in state.key)
        with placed(state.place):
            values = [self._value(part.value) for part in state.key]
        parts = list(zip(values, full_masks, strict=True))
        is_keyed = any(transition.matches for transition in state.transitions)

        def choose(p: PacketState) -> str | None:
            key: tuple[int, ...] = ()
            if is_keyed:
                key = tuple(get(p) & mask for get, mask in parts)
            for transition in state.transitions:
                if transition.value_set is None:
                    is_match = _agrees(key, transition.matches)
                else:
                    members = p.switch.value_sets[transition.value_set]
                    masks = tuple(mask for _, mask in transition.matches)
                    if masks == full_masks:
                        is_match = key in members
                    else:
                        is_match = members.masked(key, masks)
                if is_match:
                    return transition.next_state
            return None

        return choose

    def _value(self, expr: ir.Expr) -> Get:
        return self._statements.value(expr)

    def _step(self, op: ir.ParserOp) -> Done:
        if isinstance(op, ir.Primitive):
            return self._statements.body((op,))
        with placed(op.place):
            if isinstance(op, ir.Extract):
                return self._extract(op)
            if isinstance(op, ir.Assign):
                put = self._statements.target(op.target)
                value = self._value(op.value)
                return lambda p: put(p, value(p))
            if isinstance(op, ir.Verify):
                condition = self._value(op.condition)
                return self._verify(condition, self._value(op.error))
            return self._advance(op)

    @staticmethod
    def _verify(condition: Get, error: Get) -> Done:
        def verify(p: PacketState) -> None:
            if not condition(p):
                raise ParserStopped(error(p))

        return verify

    def _advance(self, op: ir.Advance) -> Done:
        bits = self._value(op.bits)

        def advance(p: PacketState) -> None:
            size = _whole_bytes(bits(p))
            need(p, size)
            p.offset += size

        return advance

    def _extract(self, op: ir.Extract) -> Done:
        length = None if op.length is None else self._value(op.length)
        if isinstance(op.target, ir.HeaderRef):
            only = self.slots.headers[op.target.name]
            return lambda p: _take(p, only, length, op.needs_fixed)
        elements = self.slots.elements(op.target.name)
        index = self.slots.next_index[op.target.name]
        member = op.member if isinstance(op.target, ir.UnionStackRef) else 0
        headers = [element[member] for element in elements]

        def extract(p: PacketState) -> None:
            number = p.values[index]
            if number >= len(headers):
                raise ParserStopped("StackOutOfBounds")
            _take(p, headers[number], length, op.needs_fixed)
            p.values[index] += 1

        return extract


def _agrees(key: Sequence[int], matches: Sequence[tuple[int, int]]) -> bool:
    """Return whether each part of a key has the value of its match where its mask has ones."""
    pairs = zip(key, matches, strict=False)
    return all(part & mask == value for part, (value, mask) in pairs)


def _whole_bytes(bits: int) -> int:
    if bits & 7 or bits < 0:
        raise ParserStopped("ParserInvalidArgument")
    return bits >> 3


def _take(
    p: PacketState,
    held: HeaderSlots,
    length: Get | None,
    needs_fixed: bool,
) -> None:
    """Extract a header, whose variable field has ``length`` bits."""
    if needs_fixed:
        need(p, held.fixed_bytes)
    if length is not None and held.varying:
        extra = _whole_bytes(length(p))
    else:
        extra = 0
    size = held.fixed_bytes + extra
    most = held.header.type.max_length_bytes
    need(p, size)
    if held.varying and most is not None and size > most:
        raise ParserStopped("HeaderTooShort")
    data = p.data[p.offset : p.offset + size]
    number = int.from_bytes(data, "big")
    left = 8 * size
    p.offset += size
    p.values[held.start] = 1
    values = p.values
    for index, width, half, mask in held.shape:
        left -= width or 8 * extra
        rest = number >> left
        if width:
            values[index] = (rest + half & mask) - half
        else:
            bits = rest & (1 << 8 * extra) - 1
            values[index] = bits.to_bytes(extra, "big")
    if p.tell is not None:
        fields: list[tuple[str, Any, int]] = []
        for slot in held.fields:
            value = values[slot.index]
            fields.append((slot.field.name, value, slot.width(value)))
        p.tell(events.Extracted(held.header.name, tuple(fields)))
    held.end_others(p)
