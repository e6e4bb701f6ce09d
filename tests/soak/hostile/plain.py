"""A small v1model program in BMv2 JSON, whose parts hostile ones replace."""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]

PLAIN_FIELDS = ("packet_length", "instance_type", "priority", "egress_spec")
_STANDARD = {
    "ingress_port": 9, "egress_spec": 9, "egress_port": 9, "instance_type": 32,
    "packet_length": 32, "enq_timestamp": 32, "enq_qdepth": 19, "deq_timedelta": 32,
    "deq_qdepth": 19, "ingress_global_timestamp": 48, "egress_global_timestamp": 48,
    "mcast_grp": 16, "egress_rid": 16, "checksum_error": 1, "parser_error": 32, "priority": 3,
    "_padding": 3,
}  # fmt: skip


def number(value: int) -> JSON:
    """Return a constant."""
    return {"type": "hexstr", "value": hex(value)}


def field(header: str, name: str) -> JSON:
    """Return a field as an operand."""
    return {"type": "field", "value": [header, name]}


def program(
    types: dict[str, list[list[Any]]],
    scalars: list[list[Any]],
    elements: int = 2,
    metadata: bool = True,
) -> JSON:
    """Return a program with a header of each type; that of type ``s0`` is a stack ``s``.

    Ingress sends each packet to port 1 by an action, to which statements may be added; egress has
    a table without keys. There are arrays r0, r1, c and m, and a calculation ``hash``.
    """
    header_types = [_type("scalars_0", 0, scalars)]
    standard = [[name, width, False] for name, width in _STANDARD.items()]
    header_types.append(_type("standard_metadata", 1, standard))
    headers = [_header("scalars", 0, "scalars_0", True)]
    headers.append(_header("standard_metadata", 1, "standard_metadata", True))
    stack: list[int] = []
    for name, fields in types.items():
        header_types.append(_type(name, len(header_types), fields))
        if name == "s0":
            for index in range(elements):
                stack.append(len(headers))
                headers.append(_header(f"s[{index}]", len(headers), name, False))
        else:
            headers.append(_header(name, len(headers), name, False))
    stacks = [{"name": "s", "id": 0, "header_type": "s0", "size": elements, "header_ids": stack}]
    egress_spec = field("standard_metadata", "egress_spec")
    send = {"op": "assign", "parameters": [egress_spec, number(1)]}
    return {
        "program": "hostile.p4", "__meta__": {"version": [2, 23], "compiler": ""},
        "header_types": header_types, "headers": headers,
        "header_stacks": stacks if stack else [],
        "errors": [["NoError", 0], ["PacketTooShort", 1]],
        "parsers": [{"name": "parser", "id": 0, "init_state": "start", "parse_states": [
            _state("start", 0), _state("next", 1)]}],
        "deparsers": [{"name": "deparser", "id": 0, "order": [], "primitives": []}],
        "register_arrays": [_array("r0", 0, bitwidth=64), _array("r1", 1, bitwidth=8)],
        "counter_arrays": [_array("c", 0, is_direct=False)],
        "meter_arrays": [_array("m", 0, is_direct=False, type="bytes", rate_count=2)],
        "calculations": [{"name": "hash", "id": 0, "algo": "crc32", "input": []}],
        "actions": [_action("send", 0, [send]), _action("act", 1, [])],
        "pipelines": [
            {"name": "ingress", "id": 0, "init_table": "t", "tables": [_table("t", 0, 0)]},
            {"name": "egress", "id": 1, "init_table": "u", "tables": [_table("u", 1, 1)]},
        ],
    }  # fmt: skip


def _type(name: str, identity: int, fields: list[list[Any]]) -> JSON:
    return {"name": name, "id": identity, "fields": fields}


def _header(name: str, identity: int, kind: str, metadata: bool) -> JSON:
    return {"name": name, "id": identity, "header_type": kind, "metadata": metadata}


def _state(name: str, identity: int) -> JSON:
    last = {"type": "default", "value": None, "mask": None, "next_state": None}
    return {
        "name": name, "id": identity, "parser_ops": [], "transition_key": [],
        "transitions": [last],
    }  # fmt: skip


def _array(name: str, identity: int, **more: Any) -> JSON:
    return {"name": name, "id": identity, "size": 16, **more}


def _action(name: str, identity: int, primitives: list[JSON]) -> JSON:
    return {"name": name, "id": identity, "runtime_data": [], "primitives": primitives}


def _table(name: str, identity: int, action: int) -> JSON:
    names = ["send", "act"]
    entry = {"action_id": action, "action_const": True, "action_data": [],
             "action_entry_const": True}  # fmt: skip
    return {
        "name": name, "id": identity, "key": [], "match_type": "exact", "type": "simple",
        "max_size": 1024, "with_counters": False, "support_timeout": False, "direct_meters": None,
        "action_ids": [action], "actions": [names[action]], "base_default_next": None,
        "next_tables": {names[action]: None}, "default_entry": entry,
    }  # fmt: skip
