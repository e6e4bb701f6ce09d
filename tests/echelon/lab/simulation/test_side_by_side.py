"""Policies of a comparison that run side by side, in processes."""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from echelon.cli import app
from echelon.model.errors import RunError
from echelon.model.progress import CommandProgress
from echelon.planning.plan import PlanError
from echelon_lab.comparison import KEEPING
from echelon_lab.run import compare, ideal_place, place, prepare
from echelon_lab.scenarios.results import PolicyRun
from echelon_lab.scenarios.scenario import Scenario
from echelon_lab.side_by_side import LEAST_GAIN_S, SideBySide, gain_s
from echelon_lab.side_by_side import POLICIES as POLICIES_PHASE
from echelon_lab.turns import MakePolicy, OnJobIteration, Runner, Watch, unwatched
from tests.echelon.cli.test_progress import Heard

ROOT = Path(__file__).parents[4]
FIG2 = ROOT / "topologies/scenarios/fig2.yaml"
POLICIES = ["fair", "varys", "fifo", "echelon", "srpt"]
FLUID = place("virtual", "fluid")
RUNNER = FLUID(unwatched, CommandProgress())


@pytest.fixture
def scenario() -> Scenario:
    return prepare(FIG2, POLICIES)


def test_results_are_the_same_and_in_order_and_every_iteration_counts(scenario: Scenario) -> None:
    ideal = ideal_place("fluid")
    expected = compare(scenario, "fluid", RUNNER, ideal)
    heard = Heard()
    lines: list[str] = []
    beside = SideBySide(FLUID, 3, lines.extend)
    compared = compare(scenario, "fluid", RUNNER, ideal, progress=heard, processes=beside)
    assert compared.policies == expected.policies
    assert compared.results == expected.results
    assert compared.runs == expected.runs
    assert heard.parts == scenario.iterations * len(scenario.jobs) * len(compared.policies)
    begun = heard.all.index(("begin", POLICIES_PHASE))
    shares = [entry[1] for entry in heard.all[begun:] if entry[0] == "share"]
    assert all(0 < share <= 1 for share in shares)
    assert any(line.startswith("echelon") for line in lines), "a line for each policy in work"
    assert not multiprocessing.active_children()


def test_packets_are_the_same(scenario: Scenario) -> None:
    shorter = replace(scenario, iterations=1, policies=scenario.policies[:2])
    start = place("virtual", "softswitch")
    expected = compare(shorter, "softswitch", start(unwatched, CommandProgress()))
    beside = SideBySide(start, 2)
    compared = compare(shorter, "softswitch", RUNNER, processes=beside)
    assert compared.results == expected.results


class UnsendableError(Exception):
    """An error that Python cannot make again from its text."""

    def __init__(self, label: str, reason: str) -> None:
        super().__init__(f"{reason} of {label}")


def _faulty(_watch: Watch, progress: CommandProgress) -> Runner:
    """Return a runner under which all policies but one have faults."""

    def run(scenario: Scenario, label: str, make: MakePolicy, each: OnJobIteration) -> PolicyRun:
        if label == "fair":
            return FLUID(unwatched, progress)(scenario, label, make, each)
        if label == "varys":
            raise PlanError("no path", "a", code="no-route")
        if label == "fifo":
            os._exit(3)
        if label == "srpt":
            raise UnsendableError(label, "fault")
        raise ZeroDivisionError("a fault of the program")

    return run


def _slow(_watch: Watch, progress: CommandProgress) -> Runner:
    def run(scenario: Scenario, label: str, make: MakePolicy, each: OnJobIteration) -> PolicyRun:
        if label != "fair":
            time.sleep(600)
        return FLUID(unwatched, progress)(scenario, label, make, each)

    return run


def _fault(scenario: Scenario, label: str) -> BaseException:
    """Return the error of a policy beside another that has none."""
    kept = [choice for choice in scenario.policies if choice.label in ("fair", label)]
    both = replace(scenario, policies=tuple(kept))
    with pytest.raises(Exception) as raised:
        compare(both, "fluid", RUNNER, processes=SideBySide(_faulty, 2))
    assert not multiprocessing.active_children()
    return raised.value


