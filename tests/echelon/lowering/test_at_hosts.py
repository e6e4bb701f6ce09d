"""Plans where hosts rank: what senders get, what switches get, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from echelon.model.fabric.builders import leaf_spine, one_tor
from echelon.model.fabric.load import build_fabric
from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Job
from echelon.model.jobs.paradigms.data import all_reduce
from echelon.planning.plan import FlowPlan, Plan, QueuePlan
from echelon.planning.policies import make_policy
from echelon.planning.policies.levels import MIN_SHARE, strict
from echelon.planning.rankings.deadline import Deadline
from echelon.planning.rankings.in_switches import RankingAction, SwitchNumbers
from echelon.switches.lowering.identity import number_shims
from echelon.switches.lowering.lower import Lowering, LoweringError
from echelon.switches.targets import TARGETS
from tests.faults import coded

DSCP = TARGETS["dscp"].capabilities(TARGETS["dscp"].options())
SOFTSWITCH = TARGETS["softswitch"].capabilities(TARGETS["softswitch"].options())
RACK = build_fabric(one_tor(3))
FABRICS = [
    RACK,
    replace(build_fabric(leaf_spine(2, 2)), paths="address"),
    replace(build_fabric(leaf_spine(3, 4, hosts_per_leaf=3)), paths="address"),
]


def jobs_on(fabric: Fabric) -> list[Job]:
    hosts = list(fabric.hosts)
    return [
        Job(f"job{n}", *all_reduce([hosts[n], hosts[-1]], Fraction(1, 10), 100_000)) for n in (0, 1)
    ]


def lowered(
    plan: Plan, fabric: Fabric, jobs: list[Job], able: Any = DSCP
) -> tuple[Lowering, dict[str, Any]]:
    by_job: dict[str, dict[str, Any]] = {}
    for (job, flow), shim in number_shims(jobs).items():
        by_job.setdefault(job, {})[flow] = shim
    made = Lowering(fabric, dict.fromkeys(fabric.switches, able))
    return made, made.lower(plan, by_job)


def planned(
    fabric: Fabric = RACK, policy: str = "echelon", **parameters: str
) -> tuple[Plan, list[Job]]:
    jobs = jobs_on(fabric)
    return make_policy(policy, **parameters).plan(jobs, fabric), jobs


@pytest.mark.parametrize("fabric", FABRICS)
def test_switches_get_routes_and_hosts_the_rest(fabric: Fabric) -> None:
    plan, jobs = planned(fabric, order="left")
    made, intents = lowered(plan, fabric, jobs)
    for intent in intents.values():
        assert {entry.table for entry in intent.entries} == {"ipv4_lpm", "station", "ecn_threshold"}
        assert not intent.digests
        assert {(queue.level, queue.min_rate_bps) for queue in intent.queues} == {
            (level, 0) for level in range(8)
        }
    rules = {(rule.job, rule.flow): rule for of in made.at_hosts.values() for rule in of}
    assert rules.keys() == {(flow.job, flow.flow) for flow in plan.flows}
    assert all(rules[flow.job, flow.flow].src == flow.path[0] for flow in plan.flows)


def elsewhere(flow: FlowPlan) -> FlowPlan:
    """Return the flow over the other of the first two spines."""
    other = {"spine1": "spine2", "spine2": "spine1"}
    return replace(flow, path=tuple(other.get(node, node) for node in flow.path))


@pytest.mark.parametrize("by", ["fabric", "plan"])
def test_packets_go_the_way_of_the_plan(by: str) -> None:
    """Routes are followed from switch to switch, from each flow's source to its destination."""
    for fabric in FABRICS:
        plan, jobs = planned(fabric, order="left")
        if by == "plan":
            # Other ways than the fabric's, but one from each switch to a host.
            plan = Plan.of_jobs(
                "x",
                {job: tuple(map(elsewhere, of)) for job, of in plan.by_job.items()},
                default_schedule=plan.default_schedule,
                hosts_rank=True,
            )
        _, intents = lowered(plan, fabric, jobs)
        ports = {
            (switch, dict(entry.match)["dst"].value): dict(entry.actions[0].arguments)["port"]
            for switch, intent in intents.items()
            for entry in intent.entries
            if entry.table == "ipv4_lpm"
        }
        for flow in plan.flows:
            address = int.from_bytes(
                bytes(map(int, fabric.hosts[flow.path[-1]].ipv4.split("."))), "big"
            )
            walked = list(flow.path[:2])
            while walked[-1] != flow.path[-1]:
                walked.append(fabric.neighbour[walked[-1], ports[walked[-1], address]])
            assert tuple(walked) == flow.path


