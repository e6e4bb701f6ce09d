"""The deparser, which builds the packet from containers whose validity bit (POV) is set.

The unparsed rest follows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from echelon_tofino_model.emulator.assembly import (
    Invocation,
    Mapping,
    Name,
    Number,
    Section,
    Term,
    items,
    mapping,
    number,
    refusal,
    text,
)
from echelon_tofino_model.emulator.parser import folded
from echelon_tofino_model.emulator.phv import STAGES, FieldNames, Slice, Vector

_REPORTS = ("learning", "mirror", "resubmit")
_IGNORED = frozenset({"hash_lag_ecmp_mcast_0", "hash_lag_ecmp_mcast_1", "context_json"})


@dataclass(frozen=True, slots=True)
class Emit:
    """A container (or a checksum, or a constant byte) that is sent if the bit ``valid`` is set."""

    valid: Slice
    source: Slice | None
    checksum: int = 0
    constant: int = 0


@dataclass(frozen=True, slots=True)
class ChecksumInput:
    """A container's share of a checksum: the bits of ``mask``.

    The 16-bit halves in ``swap`` have their bytes exchanged.
    """

    source: Slice
    mask: int
    swap: int


@dataclass(frozen=True, slots=True)
class ContainerChecksum:
    """A checksum over containers.

    A result of zero is sent as ones if ``zeros_as_ones`` is set, as UDP wants it.
    """

    inputs: tuple[ChecksumInput, ...]
    zeros_as_ones: bool


@dataclass(frozen=True, slots=True)
class DigestField:
    """A field of a learning digest.

    It has ``width`` bits from ``start_bit`` of ``start_byte`` downwards, and lies ``offset`` bits
    above the lowest bit of its value.
    """

    name: str
    start_byte: int
    width: int
    start_bit: int
    offset: int


@dataclass(frozen=True, slots=True)
class Report:
    """A field list of a mirror, resubmit or learning digest."""

    sources: tuple[Slice, ...]
    name: str = ""
    fields: tuple[DigestField, ...] = ()


@dataclass(frozen=True, slots=True)
class Reports:
    """The field lists of one kind, of which the selector chooses one, if its container is valid."""

    select: Slice
    by_index: dict[int, Report]

    def chosen(self, vector: Vector, valid: int) -> Report | None:
        """Return the field list that the packet's selector selects, or None."""
        if not valid >> self.select.container & 1:
            return None
        index = vector[self.select.container] >> self.select.low & self.select.mask
        return self.by_index.get(index)