def test_the_error_of_a_policy_is_that_of_one_process(scenario: Scenario) -> None:
    runner = _faulty(unwatched, CommandProgress())
    with pytest.raises(PlanError) as alone:
        compare(replace(scenario, policies=scenario.policies[1:2]), "fluid", runner)
    beside = _fault(scenario, "varys")
    assert isinstance(beside, PlanError)
    assert (str(beside), beside.job, beside.code) == ("policy varys: no path", "a", "no-route")
    assert str(alone.value) == str(beside)


def test_a_process_that_dies_and_a_fault_of_the_program_are_said(scenario: Scenario) -> None:
    died = _fault(scenario, "fifo")
    assert isinstance(died, RunError)
    assert str(died) == "policy fifo: its process ended unexpectedly (out of memory?)"
    fault = _fault(scenario, "echelon")
    assert isinstance(fault, ZeroDivisionError)
    assert "test_side_by_side.py" in fault.__notes__[0]
    unsendable = _fault(scenario, "srpt")
    assert str(unsendable) == "policy srpt: UnsendableError: fault of srpt"


class Interrupter(CommandProgress):
    """A progress that interrupts as soon as a result is kept."""

    def __init__(self) -> None:
        self._keeps = False

    def doing(self, work: str, /) -> None:
        if self._keeps:
            raise KeyboardInterrupt
        self._keeps = work == "fair: keeping the results"


def test_an_interrupt_ends_all_and_keeps_what_is_done(scenario: Scenario, tmp_path: Path) -> None:
    begun_s = time.monotonic()
    beside = SideBySide(_slow, 5)
    with pytest.raises(KeyboardInterrupt):
        compare(scenario, "fluid", RUNNER, keep=tmp_path, progress=Interrupter(), processes=beside)
    assert not multiprocessing.active_children()
    assert time.monotonic() - begun_s < 300
    [file] = (tmp_path / "points").iterdir()
    assert file.name.startswith("fair-")
    heard: Any = Heard()
    compare(
        scenario, "fluid", RUNNER, keep=tmp_path, progress=heard, processes=SideBySide(FLUID, 2)
    )
    [stage] = [entry for entry in heard.all if entry[0] == "stage" and entry[1]]
    assert stage[3] == scenario.iterations * len(scenario.jobs), "fair was not run again"


def test_a_single_policy_needs_no_process_and_its_keeping_is_a_phase(
    scenario: Scenario, tmp_path: Path
) -> None:
    single = replace(scenario, policies=scenario.policies[:1])
    heard: Any = Heard()
    labels: list[str] = []
    compare(
        single,
        "fluid",
        RUNNER,
        keep=tmp_path,
        progress=heard,
        on_iteration=lambda label, _job, _iteration: labels.append(label),
        processes=SideBySide(_slow, 2),
    )
    assert set(labels) == {"fair"}
    assert ("begin", KEEPING) in heard.all


def test_short_runs_are_not_worth_processes(scenario: Scenario) -> None:
    unsearched = replace(scenario, policies=scenario.policies[:3])
    assert gain_s(unsearched, None) < LEAST_GAIN_S
    assert gain_s(unsearched, 30.0) == 20
    assert gain_s(replace(scenario, policies=scenario.policies[:1]), None) == 0


def test_the_command_writes_the_same_files(tmp_path: Path) -> None:
    texts = []
    for workers in ("1", "2"):
        out = tmp_path / workers
        arguments = ["run", str(FIG2), "--target", "fluid", "--workers", workers, "-o", str(out)]
        result = CliRunner().invoke(app, [*arguments, "--policy", "fair", "--policy", "srpt"])
        assert result.exit_code == 0, result.output
        texts.append((out / "results.json").read_text(encoding="utf-8"))
    assert texts[0] == texts[1]


def test_real_hosts_run_one_policy_at_a_time(tmp_path: Path) -> None:
    arguments = ["run", str(FIG2), "--on", "namespaces", "--workers", "2", "-o", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "--workers: goes with virtual time only" in result.stderr
