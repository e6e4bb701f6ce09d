"""Runs in which fast jobs beside slow ones are simulated less finely."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from echelon.cli import app
from echelon_lab.run import simulate
from echelon_lab.scenarios import coarse
from echelon_lab.scenarios.coarse import GRAINS, coarsened, expected_flows, setup, with_grain
from echelon_lab.scenarios.scenario import Scenario, scenario_of

HOSTS = ["h1", "h2", "h3", "h4", "h5"]
SLOW = {
    "job": "slow",
    "parallelism": "data",
    "workers": ["h1", "h2"],
    "data": {"compute": "1 s", "gradient": "20 MB"},
}
FAST = {
    "job": "fast",
    "parallelism": "data",
    "workers": ["h3", "h2", "h4", "h5"],
    "data": {"compute": "3 ms", "gradient": "100 kB"},
}


def document(**settings: Any) -> dict[str, Any]:
    links = [{"between": [host, "s1"], "rate": "1 Gbit/s"} for host in HOSTS]
    return {
        "scenario": "beside",
        "fabric": {"fabric": "star", "hosts": HOSTS, "switches": ["s1"], "links": links},
        "iterations": 12,
        "policies": ["fair"],
        "jobs": [SLOW, FAST],
        **settings,
    }


@pytest.fixture
def scenario() -> Scenario:
    return scenario_of(document(), "scenario")


def outcomes(scenario: Scenario, policy: str) -> dict[str, Any]:
    results = simulate(scenario, [policy]).results["results"]
    jobs: dict[str, Any] = results[policy]["jobs"]
    return jobs


def test_fast_jobs_do_several_iterations_in_one(scenario: Scenario) -> None:
    prepared = setup(scenario)
    ratio = prepared.period_s / prepared.least_s["fast"]
    assert ratio > 100
    for grain in GRAINS:
        sizes = prepared.sizes(grain.lives)
        assert sizes["slow"] == 1
        # So many that the rest are `lives` in one iteration of the slow job, and no fewer.
        assert sizes["fast"] == int(ratio / grain.lives)


@pytest.mark.parametrize("grain", GRAINS, ids=lambda grain: str(grain.lives))
@pytest.mark.parametrize("policy", ["fair", "crux", "fifo"])
def test_slowdowns_are_those_of_the_exact_run(
    scenario: Scenario, grain: coarse.Grain, policy: str
) -> None:
    exact = outcomes(scenario, policy)
    simulated = outcomes(with_grain(setup(scenario), grain), policy)
    error = max(grain.error, 0.01)
    for job, outcome in exact.items():
        other = simulated[job]
        assert other["mean_slowdown"] == pytest.approx(outcome["mean_slowdown"], rel=error)
        assert other["alone_iteration_s"] == pytest.approx(outcome["alone_iteration_s"], rel=0.05)
    together = simulated["fast"]["iterations_together"]
    assert len(exact["fast"]["iteration_times_s"]) == pytest.approx(
        together * len(simulated["fast"]["iteration_times_s"]), rel=0.1
    )


@pytest.mark.parametrize("start", ["0 s", "20 s"])
def test_flows_are_counted_until_the_last_job_ends(start: str) -> None:
    """A job that starts early goes on until one that starts late has ended."""
    jobs = [{**SLOW, "start": start}, FAST]
    scenario = scenario_of(document(jobs=jobs), "scenario")
    prepared = setup(scenario)
    assert prepared.run_flows(GRAINS[0]) < expected_flows(scenario, prepared.least_s)
    least_s = prepared.least_s
    counted = expected_flows(scenario, least_s)
    records = simulate(scenario, ["fair"]).runs["fair"].records
    begun = {}
    for job in scenario.jobs:
        begun[job.name] = len(records[job.name].iterations) * len(job.flows)
    assert counted == pytest.approx(sum(begun.values()), rel=0.2)


def test_only_long_runs_are_coarse(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    assert coarsened(scenario) is None
    flows = expected_flows(scenario, setup(scenario).least_s)
    monkeypatch.setattr(coarse, "MOST_FLOWS", flows - 1)
    shorter = coarsened(scenario)
    assert shorter is not None
    assert shorter.grain == GRAINS[0]
    assert shorter.flows == flows
    size = shorter.scenario.together["fast"]
    assert f"{size} iterations of fast are simulated as one" in shorter.changes

    monkeypatch.setattr(coarse, "MOST_FLOWS", 1)
    coarsest = coarsened(scenario)
    assert coarsest is not None
    assert coarsest.grain == GRAINS[-1]


def test_runs_with_numbered_iterations_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coarse, "MOST_FLOWS", 1)
    delay = {"job": "fast", "worker": "h3", "iteration": 3, "delay": "1 ms"}
    assert coarsened(scenario_of(document(delays=[delay]), "scenario")) is None
    assert coarsened(scenario_of(document(until="exactly"), "scenario")) is None


def test_the_command_says_what_it_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coarse, "MOST_FLOWS", 100)
    file = tmp_path / "scenario.yaml"
    file.write_text(yaml.safe_dump(document()))
    words = ["run", str(file), "--target", "fluid"]
    short = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "short")])
    assert short.exit_code == 0, short.output
    assert "iterations of fast are simulated as one" in short.stderr
    assert "simulated as one" in (tmp_path / "short/report.md").read_text()
    exact = CliRunner().invoke(app, [*words, "--exact", "-o", str(tmp_path / "exact")])
    assert exact.exit_code == 0, exact.output
    assert "simulated as one" not in exact.stderr
    times_s = {}
    for name in ("short", "exact"):
        results = json.loads((tmp_path / name / "results.json").read_text())
        fast = results["results"]["fair"]["jobs"]["fast"]
        times_s[name] = fast["iteration_times_s"]
    assert len(times_s["short"]) < len(times_s["exact"])
