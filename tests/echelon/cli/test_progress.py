"""Progress: what is being done, how much of it is done and how long the rest takes, on standard
error alone.
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctoolchain import compilers
from echelon.cli.progress import EVERY
from echelon.model.errors import RunError
from echelon.model.progress import Account, CommandProgress, Phase
from echelon.planning.policies.base import Policy
from echelon_lab.commands.compilers import slow_code
from echelon_lab.placement.choose import place_jobs
from echelon_lab.run import compare, place, prepare
from echelon_lab.scenarios.scenario import Scenario, load_scenario
from echelon_lab.turns import unwatched
from tests.needs import needs

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

    def begin(self, name: str = "", /) -> None:
        self.all.append(("begin", name))

    def share(self, done: float, /) -> None:
        self.all.append(("share", done))

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
    assert (
        account.how_far.line == "0:09  fair: running 2 jobs, 10 of 30 iterations, about 0:10 left"
    )
    clock.now_s += 3
    assert (
        account.how_far.line == "0:12  fair: running 2 jobs, 10 of 30 iterations, about 0:07 left"
    )
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


class Telling:
    """A clock, and an account that is told of phases."""

    def __init__(self, *phases: Phase) -> None:
        self.clock = Clock()
        self.account = Account(self.clock)
        self.account.stage("running", 100, "iterations")
        self.account.expect(phases)

    @property
    def left_s(self) -> float | None:
        return self.account.how_far.left_s

    def take(self, name: str, took_s: float, share: float | None = None) -> None:
        """Begin the next phase of that name unless it has begun, and let it go on."""
        self.account.begin(name)
        self.clock.now_s += took_s
        if share is not None:
            self.account.share(share)


def test_turns_have_paces_of_their_own() -> None:
    telling = Telling(*(Phase(name, "planned") for name in ("fair", "srpt", "crux")))
    assert telling.left_s is None
    telling.take("fair", 5, share=0.5)
    assert telling.left_s == 5 + 10 + 10
    telling.take("fair", 5, share=1)
    telling.take("srpt", 5, share=0.25)
    # The rest of the second turn at its own pace, and the third one between both: 10 s and a
    # quarter of 20 s.
    assert telling.left_s == 15 + (10 + 0.25 * 20) / 1.25


def test_a_kind_of_which_nothing_is_known_makes_the_time_unknown() -> None:
    telling = Telling(Phase("fair", "planned"), Phase("varys", "reactive"))
    telling.take("fair", 5, share=0.5)
    assert telling.left_s is None
    telling.take("fair", 5, share=1)
    telling.take("varys", 30, share=0.25)
    assert telling.left_s == 90


def test_a_search_tells_what_a_run_takes_that_simulates_the_same_until_one_was_seen() -> None:
    telling = Telling(Phase("search", "search", 900), Phase("run", "planned", 90, similar="search"))
    telling.take("search", 7)
    telling.account.share(0)  # what came before the first simulation says nothing about the pace
    telling.take("search", 10, share=0.5)
    assert telling.left_s == 10 + 0.1 * (7 + 10 + 10)


def test_what_follows_is_estimated_until_the_same_was_measured() -> None:
    telling = Telling(Phase("run"), Phase("keep", "records", 2, 2), Phase("write", "records", 5, 5))
    telling.take("run", 5, share=0.5)
    assert telling.left_s == 5 + 2 + 5
    telling.take("run", 5, share=1)
    assert telling.left_s == 2 + 5
    telling.take("keep", 4)
    telling.account.begin("write")
    assert telling.left_s == 10, "this machine takes twice the time"


def test_phases_are_left_out_if_a_later_begins() -> None:
    telling = Telling(Phase("search", "search", 1, 40), Phase("run", "planned", 1, 10))
    telling.account.begin("run")
    telling.account.begin("run")
    assert telling.left_s == 10


def test_phases_that_take_longer_than_expected_make_others_seem_longer() -> None:
    telling = Telling(Phase("write", expected_s=8), Phase("draw", expected_s=3))
    telling.take("write", 38)
    telling.account.begin("draw")
    # 40 s instead of 10 s, if two seconds as expected are counted before.
    assert telling.left_s == 12


def test_a_command_that_gets_a_third_of_a_processor_takes_three_times_as_long_as_expected() -> None:
    clock = Clock()
    account = Account(clock, worked_s=lambda: clock.now_s / 3)
    account.expect([Phase("run"), Phase("draw", expected_s=3)])
    account.begin()
    clock.now_s += 10
    account.share(0.5)
    assert account.how_far.left_s == pytest.approx(10 + 9)


def test_the_time_left_grows_in_a_silence_and_is_never_nothing() -> None:
    clock = Clock()
    account = Account(clock)
    account.stage("running", 2, "iterations")
    clock.now_s += 10
    account.done()
    lefts = []
    for _ in range(100):
        clock.now_s += 1
        left_s = account.how_far.left_s
        assert left_s is not None
        lefts.append(left_s)
        assert "0:00 left" not in account.how_far.line
    assert lefts[:8] == [9, 8, 7, 6, 5, 4, 3, 2]
    assert lefts[8:] == sorted(lefts[8:])
    assert lefts[-1] == 25


def test_a_long_command_is_told_so_once_as_soon_as_it_is_known() -> None:
    clock = Clock()
    account = Account(clock, if_long="slow")
    account.stage("running", 10, "iterations")
    clock.now_s += 5
    account.done()
    assert account.note_due() is None
    clock.now_s += 7
    account.done()
    assert account.note_due() == "slow", "it will take a minute"
    assert account.note_due() is None


def test_a_machine_without_a_system_compiler_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("ECHELON_ENGINE", raising=False)
    by_tcc = [compiler.name for compiler in compilers()] == ["tcc"]
    assert ("apt-get install gcc libc6-dev" in (slow_code() or "")) == by_tcc
    monkeypatch.setenv("ECHELON_ENGINE", "python")
    assert slow_code() is None


def test_a_machine_with_a_system_compiler_says_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler = tmp_path / "cc"
    compiler.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slow_code() is None


def test_iterations_count_at_most_one_round_ahead_of_the_slowest_job() -> None:
    scenario = load_scenario(SCENARIOS / "mix_dp4.yaml")
    first, second, *others = (job.name for job in scenario.jobs)

    def run(
        _scenario: Scenario,
        _label: str,
        _make: Callable[[], Policy],
        told: Callable[[str, int], None],
    ) -> Any:
        counts = []
        for iteration in range(1, scenario.iterations + 1):
            told(first, iteration)
        counts.append(heard.parts)
        for job in (second, *others):
            told(job, 1)
        counts.append(heard.parts)
        raise RunError(str(counts))

    heard = Heard()
    with pytest.raises(RunError) as error:
        compare(replace(scenario, policies=scenario.policies[:1]), "fluid", run, progress=heard)
    assert str(error.value) == str([1, 1 + len(scenario.jobs)])


def test_policies_whose_time_nothing_else_tells_run_first_and_results_keep_the_order() -> None:
    scenario = prepare(SCENARIOS / "mix_dp4.yaml", ["fair", "srpt", "varys", "echelon"])
    heard = Heard()
    compared = compare(
        scenario, "fluid", place("virtual", "fluid")(unwatched, heard), progress=heard
    )
    labels = dict.fromkeys(entry[1].split(":")[0] for entry in heard.all if entry[0] == "doing")
    assert [*labels] == ["echelon", "varys", "srpt", "fair"]
    assert compared.policies == ("fair", "srpt", "varys", "echelon")


@pytest.mark.parametrize("target", ["fluid", "softswitch"])
def test_a_search_says_how_far_it_is(target: str) -> None:
    scenario = prepare(SCENARIOS / "mix_dp4.yaml", ["echelon"])
    heard = Heard()
    compare(
        replace(scenario, iterations=1),
        target,
        place("virtual", target)(unwatched, heard),
        progress=heard,
    )
    begun = heard.all.index(("begin", "run"))
    shares = [entry[1] for entry in heard.all[:begun] if entry[0] == "share"]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert len(shares) > 10
    assert 0.9 < shares[-1] <= 1
    assert any(
        "searching for a plan (5" in entry[1] for entry in heard.all[:begun] if entry[0] == "doing"
    )


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
        load_scenario(SCENARIOS / "fig2.yaml"),
        policies=load_scenario(SCENARIOS / "fig2.yaml").policies[:1],
    )
    heard = Heard()
    compare(
        scenario, "softswitch", place("virtual", "softswitch")(unwatched, heard), progress=heard
    )
    said = [entry[1:] if entry[0] == "doing" else entry[0] for entry in heard.all]
    begun = [
        at for at, what in enumerate(said) if what == ("fair: planning, and starting 2 switches",)
    ]
    assert begun
    assert begun[0] < said.index(("fair: running 1 job",)) < said.index("done")


def test_placements_are_counted() -> None:
    heard = Heard()
    place_jobs(load_scenario(SCENARIOS / "fig2.yaml"), 3, heard)
    [(_, parts, unit, _)] = [entry for entry in heard.all if entry[0] == "stage"]
    assert (heard.parts, unit) == (parts, "placements")


def command(*arguments: str) -> Sequence[str]:
    return [sys.executable, "-Pm", "echelon", *arguments]


@needs("a C compiler")
def test_off_a_terminal_there_are_plain_lines(tmp_path: Path) -> None:
    done = subprocess.run(
        command("run", str(SCENARIOS / "fig2.yaml"), "--json", *POLICIES, "-o", str(tmp_path)),
        env={**os.environ, EVERY: "0", "FORCE_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["scenario"] == "fig2"
    lines = done.stderr.splitlines()
    assert all(LINE.fullmatch(line) for line in lines), lines
    for part in (
        "fair: ",
        "echelon: ",
        "starting 2 switches",
        "1 of 2 iterations",
        " left",
        "writing report.md",
    ):
        assert any(part in line for line in lines), part


def test_off_a_terminal_there_may_be_no_line(tmp_path: Path) -> None:
    options = ("--json", "--target", "fluid", "--policy", "fair", "-o", str(tmp_path))
    done = subprocess.run(
        command("run", str(SCENARIOS / "fig2.yaml"), *options),
        env={**os.environ, EVERY: "inf"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


def on_terminals(arguments: Sequence[str], **environment: str) -> tuple[str, str]:
    """Return what a command writes to standard output and error, each of which is a terminal of its
    own.
    """
    said: list[bytearray] = [bytearray(), bytearray()]
    ends = [pty.openpty(), pty.openpty()]

    def read(descriptor: int, into: bytearray) -> None:
        while True:
            try:
                into += os.read(descriptor, 1 << 16)
            except OSError:  # everyone has closed the terminal
                return

    readers = [
        threading.Thread(target=read, args=(end[0], into))
        for end, into in zip(ends, said, strict=True)
    ]
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
def test_on_a_terminal_standard_output_is_still_the_document_alone(
    terminal: str, tmp_path: Path
) -> None:
    # Long enough that a display which is drawn ten times a second appears.
    scenario = tmp_path / "long.yaml"
    text = (SCENARIOS / "fig2.yaml").read_text(encoding="utf-8")
    scenario.write_text(f"{text}\niterations: 200\n", encoding="utf-8")
    out, err = on_terminals(
        command("run", str(scenario), "--json", "--policy", "fair", "-o", str(tmp_path / "out")),
        TERM=terminal,
        **{EVERY: "0"},
    )
    assert json.loads(out)["scenario"] == "fig2"
    assert "fair: running 1 job" in err
    assert ("\x1b" in err) == (terminal == "xterm")
