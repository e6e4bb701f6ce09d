"""Tests of the scenarios that `python -m bench mixes` writes: the same each time, and valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.mixes.clusters import GPUS_OF_HOST, find_scenario, scenario_text
from bench.mixes.command import main
from bench.mixes.measure import measure
from echelon_lab.scenarios.scenario import load_scenario

NAMES = ("five", "five_plain", "dense", "rail64", "ls31", "clos64", "decode2", "big256")
SEEDS = range(1, 13)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_mix_of_a_seed_is_the_same_each_time_and_valid(tmp_path: Path, seed: int) -> None:
    file = tmp_path / "mix.yaml"
    main(["write", "--seed", str(seed), "-o", str(file)])

    assert file.read_text() == scenario_text(find_scenario(f"mix{seed:02d}"))
    scenario = load_scenario(file)
    assert 32 <= len(scenario.fabric.hosts) <= 64
    assert 6 <= len(scenario.jobs) <= 10
    workers = [worker for job in scenario.jobs for worker in job.workers]
    assert len(workers) == len(set(workers))


@pytest.mark.parametrize("name", NAMES)
def test_a_named_cluster_is_the_same_each_time_and_has_whole_hosts(name: str) -> None:
    document = find_scenario(name)
    assert document == find_scenario(name)
    workers = [worker for job in document["jobs"] for worker in job["workers"]]
    assert len(workers) == len(set(workers))


def test_a_thousand_small_jobs_fit_on_the_gpus_of_their_hosts() -> None:
    document = find_scenario("big1024_1000")
    workers = [worker for job in document["jobs"] for worker in job["workers"]]
    assert len(document["jobs"]) == 1000
    assert max(workers.count(host) for host in document["fabric"]["hosts"]) <= GPUS_OF_HOST


def test_different_seeds_differ() -> None:
    assert len({scenario_text(find_scenario(f"mix{seed}")) for seed in (1, 2, 3)}) == 3


def test_an_unknown_name_is_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="unknown mix 'six'"):
        main(["write", "six", "-o", str(tmp_path / "six.yaml")])


def test_a_run_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "mix.yaml"
    main(["write", "mix03", "-o", str(file)])
    measured = measure(file, "fifo", 1)
    assert measured.started >= measured.flows > 0
    assert measured.settings > 0
    assert measured.worst_slowdown >= measured.mean_slowdown >= 1