@dataclass(frozen=True, slots=True)
class PhvDeparser:
    """The deparser of one direction.

    ``params`` are the intrinsic metadata, by the assembly's name.
    """

    emits: tuple[Emit, ...]
    checksums: dict[int, ContainerChecksum]
    params: dict[str, Slice]
    reports: dict[str, Reports]

    def emit(self, vector: Vector, rest: bytes) -> bytes:
        """Return the packet."""
        parts = []
        sums: dict[int, int] = {}
        for emit in self.emits:
            bit = emit.valid
            if not vector[bit.container] >> bit.low & 1:
                continue
            if emit.source is not None:
                value = vector[emit.source.container]
                parts.append(value.to_bytes(emit.source.size // 8, "big"))
            elif emit.checksum >= 0:
                if emit.checksum not in sums:
                    sums[emit.checksum] = checksum(self.checksums[emit.checksum], vector)
                parts.append(sums[emit.checksum].to_bytes(2, "big"))
            else:
                parts.append(bytes([emit.constant]))
        parts.append(rest)
        return b"".join(parts)

    def param(
        self,
        name: str,
        vector: Vector,
        valid: int,
    ) -> int | None:
        """Return an intrinsic metadata field; None if the program has not written it."""
        place = self.params.get(name)
        if place is None or not valid >> place.container & 1:
            return None
        return vector[place.container] >> place.low & place.mask


def checksum(spec: ContainerChecksum, vector: Vector) -> int:
    """Return the Internet checksum (RFC 1071) of containers."""
    total = 0
    for part in spec.inputs:
        value = vector[part.source.container] & part.mask
        size = part.source.size
        for half in range(max(size // 16, 1)):
            word = value >> 16 * half & 0xFFFF
            if part.swap >> half & 1:
                word = (word & 0xFF) << 8 | word >> 8
            total += word
    value = ~folded(total) & 0xFFFF
    return 0xFFFF if value == 0 and spec.zeros_as_ones else value


def packed(sources: Sequence[Slice], vector: Vector) -> bytes:
    """Return the bytes of containers one after the other, each with the named bits only."""
    parts = []
    for source in sources:
        value = vector[source.container] & source.mask << source.low
        parts.append(value.to_bytes(source.size // 8, "big"))
    return b"".join(parts)


def field_value(field: DigestField, data: bytes) -> int:
    """Return a field of a learning digest.

    ``start_bit`` is that of its highest bit within ``start_byte``.
    """
    first = 8 * field.start_byte + 7 - field.start_bit
    trailing_bits = 8 * len(data) - first - field.width
    value = int.from_bytes(data, "big") >> max(trailing_bits, 0)
    mask = (1 << field.width) - 1
    return (value & mask) << field.offset


def load_deparser(section: Section, names: FieldNames) -> PhvDeparser:
    """Return the deparser of a section. Raises :class:`ProgramError` for what is not supported."""
    emits: list[Emit] = []
    partial: dict[int, tuple[ChecksumInput, ...]] = {}
    checksums: dict[int, ContainerChecksum] = {}
    params: dict[str, Slice] = {}
    reports: dict[str, Reports] = {}
    full: list[tuple[int, Term]] = []
    for key, value in mapping(section.value).pairs:
        match key:
            case Name(text="dictionary"):
                emits += [_emit(source, pov, names) for source, pov in mapping(value).pairs]
            case Invocation(name="partial_checksum"):
                inputs = [_input(item, names) for item in items(value)]
                partial[number(key.args[0])] = tuple(inputs)
            case Invocation(name="full_checksum"):
                full.append((number(key.args[0]), value))
            case Name() if key.text in _REPORTS:
                reports[key.text] = _reports(mapping(value), names)
            case Name() if key.text in _IGNORED:
                pass
            case Name():
                sources = items(value)
                if len(sources) != 1 or isinstance(sources[0], Mapping):
                    raise refusal(key.line, f"the deparser's '{key.text}' needs one field")
                params[key.text] = names.slice(sources[0], STAGES)
            case _:
                raise refusal(key.line, "this is not supported in a deparser")
    for unit, value in full:
        checksums[unit] = _full(value, partial)
    for emit in emits:
        is_checksum = emit.source is None and emit.checksum >= 0
        if is_checksum and emit.checksum not in checksums:
            raise refusal(section.line, f"there is no checksum {emit.checksum}")
    return PhvDeparser(tuple(emits), checksums, params, reports)


def _emit(
    source: Term,
    pov: Term,
    names: FieldNames,
) -> Emit:
    if not isinstance(pov, Name | Invocation):
        raise refusal(pov.line, "the deparser needs one validity bit here")
    valid = names.slice(pov, STAGES)
    match source:
        case Invocation(name="full_checksum"):
            return Emit(valid, None, number(source.args[0]))
        case Invocation(name="clot"):
            raise refusal(source.line, "clots exist on Tofino 2 only")
        case Number():
            return Emit(valid, None, -1, source.value)
    return Emit(valid, names.slice(source, STAGES))


def _input(item: Term, names: FieldNames) -> ChecksumInput:
    pairs = mapping(item).pairs
    source, settings = pairs[0]
    place = names.slice(source, STAGES)
    swap = number(mapping(settings).get("swap"), 0)
    return ChecksumInput(place, place.mask << place.low, swap)


def _full(value: Term, partial: dict[int, tuple[ChecksumInput, ...]]) -> ContainerChecksum:
    inputs: list[ChecksumInput] = []
    zeros_as_ones = False
    for item in items(value):
        for key, content in mapping(item).pairs:
            match key:
                case Invocation(name="partial_checksum"):
                    inputs += partial.get(number(key.args[0]), ())
                case Name(text="zeros_as_ones"):
                    zeros_as_ones = text(content) == "true"
                case _:
                    raise refusal(key.line, "this part of a checksum is not supported")
    return ContainerChecksum(tuple(inputs), zeros_as_ones)


def _reports(body: Mapping, names: FieldNames) -> Reports:
    select = body.get("select")
    if select is None:
        raise refusal(body.line, "a digest needs its selector")
    by_index: dict[int, Report] = {}
    context = mapping(body.get("context_json"))
    labels = [text(item) for item in items(context.get("name"))]
    for key, value in body.pairs:
        if isinstance(key, Number):
            sources = tuple(names.slice(item, STAGES) for item in items(value))
            by_index[key.value] = Report(sources)
    described = [(key.value, value) for key, value in context.pairs if isinstance(key, Number)]
    for (index, value), label in zip(described, labels, strict=False):
        fields = tuple(_digest_field(item) for item in items(value))
        by_index[index] = Report(by_index[index].sources, label, fields)
    return Reports(names.slice(select, STAGES), by_index)


def _digest_field(item: Term) -> DigestField:
    parts = items(item)
    if len(parts) != 5:
        raise refusal(item.line, "a digest's field needs its name and four numbers")
    numbers = [number(part) for part in parts[1:]]
    return DigestField(text(parts[0]), *numbers)
