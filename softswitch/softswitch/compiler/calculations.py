"""Calculations: the bytes that they cover and the numbers that they yield."""

from __future__ import annotations

from dataclasses import dataclass

from softswitch import ir
from softswitch.errors import ProgramError
from softswitch.hashes import ALGORITHMS

from .stage import Stage
from .usage import calculation_items
from .values import Int, mask, unsigned

_RESULT_WIDTH = {
    "crc8_custom": 8,
    **dict.fromkeys(("crc16", "crc16_custom", "crcCCITT", "csum16", "cksum16", "xor16"), 16),
    **dict.fromkeys(("crc32", "crc32_custom", "xor32", "toeplitz"), 32),
}


@dataclass(frozen=True, slots=True)
class _Piece:
    """``width`` bits of a calculation's input, or the bytes in the variable ``varbit``.

    ``valid`` is the variable that tells whether the bits are present, None if they always are. ``written`` is false for
    fields that the program never assigns.
    """

    value: Int
    width: int
    valid: str | None = None
    varbit: str | None = None
    written: bool = True


def check_algorithm(name: str, place: str) -> None:
    if name not in ALGORITHMS:
        raise ProgramError(place, f"algorithm '{name}' is not supported; supported are {', '.join(sorted(ALGORITHMS))}")


def calculate(stage: Stage, calculation: ir.Calculation, known_valid: frozenset[str] = frozenset()) -> Int:
    """Return the value of a calculation over the packet's present state.

    Headers in ``known_valid`` are valid wherever the value is used. Fields of an invalid header are left out.
    """
    check_algorithm(calculation.algorithm, calculation.place)
    pieces, payload = _pieces(stage, calculation, known_valid)
    if calculation.algorithm in ("csum16", "cksum16"):
        fast = _internet_checksum(stage, pieces, payload, stage.layout.sums.get(calculation.name))
        if fast is not None:
            return fast
    function = stage.bind("hash", calculation.name, f"sw.calculations[{calculation.name!r}]")
    return unsigned(f"{function}({_bytes(pieces, payload)})", _RESULT_WIDTH.get(calculation.algorithm, 64))


def select(stage: Stage, profile: str, selector: ir.Selector, place: str) -> Int:
    """Return the hash that selects a member of a group."""
    check_algorithm(selector.algorithm, place)
    expressions = stage.expressions(place)
    pieces = [
        _Piece(mask(expressions.number(value), (1 << width) - 1), width, _validity(stage, value, frozenset()))
        for value, width in selector.inputs
    ]
    function = stage.bind("hash", profile, f"sw.selectors[{profile!r}]")
    return unsigned(f"{function}({_bytes(pieces, False)})", _RESULT_WIDTH.get(selector.algorithm, 64))


def _validity(stage: Stage, value: ir.Expr | None, known_valid: frozenset[str]) -> str | None:
    if not isinstance(value, (ir.FieldRef, ir.HeaderRef)):
        return None
    name = value.header if isinstance(value, ir.FieldRef) else value.name
    if stage.program.headers[name].metadata or name in known_valid:
        return None
    return stage.layout.headers[name].valid


def _pieces(stage: Stage, calculation: ir.Calculation, known_valid: frozenset[str]) -> tuple[list[_Piece], bool]:
    expressions = stage.expressions(calculation.place)
    layout = stage.layout
    pieces: list[_Piece] = []
    payload = False
    for item in calculation_items(stage.program, calculation):
        if isinstance(item, tuple):
            header, fields = item
            valid = _validity(stage, ir.HeaderRef(header), known_valid)
            types = {f.name: f for f in stage.program.headers[header].type.fields}
            whole = layout.whole(header, fields)
            if whole is not None:
                width = sum(types[f].width for f in fields)
                pieces.append(_Piece(unsigned(whole, width), width, valid, written=False))
            else:
                written = stage.usage.written
                pieces += [
                    _Piece(expressions.field(header, f), types[f].width, valid, written=(header, f) in written)
                    for f in fields
                ]
        elif item.kind == "payload":
            payload = True
        elif item.kind == "header":
            assert isinstance(item.value, ir.HeaderRef)
            valid = _validity(stage, item.value, known_valid)
            for f in stage.program.headers[item.value.name].type.fields:
                pieces.append(_field_piece(stage, item.value.name, f, valid))
        elif isinstance(item.value, ir.FieldRef):
            valid = _validity(stage, item.value, known_valid)
            found = stage.program.headers[item.value.header].type.field(item.value.field)
            assert found is not None
            pieces.append(_field_piece(stage, item.value.header, found, valid))
        else:
            assert item.value is not None
            pieces.append(_Piece(expressions.number(item.value), item.width))
    return pieces, payload


