"""The estimate of a run on packets, against what switches count."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from typer.testing import CliRunner

import echelon
from echelon.cli import app
from echelon_lab.run import estimate
from echelon_lab.scenarios.scale import scaled

ROOT = Path(__file__).parents[4]
SCENARIOS = ROOT / "topologies/scenarios"


@pytest.mark.parametrize("name", ["fig2", "mix_dp4"])
def test_it_is_near_what_switches_count(name: str) -> None:
    scenario = echelon.scenario(SCENARIOS / f"{name}.yaml", ["fair"])
    scenario = replace(scenario, iterations=min(scenario.iterations, 2))
    run = echelon.simulate(scenario, target="softswitch").runs["fair"]
    counted = sum(switch.packets_in for switch in run.switches.values())
    assert estimate(scenario, "softswitch").switch_packets == pytest.approx(counted, rel=0.2)


def test_scaling_makes_packets_fewer_by_as_much() -> None:
    scenario = echelon.load_scenario(SCENARIOS / "dp_pair.yaml")
    small = scaled(scenario, Fraction(1, 10)).scenario
    assert estimate(small, "softswitch").packets == pytest.approx(
        estimate(scenario, "softswitch").packets / 10, rel=0.01
    )


@pytest.fixture
def endless(tmp_path: Path) -> str:
    """Return the path of a scenario with more packets than switches handle in ten minutes."""
    file = tmp_path / "endless.yaml"
    file.write_text(
        f"""scenario: endless
fabric: {ROOT / "topologies/dumbbell_2.yaml"}
jobs: [{{job: a, parallelism: data, workers: [a1, b1], data: {{compute: 1 s, gradient: 1 GB}}}}]
policies: [fair]
iterations: 200
transport: {{retransmit_after: 1000 s}}
"""
    )
    return str(file)


def test_a_long_run_on_packets_is_refused_where_nobody_can_be_asked(
    endless: str, tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, ["run", endless, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "--yes" in result.output
    assert "--scale" in result.output
    assert not (tmp_path / "out").exists()


def test_scaled_down_or_without_packets_it_runs(endless: str, tmp_path: Path) -> None:
    for name, options in (("small", ["--scale", "1/10000"]), ("fluid", ["--target", "fluid"])):
        out = tmp_path / name
        result = CliRunner().invoke(app, ["run", endless, "--out", str(out), *options])
        assert result.exit_code == 0, result.output
        assert (out / "results.json").exists()


@pytest.mark.parametrize("scale", ["0", "2", "1/100000000", "-1", "x"])
def test_a_scale_that_there_is_not(scale: str, tmp_path: Path) -> None:
    arguments = ["run", str(SCENARIOS / "fig2.yaml"), "--out", str(tmp_path), f"--scale={scale}"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert len(result.output.splitlines()) == 1
    assert "--scale" in result.output
