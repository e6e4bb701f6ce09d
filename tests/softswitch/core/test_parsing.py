"""The parser and the deparser on stacks, variable lengths, unions, value sets, and packets that end
too early.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch import Switch
from tests.drawing import examples

SHORT, OUT_OF_BOUNDS, HEADER_TOO_SHORT, BAD_MAGIC = 1, 3, 4, 9


@pytest.fixture
def switch(new_switch: Callable[[str], Switch]) -> Switch:
    return new_switch("parsing")


def sent(switch: Switch, data: bytes) -> tuple[int, int, bytes]:
    """Return (report, detail, what follows) of the one packet that leaves."""
    ((port, packet),) = switch.process(0, data, 0)
    assert port == 1
    assert packet[0] == data[0]
    return packet[1], packet[2], packet[3:]


def label(value: int, bottom: bool, ttl: int = 9) -> bytes:
    return (value << 12 | int(bottom) << 8 | ttl).to_bytes(4, "big")


@given(st.integers(1, 6), st.binary(max_size=9))
@settings(max_examples=examples(40))
def test_a_stack_is_parsed_to_its_bottom_and_no_further(
    new_switch: Callable[[str], Switch], depth: int, payload: bytes
) -> None:
    labels = b"".join(label(i + 1, i == depth - 1) for i in range(depth))
    switch = new_switch("parsing")
    report, detail, rest = sent(switch, bytes([1, 0, 0]) + labels + payload)
    assert (report, detail) == ((0, 0) if depth <= 4 else (OUT_OF_BOUNDS, 0))
    assert rest == labels + payload
    assert switch.stats.parser_errors == ({} if depth <= 4 else {"StackOutOfBounds": 1})


@pytest.mark.parametrize("cut", range(8))
def test_a_stack_cut_short_keeps_what_was_complete(switch: Switch, cut: int) -> None:
    labels = (label(1, False) + label(2, True))[:cut]
    assert sent(switch, bytes([1, 0, 0]) + labels) == (SHORT, 0, labels)
    assert switch.stats.parser_errors == {"PacketTooShort": 1}


def test_too_short_for_the_first_header(switch: Switch) -> None:
    ((port, packet),) = switch.process(0, b"\1\2", 0)
    assert (port, packet) == (1, b"\1\2")


def test_pop_and_push(switch: Switch) -> None:
    a, b = label(1, False), label(2, True)
    assert sent(switch, bytes([1, 0, 1]) + a + b + b"x") == (0, 1, b + b"x")
    pushed = (0x12345 << 12 | 64).to_bytes(4, "big")
    assert sent(switch, bytes([1, 0, 2]) + a + b + b"x") == (0, 2, pushed + a + b + b"x")
    full = a + a + a + label(3, True)
    assert sent(switch, bytes([1, 0, 2]) + full + b"x") == (0, 2, pushed + a + a + a + b"x")


def test_assigning_a_header_of_a_stack(switch: Switch) -> None:
    a, b = label(1, False), label(2, True)
    assert sent(switch, bytes([1, 0, 3]) + a + b) == (0, 3, a + a)
    assert sent(switch, bytes([1, 0, 3]) + b) == (0, 3, b + b)


@pytest.mark.parametrize("index", range(4))
def test_a_stack_element_selected_by_the_packet(switch: Switch, index: int) -> None:
    labels = [label(i, i == 2, 20 + i) for i in range(3)]
    wanted = [label(i, i == 2, 20 + i - (i == index)) for i in range(3)]
    assert sent(switch, bytes([1, 0, 16 + index]) + b"".join(labels)) == (
        0,
        16 + index,
        b"".join(wanted),
    )


@pytest.mark.parametrize("index", range(4))
def test_validity_of_a_stack_element_selected_by_the_packet(switch: Switch, index: int) -> None:
    labels = label(1, False) + label(2, True)
    assert sent(switch, bytes([1, 0, 32 + index]) + labels) == (
        0x80 if index < 2 else 0,
        32 + index,
        labels,
    )


@given(st.integers(0, 15), st.integers(0, 255), st.binary(max_size=70))
@settings(max_examples=examples(100))
def test_variable_length(
    new_switch: Callable[[str], Switch], words: int, after: int, rest: bytes
) -> None:
    switch = new_switch("parsing")
    body = bytes([0x40 | words]) + rest
    report, _, packet = sent(switch, bytes([2, 0, 0]) + body)
    size = 2 + 4 * words
    if len(body) < size:
        assert (report, packet) == (SHORT, body)
    elif words > 4:
        assert (report, packet) == (HEADER_TOO_SHORT, body)
    else:
        counted = body[: size - 1] + bytes([(body[size - 1] + 1) % 256]) + body[size:]
        assert (report, packet) == (0, counted)


def test_a_union_has_one_valid_member(switch: Switch) -> None:
    report, detail, packet = sent(switch, bytes([3, 0, 0, 0x15, 0x99]) + b"rest")
    # The small member was parsed and read; making the large one valid removed it.
    assert (report, detail, packet) == (0, 0x99, bytes([0x77, 1, 2, 3]) + b"rest")
    report, detail, packet = sent(switch, bytes([3, 0, 0, 0x25, 4, 5, 6]) + b"rest")
    assert (report, detail, packet) == (0, 0, bytes([0x25, 4, 5, 6]) + b"rest")


def test_value_sets_are_changed_at_run_time(switch: Switch) -> None:
    data = bytes([0x80, 0, 0, 0xCA, 0xFF])
    assert sent(switch, data) == (0, 0, data[3:])
    switch.value_sets["P.magic_kinds"].add((0x80,))
    assert sent(switch, data) == (BAD_MAGIC, 0, data[3:])
    assert switch.stats.parser_errors == {"BadMagic": 1}
    assert sent(switch, bytes([0x80, 0, 0, 0xCA, 0xFE]))[0] == 0
    switch.value_sets["P.magic_kinds"].clear()
    assert sent(switch, data)[0] == 0


def test_bytes_advanced_over_are_not_sent(switch: Switch) -> None:
    assert sent(switch, bytes([5, 0, 0, 0xAA, 0xBB, 0xCA, 0xFE, 7])) == (
        0,
        0,
        bytes([0xCA, 0xFE, 7]),
    )
    assert sent(switch, bytes([5, 0, 0, 0xAA])) == (SHORT, 0, bytes([0xAA]))


@given(st.binary(max_size=40))
@settings(max_examples=examples(200))
def test_any_bytes_are_survived(new_switch: Callable[[str], Switch], data: bytes) -> None:
    switch = new_switch("parsing")
    switch.value_sets["P.magic_kinds"].add((4,))
    for kind in range(7):
        assert len(switch.process(0, bytes([kind]) + data, 0)) == 1
    assert switch.stats.packets_in == switch.stats.packets_out == 7
