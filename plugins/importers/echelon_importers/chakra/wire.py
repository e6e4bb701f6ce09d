"""Chakra execution traces on the wire: length-delimited protobuf messages of either generation.

This reads the encoding itself (protobuf.dev, "Encoding"), because the numbers of fields differ
between generations of the schema, and the reader has to find out which one a file has. Field
numbers are those of `schema/protobuf/et_def.proto` of mlcommons/chakra, which 0.0.4 and 1.0.0
share, and for the first generation those of its versions of July to October 2023 (0.0.3)::

    second: Node {id 1, name 2, type 3, ctrl_deps 4, data_deps 5, start_time_micros 6,
                  duration_micros 7, inputs 8, outputs 9, attr 10}
            IOInfo {values 1, shapes 2, types 3}
    first:  Node {id 1, name 2, type 3, parent 4, attribute 11}
            AttributeProto {name 1, type 2, doc_string 3, value from 4 on: one for each type}

`chakra.attributes` reads the attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from echelon.model.documents import DocumentError
from echelon.model.quantities import excerpt
from echelon_importers.chakra.attributes import Value, attribute, old_attribute
from echelon_importers.chakra.fields import (
    BYTES,
    VARINT,
    DamagedMessageError,
    Field,
    fields,
    numbers,
    text,
    varint,
)
from echelon_importers.importer import Source

KINDS = (
    "INVALID",
    "METADATA",
    "MEM_LOAD",
    "MEM_STORE",
    "COMP",
    "COMM_SEND",
    "COMM_RECV",
    "COMM_COLL",
)
"""The kinds of nodes of the second generation."""
METADATA = 1
COMPUTING = 4
SEND = 5
COLLECTIVE = 7


@dataclass(frozen=True, slots=True)
class WireNode:
    """A node as a trace has it. `kind` counts as in the second generation."""

    number: int
    kind: int
    ctrl_deps: tuple[int, ...]
    data_deps: tuple[int, ...]
    duration_us: int
    attributes: Mapping[str, Value | None]
    """None: the attribute has no value."""
    generation: int
    start_us: int = 0
    """0: the trace does not say."""
    inputs: str = ""
    """The values of the inputs of a node of metadata."""

    @property
    def is_on_cpu(self) -> bool:
        """Return whether the trace says that a CPU does this."""
        return bool(self.attributes.get("is_cpu_op"))

    @property
    def end_us(self) -> int:
        """Return when the node ends, by its start time."""
        return self.start_us + self.duration_us


def read_trace(source: Source) -> list[WireNode]:
    """Return the nodes in a file, gzip or not. Raises `DocumentError`, which names the message."""
    data = source.unpacked()
    nodes: list[WireNode] = []
    messages = list(_messages(source, data))
    generation = 1 if _is_first_generation(messages) else 2
    for number, message in enumerate(messages):
        try:
            parts = list(fields(message))
            if number == 0 and _is_metadata(parts):
                continue
            nodes.append(_node(parts, generation))
        except DamagedMessageError as error:
            reason = f"{error} (check that the file is a whole trace)"
            raise DocumentError(
                source.name, f"message {number}", reason, code="bad-syntax"
            ) from None
    return nodes


def node_fault(
    source: Source,
    number: object,
    reason: str,
    remedy: str,
) -> DocumentError:
    """Return an error about a node."""
    return DocumentError(source.name, f"node {excerpt(number)}", f"{reason} ({remedy})")


def _messages(source: Source, data: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        try:
            length, start = varint(data, position)
        except DamagedMessageError:
            length = len(data)
            start = position
        if start + length > len(data):
            reason = "a message ends behind the file (copy the whole file)"
            raise DocumentError(source.name, f"byte {position}", reason, code="bad-syntax")
        yield data[start : start + length]
        position = start + length


def _is_metadata(parts: list[Field]) -> bool:
    """Return whether a first message has no type of a node."""
    return all(field.number in (1, 2) and field.wire == BYTES for field in parts)


def _is_first_generation(messages: list[bytes]) -> bool:
    """Return whether a node has a first-generation attribute: field 11, a name and a type."""
    for message in messages:
        try:
            for field in fields(message):
                if field.number == 11 and isinstance(field.value, bytes):
                    inner = {(part.number, part.wire) for part in fields(field.value)}
                    return inner.issuperset([(1, BYTES), (2, VARINT)])
                if field.number == 10 and isinstance(field.value, bytes):
                    return False
        except DamagedMessageError:
            return False
    return False


def _node(parts: list[Field], generation: int) -> WireNode:
    new = generation == 2
    number = kind = start_us = duration_us = 0
    inputs = b""
    ctrl: list[int] = []
    data: list[int] = []
    attributes: dict[str, Value | None] = {}
    for field in parts:
        match field:
            case Field(1, 0, int(value)):
                number = value
            case Field(2, 2, bytes(value)):
                text(value)  # A name that is not text betrays a file of another format.
            case Field(3, 0, int(value)):
                kind = value
            case Field(4, _, value):
                (ctrl if new else data).extend(numbers(value))
            case Field(5, _, value) if new:
                data += numbers(value)
            case Field(6, 0, int(value)) if new:
                start_us = value
            case Field(7, 0, int(value)) if new:
                duration_us = value
            case Field(8, 2, bytes(value)) if new:
                inputs = value
            case Field(10, 2, bytes(value)) if new:
                attributes.update([attribute(value)])
            case Field(11, 2, bytes(value)) if not new:
                attributes.update([old_attribute(value)])
            case Field(9 | 11, 2, _) if new:
                pass
            case Field(5 | 6 | 7 | 8 | 9 | 10, 2, _) if not new:
                pass
            case _:
                if new:
                    schema = "no schema has"
                else:
                    schema = "version 0.0.3 does not have"
                raise DamagedMessageError(
                    f"a node has the field {field.number} of type {field.wire}, which {schema}"
                )
    if not new:
        runtime = attributes.get("runtime", 0)
        if not isinstance(runtime, int) or runtime < 0:
            raise DamagedMessageError("'runtime' is not a number of microseconds")
        duration_us = runtime
    return WireNode(
        number,
        kind,
        tuple(ctrl),
        tuple(data),
        duration_us,
        attributes,
        generation,
        start_us,
        _input_values(inputs) if kind == METADATA else "",
    )


def _input_values(data: bytes) -> str:
    """Return the values in a message about inputs, as text."""
    values = ""
    for field in fields(data):
        if field.number == 1 and isinstance(field.value, bytes):
            values = text(field.value)
    return values
