"""The instructions of actions against exact arithmetic on the containers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon_tofino_model.emulator import load_assembly
from plugins.tofino_model.tests.emulator.conftest import Words, framed, one_action
from softswitch import ProgramError
from tests.faults import naming

WORD = st.integers(0, 2**32 - 1)
HALF = st.integers(0, 2**16 - 1)


def signed(value: int, bits: int = 32) -> int:
    return value - 2**bits if value >= 2 ** (bits - 1) else value


def clamped(value: int) -> int:
    return min(max(value, -(2**31)), 2**31 - 1)


ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "saddu": lambda a, b: min(a + b, 2**32 - 1),
    "ssubu": lambda a, b: max(a - b, 0),
    "sadds": lambda a, b: clamped(signed(a) + signed(b)),
    "ssubs": lambda a, b: clamped(signed(a) - signed(b)),
    "minu": min,
    "maxu": max,
    "mins": lambda a, b: min(signed(a), signed(b)),
    "maxs": lambda a, b: max(signed(a), signed(b)),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
    "andca": lambda a, b: ~a & b,
    "andcb": lambda a, b: a & ~b,
    "orca": lambda a, b: ~a | b,
    "orcb": lambda a, b: a | ~b,
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_and_logic(name: str) -> None:
    work = Words(one_action(f"- {name} w.a, w.a, w.b"))

    @given(WORD, WORD)
    def check(a: int, b: int) -> None:
        assert work(a, b, 0, 0, 0, 0)[0] == ARITHMETIC[name](a, b) % 2**32

    check()


@pytest.mark.parametrize("count", [0, 1, 7, 31])
def test_shifts(count: int) -> None:
    work = Words(one_action(f"- shl w.a, w.b, {count}"))
    logical = Words(one_action(f"- shru w.a, w.b, {count}"))
    arithmetic = Words(one_action(f"- shrs w.a, w.b, {count}"))
    funnel = Words(one_action(f"- funnel-shift w.a, w.a, w.b, {count}"))

    @given(WORD, WORD)
    def check(a: int, b: int) -> None:
        assert work(a, b, 0, 0, 0, 0)[0] == (b << count) % 2**32
        assert logical(a, b, 0, 0, 0, 0)[0] == b >> count
        assert arithmetic(a, b, 0, 0, 0, 0)[0] == (signed(b) >> count) % 2**32
        assert funnel(a, b, 0, 0, 0, 0)[0] == ((a << 32 | b) >> count) % 2**32

    check()


@given(WORD, WORD)
def test_deposit_field_rotates_the_source_into_place(a: int, b: int) -> None:
    assert SLICE(a, b, 0, 0, 0, 0)[0] == a & ~0x00FFFF00 | (b >> 4 & 0xFFFF) << 8
    # One bit names the start: the source wraps around the container.
    turned = (b >> 28 | b << 4) % 2**32
    assert WRAPPED(a, b, 0, 0, 0, 0)[0] == a & ~0xFFF | turned & 0xFFF


SLICE = Words(one_action("- deposit-field W0(8..23), W1(4..19), W0"))
WRAPPED = Words(one_action("- deposit-field W0(0..11), W1(28), W0"))


@given(WORD, WORD, HALF)
def test_all_instructions_of_a_stage_see_its_input(a: int, b: int, c: int) -> None:
    swapped = EXCHANGE(a, b, c, 0, 0, 0)
    assert swapped[:4] == (b, a, ~c % 2**16, c)


EXCHANGE = Words(one_action("- set w.a, w.b\n- set w.b, w.a\n- not h.a, h.a\n- set h.b, h.a"))


def test_constants_and_slices_leave_the_rest_alone() -> None:
    work = Words(one_action("- set W0(0..7), 5\n- set h.a, -2\n- set B0(4), 1"))
    assert work(0xFFFFFFFF, 1, 2, 3, 0x0F, 7) == (0xFFFFFF05, 1, 0xFFFE, 3, 0x1F, 7)


def test_a_masked_set_takes_its_mask_from_the_slot_beside_its_data() -> None:
    work = Words(
        one_action(
            "- { $data0: $adf_f0(4..11), $c0: $data0(0..3), $c0: 9, $c1: $data0(7..7), $c1: 1,"
            " $mask0: $adf_f1(4..11), $c2: $mask0(0..3), $c2: 15, $c3: $mask0(7..7), $c3: 1 }\n"
            "- bitmasked-set W0, $data0, W0"
        )
    )
    mask, value = 0xF << 4 | 1 << 11, 9 << 4 | 1 << 11
    for before in (0, 0xFFFFFFFF, 0x12345678):
        assert work(before, 0, 0, 0, 0, 0)[0] == before & ~mask | value


@pytest.mark.parametrize(
    ("instruction", "facts"),
    [
        ("- multiply w.a, w.a, w.b", ("instruction", "'multiply'")),
        ("- set w.a, nowhere", ("operand", "'nowhere'", "stage 0")),
        ("- set nowhere, 1", ("field", "'nowhere'")),
        ("- set w.a, hash_dist(2, 0..15)", ("hash distribution unit 2",)),
        ("- set w.a, w.b(30..35)", ("30..35", "32 bits")),
    ],
)
def test_what_cannot_run_is_refused_with_its_line(instruction: str, facts: tuple[str, ...]) -> None:
    text = framed(one_action(f"- set w.b, 1\n{instruction}"))
    line = next(number for number, line in enumerate(text.splitlines(), 1) if instruction in line)
    with pytest.raises(ProgramError, check=naming(*facts)) as caught:
        load_assembly(text, "words.bfa")
    assert caught.value.place == f"words.bfa, line {line}"


def test_other_targets_are_refused() -> None:
    with pytest.raises(ProgramError, check=naming("'Tofino2'")) as caught:
        load_assembly("version:\n  target: Tofino2\n", "two.bfa")
    assert caught.value.place == "two.bfa, line 2"


def test_random_numbers_are_those_of_the_seed() -> None:
    drawn = [Words(one_action("- set w.a, rng(0, 0..31)"))(0, 0, 0, 0, 0, 0)[0] for _ in range(2)]
    assert drawn[0] == drawn[1] != 0


@pytest.mark.parametrize(
    ("turn_a", "turn_b", "mask"), [(0, 0, 0b1010), (1, 0, 0b0110), (3, 2, 0b0001)]
)
def test_bytes_of_two_sources_rotated_to_the_right(turn_a: int, turn_b: int, mask: int) -> None:
    work = Words(one_action(f"- byte-rotate-merge w.a, w.b, w.a, {turn_a}, {turn_b}, {mask}"))

    @given(WORD, WORD)
    def check(a: int, b: int) -> None:
        one, two = (value.to_bytes(4, "little") for value in (b, a))
        expected = bytes(
            one[(byte + turn_a) % 4] if mask >> byte & 1 else two[(byte + turn_b) % 4]
            for byte in range(4)
        )
        assert work(a, b, 0, 0, 0, 0)[0] == int.from_bytes(expected, "little")

    check()
