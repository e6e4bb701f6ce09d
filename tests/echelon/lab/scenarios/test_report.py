"""The report of made-up runs: every job's own change is named, also of those that lose."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from echelon.model.errors import RunError
from echelon.planning.execution import IterationRecord, JobRecord, Span
from echelon.planning.policies import make_policy
from echelon_lab.scenarios import report
from echelon_lab.scenarios.results import PolicyRun, SwitchStats, assemble
from echelon_lab.scenarios.scenario import Background, Delay, PolicyChoice, Scenario, load_scenario
from echelon_lab.scenarios.traffic_spec import TrafficSource
from echelon_lab.traffic.generators import Consistent
from echelon_lab.traffic.outcome import FlowOutcome
from echelon_lab.traffic.schedule import Schedule, ScheduledFlow
from echelon_lab.traffic.sizes import load_sizes
from echelon_lab.virtual import fluid_run
from tests.faults import coded

SCENARIOS = Path(__file__).parents[4] / "topologies/scenarios"
F = Fraction


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return load_scenario(SCENARIOS / "dp_pair.yaml")


def run_of(scenario: Scenario, times_s: dict[str, list[Fraction]], **changes: Any) -> PolicyRun:
    """Return a run whose iterations take so long: half of it computing, then all flows at once."""
    records = {}
    for job in scenario.jobs:
        iterations, now = [], job.start_s
        for number, time_s in enumerate(times_s[job.name], start=1):
            half = now + time_s / 2
            iterations.append(
                IterationRecord(
                    number,
                    now,
                    now + time_s,
                    {flow.name: Span(half, now + time_s) for flow in job.flows},
                    {unit.name: Span(now, half) for unit in job.computes},
                    {h.name: half for h in job.echelonflows},
                )
            )
            now += time_s
        records[job.name] = JobRecord(job.name, iterations)
    return PolicyRun(records, **changes)


@pytest.fixture(scope="module")
def runs(scenario: Scenario) -> dict[str, PolicyRun]:
    return {
        "fair": run_of(
            scenario,
            {"first": [F(2), F(2)], "second": [F(2)]},
            switches={"s1": SwitchStats(100, 97, 3, 41, 8)},
        ),
        "echelon": run_of(
            scenario,
            {"first": [F(1), F(2)], "second": [F(5, 2)]},
            switches={"s1": SwitchStats(70, 70, 0, 42, 9)},
            reordered={"second": 7},
            retransmitted={"first": 5},
        ),
    }


def text_of(
    scenario: Scenario, runs: dict[str, PolicyRun], pictures: Sequence[str] = ("timeline.png",)
) -> str:
    alone = {job.name: F(1) for job in scenario.jobs}
    return report.write(
        scenario,
        assemble(scenario, "toy", runs, alone),
        runs,
        pictures,
        ["timeline: iterations 1 to 3"],
    )


def rows(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the table under a heading, without its header."""
    section = re.split(r"^## ", text, flags=re.MULTILINE)
    [body] = [part for part in section if part.startswith(heading + "\n")]
    lines = [line for line in body.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_each_jobs_own_change(scenario: Scenario, runs: dict[str, PolicyRun]) -> None:
    text = text_of(scenario, runs)
    assert rows(text, "Jobs") == [
        ["first", "1.000", "2.000", "1.500", "-25.0 %"],
        ["second", "1.000", "2.000", "2.500", "+25.0 %"],
    ]
    assert "- echelon against fair: faster: first (-25.0 %); **slower: second (+25.0 %)**." in text


def test_policies_side_by_side(scenario: Scenario, runs: dict[str, PolicyRun]) -> None:
    # Tardiness: the coflow of an all-reduce should end when it begins, and takes half an iteration.
    assert rows(text_of(scenario, runs), "Policies") == [
        ["fair", "1.000", "2.000", "2.000", "2.000", "2.000 ± –", "1.000", "1.000", "3", "0"],
        ["echelon", "0.8750", "2.000", "2.000", "2.500", "2.040 ± –", "0.9167", "1.250", "0", "7"],
    ]


def test_reordered_packets_and_switch_counters(
    scenario: Scenario, runs: dict[str, PolicyRun]
) -> None:
    text = text_of(scenario, runs)
    assert rows(text, "Packets") == [
        ["fair", "first", "0", "0"],
        ["fair", "second", "0", "0"],
        ["echelon", "first", "0", "5"],
        ["echelon", "second", "7", "0"],
    ]
    assert rows(text, "Switches") == [
        ["fair", "s1", "100", "97", "3", "41", "8"],
        ["echelon", "s1", "70", "70", "0", "42", "9"],
    ]


def test_tardiness_of_every_echelonflow(scenario: Scenario, runs: dict[str, PolicyRun]) -> None:
    assert rows(text_of(scenario, runs), "Tardiness") == [
        ["first", "allreduce", "1.000", "1.000", "0.7500", "1.000"],
        ["second", "allreduce", "1.000", "1.000", "1.250", "1.250"],
    ]


def test_what_was_run_is_named_with_everything_that_goes_wrong(
    scenario: Scenario, runs: dict[str, PolicyRun]
) -> None:
    troubled = replace(
        scenario,
        control_latency_s=F(1, 100),
        stop_controller_after_iteration=5,
        profile_error=F(1, 5),
        delays=(Delay("first", "a1", 2, F(1, 2)),),
        background=(Background("noise", "a1", "b2", 1_500_000, 500),),
    )
    table = text_of(troubled, runs).split("## Policies")[0]
    for part in (
        "| control latency | 0.01 s |",
        "stopped after iteration 5",
        "| profile error | +20 %",
        "job first, worker a1, iteration 2: 0.5 s longer",
        "noise: a1 to b2, 1.5 Mbit/s, packets of 500 B",
        "| seed | 0 |",
        "| scenario file | `dp_pair.yaml` |",
        "echelon-p4",
    ):
        assert part in table
    assert "control latency" not in text_of(scenario, runs)


def test_iterations_are_counted_where_they_may_differ(
    scenario: Scenario, runs: dict[str, PolicyRun]
) -> None:
    assert "Iterations by job: fair 2, 1; echelon 2, 1." in text_of(scenario, runs)
    assert "Iterations by job" not in text_of(replace(scenario, until="exactly"), runs)


def test_a_target_without_packets_says_so(scenario: Scenario) -> None:
    text = text_of(scenario, {"fair": run_of(scenario, {"first": [F(2)], "second": [F(2)]})})
    assert "This target has no packets" in text
    assert "## Switches" not in text
    assert rows(text, "Policies")[0][-2:] == ["–", "–"]
    assert "against" not in text


def test_a_missing_picture_is_explained(scenario: Scenario, runs: dict[str, PolicyRun]) -> None:
    assert "![timeline.png](timeline.png)\n\n- timeline: iterations 1 to 3" in text_of(
        scenario, runs
    )
    assert "echelon-p4[plot]" in text_of(scenario, runs, pictures=())


@pytest.mark.parametrize(
    ("percent", "shown"),
    [(3.14159, "+3.1 %"), (-0.06, "-0.1 %"), (0.04, "0.0 %"), (-0.04, "0.0 %"), (0.0, "0.0 %")],
)
def test_small_changes_are_no_changes(percent: float, shown: str, scenario: Scenario) -> None:
    before, after = F(2), F(2) * (1 + F(str(percent)) / 100)
    text = text_of(
        scenario,
        {
            "fair": run_of(scenario, {"first": [before], "second": [F(2)]}),
            "echelon": run_of(scenario, {"first": [after], "second": [F(2)]}),
        },
    )
    assert rows(text, "Jobs")[0][-1] == shown
    assert ("unchanged: 2" in text) == (shown == "0.0 %")


def test_policies_with_parameters_keep_their_label(scenario: Scenario) -> None:
    label = PolicyChoice("echelon", (("order", "setf"),)).label
    runs = {label: run_of(scenario, {"first": [F(2)], "second": [F(2)]})}
    assert rows(text_of(scenario, runs), "Policies")[0][0] == "echelon(order=setf)"


def test_cross_traffic_has_its_table(scenario: Scenario) -> None:
    flows = Consistent((("a1", "b1"), ("a2", "b2")), 3_000_000, load_sizes("web_search"))
    sources = (
        TrafficSource("web", flows, ecn=True),
        TrafficSource("seen", Schedule((ScheduledFlow(0, "a1", "b1", 100),), 100)),
    )
    sent = {
        "web": [
            FlowOutcome(ScheduledFlow(0, "a1", "b1", 250_000), 0.0, 0.25),
            FlowOutcome(ScheduledFlow(1_000_000, "a2", "b2", 500_000), 1.0, 1.75),
            FlowOutcome(
                ScheduledFlow(1_500_000, "a2", "b2", 250_000),
                1.5,
                None,
                failed="connection refused",
            ),
        ],
        "seen": [FlowOutcome(ScheduledFlow(0, "a1", "b1", 100), 0.0, None)],
    }
    loaded = replace(scenario, traffic=sources, queue_bytes=99_000, ecn_threshold_packets=17)
    times = {"first": [F(2)], "second": [F(2)]}
    text = text_of(loaded, {"fair": run_of(loaded, times, traffic_flows=sent)})
    end_s = float(max(job.start_s for job in loaded.jobs)) + 2
    offered, achieved, seen = (f"{bits / end_s / 1e6:#.4g}" for bits in (8e6, 6e6, 800))
    assert rows(text, "Cross traffic") == [
        ["web", "fair", "3", "1", "1", offered, achieved, "0.5000", "0.2500", "0.7500"],
        ["seen", "fair", "1", "1", "0", seen, "0", "–", "–", "–"],
    ]
    assert (
        "| cross traffic | web: consistent, 3 Mbit/s, a1 to b1, a2 to b2, TCP with ECN, segments of"
        " up to" in text
    )
    assert "| cross traffic | seen: 1 scheduled flows, a1 to b1, TCP, segments" in text
    assert "| queues | 99000 B each |" in text
    assert "| ECN marks | from 17 packets in a queue |" in text
    assert "## Cross traffic" not in text_of(scenario, {"fair": run_of(scenario, times)})


def test_jobs_over_tcp_are_named() -> None:
    over_tcp = load_scenario(SCENARIOS / "dp_pair_tcp.yaml")
    text = text_of(over_tcp, {"fair": run_of(over_tcp, {"first": [F(2)], "second": [F(2)]})})
    assert (
        "| jobs over TCP | first, second: segments of up to 1250 B, time-out at least 0.2 s |"
        in text
    )
    assert "what they need alone is computed without headers" in text


def test_the_fluid_model_refuses_cross_traffic(scenario: Scenario) -> None:
    sources = (TrafficSource("seen", Schedule((ScheduledFlow(0, "a1", "b1", 100),), 100)),)
    names = ("policy fair", "'seen'", "TCP", "--target")
    with pytest.raises(RunError, check=coded("run-failed", *names)):
        fluid_run.run(
            replace(scenario, traffic=sources), "fair", lambda: make_policy("fair"), lambda *_: None
        )
