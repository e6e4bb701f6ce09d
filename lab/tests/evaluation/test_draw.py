"""Drawn scenarios are valid, have contention and the load that they say, and depend on nothing but
their seed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from echelon.planning.fluid import alone_iteration_s
from echelon_lab.evaluation.demand import demands, shared_load
from echelon_lab.evaluation.draw import GREATEST_LOAD, LEAST_LOAD, PERIODS, Drawn, draw
from echelon_lab.scenarios.scenario import Scenario, load_scenario, scenario_of
from tests.reference.routes import route_jobs

SEEDS = range(10)
ROUNDED = 1e-3
"""The rounding error of a load: durations and sizes are rounded after it has been set."""
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module", params=SEEDS)
def drawn(request: pytest.FixtureRequest) -> Drawn:
    return draw(request.param)


@pytest.fixture(scope="module")
def scenario(drawn: Drawn) -> Scenario:
    return scenario_of(drawn.document(["fair"], iterations=3), "drawn")


def test_the_scenario_is_what_its_kind_says(drawn: Drawn, scenario: Scenario) -> None:
    assert len(scenario.jobs) == drawn.kind.jobs
    assert 2 <= drawn.kind.jobs <= 8
    alone_s = [float(alone_iteration_s(job, scenario.fabric)) for job in scenario.jobs]
    parts = [of / min(alone_s) for of in alone_s]
    assert drawn.kind.periods in PERIODS
    if drawn.kind.periods == "identical":
        assert parts == pytest.approx([1.0] * len(parts), rel=ROUNDED)
    if drawn.kind.periods == "harmonic":
        assert parts == pytest.approx(
            [min((1, 2, 4), key=lambda k: abs(k - part)) for part in parts], rel=ROUNDED
        )
    for job, of in zip(scenario.jobs, alone_s, strict=True):
        assert 0 < job.start_s <= of * (1 + ROUNDED)


def test_some_link_has_contention_and_the_load(drawn: Drawn, scenario: Scenario) -> None:
    fabric = scenario.fabric
    routes = route_jobs(fabric, scenario.jobs)
    load: dict[tuple[str, str], Fraction] = {}
    users: dict[tuple[str, str], set[str]] = {}
    for job in scenario.jobs:
        alone_s = alone_iteration_s(job, fabric)
        for flow in job.flows:
            path = routes[job.name, flow.src, flow.dst]
            for link in pairwise(path):
                load[link] = (
                    load.get(link, Fraction(0))
                    + flow.size_bytes / alone_s / fabric.capacity_Bps[link]
                )
                users.setdefault(link, set()).add(job.name)
    shared = [load[link] for link, jobs in users.items() if len(jobs) > 1]
    assert shared
    assert float(max(shared)) == pytest.approx(drawn.load, rel=ROUNDED)
    assert LEAST_LOAD * (1 - ROUNDED) <= max(shared) <= GREATEST_LOAD * (1 + ROUNDED)
    assert max(shared) == shared_load([*demands(scenario.jobs, fabric).values()])


def test_its_file_is_the_same_scenario(drawn: Drawn, scenario: Scenario, tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(yaml.safe_dump(drawn.document(["fair"], iterations=3)))
    loaded = load_scenario(file)
    assert loaded.jobs == scenario.jobs
    assert loaded.fabric == scenario.fabric


def test_a_seed_gives_the_same_scenario_in_every_process() -> None:
    code = (
        "import json; from echelon_lab.evaluation.draw import draw; print(json.dumps(draw(3).jobs))"
    )
    path = os.pathsep.join([str(ROOT / "controller"), str(ROOT)])
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, check=True
        )
        assert json.loads(done.stdout) == draw(3).jobs


def test_other_seeds_give_other_scenarios() -> None:
    assert draw(4).jobs != draw(6).jobs
