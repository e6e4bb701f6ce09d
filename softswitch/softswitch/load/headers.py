"""Header types and instances, stacks and unions, and the metadata that the switch itself uses."""

from __future__ import annotations

from collections.abc import Mapping

from softswitch import ir
from softswitch.numerals import brief

from . import limits
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
    headers = _read_plain_headers(scope)
    union_types: dict[str, tuple[str, ...]] = {}
    for item in scope.root.members("header_union_types"):
        name, reader = item.named("header union type")
        members: list[str] = []
        for pair in reader.elements_of("headers"):
            member, _ = pair.pair()
            members.append(member.text())
        union_types[name] = tuple(members)
    unions = _read_unions(scope, headers, union_types)
    for item in scope.root.members("header_stacks"):
        name, reader = item.named("header stack")
        elements = _headers_of(scope, reader, headers)
        types = {scope.headers[header].type.name for header in elements}
        if len(types) != 1:
            raise reader.fail("must have elements, all of one header type")
        scope.stacks[name] = ir.Stack(name, elements)
    for item in scope.root.members("header_union_stacks"):
        name, reader = item.named("header union stack")
        elements = _by_id(reader.get("header_union_ids"), unions)
        union_type = _union_type(reader, union_types)
        kinds = {_header_types(scope, union) for union in elements}
        if len(kinds) != 1 or {len(kind) for kind in kinds} != {len(union_type)}:
            raise reader.fail("must have elements, all of one header union type")
        scope.union_stacks[name] = ir.UnionStack(name, elements)
        scope.union_members[name] = union_type


def _read_plain_headers(scope: Scope) -> dict[int, str]:
    """Fill ``scope`` with the program's headers, and return their names by id."""
    types = scope.named("header_types", "header type", _header_type)
    by_id: dict[int, str] = {}
    for item in scope.root.members("headers"):
        name, reader = item.named("header")
        type_name = reader.text_of("header_type")
        if type_name not in types:
            raise reader.fail(f"there is no header type '{type_name}'")
        if name in scope.headers:
            raise reader.fail("is defined twice")
        header = ir.Header(name, types[type_name], reader.flag("metadata"))
        width = header.type.width
        if not header.metadata and width % 8:
            raise reader.fail(
                f"a header must be a whole number of bytes, this one has {width} bits"
            )
        scope.headers[name] = header
        by_id[reader.integer_of("id")] = name
    return by_id


def _read_unions(
    scope: Scope,
    headers: Mapping[int, str],
    types: Mapping[str, tuple[str, ...]],
) -> dict[int, str]:
    """Fill ``scope`` with the program's header unions, and return their names by id."""
    by_id: dict[int, str] = {}
    for item in scope.root.members("header_unions"):
        name, reader = item.named("header union")
        union_type = _union_type(reader, types)
        members = _headers_of(scope, reader, headers)
        if len(members) != len(union_type):
            raise reader.fail(f"must have {len(union_type)} headers, has {len(members)}")
        scope.unions[name] = ir.Union(name, members)
        by_id[reader.integer_of("id")] = name
    return by_id


def _union_type(reader: Reader, types: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    name = reader.text_of("union_type")
    if name not in types:
        raise reader.fail(f"there is no header union type '{name}'")
    return types[name]


def _header_types(scope: Scope, union: str) -> tuple[str, ...]:
    headers = scope.unions[union].headers
    return tuple(scope.headers[header].type.name for header in headers)


def _headers_of(
    scope: Scope,
    reader: Reader,
    names: Mapping[int, str],
) -> tuple[str, ...]:
    headers = _by_id(reader.get("header_ids"), names)
    for header in headers:
        if scope.headers[header].metadata:
            raise reader.fail(f"'{header}' is metadata, a header is expected")
    return headers


def _by_id(reader: Reader, names: Mapping[int, str]) -> tuple[str, ...]:
    elements = []
    for item in reader.elements():
        number = item.integer()
        if number not in names:
            raise item.fail(f"there is no object with id {brief(number)}")
        elements.append(names[number])
    return tuple(elements)


def _header_type(name: str, reader: Reader) -> ir.HeaderType:
    fields: list[ir.Field] = []
    items = reader.elements_of("fields")
    limits.FIELDS.check(reader.place, len(items))
    for item in items:
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
            width = parts[1].integer(1, ir.MAX_WIDTH)
            fields.append(ir.Field(field_name, width, signed))
    max_bytes = None
    longest = reader.find("max_length")
    if longest is not None:
        max_bytes = longest.integer()
    return ir.HeaderType(name, tuple(fields), max_bytes)


def read_intrinsics(scope: Scope) -> dict[str, ir.FieldRef]:
    """Return the fields that the switch itself reads and writes, by the program's aliases."""
    aliases: dict[str, ir.FieldRef] = {}
    for item in scope.root.members("field_aliases"):
        alias, target = item.pair()
        aliases[alias.text()] = scope.field(target)
    intrinsics: dict[str, ir.FieldRef] = {}
    for header, names in _INTRINSICS.items():
        for name in names:
            ref = aliases.get(f"{header}.{name}") or _standard_field(scope, header, name)
            if ref is not None:
                intrinsics[name] = ref
    for name in _REQUIRED:
        if name not in intrinsics:
            raise scope.root.fail(f"standard_metadata has no field '{name}': not a v1model program")
    for ref in intrinsics.values():
        if not scope.headers[ref.header].metadata:
            raise scope.root.fail(
                f"'{ref.header}.{ref.field}' is aliased to metadata but is a packet header"
            )
    return intrinsics


def _standard_field(
    scope: Scope,
    header: str,
    name: str,
) -> ir.FieldRef | None:
    """Return the field of a header that has no alias, or that of standard_metadata."""
    for owner in (header, "standard_metadata"):
        if owner in scope.headers and scope.headers[owner].type.field(name) is not None:
            return ir.FieldRef(owner, name)
    return None
