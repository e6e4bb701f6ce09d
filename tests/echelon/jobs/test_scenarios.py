"""The scenarios of these paradigms: the job alone, in closed form, in the fluid model and from
packets.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from echelon.model.documents import parse_document, read_document
from echelon.model.fabric.load import load_fabric_spec
from echelon.planning.fluid import alone_iteration_s
from echelon.planning.policies import make_policy
from echelon_lab.scenarios.results import PolicyRun
from echelon_lab.scenarios.scenario import Scenario, ScenarioSpec, build_scenario
from echelon_lab.virtual import run as virtual_run

pytestmark = pytest.mark.io


SCENARIOS = Path(__file__).parents[3] / "topologies" / "scenarios"

ALONE_S = {
    # forward + backward + the last bucket, which takes as long as a quarter of the backward pass
    "overlap": Fraction(300 + 800 + 200, 1000),
    # all-reduces are hidden: 800 ms of them, which begin with that of the last iteration
    "staleness": Fraction(300 + 800, 1000),
    # Followed by hand: stage 1 begins its last forward when the first gradient has come back to it,
    # so the longest path goes down the pipeline and back twice, each time over three stages and
    # twice two boundaries of 80 ms.
    "pipeline_1f1b": Fraction(2 * (3 * (100 + 200) + 4 * 80), 1000),
    # Followed by hand: the second stage begins mini-batch 2 at 240 ms, and every other one from it
    # on 380 ms after the one before: a forward and a backward pass on both stages, and 40 ms each
    # way. Behind the last, one more way back.
    "pipedream": Fraction(240 + 3 * 380 + 50 + 100 + 40 + 100, 1000),
    # compute, 3 MB to the server, aggregate, 3 MB back
    "parameter_server": Fraction(300 + 480 + 20 + 480, 1000),
}


def first_job_alone(name: str, iterations: int, **recognition: object) -> Scenario:
    file = SCENARIOS / f"{name}.yaml"
    document = read_document(file)
    jobs = document["jobs"]
    assert isinstance(jobs, list)
    document["jobs"] = [{**jobs[0], "recognition": recognition}] if recognition else jobs[:1]
    document["fabric"] = load_fabric_spec(file.parent / str(document["fabric"]))
    spec = parse_document(ScenarioSpec, document, name)
    return replace(build_scenario(spec, file), iterations=iterations, until="exactly")


def run(scenario: Scenario) -> PolicyRun:
    return virtual_run.run(
        scenario, "echelon", lambda: make_policy("echelon"), lambda _job, _iteration: None
    )


@pytest.mark.parametrize("name", ALONE_S)
def test_alone_in_closed_form_and_from_packets(name: str) -> None:
    scenario = first_job_alone(name, 1)
    (job,) = scenario.jobs
    assert alone_iteration_s(job, scenario.fabric) == ALONE_S[name]
    done = run(scenario)
    (iteration,) = done.records[job.name].finished
    assert iteration.finish is not None
    assert float(iteration.finish - iteration.start) == pytest.approx(
        float(ALONE_S[name]), rel=0.02
    )
    assert done.reordered == {job.name: 0}


def test_1f1b_by_bytes_is_told_apart_as_by_shim() -> None:
    """Switches report every beginning of an iteration and every end of a flow."""
    by_bytes = {"by": "bytes", "source_port": 5001, "destination_port": 5002, "idle_gap": "350 ms"}
    digests = [
        {
            switch: stats.digests
            for switch, stats in run(first_job_alone("pipeline_1f1b", 2, **how)).switches.items()
        }
        for how in ({}, by_bytes)
    ]
    assert digests[0] == digests[1]
    assert all(digests[0].values())
