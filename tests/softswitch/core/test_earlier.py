"""Programs in the form that p4c-bm wrote for P4_14: what they leave out has BMv2's defaults."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from ctoolchain import compilers
from softswitch import ProgramError, Switch, load_program
from softswitch.load import load_ir
from softswitch.native.choice import Choice
from tests.differential.bmv2 import Bmv2Target
from tests.differential.campaign import campaign
from tests.differential.catalogue import Subject
from tests.differential.described import describe
from tests.differential.soft import DeviceTarget
from tests.engines import ENGINES
from tests.faults import naming
from tests.needs import needs


def field(header: str, name: str) -> dict[str, Any]:
    return {"type": "field", "value": [header, name]}


def action(number: int, name: str, params: list[list[Any]], *primitives: Any) -> dict[str, Any]:
    calls = [{"op": op, "parameters": list(args)} for op, *args in primitives]
    data = [{"name": param, "bitwidth": width} for param, width in params]
    return {"name": name, "id": number, "runtime_data": data, "primitives": calls}


def param(number: int) -> dict[str, Any]:
    return {"type": "runtime_data", "value": number}


def operation(op: str, left: Any, right: Any) -> dict[str, Any]:
    return {"type": "expression", "value": {"op": op, "left": left, "right": right}}


def number(value: int) -> dict[str, Any]:
    return {"type": "hexstr", "value": hex(value)}


PARSER_ERROR = field("standard_metadata", "parser_error")
WORDS_BITS = operation("*", {"type": "local", "value": 1}, number(32))
OPTIONS_BITS = operation("&", operation("-", WORDS_BITS, number(160)), number(0x1FF))
"""The header's length, in words of 32 bits, less its fixed part; in bits, never negative."""

IP = [
    ["version", 4],
    ["words", 4],
    ["tos", 8],
    ["bytes", 16],
    ["id", 16],
    ["fragment", 16],
    ["ttl", 8],
    ["protocol", 8],
    ["checksum", 16],
    ["src", 32],
    ["dst", 32],
    ["options", "*"],
]
STANDARD = [
    ["ingress_port", 9],
    ["packet_length", 32],
    ["egress_spec", 9],
    ["egress_port", 9],
    ["egress_instance", 32],
    ["instance_type", 32],
    ["clone_spec", 32],
    ["parser_error", 32],
    ["_padding", 5],
]
PROGRAM: dict[str, Any] = {
    "header_types": [
        {"name": "standard_metadata_t", "id": 0, "fields": STANDARD},
        {"name": "ip_t", "id": 1, "fields": IP, "length_exp": OPTIONS_BITS, "max_length": 60},
    ],
    "headers": [
        {
            "name": "standard_metadata",
            "id": 0,
            "header_type": "standard_metadata_t",
            "metadata": True,
        },
        {"name": "ip", "id": 1, "header_type": "ip_t", "metadata": False},
    ],
    "parsers": [
        {
            "name": "parser",
            "id": 0,
            "init_state": "start",
            "parse_states": [
                {
                    "name": "start",
                    "id": 0,
                    "parser_ops": [
                        {
                            "op": "extract",
                            "parameters": [{"type": "regular", "value": "ip"}],
                        }
                    ],
                    "transition_key": [],
                    "transitions": [{"value": "default", "mask": None, "next_state": None}],
                }
            ],
        }
    ],
    "deparsers": [{"name": "deparser", "id": 0, "order": ["ip"]}],
    "actions": [
        action(
            0,
            "forward",
            [["port", 9]],
            ["modify_field", field("standard_metadata", "egress_spec"), param(0)],
            ["add_to_field", field("ip", "ttl"), number(0xFF)],
        ),
        action(1, "mark", [["tos", 8]], ["modify_field", field("ip", "tos"), param(0)]),
        action(2, "discard", [], ["drop"]),
    ],
    "pipelines": [
        {
            "name": "ingress",
            "id": 0,
            "init_table": "route",
            "tables": [
                {
                    "name": "route",
                    "id": 0,
                    "match_type": "lpm",
                    "type": "indirect_ws",
                    "act_prof_name": "next_hops",
                    "selector": {"algo": "crc16", "input": [field("ip", "src")]},
                    "max_size": 64,
                    "key": [{"match_type": "lpm", "target": ["ip", "dst"]}],
                    "actions": ["forward", "discard"],
                    "next_tables": {"forward": "class", "discard": None},
                },
                {
                    "name": "class",
                    "id": 1,
                    "match_type": "exact",
                    "type": "simple",
                    "max_size": 16,
                    "default_action": None,
                    "key": [{"match_type": "exact", "target": ["ip", "protocol"]}],
                    "actions": ["mark"],
                    "next_tables": {"mark": None},
                },
            ],
            "conditionals": [],
        },
        {"name": "egress", "id": 1, "init_table": None, "tables": [], "conditionals": []},
    ],
    "checksums": [{"name": "sum", "id": 0, "type": "ipv4", "target": ["ip", "checksum"]}],
}