def _field_piece(stage: Stage, header: str, field: ir.Field, valid: str | None) -> _Piece:
    name = stage.layout.variable(header, field.name)
    assert name is not None
    if field.varbit:
        return _Piece(unsigned("0", 1), 0, valid, name)
    value = unsigned(name, field.width)
    if field.signed:
        value = mask(Int(name, None, None, True), (1 << field.width) - 1)
    return _Piece(value, field.width, valid, written=(header, field.name) in stage.usage.written)


def _internet_checksum(stage: Stage, pieces: list[_Piece], payload: bool, shared: str | None) -> Int | None:
    """Return the checksum of RFC 1071, computed by arithmetic on the fields. 65536 is 1 modulo 65535, so the words need
    not be put together.

    Fields of invalid headers are zero and add nothing, provided that leaving them out does not shift the others. Return
    None where that does not hold. ``shared`` is the variable that keeps the sum of the fields that are never written:
    ingress fills it, egress uses it.
    """
    if any(piece.varbit is not None for piece in pieces):
        return None
    total = sum(piece.width for piece in pieces)
    if payload and total % 16:
        return None
    runs: dict[str | None, int] = {}
    for piece in pieces:
        runs[piece.valid] = runs.get(piece.valid, 0) + piece.width
    if len(runs) > 1 or (runs and None not in runs):
        position = 0
        current: str | None = None
        for piece in [*pieces, _Piece(unsigned("0", 1), 0)]:
            if piece.valid != current and position % 16:
                return None
            current = piece.valid
            position += piece.width
    left = total + -total % 16
    terms: list[str] = []
    steady: list[str] = []
    for piece in pieces:
        left -= piece.width
        shift = left % 16
        if piece.value.value is not None:
            if piece.value.value:
                terms.append(str((piece.value.value << shift) % 65535))
        else:
            to = terms if shared is None or piece.written else steady
            to.append(f"({piece.value.wrapped} << {shift})" if shift else piece.value.wrapped)
    if steady and shared is not None:
        terms.insert(0, f"({shared} := {' + '.join(steady)})" if stage.kind == "ingress" else shared)
    if payload:
        terms.append("_payload_sum(data, off)")
    name = stage.temporary()
    # (sum - 1) % 65535 + 1 is the ones' complement sum of anything but zeros.
    return Int(f"65534 - ({name} - 1) % 65535 if ({name} := {' + '.join(terms) or '0'}) else 65535", 0, 65535)


def _bytes(pieces: list[_Piece], payload: bool) -> str:
    if all(piece.valid is None and piece.varbit is None for piece in pieces):
        total = sum(piece.width for piece in pieces)
        left = total + -total % 8
        size = left // 8
        parts: list[str] = []
        for piece in pieces:
            left -= piece.width
            parts.append(f"{piece.value.wrapped} << {left}" if left else piece.value.wrapped)
        code = f'({" | ".join(parts)}).to_bytes({size}, "big")' if parts else 'b""'
    else:
        listed: list[str] = []
        for piece in pieces:
            entry = (
                f"({piece.value.code}, {piece.width})"
                if piece.varbit is None
                else f'(int.from_bytes({piece.varbit}, "big"), len({piece.varbit}) * 8)'
            )
            listed.append(f"{entry} if {piece.valid} else (0, 0)" if piece.valid is not None else entry)
        code = f"_concatenated(({', '.join(listed)},))"
    return f"{code} + data[off:]" if payload else code
