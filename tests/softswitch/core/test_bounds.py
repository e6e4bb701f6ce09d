"""Programs with parts that are too large: every engine refuses them, in the same line, at once."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from softswitch import Switch, load_program
from softswitch.cli.memory_option import memory_bytes
from softswitch.errors import BadEntry, ProgramError, TooLarge
from softswitch.native.choice import Choice
from tests.engines import COMPILERS
from tests.faults import naming
from tests.soak.hostile.plain import field, number, program

JSON = dict[str, Any]
TYPES = {"a": [["f0", 8, False], ["f1", 64, False]]}
SCALARS = [["x", 64, False]]


def small() -> JSON:
    document = program(TYPES, SCALARS)
    document["parsers"][0]["parse_states"][0]["parser_ops"] = [
        {"op": "extract", "parameters": [{"type": "regular", "value": "a"}]}
    ]
    document["deparsers"][0]["order"] = ["a"]
    return document


def assigning(value: JSON) -> JSON:
    document = small()
    call = {"op": "assign", "parameters": [field("scalars", "x"), value]}
    document["actions"][0]["primitives"].append(call)
    return document


def operation(op: str, left: JSON, right: JSON) -> JSON:
    return {"type": "expression", "value": {"op": op, "left": left, "right": right}}


def chain(op: str, levels: int, right: JSON) -> JSON:
    value = field("a", "f1")
    for _ in range(levels):
        value = operation(op, value, right)
    return assigning(operation(">>", value, field("a", "f0")))


def array(kind: str, count: int, **size: int) -> JSON:
    document = small()
    plain = document[kind][0]
    document[kind] = [{**plain, **size, "name": f"n{number}"} for number in range(count)]
    return document


def keys(count: int, width: int) -> JSON:
    document = program(TYPES, [["x", width, False]])
    target = {"match_type": "exact", "target": ["scalars", "x"], "mask": None}
    document["pipelines"][0]["tables"][0]["key"] = [
        {**target, "name": f"k{number}"} for number in range(count)
    ]
    return document


def wide_header(count: int) -> JSON:
    fields = [[f"f{number}", 65_536, False] for number in range(count)]
    return program({**TYPES, "b": fields}, SCALARS)


def emitted(times: int) -> JSON:
    document = small()
    document["deparsers"][0]["order"] = ["a"] * times
    return document


def many_actions(count: int) -> JSON:
    document = small()
    calls = [{"op": "assign", "parameters": [field("scalars", "x"), number(1)]}] * 20
    document["actions"] += [
        {"name": f"b{number}", "id": 2 + number, "runtime_data": [], "primitives": calls}
        for number in range(count)
    ]
    return document


def divided(width: int) -> JSON:
    document = program(TYPES, [["x", width, False]])
    value = operation("/", field("scalars", "x"), field("a", "f1"))
    call = {"op": "assign", "parameters": [field("a", "f0"), value]}
    document["actions"][0]["primitives"].append(call)
    return document


LARGE: dict[str, tuple[Callable[[], JSON], tuple[str, ...]]] = {
    "60 shifts": (lambda: chain("<<", 60, number(65_535)), ("'send'", "131,072")),
    "150 levels": (lambda: chain("+", 150, number(1)), ("'send'", "levels", "128")),
    "1,500 keys": (lambda: keys(1_500, 65_536), ("'t'", "keys", "98,304,000")),
    "16 MB of headers": (lambda: wide_header(2_000), ("'b'", "state")),
    "a header emitted 60,000 times": (lambda: emitted(60_000), ("deparser", "emits")),
    "a wide register": (
        lambda: array("register_arrays", 1, size=1 << 24, bitwidth=65_536),
        ("'n0'", "137,438,953,472", "--memory"),
    ),
    "200 counters": (lambda: array("counter_arrays", 200, size=1 << 24), ("'n3'", "--memory")),
    "10 meters": (lambda: array("meter_arrays", 10, size=1 << 24), ("'n0'", "--memory")),
    "6,000 actions": (lambda: many_actions(6_000), ("100,000",)),
    "a long division": (lambda: divided(65_536), ("'send'", "division")),
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("engine", ["python", "auto"])
def test_what_is_too_large_is_refused_with_its_name(name: str, engine: str) -> None:
    make, words = LARGE[name]
    source = json.dumps(make()).encode()
    choice = Choice(engine)

    def load() -> Switch:
        loaded = choice.load(source, "large.json")
        return Switch(loaded, native=choice(loaded))

    with pytest.raises(TooLarge, check=naming(*words)) as caught:
        load()
    assert "\n" not in str(caught.value)


VAST = number((1 << 20_000) + 1)
"""A constant of more digits than Python writes."""


def advancing(bits: JSON) -> JSON:
    document = small()
    state = document["parsers"][0]["parse_states"][0]
    state["parser_ops"].append({"op": "advance", "parameters": [bits]})
    return document


def calling(op: str, *parameters: JSON) -> JSON:
    document = small()
    document["actions"][0]["primitives"].append({"op": op, "parameters": list(parameters)})
    return document


def with_range(low: JSON, high: JSON) -> JSON:
    """Return a program with an entry whose range is empty."""
    document = keys(1, 65_536)
    table = document["pipelines"][0]["tables"][0]
    table["match_type"] = table["key"][0]["match_type"] = "range"
    key = {"match_type": "range", "start": low["value"], "end": high["value"]}
    entry = {"action_id": 0, "action_data": []}
    table["entries"] = [{"priority": 1, "match_key": [key], "action_entry": entry}]
    return document


def reading_element(index: JSON) -> JSON:
    """Return a program that reads a field of a stack's element with this index."""
    document = program({**TYPES, "s0": [["f0", 8, False]]}, SCALARS)
    stack = {"type": "header_stack", "value": "s"}
    element = {"op": "dereference_header_stack", "left": stack, "right": index}
    value = {"type": "field", "value": [{"type": "expression", "value": element}, "f0"]}
    call = {"op": "assign", "parameters": [field("scalars", "x"), value]}
    document["actions"][0]["primitives"].append(call)
    return document


