"""Calculations in C: the bytes that they cover and the numbers that they yield."""

from __future__ import annotations

from dataclasses import dataclass

from softswitch import hashes, ir
from softswitch.errors import ProgramError

from .expressions import CExpressions
from .keys import joined
from .layout import CLayout, FieldPlace
from .text import CText, array, literal, words

_CRCS = {"crc16": hashes.CRC16, "crc32": hashes.CRC_CUSTOM["crc32_custom"], **hashes.CRC_CUSTOM}
_CRCS["crcCCITT"] = hashes.Crc(16, 0x1021, 0xFFFF, 0, False)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of ``width`` bits.

    They are those of an expression, the whole bytes at ``base``, or ``length`` bytes of the packet
    at ``base``.

    ``valid`` is the condition for them to be there, None if they always are.
    """

    width: int
    valid: str | None
    expr: ir.Expr | None = None
    base: str | None = None
    length: str | None = None


class Calculations:
    """The writer of a program's calculations, and of what they need in the unit."""

    def __init__(self, layout: CLayout) -> None:
        self.layout = layout
        self.program = layout.program
        self.tables: dict[str, str] = {}
        self.counters: list[str] = []
        """The calculations that count their calls."""

    def value(
        self,
        calculation: ir.Calculation,
        out: CText,
        known_valid: frozenset[str] = frozenset(),
    ) -> str:
        """Return the word that a calculation yields over the packet's present state."""
        pieces: list[_Piece] = []
        payload = False
        for item in calculation.inputs:
            if item.kind == "payload":
                payload = True
            elif item.kind == "header":
                assert isinstance(item.value, ir.HeaderRef)
                name = item.value.name
                fields = self.program.headers[name].type.fields
                refs = [ir.FieldRef(name, field.name) for field in fields]
                pieces += [self._field(ref, known_valid) for ref in refs]
            elif isinstance(item.value, ir.FieldRef):
                pieces.append(self._field(item.value, known_valid))
            else:
                assert item.value is not None
                pieces.append(_Piece(item.width, None, item.value))
        return self._hashed(
            calculation.algorithm, calculation.name, pieces, payload, calculation.place, out
        )

    def selected(
        self,
        name: str,
        selector: ir.Selector,
        place: str,
        out: CText,
    ) -> str:
        """Return the word that selects a member of a group."""
        pieces = []
        for value, width in selector.inputs:
            pieces.append(_Piece(width, self._valid(value.header, frozenset()), value))
        return self._hashed(selector.algorithm, f"selector {name}", pieces, False, place, out)

    def _field(self, ref: ir.FieldRef, known_valid: frozenset[str]) -> _Piece:
        field = self.layout.spec(ref.header, ref.field)
        valid = self._valid(ref.header, known_valid)
        if field.varbit:
            held = self.layout.varbits[ref.header, ref.field]
            return _Piece(0, valid, None, f"{held}.from", f"{held}.length")
        return _Piece(field.width, valid, ref)

    def _valid(self, header: str, known_valid: frozenset[str]) -> str | None:
        """Return the condition for a header to be valid, None if it always is."""
        if self.program.headers[header].metadata or header in known_valid:
            return None
        return f"{self.layout.headers[header].code}.valid"

    def _whole_bytes(self, pieces: list[_Piece]) -> list[_Piece]:
        """Join neighbouring fields of a header into runs of whole bytes where they are some."""
        runs: list[_Piece] = []
        i = 0
        while i < len(pieces):
            piece = pieces[i]
            place = self._place(piece)
            end = self._end_of_bytes(pieces, i)
            if end == i:
                runs.append(piece)
                i += 1
                continue
            assert place is not None
            assert place.bit is not None
            width = sum(part.width for part in pieces[i:end])
            base = f"{place.code} + {place.bit // 8}"
            runs.append(_Piece(width, piece.valid, None, base))
            i = end
        return runs

    def _end_of_bytes(self, pieces: list[_Piece], start: int) -> int:
        """Return the end of the longest run of whole bytes from `start` on.

        It is `start` if there is none.
        """
        first = self._place(pieces[start])
        if first is None or first.bit is None or first.bit % 8:
            return start
        end = start
        next_bit = first.bit
        for index in range(start, len(pieces)):
            piece = pieces[index]
            place = self._place(piece)
            if place is None or (place.code, place.bit) != (first.code, next_bit):
                break
            if piece.valid != pieces[start].valid or piece.width != place.width:
                break
            next_bit += place.width
            if next_bit % 8 == 0:
                end = index + 1
        return end

    def _place(self, piece: _Piece) -> FieldPlace | None:
        if not isinstance(piece.expr, ir.FieldRef):
            return None
        return self.layout.fields.get((piece.expr.header, piece.expr.field))

    def _hashed(
        self,
        algorithm: str,
        name: str,
        pieces: list[_Piece],
        payload: bool,
        place: str,
        out: CText,
    ) -> str:
        if algorithm == "round_robin_consistent":
            fault = f"algorithm '{algorithm}' is not one that the native engine has"
            raise ProgramError(place, fault)
        if algorithm == "round_robin":
            if name not in self.counters:
                self.counters.append(name)
            return f"(s->turns[{self.counters.index(name)}]++)"
        if algorithm == "toeplitz":
            return "0"  # simple_switch starts with a key of zeros
        pieces = self._whole_bytes(pieces)
        if algorithm in ("csum16", "cksum16") and all(self._even(piece) for piece in pieces):
            return self._summed(pieces, payload, out)
        buffer, size = self._gathered(pieces, payload, place, out)
        return self._function(algorithm, buffer, size)

    @staticmethod
    def _even(piece: _Piece) -> bool:
        if piece.length is not None or piece.width % 16:
            return False
        return piece.base is not None or piece.width <= 64

    def _summed(
        self,
        pieces: list[_Piece],
        payload: bool,
        out: CText,
    ) -> str:
        """Return an Internet checksum over whole 16-bit words, which need not be put together."""
        name = out.temporary()
        out(f"uint64_t {name} = 0;")
        for piece in pieces:
            if piece.base is not None:
                code = f"{name} = sum_words({name}, {piece.base}, {piece.width // 8});"
            else:
                assert piece.expr is not None
                value = CExpressions(self.layout, out, name).cut(piece.expr, piece.width)
                parts = [f"({value} >> {shift} & 0xffff)" for shift in range(0, piece.width, 16)]
                code = f"{name} += {' + '.join(parts)};"
            out(code if piece.valid is None else f"if ({piece.valid}) {code}")
        if payload:
            out(f"{name} = sum_words({name}, p->data + c->off, c->size - c->off);")
        return f"sum_finish({name})"

    def _gathered(
        self,
        pieces: list[_Piece],
        payload: bool,
        place: str,
        out: CText,
    ) -> tuple[str, str]:
        """Put pieces one behind the other; return the buffer and its length in bytes."""
        fixed = sum(piece.width for piece in pieces) // 8 + 16
        more = [piece.length for piece in pieces if piece.length is not None]
        if payload:
            more.append("c->size")
        name = out.temporary()
        if more:
            room = " + ".join([str(fixed), *more])
            out(
                f"bit_string {name} = {{scratch(s, {room}), 0}};", f"if (!{name}.p) return DROPPED;"
            )
        else:
            out(f"uint8_t {name}_bytes[{fixed}];", f"bit_string {name} = {{{name}_bytes, 0}};")
        for piece in pieces:
            if piece.valid is not None:
                out(f"if ({piece.valid}) {{")
                out.depth += 1
            if piece.length is not None:
                out(f"add_bytes(&{name}, p->data + {piece.base}, {piece.length});")
            elif piece.base is not None:
                out(f"add_bytes(&{name}, {piece.base}, {piece.width // 8});")
            else:
                assert piece.expr is not None
                value = CExpressions(self.layout, out, place).cut(piece.expr, piece.width)
                add = "add_bits" if words(piece.width) == 1 else "add_wide"
                out(f"{add}(&{name}, {value}, {piece.width});")
            if piece.valid is not None:
                out.depth -= 1
                out("}")
        if payload:
            # What is before the payload is padded to a whole byte.
            out(f"{name}.bit = ({name}.bit + 7) / 8 * 8;")
            out(f"add_bytes(&{name}, p->data + c->off, c->size - c->off);")
        return f"{name}.p", f"({name}.bit + 7) / 8"

    def _function(
        self,
        algorithm: str,
        buffer: str,
        size: str,
    ) -> str:
        crc = _CRCS.get(algorithm)
        if crc is not None:
            table = self._crc_table(crc)
            last = literal(crc.final)
            if crc.reflected:
                first = literal(hashes.reverse(crc.initial, crc.width))
                return f"crc_reflected({table}, {first}, {last}, {buffer}, {size})"
            first = literal(crc.initial)
            return f"crc_plain({table}, {crc.width}, {first}, {last}, {buffer}, {size})"
        if algorithm in ("csum16", "cksum16"):
            return f"sum_finish(sum_words(0, {buffer}, {size}))"
        if algorithm in ("xor16", "xor32"):
            return f"xor_words({buffer}, {size}, {int(algorithm[3:]) // 8})"
        if algorithm == "xxh64":
            return f"xxh64({buffer}, {size})"
        return f"first_bytes({buffer}, {size})"

    def _crc_table(self, crc: hashes.Crc) -> str:
        kind = "reflected" if crc.reflected else "plain"
        name = f"crc_{kind}_{crc.width}_{crc.polynomial:x}"
        entries = joined(hashes.crc_table(crc))
        self.tables[name] = f"static const uint64_t {name}[256] = {array(entries, 256)};"
        return name
