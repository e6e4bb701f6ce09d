"""Hostile programs, in short; ``python -m tests.soak hostile`` is the long form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from softswitch import ProgramError
from softswitch.switch import load_program
from tests.engines import COMPILERS
from tests.needs import needs
from tests.soak.__main__ import main
from tests.soak.hostile.grammar import Grammar
from tests.soak.hostile.run import trial

pytestmark = pytest.mark.wide


@pytest.mark.parametrize("compiler", COMPILERS[-1:])
def test_hostile_programs_are_refused_or_run_alike(compiler: object) -> None:
    outcome = trial("tcc", 20_000, 60, packets=10)
    assert not outcome.faults
    assert outcome.kinds["ran"] > 15
    assert outcome.kinds["refused"] > 3


@pytest.mark.long
@needs("gcc's sanitizers of memory")
def test_no_sanitizer_finds_anything_in_hostile_programs() -> None:
    outcome = trial("sanitized", 30_000, 40, packets=10)
    assert not outcome.faults


def test_a_fall_is_seen_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.soak.hostile.run.TRIAL", ("-c", FALLING))
    outcome = trial("tcc", 0, 5, packets=1)
    assert outcome.kinds == {"ran": 3, "differs": 1, "fell": 1}
    assert [fault.partition(":")[0] for fault in outcome.faults] == ["seed 1", "seed 3"]


FALLING = """
import os, sys
first, count = int(sys.argv[2]), int(sys.argv[3])
for seed in range(first, first + count):
    print(seed, end=" ", flush=True)
    if seed == 3:
        os.abort()
    print("differs: packet 0" if seed == 1 else "ran", flush=True)
"""


def test_a_seed_makes_a_program_and_most_of_them_load() -> None:
    loaded = 0
    for seed in range(40):
        source = json.dumps(Grammar(seed).make())
        assert source == json.dumps(Grammar(seed).make())
        try:
            load_program(source)
        except ProgramError:
            continue
        loaded += 1
    assert 20 < loaded < 40


def test_the_command_says_what_became_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hostile", "--programs", "3", "--packets", "2", "--seed", "5"]) == 0
    assert "tcc: 3 programs in" in capsys.readouterr().out


def test_a_later_run_goes_on_behind_what_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.soak.hostile.run.TRIAL", ("-c", FALLING))
    record = tmp_path / "record"
    command = ["hostile", "--programs", "250", "--processes", "2", "--record", str(record)]
    assert main([*command, "--seconds", "0"]) == 0
    assert not record.exists()
    assert main(command) == 1
    batches = [json.loads(line) for line in record.read_text().splitlines()]
    # The last batch is a part of one, which a longer run does anew.
    assert sorted(batch["first"] for batch in batches) == [0, 100]
    assert sum(map(sum, (batch["kinds"].values() for batch in batches))) == 200
    monkeypatch.setattr("tests.soak.hostile.run.TRIAL", ("-c", "raise SystemExit"))
    # Faults are printed again, also by a run that has nothing to do.
    assert main([*command[:2], "200", *command[3:]]) == 1
    # They are none of another range's.
    assert main([*command, "--seed", "1000", "--seconds", "0"]) == 0
