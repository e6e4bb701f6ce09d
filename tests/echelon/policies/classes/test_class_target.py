"""The target `classes`: what it carries, what it refuses, and a run of packets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from echelon import cli
from echelon.model.fabric.builders import one_tor
from echelon.model.fabric.load import build_fabric
from echelon.model.jobs.graph import Job
from echelon.model.jobs.paradigms.data import all_reduce
from echelon.planning.policies import make_policy
from echelon.switches.lowering.identity import number_shims
from echelon.switches.lowering.lower import Lowering, LoweringError
from echelon.switches.targets import TARGETS

TARGET = TARGETS["classes"]
RACK = build_fabric(one_tor(3))
HOSTS = list(RACK.hosts)
JOBS = [
    Job(f"job{n}", *all_reduce([HOSTS[n], HOSTS[-1]], Fraction(1, 10), 100_000)) for n in (0, 1)
]
SCENARIO = """\
scenario: one_link
fabric: {fabric}
jobs:
  - job: first
    parallelism: data
    workers: [a1, b1]
    data: {{compute: 40 ms, gradient: 100 kB}}
  - job: second
    parallelism: data
    workers: [a2, b2]
    start: 5 ms
    data: {{compute: 40 ms, gradient: 100 kB}}
iterations: 8
policies: [classes]
"""


def lowered(policy: str, target: str = "classes", **parameters: str) -> Lowering:
    able = TARGETS[target].capabilities(TARGETS[target].options())
    lowering = Lowering(RACK, dict.fromkeys(RACK.switches, able))
    identities: dict[str, dict[str, Any]] = {}
    for (job, flow), shim in number_shims(JOBS).items():
        identities.setdefault(job, {})[flow] = shim
    lowering.lower(make_policy(policy, **parameters).plan(JOBS, RACK), identities)
    return lowering


def test_it_has_weights_and_nobody_ranks() -> None:
    able = TARGET.capabilities(TARGET.options())
    assert (able.target, able.weights, able.rates) == ("classes", True, False)
    assert (able.ranks, able.hosts_rank, TARGET.ranks) == (False, False, False)
    assert TARGET.limits
    assert TARGET.launcher() is not None


def test_hosts_mark_each_flow_with_its_queue_and_switches_share_by_weight() -> None:
    rules = lowered("unfair", by="weights").at_hosts
    for job, queue in (("job0", 6), ("job1", 5)):
        assert {(rule.queue, rule.echelonflow) for rule in rules[job]} == {(queue, None)}
    with pytest.raises(LoweringError, match="target dscp: no DWRR weights"):
        lowered("unfair", "dscp", by="weights")


@pytest.mark.parametrize("policy", ["echelon", "srpt", "mltcp"])
def test_plans_that_rank_packets_are_refused_in_one_line(policy: str) -> None:
    with pytest.raises(LoweringError) as error:
        lowered(policy)
    message = str(error.value)
    assert message.startswith("job job0, flow ")
    assert "target classes: a flow has one queue for good" in message
    assert "\n" not in message


def run(scenario: Path, target: str) -> Mapping[str, Any]:
    out = scenario.parent / target
    arguments = ["run", str(scenario), "--target", target, "--workers", "1", "--out", str(out)]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    results: Mapping[str, Any] = json.loads((out / "results.json").read_text())
    return results


def test_packets_pass_as_the_fluid_engine_says(tmp_path: Path) -> None:
    fabric = Path(__file__).parents[4] / "topologies" / "leaf_spine.yaml"
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(SCENARIO.format(fabric=fabric))
    means = {}
    for target in ("classes", "fluid"):
        results = run(scenario, target)
        assert results["target"] == target
        jobs = results["results"]["classes"]["jobs"]
        means[target] = [job["mean_slowdown"] for job in jobs.values()]
    assert means["classes"] == pytest.approx(means["fluid"], rel=0.1)
