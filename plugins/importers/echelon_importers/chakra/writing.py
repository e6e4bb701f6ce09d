"""Writing Chakra execution traces of the second generation, which `chakra.wire` reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from echelon.switches.protobuf_fields import counted, delimited, varint
from echelon_importers.chakra.attributes import Value
from echelon_importers.chakra.wire import WireNode

_VERSION = "0.0.4"
_UINT64, _UINT64_LIST, _STRING = 13, 14, 29


def trace_bytes(nodes: Iterable[tuple[str, WireNode]]) -> bytes:
    """Return the file with these nodes, each with its name.

    Attributes are texts, whole numbers from 0, and lists.
    """
    messages = [_text(1, _VERSION)]
    for name, node in nodes:
        messages.append(_node(name, node))
    return b"".join(varint(len(message)) + message for message in messages)


def _node(name: str, node: WireNode) -> bytes:
    fields = [
        _number(1, node.number),
        _text(2, name),
        _number(3, node.kind),
        _packed(4, node.ctrl_deps),
        _packed(5, node.data_deps),
        _number(6, node.start_us),
        _number(7, node.duration_us),
    ]
    for key, value in node.attributes.items():
        attribute = _text(1, key)
        if value is not None:
            attribute += _attribute(value)
        fields.append(delimited(10, attribute))
    return b"".join(fields)


def _attribute(value: Value) -> bytes:
    if isinstance(value, tuple):
        sizes = [int(number) for number in value]
        return delimited(_UINT64_LIST, _packed(1, sizes))
    if isinstance(value, str):
        return _text(_STRING, value)
    # A number of a oneof is written even if it is 0.
    return counted(_UINT64, int(value))


def _number(field: int, value: int) -> bytes:
    return counted(field, value) if value else b""


def _packed(field: int, values: Sequence[int]) -> bytes:
    if values:
        return delimited(field, b"".join(map(varint, values)))
    return b""


def _text(field: int, value: str) -> bytes:
    return delimited(field, value.encode())
