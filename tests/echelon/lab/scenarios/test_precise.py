"""Runs that go on until their mean slowdown is precise, and what ends them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from typer.testing import CliRunner

from echelon.cli import app
from echelon.model.documents import DocumentError
from echelon.planning.fluid.interval import PRECISE
from echelon_lab.run import BUDGET, prolonged, simulate
from echelon_lab.scenarios.scenario import Scenario, load_scenario

ROOT = Path(__file__).parents[4]
FILE = ROOT / "topologies/scenarios/dp_pair.yaml"
ITERATIONS = 20


@pytest.fixture
def scenario() -> Scenario:
    return replace(load_scenario(FILE), iterations=ITERATIONS)


def test_runs_end_when_they_are_precise_or_their_budget_is_spent(scenario: Scenario) -> None:
    compared = simulate(scenario, ["fair", "echelon"], until_precise=True)
    report = compared.report()
    for policy, run in compared.results["results"].items():
        steady = run["steady"]
        iterations = min(len(job["iteration_times_s"]) for job in run["jobs"].values())
        assert 1.5 * ITERATIONS <= iterations <= BUDGET * ITERATIONS
        is_precise = steady["half_width"] < PRECISE * steady["mean_slowdown"]
        assert steady["ended"] == ("precise" if is_precise else "budget")
        ended = "within 1 %" if is_precise else "budget spent"
        assert f"{policy}: {ended}" in report


def test_other_runs_end_after_their_iterations(scenario: Scenario) -> None:
    (run,) = simulate(scenario, ["fair"]).results["results"].values()
    assert run["steady"]["ended"] == "iterations"
    assert run["steady"]["half_width"] > 0
    assert all(job["steady"]["half_width"] > 0 for job in run["jobs"].values())


def test_a_short_run_has_no_interval(scenario: Scenario) -> None:
    (run,) = simulate(replace(scenario, iterations=3), ["fair"]).results["results"].values()
    assert run["steady"]["half_width"] is None
    slowdowns = [job["steady"]["mean_slowdown"] for job in run["jobs"].values()]
    assert run["steady"]["mean_slowdown"] == pytest.approx(fmean(slowdowns))


def test_the_command_says_what_ended_each_run(tmp_path: Path) -> None:
    words = ["run", str(FILE), "--target", "fluid", "--until-precise", "-o", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    lines = result.stdout.splitlines()
    for policy, run in results.items():
        steady = run["steady"]
        interval = f"{steady['mean_slowdown']:.3f} ± {steady['half_width']:.3f}"
        ended = {"precise": "within 1 %", "budget": "budget spent"}[steady["ended"]]
        (line,) = [line for line in lines if line.startswith(policy) and interval in line]
        assert line.endswith(ended)


def test_it_is_refused_where_it_cannot_be(scenario: Scenario, tmp_path: Path) -> None:
    words = ["run", str(FILE), "--until-precise", "-o", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert len(result.output.splitlines()) == 1
    assert "--target fluid" in result.output
    with pytest.raises(DocumentError, match="until: exactly"):
        prolonged(replace(scenario, until="exactly"), "fluid")
