"""Programs that p4c's own tests do not cover: each NAME.stf of ``programs`` against NAME.p4, and
cases beyond STF.
"""

from __future__ import annotations

import logging
import zlib
from collections import Counter as Tally
from functools import cache
from pathlib import Path

import pytest

from ctoolchain import compilers
from softswitch import Program, Switch, load_program
from softswitch.native.choice import Choice
from softswitch.stf import Run, StfError, parse, run
from tests.engines import ENGINES
from tests.faults import mentions
from tests.needs import needs
from tests.softswitch.stf.compiling import committed_form, compile_p4

PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.stf"))
TESTS = Path(__file__).parents[2]
SOURCES = sorted([*PROGRAMS.glob("*.p4"), *(TESTS / "soak" / "programs").glob("*.p4")])


@cache
def program(name: str) -> Program:
    path = PROGRAMS / f"{name}.json"
    return load_program(path.read_bytes(), path.name)


def statements(name: str) -> str:
    return (PROGRAMS / f"{name}.stf").read_text()


def through(switch: Switch, data: str) -> bytes:
    """Return the one packet that leaves in consequence of `data` (hexadecimal)."""
    ((_, packet),) = switch.process(0, bytes.fromhex(data), 0)
    return packet


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", NAMES)
def test_program_does_what_its_test_expects(name: str, engine: str) -> None:
    native = Choice(engine, compilers()[-1:])(program(name))
    result = run(
        program(name), parse(statements(name), f"{name}.stf"), f"{name}.stf", native=native
    )
    assert [str(failure) for failure in result.failures] == []
    assert result.expectations > 5


@pytest.mark.parametrize("name", NAMES)
def test_each_expectation_counts(name: str) -> None:
    """Damage one expectation at a time: that line fails, and no other."""
    lines = statements(name).splitlines()
    damaged = 0
    for number, line in enumerate(lines, 1):
        if line.startswith("expect "):
            wrong = f"expect {line.split()[1]} EE"
        elif line.startswith("expect_digest"):
            wrong = f"{line.rsplit(maxsplit=1)[0]} 999"
        elif line.startswith("check_counter"):
            wrong = f"{line.split(')')[0]}) packets == 77"
        elif line.startswith("check_register"):
            wrong = f"{line.split(')')[0]}) == 77"
        else:
            continue
        damaged += 1
        text = "\n".join([*lines[: number - 1], wrong, *lines[number:]])
        failures = run(program(name), parse(text, "t.stf"), "t.stf").failures
        assert [failure.line for failure in failures] == [number]
    assert damaged > 4


def test_all_is_tested() -> None:
    assert sorted(path.stem for path in PROGRAMS.glob("*.p4")) == NAMES


@pytest.mark.p4c
@needs("p4c")
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_committed_output_is_what_p4c_makes(source: Path) -> None:
    compiled = compile_p4(source)
    advice = (
        f"run `python -m tests.softswitch.stf.compiling {source.parent.relative_to(TESTS.parent)}`"
    )
    assert source.with_suffix(".json").read_text() == committed_form(compiled.json), advice
    assert source.with_suffix(".p4info.txtpb").read_text() == compiled.p4info, advice


# -- what STF cannot say ---------------------------------------------------------------------------


def test_random_numbers_are_even() -> None:
    """The chi-square of 16 values of a byte, with 15 degrees of freedom, exceeds 37.7 for one of a
    thousand seeds.
    """
    switch = Switch(program("randoms"), seed=5)
    drawn = Tally(
        through(switch, "01 00 0000 0000 00000000 0000000000000000")[1] for _ in range(3200)
    )
    assert set(drawn) == set(range(0x30, 0x40))
    assert sum((count - 200) ** 2 / 200 for count in drawn.values()) < 37.7


def test_random_numbers_fill_every_bit() -> None:
    switch = Switch(program("randoms"), seed=6)
    ones = zeros = (1 << 104) - 1
    for _ in range(64):
        packet = through(switch, "03 00 0000 0000 00000000 0000000000000000")
        value = int.from_bytes(packet[1:2] + packet[6:], "big")
        ones &= value
        zeros &= ~value
    assert (ones, zeros) == (0, 0)


