"""The parser: states whose TCAM rows match bytes, extract them and shift the input.

The bytes 32 to 63 of the input buffer are not of the packet: the hardware shows its time stamp and
version there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from echelon_tofino_model.emulator.assembly import (
    Interval,
    Invocation,
    Mapping,
    Name,
    Number,
    Pattern,
    Section,
    Term,
    bounds,
    items,
    label,
    mapping,
    number,
    refusal,
    text,
)
from echelon_tofino_model.emulator.phv import CONTAINERS, FieldNames, Slice, Vector

NO_MATCH, PARTIAL_HEADER, COUNTER_RANGE = 1, 2, 4
"""The bits of ``parser_err`` that this parser sets (`tofino1_base.p4`)."""

_MAPPED = 32
"""The first byte of the input buffer that does not come from the packet."""

_ALL_METADATA = 0x1FFF

_STEPS = 256
"""The number of states after which a packet is given up: a loop must not stop the switch."""

_REGISTERS = {"byte0": 1, "byte1": 1, "half": 2}
_NOTES = {"clear_on_write", "hdr_len_adj", "name", "parse_depth_checks_disabled", "bubble"}
_IGNORED = {
    "buf_req",
    "intr_md",
    "option",
    "priority",
    "hdr_len_inc_stop",
    "handle",
    "field_mapping",
}


@dataclass(frozen=True, slots=True)
class ByteMove:
    """The bytes ``first`` to ``last`` of the input go to a slice."""

    first: int
    last: int
    target: Slice


@dataclass(frozen=True, slots=True)
class Deposit:
    """A constant goes to a slice."""

    value: int
    target: Slice


@dataclass(frozen=True, slots=True)
class ChecksumStep:
    """One step of a checksum unit: a sum over the bytes ``places``.

    Words in ``swap`` have their bytes exchanged.

    VERIFY writes whether the sum is wrong. RESIDUAL writes what is left of a checksum when the
    bytes summed, and those parsed behind the byte ``end_position`` of the last step, are subtracted
    from it.
    """

    unit: int
    verify: bool
    places: tuple[int, ...]
    swap: int
    start: bool
    end: bool
    end_position: int
    target: Slice | None


@dataclass(frozen=True, slots=True)
class CounterLoad:
    """A load of the counter with a constant, or with a register's byte.

    The byte is rotated right and masked, then ``constant`` is added.
    """

    source: str | None
    high: bool
    constant: int
    rotate: int
    mask: int
    maximum: int


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a state.

    ``value_set`` names the set to search if the row has no pattern of its own.
    """

    line: int
    value: int
    mask: int
    value_set: str | None
    extracts: tuple[ByteMove, ...]
    deposits: tuple[Deposit, ...]
    checksums: tuple[ChecksumStep, ...]
    counter: CounterLoad | int | None
    loads: tuple[tuple[str, int, int], ...]
    shift: int
    following: str | None


@dataclass(frozen=True, slots=True)
class TcamState:
    """A state and the registers that it matches, the highest bits of the key first."""

    name: str
    registers: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class ParserSpec:
    """The parser of one direction."""

    start: str
    states: dict[str, TcamState]
    zeroed: tuple[int, ...]
    ored: frozenset[int]
    error: Slice | None
    value_sets: tuple[str, ...]
    has_all_metadata: bool
    """Whether the egress parser gets all intrinsic metadata, not only the port."""


def _has_all_metadata(value: Term) -> bool:
    fields = number(value)
    if fields not in (0, _ALL_METADATA):
        raise refusal(
            value.line, "egress intrinsic metadata with only some of its fields is not supported"
        )
    return fields == _ALL_METADATA


