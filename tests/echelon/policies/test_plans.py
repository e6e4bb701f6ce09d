"""The registry of policies, and the plans that they make for switches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction

import pytest

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.fabric.routing import Routes
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.allocation import ActiveFlow
from echelon.planning.plan import CONTROL_QUEUE, LEVELS, QueuePlan
from echelon.planning.policies import PlanError, make_policy, policy_names
from echelon.planning.policies.orders import THRESHOLDS
from echelon.planning.rankings.deadline import Deadline
from echelon.planning.rankings.fixed import Fixed
from tests.faults import coded


def staggered(
    name: str, src: str = "h1", dst: str = "h2", count: int = 4, compute_s: int = 2
) -> Job:
    names = tuple(f"f{k}" for k in range(count))
    computes = (ComputeUnit("c", src, Fraction(compute_s)),)
    flows = tuple(Flow(each, src, dst, 1000, ("c",)) for each in names)
    return Job(
        name, computes, flows, (EchelonFlow("H", names, tuple(Fraction(k) for k in range(count))),)
    )


def queues_of(policy: str, jobs: list[Job], fabric: Fabric) -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    for flow in make_policy(policy).plan(jobs, fabric).flows:
        assert isinstance(flow.ranking, Fixed)
        out.setdefault(flow.job, []).append(flow.ranking.queue)
    return out


@pytest.mark.parametrize("name", policy_names())
def test_every_policy_plans_every_flow_on_its_path(name: str, star: Callable[..., Fabric]) -> None:
    policy = make_policy(name)
    jobs = [staggered("a"), staggered("b", "h3", "h2")]
    plan = policy.plan(jobs, star(3))
    assert policy.name == plan.policy == name
    assert [(flow.job, flow.flow) for flow in plan.flows] == [
        (job.name, f"f{k}") for job in jobs for k in range(4)
    ]
    assert {flow.path for flow in plan.flows} == {("h1", "s1", "h2"), ("h3", "s1", "h2")}
    assert len(plan.default_schedule) == LEVELS


@pytest.mark.parametrize("name", policy_names())
def test_jobs_that_the_fabric_cannot_carry_are_refused(
    name: str, star: Callable[..., Fabric]
) -> None:
    with pytest.raises(PlanError, check=coded("unknown-node", "h9", job="a")):
        make_policy(name).plan([staggered("a", "h1", "h9")], star(2))
    with pytest.raises(PlanError, check=coded("duplicate", job="a")):
        make_policy(name).plan([staggered("a"), staggered("a")], star(2))


def test_fifo_uses_one_queue(star: Callable[..., Fabric]) -> None:
    jobs = [staggered("a"), staggered("b")]
    assert queues_of("fifo", jobs, star(2)) == {"a": [0] * 4, "b": [0] * 4}
    schedule = make_policy("fifo").plan(jobs, star(2)).default_schedule
    assert schedule == (*[QueuePlan(level=0)] * 7, QueuePlan(level=1))


@pytest.mark.parametrize("name", policy_names())
def test_acknowledgements_do_not_wait_for_other_queues(
    name: str, star: Callable[..., Fabric]
) -> None:
    plan = make_policy(name).plan([staggered("a", count=12), staggered("b", count=12)], star(2))
    *others, control = (queue.level for queue in plan.default_schedule)
    assert len(others) == CONTROL_QUEUE
    assert control > max(others)


@pytest.mark.parametrize("name", ["fifo", "fair", "varys"])
def test_fixed_queues_leave_the_control_queue_free(name: str, star: Callable[..., Fabric]) -> None:
    queues = queues_of(name, [staggered("a", count=12), staggered("b", count=12)], star(2))
    assert CONTROL_QUEUE not in {*queues["a"], *queues["b"]}


def test_fair_keeps_flows_that_meet_apart(star: Callable[..., Fabric]) -> None:
    queues = queues_of("fair", [staggered("a", count=3), staggered("b")], star(2))
    assert queues == {"a": [0, 1, 2], "b": [3, 4, 5, 6]}
    assert queues_of("fair", [staggered("a", count=10)], star(2))["a"] == [*range(7), 0, 1, 2]
    schedule = make_policy("fair").plan([staggered("a")], star(2)).default_schedule
    assert schedule == (*[QueuePlan(level=0)] * 7, QueuePlan(level=1))


def test_fair_goes_round_port_by_port(star: Callable[..., Fabric]) -> None:
    """Seven receivers take turns: each port sees its two flows in different queues, though they are
    seven apart.
    """
    names = tuple(f"f{k}" for k in range(14))
    flows = tuple(Flow(name, "h1", f"h{2 + k % 7}", 1) for k, name in enumerate(names))
    job = Job("a", (), flows, (EchelonFlow("H", names, (Fraction(0),) * 14),))
    queues = queues_of("fair", [job], star(8))["a"]
    for receiver in range(7):
        assert queues[receiver] != queues[receiver + 7]


def test_echelon_ranks_by_deadline(star: Callable[..., Fabric]) -> None:
    """The job computes for 2 s and sends for 4 s: the thresholds are parts of 6 s."""
    plan = make_policy("echelon", order="normalised").plan([staggered("a")], star(2))
    thresholds = tuple(6 * part for part in THRESHOLDS)
    assert [flow.ranking for flow in plan.flows] == [
        Deadline("H", Fraction(k), thresholds, 1, 7) for k in range(4)
    ]
    assert [queue.level for queue in plan.default_schedule] == list(range(LEVELS))
    assert [queue.min_share for queue in plan.default_schedule] == [Fraction(1, 100)] * 7 + [0]
    assert (plan.best_effort_queue, plan.reactive) == (0, False)


def test_echelon_weighs_jobs(star: Callable[..., Fabric]) -> None:
    plan = make_policy("echelon", order="normalised").plan(
        [replace(staggered("a"), weight=Fraction(3))], star(2)
    )
    ranking = plan.flows[0].ranking
    assert isinstance(ranking, Deadline)
    assert ranking.thresholds_s == tuple(2 * part for part in THRESHOLDS)


def test_setf_gives_the_job_of_less_tardiness_the_upper_levels(star: Callable[..., Fabric]) -> None:
    jobs = [staggered("large", count=6), staggered("small", count=2)]
    jobs[0] = replace(
        jobs[0], echelonflows=(replace(jobs[0].echelonflows[0], offsets_s=(Fraction(0),) * 6),)
    )
    plan = make_policy("echelon", order="setf").plan(jobs, star(2))
    bands = {flow.job: (flow.ranking.lowest, flow.ranking.highest) for flow in plan.flows}  # type: ignore[union-attr]
    assert bands == {"small": (5, 7), "large": (1, 4)}


def test_flows_without_ideal_finish_are_best_effort(star: Callable[..., Fabric]) -> None:
    job = replace(staggered("a"), echelonflows=())
    plan = make_policy("echelon").plan([job], star(2))
    assert {flow.ranking for flow in plan.flows} == {Fixed(plan.best_effort_queue)}


@pytest.mark.parametrize("name", ["varys", "echelon"])
def test_best_effort_shares_what_is_left(
    name: str, star: Callable[..., Fabric], active: Callable[..., ActiveFlow]
) -> None:
    policy = make_policy(name)
    policy.plan([], star(2))
    links = (("h1", "s1"), ("s1", "h2"))
    flows = [active(k, links, job="", echelonflow=None) for k in range(2)]
    assert policy.allocate(Fraction(0), flows).rates_Bps == (500, 500)


def test_echelon_refuses_what_it_cannot_normalise(star: Callable[..., Fabric]) -> None:
    nothing = Job("a", (ComputeUnit("c", "h1", Fraction(0)),), (), ())
    with pytest.raises(PlanError, check=coded("plan-impossible", job="a")):
        make_policy("echelon").plan([nothing], star(2))
    with pytest.raises(PlanError, check=coded("too-small", job="a")):
        make_policy("echelon").plan([replace(staggered("a"), weight=Fraction(0))], star(2))


class Detour:
    """A chooser that takes every connection over the second spine."""

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> dict[str, Routes]:
        return {
            job.name: {
                (flow.src, flow.dst): (flow.src, "l1", "s2", "l2", flow.dst) for flow in job.flows
            }
            for job in jobs
        }


@pytest.mark.parametrize("name", sorted({*policy_names()} - {"crux"}))
def test_paths_are_those_of_the_chooser(name: str) -> None:
    """Crux chooses paths itself."""
    ends = [("h1", "l1"), ("h2", "l2"), ("l1", "s1"), ("l1", "s2"), ("l2", "s1"), ("l2", "s2")]
    fabric = Fabric(
        "tiers",
        {f"h{i}": Host(f"h{i}", f"10.0.0.{i}", f"02:00:00:00:00:0{i}") for i in (1, 2)},
        {
            switch: Switch(switch, number)
            for number, switch in enumerate(("l1", "l2", "s1", "s2"), start=1)
        },
        tuple(
            CableLink(LinkEnd(a, 2 * number), LinkEnd(b, 2 * number + 1), 8_000_000, Fraction(0))
            for number, (a, b) in enumerate(ends)
        ),
    )
    policy, jobs = make_policy(name), [staggered("a")]
    assert {flow.path for flow in policy.plan(jobs, fabric).flows} == {
        ("h1", "l1", "s1", "l2", "h2")
    }
    assert {flow.path for flow in policy.plan(jobs, fabric, Detour()).flows} == {
        ("h1", "l1", "s2", "l2", "h2")
    }
