"""The `bf-rt.json` of a program, made from its P4Info.

p4c's Tofino back end derives the one from the other (`control-plane/bfruntime.cpp`); this follows
the same rules for match-action tables, action selectors, direct counters and digests. It stands for
the compiler where the compiler is not installed.
"""

from __future__ import annotations

import json
from typing import Any

from finsy.proto import p4i
from google.protobuf import text_format

_MATCH = {2: "Exact", 3: "LPM", 4: "Ternary", 5: "Range"}


def bf_rt_info(p4info_text: str) -> bytes:
    """Return the description of a program whose P4Info is given as protobuf text."""
    info = text_format.Parse(p4info_text, p4i.P4Info())
    actions = {action.preamble.id: action for action in info.actions}
    counted = {counter.direct_table_id for counter in info.direct_counters}
    tables = []
    for table in info.tables:
        key = [
            _field(
                field.id,
                field.name,
                field.bitwidth,
                mandatory=False,
                match_type=_MATCH[field.match_type],
            )
            for field in table.match_fields
        ]
        if any(_MATCH[field.match_type] in ("Ternary", "Range") for field in table.match_fields):
            key.append(
                _field(65537, "$MATCH_PRIORITY", "uint32", mandatory=False, match_type="Exact")
            )
        described: dict[str, Any] = {
            "name": f"pipe.{table.preamble.name}",
            "id": table.preamble.id,
            "table_type": "MatchAction_Indirect_Selector"
            if table.implementation_id
            else "MatchAction_Direct",
            "size": table.size,
            "annotations": [],
            "depends_on": [table.implementation_id, _SELECTOR | table.implementation_id]
            if table.implementation_id
            else [],
            "has_const_default_action": bool(table.const_default_action_id),
            "key": key,
            "data": _pointers()
            if table.implementation_id
            else _counters()
            if table.preamble.id in counted
            else [],
            "supported_operations": [],
            "attributes": ["EntryScope", *(["ConstTable"] if table.is_const_table else [])],
        }
        if not table.implementation_id:
            described["action_specs"] = [_action(actions[ref.id]) for ref in table.action_refs]
        tables.append(described)
    for profile in info.action_profiles:
        of_table = next(table for table in info.tables if table.preamble.id == profile.table_ids[0])
        tables += _profile(profile, [_action(actions[ref.id]) for ref in of_table.action_refs])
    filters = [_digest(info, digest) for digest in info.digests]
    return json.dumps(
        {"schema_version": "1.0.0", "tables": tables, "learn_filters": filters}
    ).encode()


_SELECTOR = 1 << 30
"""The bit by which the id of a selector differs from that of its profile."""


def _profile(profile: Any, actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the tables of an action profile and of its selector."""
    name, number = f"pipe.{profile.preamble.name}", profile.preamble.id

    def table(kind: str, id_: int, size: int, **more: Any) -> dict[str, Any]:
        described = {
            "table_type": kind,
            "id": id_,
            "size": size,
            "annotations": [],
            "has_const_default_action": False,
        }
        return {**described, "supported_operations": [], "attributes": ["EntryScope"], **more}

    def listed(number: int, name: str, kind: str) -> dict[str, Any]:
        return {
            "mandatory": False,
            "read_only": False,
            "singleton": {**_field(number, name, kind), "repeated": True},
        }

    member = _field(65536, "$ACTION_MEMBER_ID", "uint32", mandatory=True, match_type="Exact")
    group = _field(65537, "$SELECTOR_GROUP_ID", "uint32", mandatory=True, match_type="Exact")
    size = {
        "mandatory": False,
        "read_only": False,
        "singleton": _field(65540, "$MAX_GROUP_SIZE", "uint32"),
    }
    ids, states = (
        listed(65538, "$ACTION_MEMBER_ID", "uint32"),
        listed(65539, "$ACTION_MEMBER_STATUS", "bool"),
    )
    data = {"data": [ids, states, size], "depends_on": [number]}
    return [
        table(
            "Action",
            number,
            profile.size,
            name=name,
            key=[member],
            action_specs=actions,
            data=[],
            depends_on=[],
        ),
        table(
            "Selector", _SELECTOR | number, profile.size, name=f"{name}_sel", key=[group], **data
        ),
    ]


def _pointers() -> list[dict[str, Any]]:
    fields = [
        _field(65541, "$ACTION_MEMBER_ID", "uint32"),
        _field(65542, "$SELECTOR_GROUP_ID", "uint32"),
    ]
    return [{"mandatory": True, "read_only": False, "oneof": fields}]


def _field(number: int, name: str, width: int | str, **more: Any) -> dict[str, Any]:
    described = {"type": width} if isinstance(width, str) else {"type": "bytes", "width": width}
    return {
        "id": number,
        "name": name,
        "repeated": False,
        "annotations": [],
        **more,
        "type": described,
    }


def _action(action: Any) -> dict[str, Any]:
    parameters = [
        _field(param.id, param.name, param.bitwidth, mandatory=True, read_only=False)
        for param in action.params
    ]
    return {
        "id": action.preamble.id,
        "name": action.preamble.name,
        "action_scope": "TableAndDefault",
        "annotations": [],
        "data": parameters,
    }


def _counters() -> list[dict[str, Any]]:
    names = {65553: "$COUNTER_SPEC_BYTES", 65554: "$COUNTER_SPEC_PKTS"}
    return [
        {"mandatory": False, "read_only": False, "singleton": _field(number, name, "uint64")}
        for number, name in names.items()
    ]


def _digest(info: Any, digest: Any) -> dict[str, Any]:
    struct = info.type_info.structs[digest.type_spec.struct.name]
    fields = [
        _field(place, member.name, member.type_spec.bitstring.bit.bitwidth)
        for place, member in enumerate(struct.members, start=1)
    ]
    return {
        "name": f"pipe.{digest.preamble.name}",
        "id": digest.preamble.id,
        "annotations": [],
        "fields": fields,
    }