def load_parser(section: Section, names: FieldNames) -> ParserSpec:
    """Return the parser of a section. Raises :class:`ProgramError` for what is not supported."""
    body = mapping(section.value)
    states: dict[str, TcamState] = {}
    start = "start"
    error = None
    has_all_metadata = False
    zeroed: tuple[int, ...] = ()
    ored: frozenset[int] = frozenset()
    described: list[tuple[Term, Term]] = []
    for key, value in body.pairs:
        match key:
            case Name(text="start"):
                start = text(items(value)[0])
            case Name(text="states"):
                described += mapping(value).pairs
            case Name(text="init_zero"):
                zeroed = tuple(names.slice(item, 0).container for item in items(value))
            case Name(text="bitwise_or" | "multi_write"):
                ored = frozenset(names.slice(item, 0).container for item in items(value))
            case Name(text="parser_error"):
                error = names.slice(value, 0)
            case Name(text="meta_opt"):
                has_all_metadata = _has_all_metadata(value)
            case Name() if key.text in _NOTES:
                pass
            case _ if isinstance(value, Mapping):
                described.append((key, value))
            case _:
                raise refusal(key.line, f"the parser's '{label(key)}' is not supported")
    for key, value in described:
        state = _state(key, mapping(value), names)
        states[state.name] = state
    for state in states.values():
        for row in state.rows:
            if row.following is not None and row.following not in states:
                raise refusal(row.line, f"there is no parser state '{row.following}'")
    if start not in states:
        raise refusal(section.line, f"there is no parser state '{start}'")
    return ParserSpec(start, states, zeroed, ored, error, _value_sets(states), has_all_metadata)


def _value_sets(states: dict[str, TcamState]) -> tuple[str, ...]:
    """Return the names of the value sets, in the order of their first use."""
    names: dict[str, None] = {}
    for state in states.values():
        for row in state.rows:
            if row.value_set is not None:
                names[row.value_set] = None
    return tuple(names)


def _state(
    key: Term,
    body: Mapping,
    names: FieldNames,
) -> TcamState:
    registers: tuple[str, ...] = ()
    rows = []
    implicit: list[tuple[Term, Term]] = []
    for item, value in body.pairs:
        match item:
            case Name(text="match"):
                registers = tuple(_register(node) for node in items(value))
            case Name(text="option"):
                pass
            case Pattern():
                body_of_row = mapping(value)
                row = _row(item.line, item.value, item.mask, None, body_of_row, names)
                rows.append(row)
            case Number() if isinstance(value, Mapping):
                row = _row(item.line, item.value, -1, None, value, names)
                rows.append(row)
            case Invocation(name="value_set"):
                value_set = text(item.args[0])
                row = _row(item.line, 0, 0, value_set, mapping(value), names)
                rows.append(row)
            case Name(text="default"):
                implicit += mapping(value).pairs
            case _:
                implicit.append((item, value))
    if implicit:
        implicit_body = Mapping(key.line, tuple(implicit))
        row = _row(key.line, 0, 0, None, implicit_body, names)
        rows.append(row)
    return TcamState(label(key), registers, tuple(rows))


def _register(node: Term) -> str:
    name = text(node)
    if name not in (*_REGISTERS, "ctr_zero", "ctr_neg"):
        raise refusal(node.line, f"the match register '{name}' is not supported")
    return name


def _row(
    line: int,
    value: int,
    mask: int,
    value_set: str | None,
    body: Mapping,
    names: FieldNames,
) -> Row:
    extracts = []
    deposits = []
    checksums = []
    loads: list[tuple[str, int, int]] = []
    counter: CounterLoad | int | None = None
    shift = 0
    following: str | None = None
    for key, content in body.pairs:
        match key:
            case Number() | Interval():
                low, high = bounds(key)
                target = names.slice(content, 0)
                count = high - low + 1
                if target.width != 8 * count:
                    raise refusal(key.line, f"{count} bytes do not fit {target.width} bits")
                extracts.append(ByteMove(low, high, target))
            case Name(text="shift"):
                shift = number(content)
            case Name(text="next"):
                following = text(content)
                if following.lower() == "end":
                    following = None
            case Name(text="load"):
                for register, span in mapping(content).pairs:
                    loads.append((_register(register), *bounds(span)))
            case Name(text="counter"):
                counter = _counter(content)
            case Invocation(name="checksum"):
                checksums.append(_checksum(number(key.args[0]), mapping(content), names))
            case Name() if key.text in _IGNORED:
                pass
            case Name() | Invocation() if isinstance(content, Number):
                target = names.slice(key, 0)
                deposits.append(Deposit(content.value << target.low, target))
            case _:
                raise refusal(key.line, f"the parser's '{label(key)}' is not supported")
    return Row(
        line=line,
        value=value,
        mask=mask,
        value_set=value_set,
        extracts=tuple(extracts),
        deposits=tuple(deposits),
        checksums=tuple(checksums),
        counter=counter,
        loads=tuple(loads),
        shift=shift,
        following=following,
    )


