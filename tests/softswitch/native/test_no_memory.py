"""A switch in C without memory for more: it refuses changes, drops packets, and goes on."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from softswitch import Switch, TableFull, load_program
from softswitch.native import compile_native
from softswitch.tables import Table
from tests.engines import COMPILERS
from tests.soak.hostile.plain import JSON, field, number, program

BUDGET_BYTES = 17 << 20
SCALARS = [["x", 64, False]]
TYPES = {"a": [["f0", 8, False], ["f1", 64, False]]}
MOST = 1 << 24


def document(*, counted: bool = False) -> JSON:
    """Return a program with a table of any number of entries, by a field of 64 bits."""
    source = program(TYPES, SCALARS)
    state = source["parsers"][0]["parse_states"][0]
    state["parser_ops"] = [{"op": "extract", "parameters": [{"type": "regular", "value": "a"}]}]
    source["deparsers"][0]["order"] = ["a"]
    table = source["pipelines"][0]["tables"][0]
    table.update(max_size=MOST, with_counters=counted)
    table["key"] = [{"match_type": "exact", "name": "k", "target": ["a", "f1"], "mask": None}]
    return source


def switch(source: JSON, compiler: Any, budget_bytes: int = BUDGET_BYTES) -> Switch:
    loaded = load_program(json.dumps(source))
    native = compile_native(loaded.ir, [compiler])
    return Switch(loaded, native=native, memory_bytes=budget_bytes)


def packet(key: int) -> bytes:
    return b"\0" + key.to_bytes(8, "big") + bytes(20)


def fill(table: Table, handles: list[int]) -> None:
    for key in range(MOST):
        handles.append(table.insert((key,), 0, "send", ()))


@pytest.mark.parametrize("compiler", COMPILERS[-1:])
@pytest.mark.parametrize("counted", [False, True])
def test_entries_beyond_the_budget_are_refused_and_the_others_stay(
    compiler: Any, counted: bool
) -> None:
    full = switch(document(counted=counted), compiler)
    table = full.tables["t"]
    handles: list[int] = []
    with pytest.raises(TableFull, match="no memory for"):
        fill(table, handles)
    assert 10_000 < len(handles) < 200_000
    assert len(table) == len(handles)
    assert full.process(0, packet(len(handles) - 1), 0)
    with pytest.raises(TableFull):
        table.modify(handles[0], "send", ())
    # Neither is the handle of one that was refused in use.
    for handle in handles[: len(handles) // 2]:
        table.delete(handle)
    for key in range(1000):
        table.insert((key,), 0, "send", ())
    assert full.process(0, packet(0), 0)


@pytest.mark.parametrize("compiler", COMPILERS[-1:])
def test_many_at_once_are_taken_as_far_as_there_is_memory(compiler: Any) -> None:
    full = switch(document(), compiler)
    table = full.tables["t"]
    rows = (((key,), 0, "send", ()) for key in range(MOST))
    chunks = 0
    while table.put_all([next(rows) for _ in range(1000)]):
        chunks += 1
    assert len(table) == 1000 * chunks
    assert sum(1 for _ in table.entries()) == 1000 * chunks
    with pytest.raises(TableFull):
        any(table.put(*row) is None for row in rows)
    assert len(table) < 1000 * (chunks + 5)


@pytest.mark.parametrize("compiler", COMPILERS[-1:])
def test_a_hash_of_more_than_there_is_memory_for_drops_the_packet(compiler: Any) -> None:
    hashing = switch(varied_hash(), compiler)
    short = b"\x00\x02" + bytes(30)
    long = b"\x01\xc0" + bytes(1900)
    waiting = [hashing.ingress(0, short, 0)]
    while waiting[-1]:
        waiting.append(hashing.ingress(0, short, 0))
    del waiting[-2:]
    # The packet finds the place of the last one, but no buffer 64 times as long.
    assert hashing.stats.dropped == {"no memory for it": 1}
    assert not hashing.process(0, long, 0)
    assert hashing.stats.dropped == {"no memory for it": 2}
    # Nor is there one for what leaves, until the others have gone.
    assert not hashing.process(0, short, 0)
    waiting.clear()
    assert hashing.process(0, short, 0)


def varied_hash() -> JSON:
    """Return a program that hashes a header of variable length 64 times over."""
    source = program({**TYPES, "v": [["f0", 16, False], ["rest", "*"]]}, SCALARS)
    state = source["parsers"][0]["parse_states"][0]
    target = {"type": "regular", "value": "v"}
    product = {"op": "*", "left": field("v", "f0"), "right": number(32)}
    length = {"type": "expression", "value": product}
    state["parser_ops"] = [{"op": "extract_VL", "parameters": [target, length]}]
    source["deparsers"][0]["order"] = ["v", "a"]
    source["calculations"][0]["input"] = [{"type": "header", "value": "v"}] * 64
    call = {
        "op": "modify_field_with_hash_based_offset",
        "parameters": [
            field("a", "f0"),
            number(0),
            {"type": "calculation", "value": "hash"},
            number(255),
        ],
    }
    valid = {"op": "add_header", "parameters": [{"type": "header", "value": "a"}]}
    source["actions"][0]["primitives"] += [valid, call]
    return source


@pytest.mark.parametrize("compiler", COMPILERS[-1:])
def test_a_process_whose_system_has_no_memory_goes_on(compiler: Any) -> None:
    """The budget is large here, and the address space is not."""
    script = f"""
        import resource
        from ctoolchain import compilers
        from softswitch import TableFull
        from tests.softswitch.native.test_no_memory import MOST, document, packet, switch

        compiler = next(each for each in compilers() if each.name == {compiler.name!r})
        full = switch(document(), compiler, 1 << 40)
        table = full.tables["t"]
        pages = int(open("/proc/self/statm").read().split()[0])
        most = pages * 4096 + (64 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, -1))
        count = 0
        try:
            while count < MOST:
                rows = [((key,), 0, "send", ()) for key in range(count, count + 1000)]
                if not table.put_all(rows):
                    table.insert((count,), 0, "send", ())
                count = len(table)
        except (TableFull, MemoryError) as error:
            ended = type(error).__name__
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        assert full.process(0, packet(5), 0), "the entries are gone"
        print(ended, len(table) > 1000)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, (done.returncode, done.stderr[-500:])
    assert done.stdout.split()[-1] == "True"
