"""Stateful ALUs: the instructions of RegisterActions against the same computation in Python."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.tofino_model.tests.emulator.conftest import Words, one_action
from softswitch import ProgramError
from softswitch.errors import BadEntry
from tests.faults import naming

WORD = st.integers(0, 2**32 - 1)


def register(
    instructions: str, form: str = "lo: 32, hi: 32", size: int = 4, words: str = "64: w.a, 96: w.b"
) -> Words:
    """Return a program that runs a RegisterAction on the cell that B0 names and sends its output in
    W0.
    """
    lines = "\n".join(f"      - {line}" for line in instructions.split("; "))
    return Words(
        one_action(
            "- set w.a, work$salu.reg\n- work$salu.reg(step, $hash_dist)",
            before="""\
    hash_dist:
      0: { hash: 0, mask: 0xff, shift: 5 }
    input_xbar:
      exact group 0: { 0: b.a }
      hash 0:
        0..7: b.a
      hash group 0:
        table: [0]
        seed: 0x0
    stateful: work$salu.reg(hash_dist 0, $DEFAULT, $DEFAULT)
""",
            memories=f"""\
  stateful work$salu.reg:
    p4: {{ name: reg, size: {size} }}
    input_xbar:
      exact group 1: {{ {words} }}
    data_bytemask: 255
    format: {{ {form} }}
    actions:
      step:
{lines}
""",
        )
    )


def cell(work: Words, index: int) -> tuple[int, int]:
    return work.program.registers["reg"].register.read(index)


@given(st.lists(st.tuples(WORD, WORD, st.integers(0, 3)), max_size=8))
def test_two_compares_and_four_results(packets: list[tuple[int, int, int]]) -> None:
    """Keep the larger of two words and count how often the smaller was at least the one kept."""
    work = register(
        "grt.u lo, lo, -phv_lo; geq.u hi, phv_hi, -lo; alu_b !cmplo, lo, phv_lo; add cmphi, hi, hi,"
        " 1; output alu_lo"
    )
    model = dict.fromkeys(range(4), (0, 0))
    for a, b, index in packets:
        low, high = model[index]
        model[index] = max(low, a), high + 1 if b >= low else high
        assert work(a, b, 0, 0, index, 0)[0] == model[index][0]
    assert {index: cell(work, index) for index in range(4)} == model


@given(WORD, WORD)
def test_wrapping_subtraction_and_signed_compare(stamp: int, period: int) -> None:
    """Move a deadline on when it has passed, in time that wraps."""
    work = register("lss.s lo, lo, -phv_lo; add cmplo, lo, lo, phv_hi; output mem_lo")
    before = 0x7FFFFFF0
    work.program.registers["reg"].register.write(2, before)
    assert work(stamp, period, 0, 0, 2, 0)[0] == before
    passed = before < (stamp if stamp < 2**31 else stamp - 2**32)
    assert cell(work, 2)[0] == ((before + period) % 2**32 if passed else before)


@given(WORD, WORD)
def test_the_later_of_two_times_that_wrap(stamp: int, before: int) -> None:
    """``later - earlier >= 0`` for signed numbers of the cell's width, whose difference wraps."""
    work = register("geq.uus lo, phv_lo, -lo; alu_a cmplo, lo, phv_lo; output alu_lo")
    work.program.registers["reg"].register.write(0, before)
    is_later = (stamp - before) % 2**32 < 2**31
    assert work(stamp, 0, 0, 0, 0, 0)[0] == (stamp if is_later else before)


def test_outputs() -> None:
    for output, expected in (
        ("mem_lo", 7),
        ("mem_hi", 9),
        ("phv_lo", 1),
        ("phv_hi", 2),
        ("alu_lo", 8),
        ("alu_hi", 9),
    ):
        work = register(f"add lo, lo, 1; output {output}")
        work.program.registers["reg"].register.write(0, 7, 9)
        assert work(1, 2, 0, 0, 0, 0)[0] == expected


def test_an_action_without_an_output_writes_0_to_its_destination() -> None:
    """p4c leaves out the output of a RegisterAction whose result is always 0, but not the
    instruction that uses it.
    """
    work = register("alu_a lo, phv_hi")
    assert work(11, 5, 0, 0, 1, 0)[0] == 0
    assert cell(work, 1)[0] == 5


def test_the_output_of_a_predicate_has_one_of_four_bits() -> None:
    work = register("equ lo, lo, -phv_lo; equ hi, hi, -phv_hi; output predicate")
    work.program.registers["reg"].register.write(0, 7, 9)
    found = [work(lo, hi, 0, 0, 0, 0)[0] for lo, hi in ((0, 0), (7, 0), (0, 9), (7, 9))]
    assert found == [0x10, 0x20, 0x40, 0x80]


def test_an_output_whose_predicate_is_false_is_0() -> None:
    work = register("grt.u lo, lo, -phv_lo; output cmplo, mem_lo")
    work.program.registers["reg"].register.write(0, 7, 0)
    assert [work(word, 0, 0, 0, 0, 0)[0] for word in (6, 7)] == [7, 0]


def test_the_high_alu_of_a_single_register_is_scratch() -> None:
    work = register(
        "minu hi, phv_lo, lo; add lo, phv_hi, lo; output alu_hi",
        form="lo: 16",
        words="64: h.a, 80: h.b",
    )
    work.program.registers["reg"].register.write(0, 100)
    assert work(0, 0, 40, 5, 0, 0)[0] == 40
    assert cell(work, 0) == (105, 0)


def test_single_bits() -> None:
    work = register("set_bitc; output alu_lo", form="lo: 1")
    assert [work(0, 0, 0, 0, 1, 0)[0] for _ in range(2)] == [1, 0]
    assert cell(work, 1)[0] == 1


def test_an_index_beyond_the_end_changes_nothing_and_is_counted() -> None:
    work = register("add lo, lo, 1; output alu_lo")
    assert work(0, 0, 0, 0, 200, 0)[0] == 0
    assert work.switch.stats.overruns == {"reg": 1}
    with pytest.raises(BadEntry, check=naming("'reg'", "index 4", "0..3")):
        cell(work, 4)


@pytest.mark.parametrize(
    "line",
    [
        "multiply lo, lo, 2",
        "output nothing",
        "add lo, lo, b.a",
        "add cmphi, lo, lo, 1",
        "lss.x lo, lo",
    ],
)
def test_what_a_stateful_alu_cannot_do_is_refused(line: str) -> None:
    with pytest.raises(ProgramError) as caught:
        register(line)
    assert re.fullmatch(r"words\.bfa, line \d+", caught.value.place)