REFUSED: dict[str, JSON] = {
    "advance": advancing(VAST),
    "list of fields": calling("recirculate", VAST),
    "digest": calling("generate_digest", number(0), VAST),
    "range": with_range(VAST, number(1)),
    "index": reading_element(VAST),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("engine", ["python", "auto"])
def test_a_vast_constant_is_refused_in_a_line(engine: str, name: str) -> None:
    source = json.dumps(REFUSED[name]).encode()
    choice = Choice(engine)

    def load() -> Switch:
        loaded = choice.load(source, "vast.json")
        return Switch(loaded, native=choice(loaded))

    with pytest.raises(ProgramError) as refused:
        load()
    assert len(str(refused.value)) < 500


def test_a_vast_number_of_a_controller_is_refused_in_a_line() -> None:
    document = keys(1, 65_536)
    table = document["pipelines"][0]["tables"][0]
    table["match_type"] = table["key"][0]["match_type"] = "range"
    switch = Switch(load_program(document, "range.json"))
    with pytest.raises(BadEntry, match=r"range 0x1000.* is empty") as refused:
        switch.tables["t"].insert([(int(VAST["value"], 16), 1)], 1, "send", [])
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("engine", ["python", "auto"])
def test_a_vast_number_is_logged(engine: str, caplog: pytest.LogCaptureFixture) -> None:
    text = {"type": "string", "value": "it is {}, not {}"}
    values = {"type": "parameters_vector", "value": [VAST, number(7)]}
    choice = Choice(engine)
    loaded = choice.load(json.dumps(calling("log_msg", text, values)).encode(), "log.json")
    with caplog.at_level(logging.INFO):
        Switch(loaded, native=choice(loaded)).process(2, bytes(20), 0)
    assert f"it is {VAST['value']}, not 7" in caplog.messages


def test_the_small_program_itself_runs() -> None:
    choice = Choice("auto")
    loaded = choice.load(json.dumps(small()).encode(), "small.json")
    assert Switch(loaded, native=choice(loaded)).process(2, bytes(20), 0) == [(1, bytes(20))]


def test_a_larger_budget_takes_more() -> None:
    source = json.dumps(array("counter_arrays", 1, size=1 << 20)).encode()
    choice = Choice("auto")
    loaded = choice.load(source, "counters.json")
    with pytest.raises(TooLarge, check=naming("'n0'", "16,777,216")):
        Switch(loaded, native=choice(loaded), memory_bytes=memory_bytes("31MiB"))
    Switch(loaded, native=choice(loaded), memory_bytes=memory_bytes("33MiB"))


AHEAD = """
import json, sys
import ctoolchain
from softswitch import Switch
from softswitch.native import compile_native
from softswitch.switch import load_program
program = load_program(sys.stdin.buffer.read(), "ahead.json")
[compiler] = [each for each in ctoolchain.compilers() if each.name == sys.argv[1]]
for native in (None, compile_native(program.ir, [compiler])):
    switch = Switch(program, native=native)
    for length in (0, 1, 64, 1500):
        print([(port, data.hex()) for port, data in switch.process(2, b"\\xaa" * length, 0)])
    print(switch.stats.parser_errors)
"""


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("before", [16, 512, 4_096, 8_192, 1 << 63, (1 << 64) - (1 << 40)])
def test_no_look_ahead_reads_before_or_behind_a_packet(compiler: Any, before: int) -> None:
    """An offset near 2**64 bytes once began anew: memory before the packet left in a header."""
    document = small()
    offset = 8 * ((1 << 64) - before)
    look = {"type": "lookahead", "value": [offset, 64]}
    state = document["parsers"][0]["parse_states"][0]
    state["parser_ops"].append({"op": "set", "parameters": [field("a", "f1"), look]})
    done = subprocess.run(
        [sys.executable, "-c", AHEAD, compiler.name],
        input=json.dumps(document).encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-800:]
    lines = done.stdout.decode().splitlines()
    assert lines[:5] == lines[5:]
    assert lines[2] == f"[(1, '{'aa' * 64}')]"
    assert lines[4] == "{'PacketTooShort': 4}"


@pytest.mark.parametrize("compiler", COMPILERS)
def test_packets_that_wait_take_no_more_than_the_budget(compiler: Any) -> None:
    document = program({**TYPES, "b": [["f0", 65_536, False]] * 1}, SCALARS)
    choice = Choice("native", [compiler])
    loaded = choice.load(json.dumps(document).encode(), "waiting.json")
    switch = Switch(loaded, native=choice(loaded), memory_bytes=memory_bytes("17MiB"))
    waiting = [switch.ingress(2, bytes(64), 0) for _ in range(3_000)]
    taken = sum(map(len, waiting))
    assert 1_400 < taken < 1_800  # of 8 kB of header and 2 kB of room each
    assert switch.stats.dropped == {"no memory for it": 3_000 - taken}
    waiting.clear()
    assert switch.process(2, bytes(64), 0) == [(1, bytes(64))]


@pytest.mark.parametrize("engine", ["python", "auto"])
def test_a_packet_that_is_too_long_is_dropped(engine: str) -> None:
    choice = Choice(engine)
    loaded = choice.load(json.dumps(small()).encode(), "small.json")
    switch = Switch(loaded, native=choice(loaded))
    assert switch.process(2, bytes(1 << 18), 0) == [(1, bytes(1 << 18))]
    assert switch.process(2, bytes((1 << 18) + 1), 0) == []
    assert switch.stats.dropped == {"packet too long": 1}


@pytest.mark.parametrize("engine", ["python", "auto"])
def test_a_packet_of_no_bytes_and_a_negative_length(engine: str) -> None:
    """Two differences between the engines that hostile programs have shown."""
    document = program({**TYPES, "v": [["n", 8, False], ["rest", "*"]]}, SCALARS)
    document["deparsers"][0]["order"] = ["v"]
    call = {"op": "truncate", "parameters": [number(-3)]}
    document["actions"][0]["primitives"].append(call)
    choice = Choice(engine)
    loaded = choice.load(json.dumps(document).encode(), "edges.json")
    switch = Switch(loaded, native=choice(loaded))
    assert [switch.process(2, data, 0) for data in (b"", b"abcdef")] == [
        [(1, b"")],
        [(1, b"abcdef")],
    ]
