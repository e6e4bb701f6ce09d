"""Ranks by a due time of a flow's own and by the bytes left: packets beside the fluid model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.planning.plan import Plan
from echelon.planning.policies import make_policy
from echelon.planning.policies.base import NoParameters
from echelon.planning.rankings.deadline import Deadline
from echelon_lab.scenarios.results import PolicyRun
from echelon_lab.scenarios.scenario import load_scenario
from echelon_lab.virtual import fluid_run
from echelon_lab.virtual import run as virtual_run

ROOT = Path(__file__).parents[2]
PAIR = f"""\
scenario: long_and_short
fabric: {ROOT}/topologies/dumbbell_2.yaml
jobs:
  - job: long
    parallelism: data
    workers: [a1, b1]
    data: {{compute: 2 s, gradient: 2.5 MB}}
  - job: short
    parallelism: data
    workers: [a2, b2]
    start: 300 ms
    data: {{compute: 2 s, gradient: 1 MB}}
iterations: 2
policies: [fair]
"""


class ByHand:
    """Both jobs in units of 4 s, on the paths and in the queues of `echelon`."""

    name = "by_hand"
    Parameters = NoParameters

    def __init__(self, left_shift: int | None, due_of_long_s: int) -> None:
        self._left_shift = left_shift
        self._due_s = {"long": Fraction(due_of_long_s), "short": Fraction(0)}

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None = None) -> Plan:
        plan = make_policy("echelon").plan(jobs, fabric, paths)
        flows = []
        for flow in plan.flows:
            assert isinstance(flow.ranking, Deadline)
            assert flow.ranking.relative is not None
            relative = replace(flow.ranking.relative, unit_s=Fraction(4), head_start=Fraction(0))
            due_s = flow.ranking.offset_s + self._due_s[flow.job]
            changed = replace(
                flow.ranking, relative=relative, due=due_s, left_shift=self._left_shift
            )
            flows.append(replace(flow, ranking=changed))
        return replace(plan, flows=tuple(flows))


def times_s(run: PolicyRun, job: str) -> list[float]:
    return [
        float(each.finish - each.start)
        for each in run.records[job].iterations
        if each.finish is not None
    ]


@cache
def measured(left_shift: int | None, due_of_long_s: int) -> tuple[PolicyRun, PolicyRun]:
    """Return the runs of packets and of the fluid engine."""
    with TemporaryDirectory() as directory:
        file = Path(directory, "pair.yaml")
        file.write_text(PAIR)
        scenario = load_scenario(file)
    plan = ByHand(left_shift, due_of_long_s)
    packets = virtual_run.run(scenario, "by_hand", lambda: plan, lambda _job, _iteration: None)
    fluid = fluid_run.run(scenario, "by_hand", lambda: plan, lambda _job, _iteration: None)
    return packets, fluid


@pytest.mark.xdist_group("bytes_left")
@pytest.mark.parametrize(
    ("left_shift", "due_of_long_s"),
    # A byte counts four microseconds, of which it takes 0.8 on the link. One second is a quarter of
    # the unit.
    [(-2, 0), (None, 1), (-2, 1)],
)
def test_packets_agree_with_the_fluid_model(left_shift: int | None, due_of_long_s: int) -> None:
    """The flow that starts last goes first, because less of it is left or because it is due
    earlier.
    """
    packets, fluid = measured(left_shift, due_of_long_s)
    assert not any(packets.reordered.values())
    for job in ("long", "short"):
        assert times_s(packets, job) == pytest.approx(times_s(fluid, job), rel=0.02)
    # Else the flow that started first would keep the link for all of its two seconds.
    before = measured(None, 0)
    for run, other in zip((packets, fluid), before, strict=True):
        assert times_s(run, "short")[0] < 0.7 * times_s(other, "short")[0]
