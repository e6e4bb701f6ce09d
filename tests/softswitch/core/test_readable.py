"""The generated Python as a reader gets it: comments with the P4 in them, lines that fit, no name that breaks it."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from softswitch import Switch, load_program
from softswitch.compiler.source import TEXT_WIDTH, Line, Source

OWN = Path(__file__).parents[3] / "p4src" / "build" / "v1model" / "echelon.json"
NAMES = ("arithmetic", "checksums", "matching", "parsing", "replication", "selected", "stateful")


def test_every_table_state_and_position_is_named() -> None:
    program = load_program(OWN.read_bytes(), "echelon")
    document = json.loads(OWN.read_bytes())
    for state in document["parsers"][0]["parse_states"]:
        assert f"# state {state['name']}" in program.source
    for pipeline in document["pipelines"]:
        for table in pipeline["tables"]:
            if table["key"]:
                assert f"# table {table['name']}: " in program.source
                position = f"{table['source_info']['filename']}:{table['source_info']['line']}"
                assert f"# {position}\n" in program.source
        for condition in pipeline["conditionals"]:
            if "source_info" in condition:
                assert f"# {condition['source_info']['source_fragment'][:40]}" in program.source


@pytest.mark.parametrize("name", [*NAMES, "echelon"])
def test_lines_fit(programs: Path, name: str) -> None:
    path = OWN if name == "echelon" else programs / f"{name}.json"
    source = load_program(path.read_bytes(), name).source
    long = [line for line in source.splitlines() if len(line) > TEXT_WIDTH + 20]
    # What stays long has no bracket to be broken in.
    assert len(long) <= len(source.splitlines()) // 50, long
    assert not [line for line in source.splitlines() if line.endswith(" ")]


HOSTILE = ["a\nimport os", "b\r\nraise SystemExit", "c\x00d", 'e"""f', "g\\", "h\u2028i", "j\udc80", "k\x0cl"]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_and_fragments_cannot_leave_their_comments(programs: Path, name: str) -> None:
    text = (programs / "matching.json").read_text()
    program = json.loads(text.replace('"I.exact_one"', json.dumps(name)))
    program["parsers"][0]["parse_states"][0]["name"] = program["parsers"][0]["init_state"] = name
    origin = {"filename": name, "line": 1, "column": 1, "source_fragment": name}
    for pipeline in program["pipelines"]:
        for node in (*pipeline["tables"], *pipeline["conditionals"]):
            node["source_info"] = origin
    loaded = load_program(program, name)
    plain = load_program(text, "matching")
    tree, expected = ast.parse(loaded.source), ast.parse(plain.source)
    assert [type(n) for n in ast.walk(tree)] == [type(n) for n in ast.walk(expected)]
    query = bytes([10, 0, 0, 0, 1, 0, 2, 3, 0, 0])
    assert Switch(loaded).process(0, query, 0) == Switch(plain).process(0, query, 0)


@pytest.mark.parametrize(
    "code",
    [
        "x = f(" + ", ".join(f"argument_{i}" for i in range(40)) + ")",
        "if " + " and ".join(f"(name_{i} or other_{i})" for i in range(20)) + ":",
        ", ".join(f"target_{i}" for i in range(30)) + " = " + "unpack(data, 14)",
        "x = g('a, b (c', \"d), e\", 'it''s \\', f') + [" + ", ".join("'a, b'" for _ in range(30)) + "][0]",
        "return [Queued(a, b, (" + ", ".join(f"name_{i}" for i in range(60)) + "))]",
    ],
)
def test_a_broken_line_means_the_same(code: str) -> None:
    body = f"        {code}" + ("\n            pass" if code.endswith(":") else "")
    source = Source(2)
    source(code)
    written = source.text().rstrip("\n") + ("\n            pass" if code.endswith(":") else "")
    assert "\n" in written
    assert max(map(len, written.splitlines())) <= TEXT_WIDTH
    head = "class C:\n    def m():\n"
    assert ast.dump(ast.parse(head + written)) == ast.dump(ast.parse(head + body))


def test_comments_stand_above_and_behind() -> None:
    source = Source(1)
    with source.explained("what it is", "a.p4:7"), source.explained("more", "b.p4:8"):
        source("x = 1", "y = 2")
    with source.explained("of nothing"):
        pass
    assert source.text() == "    # what it is\n    # more\n    x = 1  # b.p4:8\n    y = 2\n"
    assert source.lines[0] == "    x = 1"
    assert Line("x", ("a",), "b").coded("y") == "y"
    assert list(Line("x", ("a",), "b").coded("y").written()) == ["# a", "y  # b"]


def test_an_else_with_one_if_becomes_an_elif() -> None:
    source = Source()
    with source.block("if a"):
        source("x = 1")
    start = len(source.lines)
    with source.block("else"):
        with source.explained("why"), source.block("if b"):
            source("x = 2")
        with source.block("else"):
            source("x = 3")
    source.flatten(start)
    assert source.text() == "if a:\n    x = 1\n# why\nelif b:\n    x = 2\nelse:\n    x = 3\n"
    with source.block("else"):
        source("y = 1")
        with source.block("if c"):
            source("y = 2")
    before = list(source.lines)
    source.flatten(len(before) - 4)
    assert source.lines == before
