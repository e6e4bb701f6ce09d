"""The places of a packet's fields in C.

A header has its bytes as they are sent, each metadata field a number.
"""

from __future__ import annotations

from dataclasses import dataclass

from softswitch import ir

from .text import CNames, CText, words
from .usage import Usage

_DECISIVE = ("egress_spec", "mcast_grp", "priority")
"""The fields that the switch itself reads to decide where a packet goes."""


@dataclass(frozen=True, slots=True)
class FieldPlace:
    """The place of a field.

    It is bits ``bit`` to ``bit + width`` of the bytes at ``code``, or the number ``code`` if bit is
    None.
    """

    code: str
    bit: int | None
    width: int
    signed: bool


@dataclass(frozen=True, slots=True)
class HeaderPlace:
    """The place of a header.

    ``code`` has ``valid`` and ``bytes``; a variable-length field follows ``split`` bytes.
    """

    code: str
    type_name: str
    size: int
    split: int | None

    @property
    def length(self) -> str:
        """Return the code for the bytes of the header as it is sent."""
        if self.split is None:
            return str(self.size)
        return f"{self.size} + {self.code}.length"


class CLayout:
    """The places of everything that belongs to a packet, which functions reach by ``c``."""

    def __init__(self, program: ir.ProgramIR, usage: Usage) -> None:
        self.program = program
        self.usage = usage
        self.names = CNames()
        self.headers: dict[str, HeaderPlace] = {}
        self.fields: dict[tuple[str, str], FieldPlace] = {}
        self.varbits: dict[tuple[str, str], str] = {}
        """The code of each variable-length field.

        It has ``from`` and ``length``: the bytes of the received packet that the field holds.
        """
        self.next_index: dict[str, str] = {}
        self._types: dict[tuple[ir.Field, ...], str] = {}
        self._declared = CText(1)
        self._typedefs = CText()
        decisive = set()
        for name, intrinsic in program.intrinsics.items():
            if name in _DECISIVE:
                decisive.add((intrinsic.header, intrinsic.field))
        for header in program.headers.values():
            if header.metadata:
                self._metadata(header, decisive)
        self.metadata_lines = list(self._declared.lines)
        self._declared = CText(1)
        for header in program.headers.values():
            if not header.metadata:
                self._header(header)
        for name in (*program.stacks, *program.union_stacks):
            self.next_index[name] = f"c->{self.names.new('n', name)}"
            self._declared(f"uint32_t {self.next_index[name][3:]};")

    def spec(self, header: str, field: str) -> ir.Field:
        """Return what the program says about a field that it has."""
        spec = self.program.headers[header].type.field(field)
        assert spec is not None
        return spec

    @property
    def header_lines(self) -> list[str]:
        return self._declared.lines

    @property
    def type_lines(self) -> list[str]:
        return self._typedefs.lines

    def _metadata(self, header: ir.Header, decisive: set[tuple[str, str]]) -> None:
        for field in header.type.fields:
            key = (header.name, field.name)
            if not (key in self.usage.read or key in decisive or field.varbit):
                continue
            spoken = (
                (field.name,)
                if header.name.partition("_")[0] == "scalars"
                else (header.name, field.name)
            )
            name = self.names.new("m", *spoken)
            if field.varbit:
                self._declared(f"struct {{ uint32_t from, length; }} {name};")
                self.varbits[key] = f"c->meta.{name}"
                continue
            count = words(field.width)
            self._declared(f"uint64_t {name}{f'[{count}]' if count > 1 else ''};")
            self.fields[key] = FieldPlace(f"c->meta.{name}", None, field.width, field.signed)

    def _header(self, header: ir.Header) -> None:
        fields = header.type.fields
        name = self.names.new("h", header.name)
        if fields not in self._types:
            self._types[fields] = self.names.new("type", header.type.name)
            size = header.type.width // 8
            if any(f.varbit for f in fields):
                more = " uint32_t from, length;"
            else:
                more = ""
            self._typedefs(
                f"typedef struct {{ uint8_t valid, bytes[{max(size, 1)}];{more} }}"
                f" {self._types[fields]};"
            )
        bit = 0
        split = None
        for field in fields:
            if field.varbit:
                split = bit // 8
                self.varbits[header.name, field.name] = f"c->{name}"
                continue
            place = FieldPlace(f"c->{name}.bytes", bit, field.width, field.signed)
            self.fields[header.name, field.name] = place
            bit += field.width
        type_name = self._types[fields]
        size_bytes = header.type.width // 8
        self.headers[header.name] = HeaderPlace(f"c->{name}", type_name, size_bytes, split)
        self._declared(f"{type_name} {name};")

    # -- reading, writing --------------------------------------------------------------------------

    def loaded(
        self,
        place: FieldPlace,
        out: CText,
        count: int,
    ) -> str:
        """Return a field's value modulo 2**(64 * count).

        It is a word, or the name of ``count`` words if that is above 1.

        ``count`` is not above the words of the field.
        """
        if place.bit is None:
            if words(place.width) == 1 or count > 1:
                return place.code
            return f"{place.code}[0]"
        if count > 1:
            name = out.temporary()
            out(
                f"uint64_t {name}[{count}];",
                f"wide_get({name}, {count}, {place.code}, {place.bit}, {place.width});",
            )
            if place.signed and count == words(place.width):
                out(f"wide_cut({name}, {count}, {place.width}, 1);")
            return name
        width = min(place.width, 64)
        code = self.bits(place.code, place.bit + place.width - width, width)
        if place.signed and place.width < 64:
            half = f"{1 << (place.width - 1):#x}ull"
            code = f"(({code} ^ {half}) - {half})"
        return code

    @staticmethod
    def bits(
        base: str,
        bit: int,
        width: int,
    ) -> str:
        """Return up to 64 bits, ``bit`` bits behind ``base``."""
        first = bit // 8
        last = (bit + width + 7) // 8
        spare = last * 8 - bit - width
        mask = f"{(1 << width) - 1:#x}ull"
        if last - first > 8:
            return f"bits_at({base}, {bit}, {width})"
        code = f"get{last - first}({base} + {first})"
        if spare:
            code = f"({code} >> {spare})"
        return f"({code} & {mask})" if bit % 8 else code

    def stored(
        self,
        place: FieldPlace,
        value: str,
        out: CText,
    ) -> None:
        """Write the assignment of a value that fits.

        It is a word, or the name of as many words as the field has.
        """
        count = words(place.width)
        if place.bit is None:
            if count == 1:
                out(f"{place.code} = {value};")
            else:
                out(f"memcpy({place.code}, {value}, sizeof {place.code});")
            return
        if count > 1:
            out(f"wide_put({place.code}, {place.bit}, {place.width}, {value});")
            return
        first = place.bit // 8
        last = (place.bit + place.width + 7) // 8
        size = last - first
        spare = last * 8 - place.bit - place.width
        if size > 8:
            out(f"put_bits({place.code}, {place.bit}, {place.width}, {value});")
        elif size * 8 == place.width:
            out(f"put{size}({place.code} + {first}, {value});")
        else:
            mask = ((1 << place.width) - 1) << spare
            keep = (1 << size * 8) - 1 & ~mask
            shifted = f"({value}) << {spare}" if spare else f"({value})"
            out(
                f"put{size}({place.code} + {first}, (get{size}({place.code} + {first}) &"
                f" {keep:#x}ull) | ({shifted} & {mask:#x}ull));"
            )