def changed(*path: Any, value: Any) -> dict[str, Any]:
    """Return the program with another value at a path."""
    program = copy.deepcopy(PROGRAM)
    part: Any = program
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return program


def internet_checksum(header: bytes) -> int:
    total = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, len(header), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def packet(words: int, protocol: int = 6) -> bytes:
    start = bytes([0x40 | words, 0, 0, 90, 1, 2, 0, 0, 64, protocol, 0, 0])
    return start + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + bytes(range(4 * words - 20)) + b"payload"


@pytest.fixture(params=ENGINES)
def switch(request: pytest.FixtureRequest) -> Switch:
    program = load_program(PROGRAM, "earlier.json")
    return Switch(program, native=Choice(request.param, compilers()[-1:])(program))


@pytest.mark.parametrize("words", [5, 6, 15])
def test_forwarding(switch: Switch, words: int) -> None:
    """Options are as long as `length_exp` says, and the whole header is summed up."""
    profile = switch.action_profiles["next_hops"]
    profile.insert_member(1, "forward", [7])
    profile.insert_group(1, {1: 1})
    switch.tables["route"].insert_indirect([(0x0A000000, 8)], 0, group=1)
    switch.tables["class"].insert([6], 0, "mark", [0x2E])
    data = packet(words)
    [(port, sent)] = switch.process(1, data, 0)
    header = sent[: 4 * words]
    assert port == 7
    assert sent[4 * words :] == b"payload"
    assert (header[1], header[8]) == (0x2E, 63)
    assert header[12:] == data[12 : 4 * words]
    blank = header[:10] + b"\0\0" + header[12:]
    assert int.from_bytes(header[10:12], "big") == internet_checksum(blank)


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([], (0, 1)),
        ([["NoError", 1], ["PacketTooShort", 2], ["Ours", 7]], (1, 2)),
        ([["Ours", 4]], (5, 6)),
        ([["NoError", (1 << 41) + 3]], ((1 << 41) + 3, (1 << 41) + 4)),
    ],
    ids=["none", "all", "some", "wider than its field"],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_error_codes(engine: str, errors: list[Any], expected: tuple[int, int]) -> None:
    """A program sees its own number of NoError, too; the core's other errors follow its own."""
    program = changed("errors", value=errors)
    show = action(
        3,
        "show",
        [],
        ["modify_field", field("ip", "id"), PARSER_ERROR],
        ["modify_field", field("ip", "src"), operation(">>", PARSER_ERROR, number(32))],
    )
    program["actions"].append(show)
    table = program["pipelines"][0]["tables"][1]
    table["default_entry"] = {"action_id": 3, "action_data": []}
    table["actions"], table["next_tables"] = ["mark", "show"], {"mark": None, "show": None}
    program["pipelines"][0]["init_table"] = "class"
    loaded = load_program(program, "earlier.json")
    switch = Switch(loaded, native=Choice(engine, compilers()[-1:])(loaded))
    [(_, sent)] = switch.process(1, packet(5), 0)
    assert int.from_bytes(sent[4:6], "big") == expected[0] & 0xFFFF
    assert sent[12:16] == bytes(4)
    codes = load_ir(json.dumps(program), "earlier.json").errors
    assert (codes["NoError"], codes["PacketTooShort"]) == expected
    assert len(set(codes.values())) == len(codes)


