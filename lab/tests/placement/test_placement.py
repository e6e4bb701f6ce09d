"""Placement: where strategies put ranks, and predictions against fluid runs."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import echelon
from echelon.cli import app
from echelon_lab.placement.choose import PlacedScenario, place_jobs
from echelon_lab.placement.strategies import STRATEGIES, drawn

RACKS = st.lists(st.integers(1, 6), min_size=1, max_size=5).map(
    lambda sizes: [[f"r{rack}h{n}" for n in range(size)] for rack, size in enumerate(sizes)]
)


@given(st.data())
def test_every_strategy_gives_each_job_different_hosts_and_fills_the_fabric_first(
    data: st.DataObject,
) -> None:
    racks = data.draw(RACKS)
    hosts = [host for rack in racks for host in rack]
    sizes = data.draw(st.lists(st.integers(1, len(hosts)), min_size=1, max_size=6))
    ranks = {f"j{n}": size for n, size in enumerate(sizes)}
    placements = {name: place(ranks, racks) for name, place in STRATEGIES.items()}
    placements |= {str(n): of for n, of in enumerate(drawn(ranks, racks, 3, 1))}
    for of in placements.values():
        assert list(of) == list(ranks)
        assert {job: len(set(placed)) for job, placed in of.items()} == ranks
        assert {host for placed in of.values() for host in placed} <= set(hosts)
        if sum(sizes) <= len(hosts):
            used = [host for placed in of.values() for host in placed]
            assert len(used) == len(set(used))


def rack_of(host: str) -> str:
    return host.partition("h")[0]


def test_packed_jobs_stay_in_one_rack_and_spread_ones_do_not() -> None:
    racks = [[f"r{rack}h{n}" for n in range(4)] for rack in range(4)]
    ranks = {"a": 4, "b": 2, "c": 2, "d": 4}
    packed, spread, aligned = (
        STRATEGIES[name](ranks, racks) for name in ("packed", "spread", "rail-aligned")
    )
    assert all(len({rack_of(host) for host in hosts}) == 1 for hosts in packed.values())
    assert all(len({rack_of(host) for host in hosts}) == len(hosts) for hosts in spread.values())
    assert [rack_of(host) for host in aligned["a"]] == ["r0", "r1", "r2", "r3"]
    assert [rack_of(host) for host in aligned["b"]] == ["r0", "r1"]


@pytest.fixture(scope="module")
def placed() -> dict[str, PlacedScenario]:
    """Return the placements of four jobs of four workers on four racks, oversubscribed 4:1."""
    jobs = [
        echelon.job(
            job=f"j{n}",
            parallelism="data",
            workers=[f"h{n + 4 * i + 1}" for i in range(4)],
            data={"compute": "100 ms", "gradient": "20 MB"},
        )
        for n in range(4)
    ]
    fabric = echelon.fabrics.leaf_spine(
        leaves=4, spines=1, hosts_per_leaf=4, oversubscription=4, rate_bps=10**9
    )
    scenario = echelon.scenario({"fabric": fabric, "jobs": jobs, "iterations": 5}, ["fair"])
    return {of.name: of for of in place_jobs(scenario)}


def test_packed_is_predicted_and_measured_to_be_free_of_contention(
    placed: dict[str, PlacedScenario],
) -> None:
    for name in ("packed", "best"):
        for job, found in placed[name].predicted.jobs.items():
            assert found.racks == 1
            assert found.slowdown == 1
            # A ring of 4: 2 x 3/4 of 20 MB at 1 Gbit/s.
            assert found.alone_s == pytest.approx(0.1 + 1.5 * 20e6 * 8 / 1e9)
            assert found.work_s == pytest.approx(0.4)
            assert found.intensity == pytest.approx(0.4 / 0.24)
            ran = echelon.simulate(placed[name].scenario).outcome("fair", job)
            assert ran.mean_iteration_s == pytest.approx(found.iteration_s, rel=0.02)


def test_the_order_of_predictions_is_that_of_runs(placed: dict[str, PlacedScenario]) -> None:
    measured = {
        name: fmean(outcome.mean_iteration_s for outcome in echelon.simulate(of.scenario))
        for name, of in placed.items()
    }
    predicted = {
        name: fmean(found.iteration_s for found in of.predicted.jobs.values())
        for name, of in placed.items()
    }
    assert measured["packed"] < measured["given"]
    assert predicted["packed"] < predicted["given"]
    assert placed["best"].predicted.utilisation == max(
        of.predicted.utilisation for of in placed.values()
    )
    assert measured["best"] == min(measured.values())


SCENARIO = """
scenario: small
fabric: {fabric: pair, hosts: [a1, a2, b1, b2], switches: [s1, s2], links: [
  {between: [a1, s1], rate: 1 Gbit/s}, {between: [a2, s1], rate: 1 Gbit/s}, {between: [b1, s2], rate: 1 Gbit/s},
  {between: [b2, s2], rate: 1 Gbit/s}, {between: [s1, s2], rate: 100 Mbit/s}]}
jobs:
  - {job: one, parallelism: data, workers: [a1, b1], data: {compute: 10 ms, gradient: 1 MB}}
  - {job: two, parallelism: data, workers: [a2, b2], data: {compute: 10 ms, gradient: 1 MB}}
policies: [fair]
"""


def test_the_command_says_what_each_choice_costs_and_writes_one(tmp_path: Path) -> None:
    file, out = tmp_path / "scenario.yaml", tmp_path / "placed.yaml"
    file.write_text(SCENARIO)
    result = CliRunner().invoke(app, ["place", str(file), "--run", "fair", "-o", str(out)])
    assert result.exit_code == 0, result.output
    for name in ("given", "packed", "spread", "rail-aligned", "best"):
        assert name in result.output
    jobs = yaml.safe_load(out.read_text())["jobs"]
    assert {frozenset(job["workers"]) for job in jobs} == {
        frozenset({"a1", "a2"}),
        frozenset({"b1", "b2"}),
    }
    faster = echelon.simulate(out)
    slower = echelon.simulate(file)
    for job in ("one", "two"):
        assert (
            faster.outcome("fair", job).mean_iteration_s
            < slower.outcome("fair", job).mean_iteration_s
        )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--choose", "nowhere"], "--choose"),
        (["--run", "no_such_policy"], "--policy"),
        (["-o", "elsewhere/placed.yaml"], "--out"),
    ],
)
def test_a_wrong_option_is_one_line(options: list[str], named: str, tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO)
    result = CliRunner().invoke(app, ["place", str(file), *options])
    assert result.exit_code == 2
    assert named in result.output.splitlines()[-1]