def test_random_numbers_come_of_the_seed() -> None:
    one, same, other = (Switch(program("randoms"), seed=seed) for seed in (7, 7, 8))
    ask = "03 00 0000 0000 00000000 0000000000000000"
    assert [through(one, ask) for _ in range(20)] == [through(same, ask) for _ in range(20)]
    assert through(one, ask) != through(other, ask)


@pytest.mark.parametrize(
    ("statement", "facts"),
    [
        ("pvs_add ports 1 2", "1 2"),
        ("pvs_add ports 0x10000", "65536 16"),
        ("pvs_add ports 1/17", "prefix 17 0..16"),
        ("pvs_add ports 1&&&0x10000", "65536 16"),
        ("pvs_add ports 5->4", "range 5->4"),
    ],
)
def test_members_of_value_sets_are_checked(statement: str, facts: str) -> None:
    with pytest.raises(StfError) as caught:
        run(program("value_sets"), parse(statement, "t.stf"), "t.stf")
    assert (caught.value.file, caught.value.line) == ("t.stf", 1)
    place, _, reason = caught.value.reason.partition(": ")
    assert place == "value set 'P.ports'"
    assert mentions(reason, *facts.split()), reason


def test_messages_go_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "softswitch"):
        Switch(program("assertions")).process(
            7, bytes.fromhex("04 05 0102 00000000000000000000"), 0
        )
    assert [record.getMessage() for record in caplog.records] == ["plain", "x 5 y 258 port 7"]


def test_failed_assertions_are_counted() -> None:
    test = Run(switch := Switch(program("assertions")), "assertions.stf", {})
    for command in parse(statements("assertions"), "assertions.stf"):
        test.execute(command)
    dropped = switch.stats.dropped
    # The five packets behind which the test has `no_packet`: one of them fails an assumption.
    assert sum(dropped.values()) == 5
    assert dropped["assume failed"] == 1


def test_an_index_out_of_range_is_counted() -> None:
    switch = Switch(program("registers"))
    packet = through(switch, "02 09 12345678 00000000000000000000000000000000")
    assert packet[2:6] == bytes.fromhex("12345678")
    assert switch.stats.overruns == {"register I.words": 1}


def crc16(data: bytes) -> int:
    """Return CRC-16/ARC, bit by bit; its check value is 0xBB3D."""
    register = 0
    for octet in data:
        register ^= octet
        for _ in range(8):
            register = register >> 1 ^ (0xA001 if register & 1 else 0)
    return register


def test_selectors_hash_as_published() -> None:
    assert crc16(b"123456789") == 0xBB3D
    switch = Switch(program("profiles"))
    lines = [
        *(f"member_add by_crc16 {n} to(port:{n}, answer:{n})" for n in range(7)),
        *(f"member_add by_crc32 {n} to(port:{n}, answer:{n})" for n in range(7)),
        "group_add by_crc16 1 0 1 2 3 4 5 6",
        "group_add by_crc32 1 0 1 2 3 4 5 6",
        "add spread16 x:1 group 1",
        "add spread32 1 x:0x00000001 group 1",
    ]
    test = Run(switch, "t.stf", {})
    for command in parse("\n".join(lines), "t.stf"):
        test.execute(command)
    found: Tally[int] = Tally()
    for y in range(0, 1 << 32, (1 << 32) // 97):
        word = y.to_bytes(4, "big")
        assert (
            through(switch, f"04 00 00000001 {word.hex()} 00000000")[1] == crc16(word + b"\x04") % 7
        )
        # BMv2's table of CRC-32 is zlib's; the hash is of all the selector's fields.
        answer = through(switch, f"05 00 00000001 {word.hex()} 00000000")[1]
        assert answer == zlib.crc32(word) % 7
        found[answer] += 1
    assert len(found) == 7