@pytest.mark.parametrize("size", [1, 19, 20])
@pytest.mark.parametrize("engine", ENGINES)
def test_the_fixed_fields_come_before_the_length(engine: str, size: int) -> None:
    """BMv2 looks for the fixed fields first, whichever `length_exp` needs for this packet."""
    is_ipv4 = operation("==", {"type": "local", "value": 0}, number(4))
    choice = {
        "op": "?",
        "cond": is_ipv4,
        "left": number(3),
        "right": {"type": "local", "value": 10},
    }
    length = {"type": "expression", "value": choice}
    program = changed("header_types", 1, "length_exp", value=length)
    loaded = load_program(program, "earlier.json")
    switch = Switch(loaded, native=Choice(engine, compilers()[-1:])(loaded))
    switch.process(1, packet(5)[:size], 0)
    error = "PacketTooShort" if size < 20 else "ParserInvalidArgument"
    assert switch.stats.parser_errors == {error: 1}


@pytest.mark.parametrize("most", [1 << 18, 1 << 64, 1 << 10_000])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_header_that_may_be_longer_than_any_packet(engine: str, most: int) -> None:
    loaded = load_program(changed("header_types", 1, "max_length", value=most), "earlier.json")
    switch = Switch(loaded, native=Choice(engine, compilers()[-1:])(loaded))
    switch.process(1, packet(6), 0)
    assert switch.stats.parser_errors == {}


def test_a_verify_by_code() -> None:
    states = PROGRAM["parsers"][0]["parse_states"]
    check = {
        "op": "verify",
        "parameters": [operation("==", field("ip", "version"), number(4)), 2],
    }
    program = changed(
        *("parsers", 0, "parse_states", 0, "parser_ops"), value=[*states[0]["parser_ops"], check]
    )
    switch = Switch(load_program(program, "earlier.json"))
    switch.process(1, b"\x65" + packet(5)[1:], 0)
    assert switch.stats.parser_errors == {"NoMatch": 1}


TABLE = ("pipelines", 0, "tables", 1)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (changed(*TABLE, "actions", value=None), ["table 'class'", "action_ids", "actions"]),
        (changed(*TABLE, "actions", value=["gone"]), ["table 'class'", "no action 'gone'"]),
        (changed("actions", 2, "name", value="forward"), ["'route'", "2 actions", "action_ids"]),
        (changed("__meta__", value={"version": [1, 0]}), ["__meta__", "2.x"]),
        (changed("header_types", 1, "length_exp", value=None), ["ip_t", "extract_VL"]),
        (changed("checksums", 0, "type", value="crc"), ["checksum 'sum'", "generic or ipv4"]),
        (
            changed(
                "pipelines", 0, "action_profiles", value=[{"name": "next_hops", "max_size": 4}] * 2
            ),
            ["action profile 'next_hops'", "defined twice"],
        ),
    ],
    ids=["no actions", "unknown", "ambiguous", "version", "length", "checksum", "twice"],
)
def test_what_is_missing_is_said(program: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ProgramError, check=naming(*words)):
        load_program(program, "earlier.json")


def whole_header(data: bytes) -> bytes:
    """Return a packet with all of its header, and no less than 5 words: BMv2 ends otherwise."""
    padded = bytearray(data.ljust(60, b"\0"))
    if padded[0] & 15 < 5:
        padded[0] |= 5
    return bytes(padded)


@pytest.mark.bmv2
@needs("bmv2")
def test_bmv2_does_the_same() -> None:
    source = json.dumps(PROGRAM).encode()
    subject = Subject("earlier", source, describe(load_ir(source, "earlier")), whole_header)
    with Bmv2Target() as bmv2:
        verdicts = list(campaign(subject, 2026, 200, DeviceTarget(wait_ns=20_000), bmv2))
    assert sum(verdict.packets_out for verdict in verdicts) > 20
    assert [line for verdict in verdicts for line in verdict.differences] == []
