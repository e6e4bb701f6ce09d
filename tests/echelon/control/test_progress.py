"""The progress of jobs, against a model that asks every question anew."""

from __future__ import annotations

from fractions import Fraction
from typing import cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from echelon.controller.machine.instant import Instant
from echelon.controller.machine.jobs import RegisteredJob
from echelon.controller.machine.lines import JobLine, Progress, SwitchLine
from echelon.planning.plan import FlowPlan
from echelon.planning.rankings.fixed import Fixed
from tests.drawing import examples

JOBS = st.sampled_from(["a", "b", "c"])
SWITCHES = ["s1", "s2", "s3"]


def flows_over(job: str, switches: frozenset[str]) -> tuple[FlowPlan, ...]:
    return (FlowPlan(job, "f", Fixed(0), ("h1", *sorted(switches), "h2")),)


def tracking() -> tuple[Progress, dict[str, JobLine]]:
    lines: dict[str, JobLine] = {}
    return Progress(lines, {name: SwitchLine() for name in SWITCHES}), lines


def line() -> JobLine:
    return JobLine(cast(RegisteredJob, None), 0)


class Model(RuleBasedStateMachine):
    """`wanted`: by job (its generation, its switches).

    `plans`: all so far. A switch acknowledges any of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.progress, self.lines = tracking()
        self.generation = 0
        self.version = 0
        self.wanted: dict[str, int] = {}
        self.switches: dict[str, frozenset[str]] = {}
        self.flows: dict[tuple[str, int], tuple[FlowPlan, ...]] = {}
        self.in_plan: dict[str, dict[int, int]] = {}
        """The first version that has each generation of each job."""
        self.problems: dict[str, str] = {}
        self.held: dict[str, int] = {}

    @rule(job=JOBS, switches=st.frozensets(st.sampled_from(SWITCHES), min_size=1))
    def accept(self, job: str, switches: frozenset[str]) -> None:
        self.generation += 1
        self.wanted[job] = self.generation
        self.switches[job] = switches
        self.flows[job, self.generation] = flows_over(job, switches)
        self.in_plan[job] = {}
        self.problems.pop(job, None)
        self.lines.setdefault(job, line())
        self.progress.accepted(job, float(self.generation))

    @rule(job=JOBS)
    def remove(self, job: str) -> None:
        self.wanted.pop(job, None)
        self.lines.pop(job, None)
        self.progress.removed(job)

    @rule(refused=st.frozensets(JOBS))
    def plan(self, refused: frozenset[str]) -> None:
        self.version += 1
        flows = {}
        for job, generation in self.wanted.items():
            if job in refused:
                self.problems[job] = "refused"
                self.in_plan[job] = {}
            else:
                flows[job] = self.flows[job, generation]
                self.problems.pop(job, None)
                self.in_plan[job].setdefault(generation, self.version)
        self.progress.planned(
            self.version,
            flows,
            {job: "refused" for job in self.wanted if job in refused},
            list(self.wanted),
            began_s=0.0,
            policy_s=0.25,
            lowering_s=0.5,
        )

    @rule(switch=st.sampled_from(SWITCHES), behind=st.integers(0, 2))
    def acknowledge(self, switch: str, behind: int) -> None:
        version = max(self.version - behind, 0)
        self.held[switch] = version
        before = {job for job in self.wanted if self.is_installed(job)}
        done = self.progress.acknowledged(
            switch, version, encoding_s=0.125, rpc_s=1.0, now=Instant(float(self.generation), 1.0)
        )
        for job in done:
            assert job in before
            times, installed_at = self.progress.times(job)
            assert installed_at == 1.0
            assert times is not None
            assert (times.policy_s, times.lowering_s, times.rpc_s) == (0.25, 0.5, 1.0)

    @rule(switch=st.sampled_from(SWITCHES))
    def lose(self, switch: str) -> None:
        self.held.pop(switch, None)
        self.progress.lost(switch)

    def is_installed(self, job: str) -> bool:
        version = self.in_plan[job].get(self.wanted[job])
        return version is not None and all(
            self.held.get(switch, 0) >= version for switch in self.switches[job]
        )

    @invariant()
    def states_agree(self) -> None:
        for job, generation in self.wanted.items():
            state, problem = self.progress.state(job)
            if job in self.problems:
                assert (state, problem) == ("unplanned", "refused")
            elif generation not in self.in_plan[job]:
                assert state == "accepted"
            else:
                assert state == ("installed" if self.is_installed(job) else "planned")


TestProgress = Model.TestCase
TestProgress.settings = settings(max_examples=examples(80), stateful_step_count=30, deadline=None)


def test_a_failed_plan_leaves_planned_jobs_alone() -> None:
    progress, lines = tracking()
    lines["old"] = line()
    progress.accepted("old", 0.0)
    flows = {"old": flows_over("old", frozenset({"s1"}))}
    progress.planned(1, flows, {}, ["old"], began_s=0.0, policy_s=0.0, lowering_s=0.0)
    progress.acknowledged(
        "s1", 1, encoding_s=0.0, rpc_s=float(Fraction(1, 8)), now=Instant(1.0, 2.0)
    )
    lines["new"] = line()
    progress.accepted("new", 1.0)
    progress.failed("no way", ["old", "new"])
    assert progress.state("old") == ("installed", None)
    assert progress.state("new") == ("unplanned", "no way")
    assert progress.settled("new")
    progress.refused("s1", "s1: table full")
    assert progress.state("old") == ("planned", "s1: table full")


def test_a_job_that_no_plan_had_at_first_is_timed_when_it_is_installed() -> None:
    progress, lines = tracking()
    lines["a"] = line()
    progress.accepted("a", 0.0)
    progress.failed("no way", ["a"])
    flows = {"a": flows_over("a", frozenset({"s1"}))}
    progress.planned(1, {}, {"a": "no room"}, ["a"], began_s=0.5, policy_s=0.0, lowering_s=0.0)
    assert progress.state("a") == ("unplanned", "no room")
    progress.planned(2, flows, {}, ["a"], began_s=1.0, policy_s=0.25, lowering_s=0.5)
    assert progress.acknowledged("s1", 2, encoding_s=0.0, rpc_s=0.0, now=Instant(2.0, 7.0)) == ["a"]
    times, installed_at = progress.times("a")
    assert installed_at == 7.0
    assert times is not None
    assert (times.total_s, times.queued_s) == (2.0, 1.0)


def test_a_job_that_leaves_the_plan_on_its_way_is_timed_when_it_is_back() -> None:
    progress, lines = tracking()
    lines["a"] = line()
    progress.accepted("a", 0.0)
    flows = {"a": flows_over("a", frozenset({"s1"}))}
    progress.planned(1, flows, {}, ["a"], began_s=0.5, policy_s=0.0, lowering_s=0.0)
    progress.planned(2, {}, {"a": "no room"}, ["a"], began_s=1.0, policy_s=0.0, lowering_s=0.0)
    assert progress.acknowledged("s1", 2, encoding_s=0.0, rpc_s=0.0, now=Instant(2.0, 6.0)) == []
    progress.planned(3, flows, {}, ["a"], began_s=2.5, policy_s=0.0, lowering_s=0.0)
    assert progress.acknowledged("s1", 3, encoding_s=0.0, rpc_s=0.0, now=Instant(3.0, 7.0)) == ["a"]
    assert progress.times("a")[1] == 7.0
