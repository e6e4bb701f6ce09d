"""Cross traffic under several policies is compared over the time that all runs have in common."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from echelon.planning.execution import IterationRecord, JobRecord
from echelon_lab.scenarios.results import PolicyRun, assemble, common_end_s, compared
from echelon_lab.scenarios.scenario import Scenario, load_scenario
from echelon_lab.scenarios.traffic_spec import TrafficSource
from echelon_lab.traffic.outcome import FlowOutcome, until
from echelon_lab.traffic.schedule import Schedule, ScheduledFlow

SCENARIO = Path(__file__).parents[4] / "topologies/scenarios/dp_pair.yaml"
FLOWS = tuple(
    ScheduledFlow(at_us, "a1", "b1", 1000) for at_us in (0, 2_000_000, 5_000_000, 8_000_000)
)


@pytest.fixture
def scenario() -> Scenario:
    source = TrafficSource("web", Schedule(FLOWS, FLOWS[-1].start_us))
    return replace(load_scenario(SCENARIO), iterations=2, traffic=(source,))


def run_of(scenario: Scenario, iteration_s: int, sent: list[FlowOutcome]) -> PolicyRun:
    """Return a run in which each iteration takes so long.

    Jobs go on after those that were asked for.
    """
    iterations = [
        IterationRecord(
            number, Fraction((number - 1) * iteration_s), Fraction(number * iteration_s)
        )
        for number in range(1, 4)
    ]
    records = {job.name: JobRecord(job.name, iterations) for job in scenario.jobs}
    return PolicyRun(records, traffic_flows={"web": sent})


@pytest.fixture
def runs(scenario: Scenario) -> dict[str, PolicyRun]:
    """Return a run of 6 s and one of 12 s, in which flows take five seconds each."""
    short = [
        FlowOutcome(FLOWS[0], 0.0, 5.0),
        FlowOutcome(FLOWS[1], 2.0, None, (6.0, 800)),
        FlowOutcome(FLOWS[2], 5.0, None, (6.0, 200)),
    ]
    long = [FlowOutcome(flow, flow.start_us / 1e6, flow.start_us / 1e6 + 5) for flow in FLOWS[:2]]
    long += [
        FlowOutcome(FLOWS[2], 5.0, None, (10.0, 1000)),
        FlowOutcome(FLOWS[3], 8.0, None, (12.0, 100)),
    ]
    return {"fast": run_of(scenario, 3, short), "slow": run_of(scenario, 6, long)}


def test_the_window_is_that_of_the_shortest_run(
    scenario: Scenario, runs: dict[str, PolicyRun]
) -> None:
    assert common_end_s(scenario, runs.values()) == 6
    assert common_end_s(scenario, [runs["slow"]]) == 12


def test_what_happened_later_does_not_count(scenario: Scenario, runs: dict[str, PolicyRun]) -> None:
    """The same flows fare the same, whatever became of them in a run that went on."""
    flows = {label: run.traffic_flows for label, run in runs.items()}
    of = compared(scenario, flows, 6.0)
    assert of["fast"]["web"] == of["slow"]["web"]
    web = of["slow"]["web"]
    assert (web.flows, web.unfinished, web.mean_completion_s) == (3, 2, 5.0)
    assert web.offered_bps == 3 * 8000 / 6
    assert web.achieved_bps == pytest.approx((1000 + 800 + 200) * 8 / 6)
    alone = compared(scenario, flows, 12.0)["slow"]["web"]
    assert (alone.flows, alone.unfinished) == (4, 2)


def test_the_results_name_the_time(scenario: Scenario, runs: dict[str, PolicyRun]) -> None:
    bare = replace(scenario, jobs=(), specs={})
    results = assemble(bare, "softswitch", runs, {})["results"]
    for policy in runs:
        web = results[policy]["traffic"]["web"]
        assert (web["from_s"], web["to_s"], web["flows"]) == (0.0, 6.0, 3)


def test_a_flow_that_failed_stays_failed_and_one_that_has_not_begun_is_missing() -> None:
    failed = FlowOutcome(FLOWS[0], 0.0, None, failed="connection refused")
    later = FlowOutcome(FLOWS[1], 2.0, 3.0)
    assert list(until([failed, later], 1.0)) == [failed]
    assert list(until([failed, later], 3.0)) == [failed, later]
    assert list(until([later], 2.5)) == [FlowOutcome(FLOWS[1], 2.0, None, (2.5, 500))]
