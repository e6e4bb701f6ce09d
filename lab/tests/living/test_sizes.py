"""Job files at the scale of a laboratory."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from echelon.model.jobs import build_job
from echelon_lab.living.sizes import smaller
from echelon_lab.scenarios.scale import scaled
from echelon_lab.scenarios.scenario import load_scenario

SCENARIOS = sorted((Path(__file__).parents[3] / "topologies" / "scenarios").glob("*.yaml"))


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_a_scaled_file_makes_the_job_that_a_scaled_scenario_has(file: Path) -> None:
    """The jobs are of every paradigm. A flow may be made of several sizes, each rounded."""
    scenario = load_scenario(file)
    factor = Fraction(1, 7)
    for job in scaled(scenario, factor).scenario.jobs:
        spec = scenario.specs[job.name]
        built = build_job(smaller(spec, factor))
        assert [flow.name for flow in built.flows] == [flow.name for flow in job.flows]
        assert built.computes == job.computes
        for flow, other in zip(built.flows, job.flows, strict=True):
            assert flow.size_bytes == pytest.approx(other.size_bytes, rel=0.01, abs=2)
