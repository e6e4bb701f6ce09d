"""The `bf-rt.json` of a program, made from its P4Info.

p4c's Tofino back end derives the one from the other (`control-plane/bfruntime.cpp`); this follows the same rules for
match-action tables, direct counters and digests. It stands for the compiler where the compiler is not installed.
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
            _field(field.id, field.name, field.bitwidth, mandatory=False, match_type=_MATCH[field.match_type])
            for field in table.match_fields
        ]
        if any(_MATCH[field.match_type] in ("Ternary", "Range") for field in table.match_fields):
            key.append(_field(65537, "$MATCH_PRIORITY", "uint32", mandatory=False, match_type="Exact"))
        described: dict[str, Any] = {
            "name": f"pipe.{table.preamble.name}",
            "id": table.preamble.id,
            "table_type": "MatchAction_Indirect_Selector" if table.implementation_id else "MatchAction_Direct",
            "size": table.size,
            "annotations": [],
            "depends_on": [],
            "has_const_default_action": bool(table.const_default_action_id),
            "key": key,
            "data": _counters() if table.preamble.id in counted else [],
            "supported_operations": [],
            "attributes": ["EntryScope", *(["ConstTable"] if table.is_const_table else [])],
        }
        if not table.implementation_id:
            described["action_specs"] = [_action(actions[ref.id]) for ref in table.action_refs]
        tables.append(described)
    filters = [_digest(info, digest) for digest in info.digests]
    return json.dumps({"schema_version": "1.0.0", "tables": tables, "learn_filters": filters}).encode()


def _field(number: int, name: str, width: int | str, **more: Any) -> dict[str, Any]:
    described = {"type": width} if isinstance(width, str) else {"type": "bytes", "width": width}
    return {"id": number, "name": name, "repeated": False, "annotations": [], **more, "type": described}


def _action(action: Any) -> dict[str, Any]:
    parameters = [
        _field(param.id, param.name, param.bitwidth, mandatory=True, read_only=False) for param in action.params
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
    return {"name": f"pipe.{digest.preamble.name}", "id": digest.preamble.id, "annotations": [], "fields": fields}