@pytest.mark.parametrize("order", ["left", "normalised"])
def test_hosts_have_what_switches_that_rank_would_have(order: str) -> None:
    """All but the steps of a relative rank, which hosts do not compare with others, and how far
    copies are apart.
    """
    plan, jobs = planned(order=order)
    made, _ = lowered(plan, RACK, jobs)
    _, intents = lowered(plan, RACK, jobs, SOFTSWITCH)
    (intent,) = intents.values()
    known = {(flow.job, flow.flow): flow.entry for part in intent.parts for flow in part.flows}
    for rule in (rule for of in made.at_hosts.values() for rule in of):
        arguments = dict(known[rule.job, rule.flow].actions[0].arguments)
        assert (rule.offset_us, rule.due_us, rule.left_shift) == tuple(
            arguments[name] for name in ("offset_us", "due_us", "left_shift")
        )
        of_profile = {
            table: [
                dict(e.actions[0].arguments)
                for e in intent.entries
                if e.table == table and e.match[0][1] == arguments["profile"]
            ]
            for table in ("period", "level")
        }
        if order == "left":
            (period,) = of_profile["period"]
            assert (rule.factor, rule.factor_shift, rule.alone_us) == tuple(
                period[name] for name in ("factor", "factor_shift", "alone_tardiness_us")
            )
            # The second of two copies is 2/1000 of the unit behind in a switch, and 50/1000 at
            # hosts.
            further = Fraction(48, 1000) * 65536 * (rule.job == "job1")
            assert abs(period["rank_at_zero"] - rule.rank_at_zero - further) <= 1
        else:
            assert rule.factor == 0
            assert {step.queue: step.lowest for step in rule.levels} == {
                entry["queue"]: entry["lowest"] for entry in of_profile["level"]
            }


class Elsewhere:
    """A ranking that no host knows."""

    queues = range(1, 2)

    def action(self, at: SwitchNumbers) -> RankingAction:
        return RankingAction("elsewhere", {})


@pytest.mark.parametrize(
    ("change", "ability"),
    [
        ({"default_schedule": (QueuePlan(0),) * 8}, "DWRR"),
        ({"default_schedule": strict(2 * MIN_SHARE)}, "rates"),
        ({"reactive": True, "default_schedule": strict()}, "digests"),
    ],
)
def test_what_such_switches_lack_is_refused(change: dict[str, Any], ability: str) -> None:
    plan, jobs = planned(order="left")
    lacking = coded("does-not-fit", "switch tor", "target dscp", ability, job=None)
    with pytest.raises(LoweringError, check=lacking):
        lowered(replace(plan, **change), RACK, jobs)


def test_other_paths_and_rankings_are_refused() -> None:
    fabric = build_fabric(leaf_spine(2, 2))
    plan, jobs = planned(replace(fabric, paths="address"), order="left")
    # The first flow to a host says how switches send what is for it.
    (*others, flow) = plan.flows
    names = (flow.flow, "target dscp", "spine1", "spine2", "'paths: address'")
    with pytest.raises(LoweringError, check=coded("does-not-fit", *names, job=flow.job)):
        lowered(replace(plan, flows=(*others, elsewhere(flow))), fabric, jobs)
    unknown = replace(flow, ranking=Elsewhere())  # type: ignore[arg-type]
    names = (flow.flow, "target dscp", "'elsewhere'")
    with pytest.raises(LoweringError, check=coded("does-not-fit", *names, job=flow.job)):
        lowered(replace(plan, flows=(unknown, *others)), fabric, jobs)


def test_a_due_time_that_does_not_fit_names_the_flow() -> None:
    plan, jobs = planned(order="left")
    (flow, *others) = plan.flows
    late = replace(flow, ranking=Deadline("e", Fraction(10**6), ()))
    names = (f"job {flow.job}", f"flow {flow.flow}", "1e+06 s", "31 bits")
    with pytest.raises(LoweringError, check=coded("does-not-fit", *names, job=flow.job)):
        lowered(replace(plan, flows=(late, *others)), RACK, jobs)
