"""Plans judged from packets: what a run of the laboratory with that plan says, too."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from statistics import fmean

import pytest

import echelon
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.planning.plan import Plan
from echelon.planning.policies import make_policy
from echelon.planning.policies.echelon.policy import Echelon
from echelon.planning.policies.judges import Match, new_judge
from echelon_lab.scenarios.report import write
from echelon_lab.scenarios.results import PolicyRun, alone_iterations_s
from echelon_lab.scenarios.scenario import Scenario, Transport
from echelon_lab.virtual.judging import Packets
from echelon_lab.virtual.run import run

SCENARIOS = Path(__file__).parents[4] / "topologies/scenarios"
ITERATIONS = 6


@dataclass
class Fixed:
    """A policy of one plan."""

    fixed: Plan
    name: str = "fixed"

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None = None) -> Plan:
        return self.fixed


@pytest.fixture
def pair() -> Scenario:
    return echelon.scenario(SCENARIOS / "dp_pair.yaml", ["fair", "echelon"])


def match(scenario: Scenario) -> Match:
    alone_s = alone_iterations_s(scenario)
    periods_s = [float(alone_s[job.name]) for job in scenario.jobs]
    return Match(scenario.jobs, scenario.fabric, periods_s, ITERATIONS)


def by_run(scenario: Scenario, plan: Plan, end_s: float) -> list[float]:
    """Return the mean iteration times of jobs in a run with a plan.

    They are of the iterations that begin after a third of it and end.
    """
    outcome = run(scenario, "fixed", lambda: Fixed(plan), lambda *_: None, end_s=Fraction(end_s))
    means_s = []
    for job in scenario.jobs:
        times_s = [
            float(iteration.finish) - float(iteration.start)
            for iteration in outcome.records[job.name].iterations
            if iteration.finish is not None and iteration.start >= end_s / 3
        ]
        means_s.append(fmean(times_s))
    return means_s


@pytest.mark.parametrize("policy", ["crux", "srpt", "echelon"])
def test_the_slowdowns_are_those_of_a_run_with_that_plan(pair: Scenario, policy: str) -> None:
    plan = make_policy(policy).plan(pair.jobs, pair.fabric)
    judged = match(pair)
    slowdowns = Packets(pair.transport).slowdowns(plan, judged)
    times_s = by_run(pair, plan, judged.end_s)
    expected = [time_s / alone_s for time_s, alone_s in zip(times_s, judged.alone_s, strict=True)]
    assert slowdowns == pytest.approx(expected)


def test_jobs_run_as_they_turn_out_to_be_under_the_plan_for_what_they_seemed(
    pair: Scenario,
) -> None:
    plan = make_policy("srpt").plan(pair.jobs, pair.fabric)
    first, second = pair.jobs
    changed = replace(pair, jobs=(first, replace(second, start_s=Fraction(1, 2))))
    judged = match(changed)
    times_s = by_run(changed, plan, judged.end_s)
    expected = [time_s / alone_s for time_s, alone_s in zip(times_s, judged.alone_s, strict=True)]
    assert Packets(pair.transport).slowdowns(plan, judged) == pytest.approx(expected)


def test_senders_are_those_of_the_scenario(pair: Scenario) -> None:
    plan = make_policy("fair").plan(pair.jobs, pair.fabric)
    narrow = Transport(packet_bytes=pair.transport.packet_bytes, window_packets=1)
    judged = match(pair)
    as_is = Packets(pair.transport).slowdowns(plan, judged)
    slower = Packets(narrow).slowdowns(plan, judged)
    times_s = by_run(replace(pair, transport=narrow), plan, judged.end_s)
    expected = [time_s / alone_s for time_s, alone_s in zip(times_s, judged.alone_s, strict=True)]
    assert slower == pytest.approx(expected)
    assert min(slower) > 1.01 * max(as_is), "one packet in flight does not fill the path"


def test_the_registered_judge_has_the_senders_defaults() -> None:
    judge = new_judge("packets")
    assert judge == Packets(Transport())
    assert pickle.loads(pickle.dumps(judge)) == judge


def test_more_packets_take_longer(pair: Scenario) -> None:
    plan = make_policy("fair").plan(pair.jobs, pair.fabric)
    judge = Packets(pair.transport)
    judged = match(pair)
    longer = replace(judged, iterations=100 * ITERATIONS)
    smaller = Packets(replace(pair.transport, packet_bytes=125))
    assert judge.seconds(plan, longer) > 2 * judge.seconds(plan, judged)
    assert smaller.seconds(plan, longer) > 2 * judge.seconds(plan, longer)


def best_run(pair: Scenario, parameter: str) -> tuple[PolicyRun, str, str]:
    """Return the run of `echelon` with a judge, its label, and its report."""
    label = f"echelon(judge={parameter})"
    scenario = replace(echelon.scenario(pair, [label]), iterations=3)
    compared = echelon.simulate(scenario, target="softswitch")
    outcome = compared.runs[label]
    report = write(scenario, compared.results, compared.runs, [], [])
    return outcome, label, report


def test_results_and_report_say_who_judged_and_both_predictions(pair: Scenario) -> None:
    outcome, _, report = best_run(pair, "packets")
    [plan] = outcome.plans
    assert plan.judge == "packets"
    assert plan.by_model.keys() == plan.slowdowns.keys() == {"first", "second"}
    assert plan.by_model != plan.slowdowns
    [row] = [line for line in report.splitlines() if plan.plan in line]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    foreseen, modelled = (
        fmean(slowdowns.values()) for slowdowns in (plan.slowdowns, plan.by_model)
    )
    assert cells[3] == "packets"
    assert float(cells[4]) == pytest.approx(foreseen, rel=1e-3)
    assert float(cells[5]) == pytest.approx(modelled, rel=1e-3)


def test_where_there_is_no_time_the_report_says_why_the_model_chose(
    pair: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Packets, "seconds", lambda *_: 1e6)
    outcome, label, report = best_run(pair, "packets")
    [plan] = outcome.plans
    assert plan.judge == "model"
    assert plan.unjudged is not None
    assert "packets would take" in plan.unjudged
    assert plan.by_model == {}
    assert f"under {label}: {plan.unjudged}" in report


def test_what_is_foreseen_is_what_comes(pair: Scenario) -> None:
    """The judge runs the exact jobs, as long as the run lasts and longer."""
    policy = Echelon(Echelon.Parameters(judge="packets"))
    plan = policy.best_plan(pair.jobs, pair.fabric)
    [decision] = policy.choices.values()
    assert decision.choice is not None
    best = decision.choice.best
    assert decision.choice.unjudged is None
    assert decision.choice.judge == "packets"
    judged = replace(match(pair), iterations=best.iterations)
    times_s = by_run(pair, plan, judged.end_s)
    slowdowns = [time_s / alone_s for time_s, alone_s in zip(times_s, judged.alone_s, strict=True)]
    assert [*best.slowdowns.values()] == pytest.approx(slowdowns, rel=0.02)
