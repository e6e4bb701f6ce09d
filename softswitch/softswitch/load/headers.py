"""Header types and instances, stacks and unions, and the metadata that the switch itself uses."""

from __future__ import annotations

from collections.abc import Mapping

from softswitch import ir

from .reader import Reader
from .scope import Scope

_INTRINSICS: Mapping[str, tuple[str, ...]] = {
    "standard_metadata": (
        "ingress_port",
        "egress_spec",
        "egress_port",
        "instance_type",
        "packet_length",
        "checksum_error",
        "parser_error",
    ),
    "intrinsic_metadata": (
        "ingress_global_timestamp",
        "egress_global_timestamp",
        "mcast_grp",
        "egress_rid",
        "priority",
    ),
    "queueing_metadata": ("enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth", "qid"),
}
_REQUIRED = ("ingress_port", "egress_spec", "egress_port", "instance_type", "packet_length")


def read_headers(scope: Scope) -> None:
    """Fill ``scope`` with the program's headers, stacks and unions."""
    types = scope.named("header_types", "header type", _header_type)
    by_id: dict[int, str] = {}
    for item in scope.root.members("headers"):
        name, reader = item.named("header")
        type_name = reader.get("header_type").text()
        if type_name not in types:
            raise reader.fail(f"there is no header type '{type_name}'")
        if name in scope.headers:
            raise reader.fail("is defined twice")
        header = ir.Header(name, types[type_name], reader.flag("metadata"))
        if not header.metadata and header.type.width % 8:
            raise reader.fail(
                f"a header must be a whole number of bytes, this one has {header.type.width} bits"
            )
        scope.headers[name] = header
        by_id[reader.get("id").integer()] = name
    union_by_id: dict[int, str] = {}
    union_types: dict[str, tuple[str, ...]] = {}
    for item in scope.root.members("header_union_types"):
        name, reader = item.named("header union type")
        union_types[name] = tuple(
            member.pair()[0].text() for member in reader.get("headers").elements()
        )
    for item in scope.root.members("header_unions"):
        name, reader = item.named("header union")
        type_name = reader.get("union_type").text()
        if type_name not in union_types:
            raise reader.fail(f"there is no header union type '{type_name}'")
        headers = _by_id(reader.get("header_ids"), by_id)
        _refuse_metadata(scope, headers, reader)
        if len(headers) != len(union_types[type_name]):
            raise reader.fail(
                f"must have {len(union_types[type_name])} headers, has {len(headers)}"
            )
        scope.unions[name] = ir.Union(name, headers)
        union_by_id[reader.get("id").integer()] = name
    for item in scope.root.members("header_stacks"):
        name, reader = item.named("header stack")
        headers = _by_id(reader.get("header_ids"), by_id)
        _refuse_metadata(scope, headers, reader)
        if not headers or len({scope.headers[h].type.name for h in headers}) != 1:
            raise reader.fail("must have elements, all of one header type")
        scope.stacks[name] = ir.Stack(name, headers)
    for item in scope.root.members("header_union_stacks"):
        name, reader = item.named("header union stack")
        unions = _by_id(reader.get("header_union_ids"), union_by_id)
        type_name = reader.get("union_type").text()
        if type_name not in union_types:
            raise reader.fail(f"there is no header union type '{type_name}'")
        kinds = {tuple(scope.headers[h].type.name for h in scope.unions[u].headers) for u in unions}
        if len(kinds) != 1 or {len(kind) for kind in kinds} != {len(union_types[type_name])}:
            raise reader.fail("must have elements, all of one header union type")
        scope.union_stacks[name] = ir.UnionStack(name, unions)
        scope.union_members[name] = union_types[type_name]


def _by_id(reader: Reader, names: Mapping[int, str]) -> tuple[str, ...]:
    found = []
    for item in reader.elements():
        number = item.integer()
        if number not in names:
            raise item.fail(f"there is no object with id {number}")
        found.append(names[number])
    return tuple(found)


def _refuse_metadata(scope: Scope, headers: tuple[str, ...], reader: Reader) -> None:
    for header in headers:
        if scope.headers[header].metadata:
            raise reader.fail(f"'{header}' is metadata, a header is expected")


def _header_type(name: str, reader: Reader) -> ir.HeaderType:
    fields: list[ir.Field] = []
    for item in reader.get("fields").elements():
        parts = item.elements()
        if len(parts) not in (2, 3):
            raise item.fail("must be [name, width] or [name, width, signed]")
        field_name = parts[0].text()
        if any(f.name == field_name for f in fields):
            raise item.fail(f"field '{field_name}' is defined twice")
        if parts[1].value == "*":
            if any(f.varbit for f in fields):
                raise item.fail("a header type can have only one variable-length field")
            fields.append(ir.Field(field_name, 0, varbit=True))
        else:
            # p4c writes 0 for the sign of a boolean field.
            signed = len(parts) == 3 and parts[2].value != 0 and parts[2].truth()
            fields.append(ir.Field(field_name, parts[1].integer(1, ir.MAX_WIDTH), signed))
    found = reader.find("max_length")
    return ir.HeaderType(name, tuple(fields), None if found is None else found.integer())


def read_intrinsics(scope: Scope) -> dict[str, ir.FieldRef]:
    """Return the fields that the switch itself reads and writes, under the names of the program's
    aliases.
    """
    aliases: dict[str, ir.FieldRef] = {}
    for item in scope.root.members("field_aliases"):
        alias, target = item.pair()
        aliases[alias.text()] = scope.field(target)
    found: dict[str, ir.FieldRef] = {}
    for header, names in _INTRINSICS.items():
        for name in names:
            if f"{header}.{name}" in aliases:
                found[name] = aliases[f"{header}.{name}"]
            else:
                for owner in (header, "standard_metadata"):
                    if owner in scope.headers and scope.headers[owner].type.field(name) is not None:
                        found[name] = ir.FieldRef(owner, name)
                        break
    for name in _REQUIRED:
        if name not in found:
            raise scope.root.fail(f"standard_metadata has no field '{name}': not a v1model program")
    for ref in found.values():
        if not scope.headers[ref.header].metadata:
            raise scope.root.fail(
                f"'{ref.header}.{ref.field}' is aliased to metadata but is a packet header"
            )
    return found
