"""Traces for tests, encoded by the protobuf library from schemas of our own."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from echelon_importers import Source

_FIELD = descriptor_pb2.FieldDescriptorProto
SCALARS = (
    "double",
    "float",
    "int32",
    "int64",
    "uint32",
    "uint64",
    "sint32",
    "sint64",
    "fixed32",
    "fixed64",
    "sfixed32",
    "sfixed64",
    "bool",
    "string",
    "bytes",
)
"""The types of attributes of the second generation, numbered 3, 5, ...; lists are 4, 6, ..."""
_TYPES = {kind: getattr(_FIELD, f"TYPE_{kind.upper()}") for kind in SCALARS}
SECOND = {
    **{f"{kind.title()}s": {"values": (1, kind, True)} for kind in SCALARS},
    "Attribute": {
        "name": (1, "string", False),
        "doc_string": (2, "string", False),
        **{f"{kind}_val": (2 * place + 3, kind, False) for place, kind in enumerate(SCALARS)},
        **{
            f"{kind}_list": (2 * place + 4, f"{kind.title()}s", False)
            for place, kind in enumerate(SCALARS)
        },
    },
    "Inputs": {
        "values": (1, "string", False),
        "shapes": (2, "string", False),
        "types": (3, "string", False),
    },
    "Node": {
        "id": (1, "uint64", False),
        "name": (2, "string", False),
        "type": (3, "int32", False),
        "ctrl_deps": (4, "uint64", True),
        "data_deps": (5, "uint64", True),
        "start_time_micros": (6, "uint64", False),
        "duration_micros": (7, "uint64", False),
        "inputs": (8, "Inputs", False),
        "outputs": (9, "Inputs", False),
        "attr": (10, "Attribute", True),
    },
    "GlobalMetadata": {"version": (1, "string", False), "attr": (2, "Attribute", True)},
}
FIRST = {
    "Attribute": {
        "name": (1, "string", False),
        "type": (2, "int32", False),
        "i": (6, "int64", False),
        "bools": (8, "bool", True),
    },
    "Node": {
        "id": (1, "uint64", False),
        "name": (2, "string", False),
        "type": (3, "int32", False),
        "parent": (4, "uint64", True),
        "attribute": (11, "Attribute", True),
    },
}


def messages(
    schema: Mapping[str, Mapping[str, tuple[int, str, bool]]], syntax: str
) -> dict[str, Any]:
    """Return the classes of the messages of a schema."""
    file = descriptor_pb2.FileDescriptorProto(name="trace.proto", package="trace", syntax=syntax)
    for name, fields in schema.items():
        message = file.message_type.add(name=name)
        if one_of := name == "Attribute" and syntax == "proto3":
            message.oneof_decl.add(name="value")
        for key, (number, kind, repeated) in fields.items():
            field = message.field.add(name=key, number=number)
            field.label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
            if kind in _TYPES:
                field.type = _TYPES[kind]
            else:
                field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".trace.{kind}"
            if one_of and number > 2:
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"trace.{name}"))
        for name in schema
    }


NEW = messages(SECOND, "proto3")
OLD = messages(FIRST, "proto2")


def delimited(*parts: Any) -> bytes:
    """Return the messages, each behind its length."""
    out = b""
    for part in parts:
        data = part.SerializeToString()
        length = len(data)
        while length > 127:
            out += bytes([length & 127 | 128])
            length >>= 7
        out += bytes([length]) + data
    return out


def split(data: bytes) -> list[Any]:
    """Return the nodes in a trace of the second generation, behind its metadata."""
    nodes, place = [], 0
    while place < len(data):
        length = shift = 0
        while True:
            byte = data[place]
            place += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        nodes.append(data[place : place + length])
        place += length
    return [NEW["Node"].FromString(node) for node in nodes[1:]]


def node(number: int, kind: int, after: Sequence[int] = (), us: int = 0, **attributes: Any) -> Any:
    """Return a node of the second generation."""
    made = NEW["Node"](
        id=number, name=f"node {number}", type=kind, data_deps=after, duration_micros=us
    )
    for name, value in attributes.items():
        attribute = made.attr.add(name=name)
        match value:
            case bool():
                attribute.bool_val = value
            case int():
                attribute.int64_val = value
            case str():
                attribute.string_val = value
            case None:
                pass
            case _:
                attribute.bool_list.values.extend(value)
    return made


def kernel(
    number: int, start_us: int, us: int, after: Sequence[int], stream: int, **attributes: Any
) -> Any:
    """Return a node of a GPU, which runs on a stream: a collective if it has a size."""
    kind = 7 if "comm_size" in attributes else 4
    message = node(number, kind, after, us, is_cpu_op=False, stream=stream, **attributes)
    message.start_time_micros = start_us
    return message


def process_groups(number: int, groups: Mapping[str, Sequence[int]]) -> Any:
    """Return the node of metadata that Chakra's converter makes of PyTorch's process groups."""
    listed = [
        {"pg_name": name, "ranks": list(ranks), "group_size": len(ranks)}
        for name, ranks in groups.items()
    ]
    message = node(number, 1, is_cpu_op=True)
    message.inputs.values = str([json.dumps(listed)])
    return message


def traces(*ranks: Sequence[Any], version: str = "0.0.4") -> list[Source]:
    """Return the traces of ranks with these nodes."""
    return [
        Source(f"a.{rank}.et", delimited(NEW["GlobalMetadata"](version=version), *nodes))
        for rank, nodes in enumerate(ranks)
    ]


def old_node(number: int, kind: int, after: Sequence[int] = (), **attributes: int) -> Any:
    """Return a node of the first generation."""
    made = OLD["Node"](id=number, name=f"node {number}", type=kind, parent=after)
    for name, value in attributes.items():
        made.attribute.add(name=name, type=2, i=value)
    return made


def data_parallel(rank: int) -> bytes:
    """Return the trace of one of two ranks: it computes, sends to or receives from the other, and
    all-reduces.
    """
    send = (5, {"comm_dst": 1}) if rank == 0 else (6, {"comm_src": 0})
    return delimited(
        NEW["GlobalMetadata"](version="0.0.4"),
        node(0, 4, us=1500, is_cpu_op=False),
        node(1, send[0], [0], comm_tag=3, comm_size=4096, **send[1]),
        node(2, 4, [0, 1], us=2000),
        node(3, 7, [2], comm_type=0, comm_size=1_000_000, involved_dim=[True]),
        node(4, 7, [3], comm_type=2, comm_size=500, pg_name="5"),
    )


def two_ranks(*, packed: bool = False) -> list[Source]:
    """Return the traces of both ranks, and the ranks of their communicator."""
    pack = gzip.compress if packed else bytes
    traces = [
        Source(f"run.{rank}.et{'.gz' * packed}", pack(data_parallel(rank))) for rank in (0, 1)
    ]
    return [*traces, Source("groups.json", b'{"5": [0, 1]}')]