def _counter(node: Term) -> CounterLoad | int:
    if isinstance(node, Invocation):
        if node.name in ("inc", "increment"):
            return number(node.args[0])
        if node.name in ("dec", "decrement"):
            return -number(node.args[0])
    body = mapping(node)
    source = body.get("src")
    if source is None:
        return CounterLoad(None, False, number(body.get("imm")), 0, 0xFF, 0xFF)
    name = text(source)
    register, _, half = name.partition("_")
    if register not in _REGISTERS:
        raise refusal(source.line, f"the counter cannot be loaded from '{name}'")
    constant = number(body.get("add"), 0)
    rotate = number(body.get("rotate"), 0)
    mask = number(body.get("mask"), 0xFF)
    maximum = number(body.get("max"), 0xFF)
    return CounterLoad(register, half == "hi", constant, rotate, mask, maximum)


def _places(mask: Term | None) -> tuple[int, ...]:
    """Return the bytes of a mask, each once.

    p4c lists a byte for every field that has bits of it.
    """
    places: set[int] = set()
    for span in items(mask):
        low, high = bounds(span)
        places.update(range(low, high + 1))
    return tuple(sorted(places))


def _checksum(
    unit: int,
    body: Mapping,
    names: FieldNames,
) -> ChecksumStep:
    kind = body.get("type")
    if kind is None or text(kind) not in ("VERIFY", "RESIDUAL"):
        raise refusal(body.line, "only VERIFY and RESIDUAL checksums are supported")
    verify = text(kind) == "VERIFY"
    places = _places(body.get("mask"))
    swap = number(body.get("swap"), 0)
    start = bool(number(body.get("start"), 0))
    end = bool(number(body.get("end"), 0))
    end_position = number(body.get("end_pos"), 0)
    dest = body.get("dest")
    target = None if dest is None else names.slice(dest, 0)
    return ChecksumStep(unit, verify, places, swap, start, end, end_position, target)


@dataclass(slots=True)
class ParsedPacket:
    """A parsed packet: its vector, its valid containers (a bit each) and the bytes consumed.

    ``errors`` are the bits of ``parser_err``.
    """

    vector: Vector
    valid: int
    consumed: int
    errors: int


_Move = tuple[int, int, int, int, int]
"""An extraction as (first byte, end, container, lowest bit, mask of the bits that stay)."""


