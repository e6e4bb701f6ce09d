"""Progress: what is being done, how much of it is done and how long the rest takes, on standard error alone."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from echelon.cli.progress import EVERY
from echelon.lab.run import compare, place, unwatched
from echelon.lab.scenarios.scenario import load_scenario
from echelon.progress import Account, CommandProgress
from echelon_study.placement.choose import place_jobs

SCENARIOS = Path(__file__).parents[3] / "topologies/scenarios"
POLICIES = ("--policy", "fair", "--policy", "echelon")
LINE = re.compile(r"\d+:\d\d  \S.*")


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Heard(CommandProgress):
    """Everything that a progress was told of, in order."""

    def __init__(self) -> None:
        self.all: list[tuple[Any, ...]] = []

    def stage(self, doing: str, /, parts: float = 0, unit: str = "", kept: float = 0) -> None:
        self.all.append(("stage", parts, unit, kept))

    def doing(self, what: str, /) -> None:
        self.all.append(("doing", what))

    def done(self, parts: float = 1, /) -> None:
        self.all.append(("done", parts))

    @property
    def parts(self) -> float:
        return sum(parts for what, parts, *_ in self.all if what == "done")


def test_a_line_has_what_is_being_done_what_is_done_and_what_is_left() -> None:
    clock = Clock()
    account = Account(clock)
    account.stage("reading mix.yaml")
    clock.now_s += 4
    assert account.how_far.line == "0:04  reading mix.yaml"
    account.stage("running", 30, "iterations")
    assert account.how_far.line == "0:04  running, 0 of 30 iterations"
    account.doing("fair: running 2 jobs")
    clock.now_s += 5
    account.done(10)
    assert account.how_far.line == "0:09  fair: running 2 jobs, 10 of 30 iterations, about 0:10 left"
    clock.now_s += 3
    assert account.how_far.line == "0:12  fair: running 2 jobs, 10 of 30 iterations, about 0:07 left"
    account.done(20)
    assert account.how_far.line == "0:12  fair: running 2 jobs, 30 of 30 iterations"
    clock.now_s += 3600
    account.stage("writing the results")
    assert account.how_far.line == "1:00:12  writing the results"


def test_what_is_kept_says_nothing_about_the_pace() -> None:
    clock = Clock()
    account = Account(clock)
    account.stage("running", 100, "runs", kept=90)
    clock.now_s += 60
    assert account.how_far.line == "1:00  running, 90 of 100 runs"
    account.done()
    assert account.how_far.line == "1:00  running, 91 of 100 runs, about 9:00 left"


def test_a_line_is_due_every_ten_seconds_whatever_the_stage() -> None:
    clock = Clock()
    account = Account(clock)
    said = []
    for second in range(1, 61):
        clock.now_s = 1000 + second + 0.2
        if second % 7 == 0:
            account.stage(f"stage {second}")
        if (line := account.line_due()) is not None:
            said.append(line)
    assert [line.split()[0] for line in said] == ["0:10", "0:20", "0:30", "0:40", "0:50", "1:00"]
    assert said[0] == "0:10  stage 7"


def test_a_run_counts_every_iteration_that_was_asked_for() -> None:
    scenario = load_scenario(SCENARIOS / "mix_dp4.yaml")
    heard, further = Heard(), []

    def on_iteration(policy: str, job: str, iteration: int) -> None:
        further.append((policy, job, iteration))

    runner = place("virtual", "fluid")(unwatched, heard)
    compare(scenario, "fluid", runner, progress=heard, on_iteration=on_iteration)
    asked = scenario.iterations * len(scenario.jobs) * len(scenario.policies)
    assert ("stage", asked, "iterations", 0) in heard.all
    assert heard.parts == asked
    assert len(further) > asked, "jobs that are ahead go on"


def test_switches_start_before_the_first_packet() -> None:
    scenario = replace(
        load_scenario(SCENARIOS / "fig2.yaml"), policies=load_scenario(SCENARIOS / "fig2.yaml").policies[:1]
    )
    heard = Heard()
    compare(scenario, "softswitch", place("virtual", "softswitch")(unwatched, heard), progress=heard)
    said = [entry[1:] if entry[0] == "doing" else entry[0] for entry in heard.all]
    begun = [at for at, what in enumerate(said) if what == ("fair: planning, and starting 2 switches",)]
    assert begun
    assert begun[0] < said.index(("fair: running 1 job",)) < said.index("done")


def test_placements_are_counted() -> None:
    heard = Heard()
    place_jobs(load_scenario(SCENARIOS / "fig2.yaml"), 3, heard)
    [(_, parts, unit, _)] = [entry for entry in heard.all if entry[0] == "stage"]
    assert (heard.parts, unit) == (parts, "placements")


def command(*arguments: str) -> Sequence[str]:
    return [sys.executable, "-Pm", "echelon", *arguments]


def test_off_a_terminal_there_are_plain_lines(tmp_path: Path) -> None:
    done = subprocess.run(
        command("run", str(SCENARIOS / "fig2.yaml"), "--json", *POLICIES, "-o", str(tmp_path)),
        env={**os.environ, EVERY: "0.01", "FORCE_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["scenario"] == "fig2"
    lines = done.stderr.splitlines()
    assert all(LINE.fullmatch(line) for line in lines), lines
    for part in ("fair: ", "echelon: ", "starting 2 switches", "1 of 2 iterations", " left"):
        assert any(part in line for line in lines), part


def on_terminals(arguments: Sequence[str], **environment: str) -> tuple[str, str]:
    """Return what a command writes to standard output and error, each of which is a terminal of its own."""
    said: list[bytearray] = [bytearray(), bytearray()]
    ends = [pty.openpty(), pty.openpty()]

    def read(descriptor: int, into: bytearray) -> None:
        while True:
            try:
                into += os.read(descriptor, 1 << 16)
            except OSError:  # everyone has closed the terminal
                return

    readers = [threading.Thread(target=read, args=(end[0], into)) for end, into in zip(ends, said, strict=True)]
    with subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=ends[0][1],
        stderr=ends[1][1],
        env={**os.environ, "TERM": "xterm", **environment},
    ) as process:
        for _, inside in ends:
            os.close(inside)
        for reader in readers:
            reader.start()
        assert process.wait() == 0, said[1]
    for reader in readers:
        reader.join()
    for outside, _ in ends:
        os.close(outside)
    out, err = (into.decode().replace("\r\n", "\n") for into in said)
    return out, err


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_on_a_terminal_standard_output_is_still_the_document_alone(terminal: str, tmp_path: Path) -> None:
    scenario = tmp_path / "long.yaml"
    text = (SCENARIOS / "fig2.yaml").read_text(encoding="utf-8")
    scenario.write_text(f"{text}\niterations: 200\n", encoding="utf-8")
    out, err = on_terminals(
        command("run", str(scenario), "--json", "--policy", "fair", "-o", str(tmp_path / "out")),
        TERM=terminal,
        **{EVERY: "0.01"},
    )
    assert json.loads(out)["scenario"] == "fig2"
    assert "fair: running 1 job" in err
    assert ("\x1b" in err) == (terminal == "xterm")
