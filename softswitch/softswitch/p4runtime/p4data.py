"""P4Data messages to and from the integers of the data plane.

The specification calls this "Representation of Arbitrary P4 Types".

The data plane holds a value as its leaves, left to right: the fields of a digest, the one cell of a
register. A `DataType` is compiled once from the P4Info's type specification. It then turns leaves
into a message and back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from finsy.proto import p4d

from softswitch.p4runtime.bytestring import (
    OutOfRangeError,
    decode,
    decode_signed,
    encode,
    encode_signed,
)
from softswitch.rpc.status import Code, RefusedError

__all__ = ["DataType", "UnsupportedTypeError", "compile_type"]


_MOST_BITS = 65_535
"""The widest integer, in bits.

It exceeds what any P4 compiler allows, and is small enough to compute with.
"""


class UnsupportedTypeError(ValueError):
    """The type has values that this switch cannot exchange with a controller."""


class DataType:
    """A P4 type that occupies `leaves` integers."""

    leaves: int

    def encode(self, values: Sequence[int]) -> p4d.P4Data:
        """Return the message for `values`, which holds exactly `leaves` integers."""
        message = p4d.P4Data()
        self.fill(message, iter(values))
        return message

    def decode(self, message: p4d.P4Data) -> tuple[int, ...]:
        """Return the integers of `message`.

        Raises:
            RefusedError: INVALID_ARGUMENT if the message has another shape, OUT_OF_RANGE if a value
            is too wide.
        """
        return tuple(self.drain(message))

    def fill(self, message: p4d.P4Data, values: Iterator[int]) -> None:
        """Take this type's leaves from `values` and write them into `message`."""
        raise NotImplementedError

    def drain(self, message: p4d.P4Data) -> Iterator[int]:
        """Yield this type's leaves from `message`."""
        raise NotImplementedError


def _expect(message: p4d.P4Data, member: str) -> None:
    kind = message.WhichOneof("data")
    if kind != member:
        raise RefusedError(
            Code.INVALID_ARGUMENT, f"the data is {kind or 'empty'}; the P4Info says {member}"
        )


@dataclass(frozen=True)
class _Bits(DataType):
    width: int
    signed: bool
    leaves: int = 1

    def fill(self, message: p4d.P4Data, values: Iterator[int]) -> None:
        value = next(values)
        if self.signed:
            # The data plane may hold the two's complement pattern; the message carries the value
            # that it represents.
            value &= (1 << self.width) - 1
            value -= (value >> (self.width - 1)) << self.width
            message.bitstring = encode_signed(value)
        else:
            message.bitstring = encode(value)

    def drain(self, message: p4d.P4Data) -> Iterator[int]:
        _expect(message, "bitstring")
        try:
            if self.signed:
                value = decode_signed(message.bitstring, self.width)
                yield value & (1 << self.width) - 1
            else:
                yield decode(message.bitstring, self.width)
        except OutOfRangeError as error:
            raise RefusedError(Code.OUT_OF_RANGE, str(error)) from None


@dataclass(frozen=True)
class _Bool(DataType):
    leaves: int = 1

    def fill(self, message: p4d.P4Data, values: Iterator[int]) -> None:
        message.bool = bool(next(values))

    def drain(self, message: p4d.P4Data) -> Iterator[int]:
        _expect(message, "bool")
        yield int(message.bool)


@dataclass(frozen=True)
class _Compound(DataType):
    member: str
    """The name of P4Data's oneof member: struct or tuple."""
    parts: tuple[DataType, ...]

    @property
    def leaves(self) -> int:  # type: ignore[override]
        return sum(part.leaves for part in self.parts)

    def fill(self, message: p4d.P4Data, values: Iterator[int]) -> None:
        compound: p4d.P4StructLike = getattr(message, self.member)
        compound.SetInParent()
        for part in self.parts:
            part.fill(compound.members.add(), values)

    def drain(self, message: p4d.P4Data) -> Iterator[int]:
        _expect(message, self.member)
        members = getattr(message, self.member).members
        if len(members) != len(self.parts):
            raise RefusedError(
                Code.INVALID_ARGUMENT,
                f"the {self.member} has {len(members)} members; the P4Info says {len(self.parts)}",
            )
        for part, value in zip(self.parts, members, strict=True):
            yield from part.drain(value)


def compile_type(spec: Any, type_info: Any) -> DataType:
    """Return the codec of a P4DataTypeSpec; `type_info` is the P4Info's P4TypeInfo.

    Raises:
        UnsupportedTypeError: the type has a part that is not an integer, a bool, or a struct or
        tuple of such.
    """
    kind = spec.WhichOneof("type_spec")
    if kind == "bitstring":
        return _bits(spec.bitstring)
    if kind == "bool":
        return _Bool()
    if kind == "tuple":
        parts = [compile_type(part, type_info) for part in spec.tuple.members]
        return _Compound("tuple", tuple(parts))
    if kind == "struct":
        members = _named(type_info.structs, spec.struct.name).members
        parts = [compile_type(part.type_spec, type_info) for part in members]
        return _Compound("struct", tuple(parts))
    if kind == "serializable_enum":
        enum = _named(type_info.serializable_enums, spec.serializable_enum.name)
        return _integer(enum.underlying_type.bitwidth)
    if kind == "new_type":
        new_type = _named(type_info.new_types, spec.new_type.name)
        if new_type.HasField("original_type"):
            return compile_type(new_type.original_type, type_info)
        if new_type.translated_type.WhichOneof("sdn_type") == "sdn_bitwidth":
            return _integer(new_type.translated_type.sdn_bitwidth)
    raise UnsupportedTypeError(
        f"values of a {kind or 'missing'} type cannot be exchanged with a controller"
    )


def _integer(width: int, signed: bool = False) -> DataType:
    least = 1 if signed else 0
    if not least <= width <= _MOST_BITS:
        raise UnsupportedTypeError(
            f"an integer of {width} bits is not supported, only {least} to {_MOST_BITS} bits"
        )
    return _Bits(width, signed)


def _named(types: Any, name: str) -> Any:
    if name not in types:
        raise UnsupportedTypeError(f"type {name!r} is not in the P4Info")
    return types[name]


def _bits(spec: Any) -> DataType:
    kind = spec.WhichOneof("type_spec")
    if kind in ("bit", "int"):
        return _integer(getattr(spec, kind).bitwidth, kind == "int")
    raise UnsupportedTypeError("varbit values cannot be exchanged with a controller")
