"""Parsers: counters, errors, and the order of a state's rows."""

from __future__ import annotations

import pytest

from echelon_tofino_model.emulator.assembly import (
    Interval,
    Invocation,
    Mapping,
    Name,
    Number,
    Pattern,
    read_sections,
)
from echelon_tofino_model.emulator.parser import PhvParser, load_parser
from echelon_tofino_model.emulator.phv import FieldNames, container
from softswitch import ProgramError
from tests.faults import naming

COUNTED = """\
parser ingress:
  start: begin
  parser_error: H9
  states:
    begin:
      *:
        load: { half : 0..1 }
        counter:
          src: half_lo
          max: 255
          rotate: 1
          mask: 15
          add: 1
        shift: 2
        next: options
    options:
      match: [ ctr_zero, byte0 ]
      0b1********:
        0..1: H0
        next: end
      0b*00000001:
        next: end
      0b*********:
        load: { byte0 : 0 }
        counter: dec 1
        shift: 1
        next: options
"""


def parser(text: str) -> PhvParser:
    (section,) = read_sections(text)
    return PhvParser(load_parser(section, FieldNames()))


def test_a_counter_is_loaded_from_the_packet_and_ends_a_loop() -> None:
    loop = parser(COUNTED)
    place = container("H0")
    assert place is not None
    # The low byte 6, rotated right by one and masked, is 3; one more makes four bytes to skip.
    parsed = loop.parse(bytes([0x90, 6, 2, 3, 4, 5, 0xAB, 0xCD, 9]))
    assert (parsed.vector[place.container], parsed.consumed, parsed.errors) == (0xABCD, 6, 0)
    # An option of 1 ends the loop early.
    parsed = loop.parse(bytes([0x90, 6, 2, 1, 4, 5, 0xAB, 0xCD]))
    assert (parsed.vector[place.container], parsed.consumed) == (0, 4)


def test_a_short_packet_is_an_error_that_the_program_can_read() -> None:
    error = container("H9")
    assert error is not None
    parsed = parser(COUNTED).parse(bytes([0x90, 6, 2]))
    assert parsed.errors == parsed.vector[error.container] == 2


def test_no_row_that_matches_is_an_error() -> None:
    only = parser(
        "parser egress:\n  start: a\n  a:\n    match: [ byte1 ]\n    0x07:\n      next: end\n"
    )
    assert only.parse(bytes(8)).errors == 1


def test_a_loop_ends() -> None:
    ring = parser("parser egress:\n  start: a\n  a:\n    *:\n      next: a\n")
    assert ring.parse(bytes(8)).consumed == 0


@pytest.mark.parametrize(
    ("line", "place", "facts"),
    [
        ("        0..2: H0", "line 6", ("3 bytes", "16 bits")),
        ("        save: [ half ]", "line 6", ("'save'",)),
        ("        clot 0: { start: 0 }", "line 6", ("'clot'",)),
        ("        load: { byte7 : 0 }", "line 6", ("'byte7'",)),
        ("        next: nowhere", "line 5", ("'nowhere'",)),
    ],
)
def test_what_a_parser_cannot_do_is_refused(line: str, place: str, facts: tuple[str, ...]) -> None:
    text = f"parser ingress:\n  start: a\n  states:\n    a:\n      *:\n{line}\n"
    with pytest.raises(ProgramError, check=naming(*facts)) as caught:
        parser(text)
    assert caught.value.place == place


def test_the_grammar() -> None:
    (section,) = read_sections(
        "stage 3 ingress:\n"
        "  table tbl$x..y 7:  # a comment, { even here\n"
        '    text: "a # b"\n'
        "    list: [ 1, 0x1_0, -3, 0b1*0, 4..7 ]\n"
        "    again: 1\n"
        "    again: 2\n"
        "    actions:\n"
        "    - add lo, (cmplo & !cmphi), 5\n"
        "    - call(1, x)\n"
        "    - key: 1\n"
        "      other: 2\n"
    )
    assert [node.text if isinstance(node, Name) else node for node in section.params[1:]] == [
        "ingress"
    ]
    assert isinstance(section.value, Mapping)
    ((key, body),) = section.value.pairs
    assert isinstance(key, Invocation)
    assert (key.name, key.line) == ("table", 2)
    assert isinstance(body, Mapping)
    values = dict(enumerate(value for _, value in body.pairs))
    assert values[0] == Name(3, "a # b")
    assert values[1].items == (
        Number(4, 1),
        Number(4, 16),
        Number(4, -3),
        Pattern(4, 4, 5),
        Interval(4, 4, 7),
    )  # type: ignore[attr-defined]
    assert (values[2], values[3]) == (Number(5, 1), Number(6, 2))
    added, called, both = values[4].items  # type: ignore[attr-defined]
    assert (added.name, len(added.args), added.args[1].name) == ("add", 3, "&")
    assert called == Invocation(9, "call", (Number(9, 1), Name(9, "x")))
    assert [value.value for _, value in both.pairs] == [1, 2]


@pytest.mark.parametrize(
    ("text", "line"),
    [("a:\n  b: [ 1, 2\n", 2), ("a:\n  b: 1\n   c: 2\n", 3), ("a:\n  b: ;\n", 2), ("a: 1 2\n", 1)],
)
def test_what_cannot_be_read_is_named_by_its_line(text: str, line: int) -> None:
    with pytest.raises(ProgramError) as caught:
        read_sections(text)
    assert caught.value.place == f"line {line}"
