"""The P4Info as frozen records by id: everything that the codecs need to know of a program.

The index is built once per pipeline. After that the codecs never touch the P4Info message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeVar

from finsy.proto import p4i

__all__ = [
    "ActionInfo",
    "ActionScope",
    "ArrayInfo",
    "DigestInfo",
    "MatchInfo",
    "MatchKind",
    "MetadataInfo",
    "MeterKind",
    "P4InfoError",
    "P4InfoIndex",
    "ParamInfo",
    "ProfileInfo",
    "TableInfo",
    "ValueSetInfo",
    "index_p4info",
]


class P4InfoError(ValueError):
    """The P4Info contradicts itself or asks for something that this switch does not support."""


class MatchKind(Enum):
    """The kind of a key field's match; the value is the name of FieldMatch's oneof member."""

    EXACT = "exact"
    LPM = "lpm"
    TERNARY = "ternary"
    RANGE = "range"
    OPTIONAL = "optional"


class MeterKind(Enum):
    """The way in which a meter marks packets."""

    TWO_RATE_THREE_COLOR = 0
    SINGLE_RATE_THREE_COLOR = 1
    SINGLE_RATE_TWO_COLOR = 2


class ActionScope(Enum):
    """The places where a table allows an action."""

    TABLE_AND_DEFAULT = 0
    TABLE_ONLY = 1
    DEFAULT_ONLY = 2


@dataclass(frozen=True, slots=True)
class MatchInfo:
    """One key field: its P4Info id, name and width in bits (0 if the P4Info has none)."""

    id: int
    name: str
    width: int
    kind: MatchKind


@dataclass(frozen=True, slots=True)
class ParamInfo:
    """One action parameter: its P4Info id, name and width in bits."""

    id: int
    name: str
    width: int


@dataclass(frozen=True, slots=True)
class ActionInfo:
    """An action with its parameters in the program's order."""

    id: int
    name: str
    params: tuple[ParamInfo, ...]


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A match-action table; `profile_id` is 0 if it has none."""

    id: int
    name: str
    fields: tuple[MatchInfo, ...]
    actions: Mapping[int, ActionScope]
    size: int
    const_default: bool
    is_const: bool
    has_idle_timeout: bool
    profile_id: int
    meter_kind: MeterKind = MeterKind.TWO_RATE_THREE_COLOR

    @property
    def needs_priority(self) -> bool:
        """Return whether entries carry a priority: some field is ternary, range or optional."""
        return any(
            match.kind in (MatchKind.TERNARY, MatchKind.RANGE, MatchKind.OPTIONAL)
            for match in self.fields
        )


@dataclass(frozen=True, slots=True)
class ProfileInfo:
    """An action profile or selector.

    A `max_group_size` of 0 means that there is no static limit.
    """

    id: int
    name: str
    table_ids: tuple[int, ...]
    with_selector: bool
    size: int
    max_group_size: int
    sum_of_members: bool
    max_member_weight: int
    weights_disallowed: bool


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """An indirect counter or meter, or a register array (whose `type_spec` is set)."""

    id: int
    name: str
    size: int
    type_spec: Any = None
    meter_kind: MeterKind = MeterKind.TWO_RATE_THREE_COLOR


@dataclass(frozen=True, slots=True)
class ValueSetInfo:
    """A parser value set: the fields that its members match, and the largest number of members."""

    id: int
    name: str
    fields: tuple[MatchInfo, ...]
    size: int


@dataclass(frozen=True, slots=True)
class DigestInfo:
    """A digest and the type of its messages."""

    id: int
    name: str
    type_spec: Any


@dataclass(frozen=True, slots=True)
class MetadataInfo:
    """One field of a @controller_header, in wire order."""

    id: int
    name: str
    width: int


@dataclass(frozen=True)
class P4InfoIndex:
    """All entities of one P4Info by id."""

    tables: Mapping[int, TableInfo]
    actions: Mapping[int, ActionInfo]
    profiles: Mapping[int, ProfileInfo]
    counters: Mapping[int, ArrayInfo]
    meters: Mapping[int, ArrayInfo]
    registers: Mapping[int, ArrayInfo]
    value_sets: Mapping[int, ValueSetInfo]
    digests: Mapping[int, DigestInfo]
    packet_in: tuple[MetadataInfo, ...] | None
    packet_out: tuple[MetadataInfo, ...] | None
    type_info: Any = field(repr=False)


class _Named(Protocol):
    @property
    def id(self) -> int: ...

    @property
    def name(self) -> str: ...


_Record = TypeVar("_Record", bound=_Named)

_KINDS = {
    p4i.MatchField.EXACT: MatchKind.EXACT,
    p4i.MatchField.LPM: MatchKind.LPM,
    p4i.MatchField.TERNARY: MatchKind.TERNARY,
    p4i.MatchField.RANGE: MatchKind.RANGE,
    p4i.MatchField.OPTIONAL: MatchKind.OPTIONAL,
}


def index_p4info(p4info: p4i.P4Info) -> P4InfoIndex:
    """Return the index of `p4info`.

    Raises:
        P4InfoError: an id is zero or used twice, a reference leads nowhere, or a feature is
        unknown.
    """
    actions = _by_id("action", map(_action, p4info.actions))
    direct: dict[int, str] = {}
    meter_kinds: dict[int, MeterKind] = {}
    for counter in p4info.direct_counters:
        direct[counter.preamble.id] = "counter"
    for meter in p4info.direct_meters:
        direct[meter.preamble.id] = "meter"
        meter_kinds[meter.preamble.id] = _meter_kind(meter)
    profiles = _by_id("action profile", map(_profile, p4info.action_profiles))
    tables = [_table(table, actions, profiles, direct, meter_kinds) for table in p4info.tables]
    headers = {header.preamble.name: header for header in p4info.controller_packet_metadata}
    return P4InfoIndex(
        tables=_by_id("table", tables),
        actions=actions,
        profiles=profiles,
        counters=_by_id("counter", map(_array, p4info.counters)),
        meters=_by_id("meter", map(_array, p4info.meters)),
        registers=_by_id("register", map(_array, p4info.registers)),
        value_sets=_by_id("value set", map(_value_set, p4info.value_sets)),
        digests=_by_id("digest", map(_digest, p4info.digests)),
        packet_in=_header(headers.get("packet_in")),
        packet_out=_header(headers.get("packet_out")),
        type_info=p4info.type_info,
    )


def _by_id(kind: str, records: Iterable[_Record]) -> dict[int, _Record]:
    by_id: dict[int, _Record] = {}
    for record in records:
        if record.id == 0:
            raise P4InfoError(f"{kind} {record.name!r} has no id in the P4Info")
        if record.id in by_id:
            raise P4InfoError(
                f"{kind} id {record.id} appears twice in the P4Info,"
                f" the second time for {record.name!r}"
            )
        by_id[record.id] = record
    return by_id


def _width(place: str, typed: Any) -> int:
    width: int = typed.bitwidth
    if width <= 0:
        raise P4InfoError(
            f"{place} has no bit width; values translated to strings are not supported"
        )
    return width


def _action(action: p4i.Action) -> ActionInfo:
    name = action.preamble.name
    params: list[ParamInfo] = []
    for param in action.params:
        width = _width(f"{name}.{param.name}", param)
        params.append(ParamInfo(param.id, param.name, width))
    return ActionInfo(action.preamble.id, name, tuple(params))


def _digest(digest: p4i.Digest) -> DigestInfo:
    return DigestInfo(digest.preamble.id, digest.preamble.name, digest.type_spec)


def _array(message: Any) -> ArrayInfo:
    kind = MeterKind.TWO_RATE_THREE_COLOR
    if isinstance(message, p4i.Meter):
        kind = _meter_kind(message)
    return ArrayInfo(
        id=message.preamble.id,
        name=message.preamble.name,
        size=int(message.size),
        type_spec=getattr(message, "type_spec", None),
        meter_kind=kind,
    )


def _meter_kind(meter: p4i.Meter | p4i.DirectMeter) -> MeterKind:
    if meter.spec.type not in p4i.MeterSpec.Type.values():
        raise P4InfoError(
            f"meter {meter.preamble.name} is of type {meter.spec.type},"
            " which this switch does not know"
        )
    return MeterKind(int(meter.spec.type))


def _header(header: p4i.ControllerPacketMetadata | None) -> tuple[MetadataInfo, ...] | None:
    if header is None:
        return None
    fields: list[MetadataInfo] = []
    for part in header.metadata:
        width = _width(f"{header.preamble.name}.{part.name}", part)
        fields.append(MetadataInfo(part.id, part.name, width))
    return tuple(fields)


def _profile(profile: p4i.ActionProfile) -> ProfileInfo:
    sum_of_members = profile.WhichOneof("selector_size_semantics") == "sum_of_members"
    return ProfileInfo(
        id=profile.preamble.id,
        name=profile.preamble.name,
        table_ids=tuple(profile.table_ids),
        with_selector=profile.with_selector,
        size=int(profile.size),
        max_group_size=profile.max_group_size,
        sum_of_members=sum_of_members,
        max_member_weight=profile.sum_of_members.max_member_weight if sum_of_members else 0,
        weights_disallowed=profile.weights_disallowed,
    )


def _fields(place: str, matches: Iterable[p4i.MatchField]) -> tuple[MatchInfo, ...]:
    fields: list[MatchInfo] = []
    for match in matches:
        kind = None
        if match.WhichOneof("match") == "match_type":
            kind = _KINDS.get(match.match_type)
        if kind is None:
            raise P4InfoError(
                f"{place}: field {match.name!r} has a match type that this switch does not know"
            )
        # A key of type `error` has no width in the P4Info; 0 means that only the program knows it.
        width = 0
        if match.bitwidth != 0 or match.HasField("type_name"):
            width = _width(f"{place}, field {match.name!r}", match)
        fields.append(MatchInfo(match.id, match.name, width, kind))
    return tuple(fields)


def _value_set(value_set: p4i.ValueSet) -> ValueSetInfo:
    name = value_set.preamble.name
    fields = _fields(f"value set {name}", value_set.match)
    return ValueSetInfo(value_set.preamble.id, name, fields, value_set.size)


def _table(
    table: p4i.Table,
    actions: Mapping[int, ActionInfo],
    profiles: Mapping[int, ProfileInfo],
    direct: Mapping[int, str],
    meter_kinds: Mapping[int, MeterKind],
) -> TableInfo:
    name = table.preamble.name
    scopes: dict[int, ActionScope] = {}
    for ref in table.action_refs:
        if ref.id not in actions:
            raise P4InfoError(
                f"table {name} refers to action {ref.id}, which the P4Info does not have"
            )
        scopes[ref.id] = ActionScope(ref.scope)
    if table.implementation_id and table.implementation_id not in profiles:
        raise P4InfoError(
            f"table {name} refers to action profile {table.implementation_id}, which the P4Info"
            " does not have"
        )
    resources: dict[str, int] = {}
    for number in table.direct_resource_ids:
        if number not in direct:
            raise P4InfoError(
                f"table {name} refers to direct resource {number}, which the P4Info does not have"
            )
        resources[direct[number]] = number
    meter_kind = meter_kinds.get(resources.get("meter", 0), MeterKind.TWO_RATE_THREE_COLOR)
    return TableInfo(
        id=table.preamble.id,
        name=name,
        fields=_fields(f"table {name}", table.match_fields),
        actions=scopes,
        size=int(table.size),
        const_default=table.const_default_action_id != 0,
        is_const=table.is_const_table,
        has_idle_timeout=table.idle_timeout_behavior == p4i.Table.NOTIFY_CONTROL,
        profile_id=table.implementation_id,
        meter_kind=meter_kind,
    )
