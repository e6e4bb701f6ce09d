"""The parser: a function for each state, which returns the name of the next one."""

from __future__ import annotations

from collections.abc import Callable

from softswitch import ir
from softswitch.trace import events
from softswitch.v1model import PARSER_ERRORS, STATE_LIMIT

from .expressions import ParserStopped, need
from .packet import Done, Get, HeaderSlots, PacketState, Slots, Unfit, placed
from .statements import PlainStatements

State = Callable[[PacketState], "str | None"]
"""A state: a function that returns the name of the next one, None at the end."""


class PlainParser:
    """A program's parser."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.program = slots.program
        self._statements = PlainStatements(slots, "parser")
        self._states = {
            name: self._state(state) for name, state in self.program.parser.states.items()
        }

    def parse(self, p: PacketState, original: bool) -> None:
        """Parse a packet. An error is counted and stored unless it is that of a copy."""
        name = self.program.parser.initial
        visits = 0
        try:
            while name is not None:
                visits += 1
                if visits > STATE_LIMIT:
                    raise ParserStopped("ParserTimeout")
                name = self._states[name](p)
        except ParserStopped as stopped:
            if original:
                error = stopped.error
                if isinstance(error, str):
                    code = self.program.errors.get(error, PARSER_ERRORS[error])
                else:
                    code = error
                if p.tell is not None:
                    names = {code: name for name, code in self.program.errors.items()}
                    p.tell(events.ParserError(names.get(code, str(code))))
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
        """Return the function that chooses the next state: that of the first arm of the select that
        matches.
        """
        with placed(state.place):
            parts = [(self._value(part.value), (1 << part.width) - 1) for part in state.key]
        is_keyed = any(transition.matches for transition in state.transitions)
        whole = tuple(mask for _, mask in parts)

        def choose(p: PacketState) -> str | None:
            if is_keyed:
                key = tuple(get(p) & mask for get, mask in parts)
            else:
                key = ()
            for transition in state.transitions:
                if transition.value_set is None:
                    found = all(
                        k & mask == value
                        for k, (value, mask) in zip(key, transition.matches, strict=False)
                    )
                else:
                    members = p.switch.value_sets[transition.value_set]
                    masks = tuple(mask for _, mask in transition.matches)
                    if masks == whole:
                        found = key in members
                    else:
                        found = members.masked(key, masks)
                if found:
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
                return self._verify(self._value(op.condition), self._value(op.error))
            return self._advance(op)

    @staticmethod
    def _verify(condition: Get, error: Get) -> Done:
        def verify(p: PacketState) -> None:
            if not condition(p):
                raise ParserStopped(error(p))

        return verify

    def _advance(self, op: ir.Advance) -> Done:
        if isinstance(op.bits, ir.Const) and (op.bits.value < 0 or op.bits.value % 8):
            raise Unfit(f"advance by {op.bits.value} bits: must be a whole number of bytes")
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
            return lambda p: _take(p, only, length)
        elements = self.slots.elements(op.target.name)
        index = self.slots.next_index[op.target.name]
        headers = [
            element[op.member if isinstance(op.target, ir.UnionStackRef) else 0]
            for element in elements
        ]

        def extract(p: PacketState) -> None:
            if p.values[index] >= len(headers):
                raise ParserStopped("StackOutOfBounds")
            _take(p, headers[p.values[index]], length)
            p.values[index] += 1

        return extract


def _whole_bytes(bits: int) -> int:
    if bits & 7 or bits < 0:
        raise ParserStopped("ParserInvalidArgument")
    return bits >> 3


def _take(p: PacketState, held: HeaderSlots, length: Get | None) -> None:
    """Extract a header, whose variable field has ``length`` bits."""
    if length is not None and held.varying:
        extra = _whole_bytes(length(p))
    else:
        extra = 0
    size = held.fixed_bytes + extra
    most = held.header.type.max_length_bytes
    need(p, size)
    if held.varying and most is not None and size > most:
        raise ParserStopped("HeaderTooShort")
    number = int.from_bytes(p.data[p.offset : p.offset + size], "big")
    left = 8 * size
    p.offset += size
    p.values[held.start] = 1
    values = p.values
    for at, width, half, mask in held.shape:
        left -= width or 8 * extra
        if width:
            values[at] = ((number >> left) + half & mask) - half
        else:
            values[at] = (number >> left & (1 << 8 * extra) - 1).to_bytes(extra, "big")
    if p.tell is not None:
        fields = tuple(
            (slot.field.name, values[slot.at], slot.width(values[slot.at])) for slot in held.fields
        )
        p.tell(events.Extracted(held.header.name, fields))
    held.end_others(p)