class PhvParser:
    """A parser at run time.

    The control plane may fill its value sets, each a list of (value, mask) of the key.
    """

    def __init__(self, spec: ParserSpec) -> None:
        self.spec = spec
        self.value_sets: dict[str, list[tuple[int, int]]] = {name: [] for name in spec.value_sets}
        self._moves: dict[int, tuple[tuple[_Move, ...], int]] = {}
        """The extractions of each row and a bit for each container that it writes, by line."""
        for state in spec.states.values():
            for row in state.rows:
                moves = [_move(extract, spec.ored) for extract in row.extracts]
                written = _bits(extract.target.container for extract in row.extracts)
                self._moves[row.line] = tuple(moves), written
        self._zero_valid = _bits(spec.zeroed)

    def parse(self, data: bytes, mapped: bytes = bytes(32)) -> ParsedPacket:
        """Parse ``data``, which begins with the intrinsic metadata.

        ``mapped`` are the bytes 32 to 63 of the buffer.

        A packet that ends within a header keeps what was extracted before, and the vector shows the
        parser's error.
        """
        spec = self.spec
        vector = [0] * CONTAINERS
        valid = self._zero_valid
        registers = {"half": 0, "byte0": 0, "byte1": 0}
        sums: dict[int, int] = {}
        residuals: list[tuple[Slice, int, int]] = []
        counter = position = errors = 0
        name: str | None = spec.start
        size = len(data)
        for _ in range(_STEPS):
            if name is None:
                break
            state = spec.states[name]
            row = self._match(state, registers, counter)
            if row is None:
                errors |= NO_MATCH
                break

            short = False
            moves, written = self._moves[row.line]
            for first, end, place, low, kept in moves:
                if first >= _MAPPED:
                    value = int.from_bytes(mapped[first - _MAPPED : end - _MAPPED], "big")
                elif position + end > size:
                    short = True
                    continue
                else:
                    value = int.from_bytes(data[position + first : position + end], "big")
                vector[place] = vector[place] & kept | value << low
            valid |= written
            if short or position + row.shift > size:
                # The rest of the row counts only if its header is complete.
                errors |= PARTIAL_HEADER
                break

            for deposit in row.deposits:
                place = deposit.target.container
                if place in spec.ored:
                    vector[place] |= deposit.value
                else:
                    vector[place] = _merged(vector, deposit.target, deposit.value)
                valid |= 1 << place
            for step in row.checksums:
                total = _summed(step, data, position, sums)
                sums[step.unit] = total
                if step.end and step.target is not None:
                    valid |= 1 << step.target.container
                    if step.verify:
                        _put(vector, step.target, int(total != 0xFFFF))
                    else:
                        residuals.append((step.target, total, position + step.end_position + 1))
            for register, first, last in row.loads:
                loaded = data[position + first : position + last + 1]
                # Beyond the packet's end a register gets zeros.
                loaded = loaded.ljust(last - first + 1, b"\0")
                registers[register] = int.from_bytes(loaded, "big")
            if row.counter is not None:
                counter = _counted(row.counter, counter, registers)
            position += row.shift
            name = row.following

        # A residual needs to know where the parsed bytes end, which only the last state says.
        for target, total, end in residuals:
            summed = folded(total + words_sum(data[end:position]))
            _put(vector, target, ~summed & 0xFFFF)
        if spec.error is not None:
            _put(vector, spec.error, errors)
            valid |= 1 << spec.error.container
        return ParsedPacket(vector, valid, min(position, size), errors)

    def _match(
        self,
        state: TcamState,
        registers: dict[str, int],
        counter: int,
    ) -> Row | None:
        key = 0
        for register in state.registers:
            if register == "ctr_zero":
                key = key << 1 | (counter == 0)
            elif register == "ctr_neg":
                key = key << 1 | (counter < 0)
            else:
                key = key << 8 * _REGISTERS[register] | registers[register]
        for row in state.rows:
            if row.value_set is not None:
                for value, mask in self.value_sets[row.value_set]:
                    if key & mask == value & mask:
                        return row
            elif key & row.mask == row.value:
                return row
        return None


def _bits(containers: Iterable[int]) -> int:
    """Return a number with the bit of each container set."""
    bits = 0
    for container in containers:
        bits |= 1 << container
    return bits


def _summed(
    step: ChecksumStep,
    data: bytes,
    position: int,
    sums: dict[int, int],
) -> int:
    """Return the sum of a checksum unit after one more step."""
    total = 0 if step.start else sums.get(step.unit, 0)
    for place in step.places:
        index = position + place
        byte = data[index] if index < len(data) else 0
        is_swapped = bool(step.swap >> place // 2 & 1)
        is_high = (place % 2 == 0) != is_swapped
        total += byte << 8 if is_high else byte
    return folded(total)


def _move(extract: ByteMove, ored: frozenset[int]) -> _Move:
    target = extract.target
    if target.container in ored:
        kept = -1
    else:
        kept = ~(target.mask << target.low)
    return extract.first, extract.last + 1, target.container, target.low, kept


def folded(total: int) -> int:
    """Return a sum of 16-bit words in ones' complement."""
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def words_sum(data: bytes) -> int:
    """Return the sum of 16-bit words, the last one filled with zeros."""
    if len(data) % 2:
        data += b"\0"
    return sum(word for (word,) in struct.iter_unpack(">H", data))


def _put(
    vector: Vector,
    target: Slice,
    value: int,
) -> None:
    """Write a slice."""
    vector[target.container] = _merged(vector, target, value << target.low)


def _merged(
    vector: Vector,
    target: Slice,
    value: int,
) -> int:
    mask = target.mask << target.low
    return vector[target.container] & ~mask | value & mask


def _counted(
    step: CounterLoad | int,
    counter: int,
    registers: dict[str, int],
) -> int:
    if isinstance(step, int):
        return counter + step
    if step.source is None:
        return step.constant
    value = registers[step.source]
    if step.source == "half":
        value = value >> 8 if step.high else value & 0xFF
    value = (value >> step.rotate | value << (8 - step.rotate)) & 0xFF & step.mask
    return value + step.constant
