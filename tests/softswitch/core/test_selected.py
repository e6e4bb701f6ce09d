"""The selections of packets themselves, constant entries of profiles, value sets, lengths:
`programs/selected.p4`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch import Switch, ValueSet, load_program
from tests.drawing import examples

Item = tuple[int, int]
"""(value, weight) of a stack's element."""


@pytest.fixture
def switch(new_switch: Callable[[str], Switch]) -> Switch:
    found = new_switch("selected")
    found.value_sets["P.pairs"].add((range(256), None))
    return found


def asked(
    kind: int,
    index: int = 0,
    low: int = 0,
    high: int = 0,
    items: tuple[Item, ...] = (),
    rest: bytes = b"",
) -> bytes:
    stack = b"".join(
        bytes([value << 1 | (place + 1 < len(items)), weight])
        for place, (value, weight) in enumerate(items)
    )
    return bytes([kind, index, low, high]) + bytes(8) + stack + rest


def answer(switch: Switch, data: bytes) -> int:
    [(port, packet)] = switch.process(0, data, 0)
    assert port == 1
    return int.from_bytes(packet[4:12], "big")


@given(index=st.integers(0, 255), values=st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_the_packet_selects_the_element_that_is_looked_up(
    new_switch: Callable[[str], Switch], index: int, values: list[int]
) -> None:
    switch = new_switch("selected")
    switch.value_sets["P.pairs"].add((None, None))
    items = tuple((value, 100 + place) for place, value in enumerate(values))
    # An element that is not there, or not valid, has a key of zeros; no entry is for that.
    value, weight = items[index] if index < len(items) else (0, 0)
    expected = {1: 0x1111, 2: weight}.get(value, 0)
    assert answer(switch, asked(1, index, items=items)) == expected


def with_constant_entries(programs: Path) -> Switch:
    """Return a switch with the constant entries of such a table, which p4c leaves out: here they
    are as it writes those of other tables.
    """
    program = json.loads((programs / "selected.json").read_bytes())
    [table] = [t for p in program["pipelines"] for t in p["tables"] if t["name"] == "I.constant"]
    number = table["action_ids"][table["actions"].index("I.answer")]
    assert "entries" not in table
    table["entries"] = [
        {
            "match_key": [
                {"match_type": "ternary", "key": key, "mask": mask},
                {"match_type": "exact", "key": "0x01"},
            ],
            "action_entry": {"action_id": number, "action_data": [data]},
            "priority": priority,
        }
        for priority, (key, mask, data) in enumerate(
            [("0x10", "0xf0", "0x1"), ("0x00", "0x00", "0x2")], 1
        )
    ]
    return Switch(load_program(program, "selected.json"))


def test_constant_entries_of_a_table_with_an_action_profile(programs: Path) -> None:
    switch = with_constant_entries(programs)
    for low in range(256):
        for high in range(3):
            expected = 0 if high != 1 else 1 if low >> 4 == 1 else 2
            assert answer(switch, asked(2, low=low, high=high)) == expected
    table = switch.tables["I.constant"]
    assert table.is_const
    assert [(entry.action, entry.args) for entry in table.entries()] == [
        ("I.answer", (1,)),
        ("I.answer", (2,)),
    ]
    assert not switch.action_profiles["I.answers"].members


@given(low=st.integers(0, 255), high=st.integers(0, 255))
def test_the_base_of_a_hash_is_added_modulo_2_to_the_64th(
    new_switch: Callable[[str], Switch], low: int, high: int
) -> None:
    assert (
        answer(new_switch("selected"), asked(3, low=low, high=high))
        == ((low << 8 | high) - 1) % 2**64
    )


def test_a_stack_element_becomes_metadata(switch: Switch) -> None:
    assert answer(switch, asked(4, items=((1, 2), (3, 4), (5, 6)))) == 5 << 8 | 6


@pytest.mark.parametrize(
    ("kind", "change"),
    [(5, 2), (6, -2), (7, 0), (8, 0), (10, 0)],
    ids=["setValid", "setInvalid", "assigned", "push_front", "truncate"],
)
def test_egress_sees_headers_that_come_and_go_by_name(
    switch: Switch, kind: int, change: int
) -> None:
    """The packet length is that of simple_switch, which does not count what assignment and
    push_front do.
    """
    data = asked(kind, items=((1, 2), (3, 4)), rest=b"payload")
    [(_, packet)] = switch.process(0, data, 0)
    assert int.from_bytes(packet[4:12], "big") == len(data) + change
    assert (
        len(packet)
        == {5: len(data) + 2, 6: len(data) - 2, 7: len(data) + 2, 8: len(data), 10: 13}[kind]
    )


def test_a_key_has_zeros_for_a_header_that_is_not_there(switch: Switch) -> None:
    """9 was written to the field; the only entry is for 0."""
    assert answer(switch, asked(9)) == 0x3333


ELEMENTS = st.one_of(
    st.integers(0, 7),
    st.tuples(st.integers(0, 7), st.integers(0, 7)),
    st.tuples(st.integers(0, 7), st.integers(0, 7)).map(lambda x: range(min(x), max(x) + 1)),
    st.none(),
)


def allowed(element: object, mask: int) -> set[int]:
    """Return all values of three bits that agree with an element in the bits of a mask."""
    every = range(8)
    if element is None:
        return set(every)
    if isinstance(element, int):
        return {v for v in every if v & mask == element & mask}
    if isinstance(element, range):
        return {v for v in every if v & mask in element}
    assert isinstance(element, tuple)
    value, cared = element
    return {v for v in every if v & cared & mask == value & cared & mask}


@settings(max_examples=examples(60))
@given(
    members=st.lists(st.tuples(ELEMENTS, ELEMENTS), max_size=4),
    masks=st.tuples(st.integers(0, 7), st.integers(0, 7)),
)
def test_value_sets_against_every_key(
    members: list[tuple[object, object]], masks: tuple[int, int]
) -> None:
    values = ValueSet(members)  # type: ignore[arg-type]
    for full, test in (
        ((7, 7), values.__contains__),
        (masks, lambda key: values.masked(key, masks)),
    ):
        expected = {
            key
            for one, two in members
            for key in itertools.product(allowed(one, full[0]), allowed(two, full[1]))
        }
        assert {key for key in itertools.product(range(8), repeat=2) if test(key)} == expected


def test_a_value_set_decides_what_is_parsed(new_switch: Callable[[str], Switch]) -> None:
    switch = new_switch("selected")
    data = asked(4, low=0x15, high=7, items=((1, 2),))
    for member, taken in (
        ((0x15, 7), 1),
        ((0x15, 6), 0),
        (((0x10, 0xF0), range(7, 9)), 1),
        ((None, range(8, 9)), 0),
    ):
        switch.value_sets["P.pairs"].clear()
        switch.value_sets["P.pairs"].add(member)
        assert answer(switch, data) == (1 << 8 | 2 if taken else 0)
