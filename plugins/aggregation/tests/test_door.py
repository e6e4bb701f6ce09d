"""Trees of registered jobs: what switches hold follows the plan through any changes, and sums over
them are exact.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from echelon.controller.machine.jobs import RegisteredJob, parse_job
from echelon.controller.machine.jobstore import ChosenPolicy
from echelon.controller.machine.planning import Planned, Planner, PlanRequest
from echelon.controller.machine.records import Document
from echelon.model.fabric.builders import leaf_spine, one_tor
from echelon.model.fabric.load import build_fabric
from echelon.model.fabric.model import Fabric
from echelon.model.jobs import build_job
from echelon.planning.policies.registry import make_policy
from echelon.switches.lowering.capabilities import Capabilities
from echelon.switches.lowering.intent import FIRST_GROUP
from echelon.switches.targets.softswitch.capabilities import softswitch
from echelon_aggregation.door import AggregationTrees
from echelon_aggregation.memory import TAKES
from echelon_lab.scenarios.scenario import PolicyChoice, Scenario, Transport
from echelon_lab.virtual.run import run
from tests.drawing import examples
from tests.faults import mentions

RATE_BPS = 1_000_000_000
FABRIC = build_fabric(leaf_spine(2, 2, 3, rate_bps=RATE_BPS))
ABLE = softswitch("aggregation")
POLICIES = (
    ChosenPolicy("fair"),
    ChosenPolicy("echelon", {"plan": "rule"}),
    ChosenPolicy("aggregation", {"by": "deadline"}),
    ChosenPolicy("aggregation", {"by": "first", "places": "256"}),
    ChosenPolicy("aggregation", {"by": "share", "places": "256", "window": "64"}),
)


def document(
    name: str, workers: list[str], collective: str = "in-network", kilobytes: int = 4
) -> dict[str, Any]:
    data = {"compute": "1 ms", "gradient": f"{kilobytes} kB", "collective": collective}
    return {"job": name, "parallelism": "data", "workers": workers, "data": data}


def registered(number: int, of: Mapping[str, Any]) -> RegisteredJob:
    return RegisteredJob(of["job"], number, 0.0, of, parse_job(of), {})


@dataclass
class Controller:
    """A planner, what is saved of it, and the jobs that are registered."""

    able: Mapping[str, Capabilities] = field(
        default_factory=lambda: dict.fromkeys(FABRIC.switches, ABLE)
    )
    policy: ChosenPolicy = POLICIES[0]
    jobs: dict[str, RegisteredJob] = field(default_factory=dict)
    saved: dict[str, Document] = field(default_factory=dict)
    carried: Document | None = None
    number: int = 0
    fabric: Fabric = FABRIC

    def __post_init__(self) -> None:
        self.planner = Planner(self.able)

    def plan(self) -> Planned:
        planned = self.planner.plan(
            PlanRequest(tuple(self.jobs.values()), self.fabric, self.policy)
        )
        self.saved = {name: of for name, of in (self.saved | planned.kept).items() if of}
        self.carried = planned.carried or self.carried
        for switch in ("", *FABRIC.switches):
            self.planner.settle(switch, planned.version)
        return planned

    def restart(self) -> None:
        version, self.planner = self.planner.version, Planner(self.able)
        self.planner.version = version
        self.planner.restore(self.saved, self.carried)

    def register(self, of: Mapping[str, Any]) -> None:
        self.number += 1
        self.jobs[of["job"]] = registered(self.number, of)


def entries(planned: Planned, table: str) -> dict[str, list[dict[str, Any]]]:
    """Return the entries of a table by switch: keys, and the arguments of the action."""
    return {
        switch: [
            {**dict(one.match), **dict(one.actions[0].arguments), "action": one.actions[0].name}
            for one in intent.entries
            if one.table == table
        ]
        for switch, intent in planned.intents.items()
    }


def check(planned: Planned, controller: Controller) -> None:
    """Check what switches are to hold, by the plan's paths alone."""
    trees = {tree.number: (job, tree) for job, of in planned.trees.items() for tree in of}
    assert len(trees) == sum(map(len, planned.trees.values())), "two trees have one number"
    of_switch: dict[str, set[int]] = {switch: set() for switch in FABRIC.switches}
    for number, (job, tree) in trees.items():
        assert tree.session == controller.jobs[job].number
        for node in set(tree.path) & of_switch.keys():
            of_switch[node].add(number)
    in_tree, members = entries(planned, "aggregation_tree"), entries(planned, "aggregation_member")
    holders, copies = entries(planned, "aggregation_holder"), entries(planned, "aggregation_copy")
    for switch, numbers in of_switch.items():
        assert {(one["tree"], one["session"]) for one in in_tree[switch]} == {
            (n, trees[n][1].session) for n in numbers
        }
        assert len(in_tree[switch]) == len(numbers)
        assert {one["tree"] for one in members[switch]} == numbers
        adding = {one["tree"] for one in in_tree[switch] if one["action"] == "aggregate"}
        assert {one["tree"] for one in holders[switch]} == adding
        assert {one["tree"] for one in copies[switch]} <= numbers
        groups = planned.intents[switch].groups
        assert groups is not None
        assert {group.number - FIRST_GROUP for group in groups} == numbers
        for one in in_tree[switch]:
            if one["action"] == "aggregate":
                assert one["first"] + one["mask"] < ABLE.trees.places  # type: ignore[union-attr]
        owned = [
            one for one in in_tree[switch] if one["action"] == "aggregate" and one["take"] == 0
        ]
        places = Counter(
            place for one in owned for place in range(one["first"], one["first"] + one["mask"] + 1)
        )
        assert all(count == 1 for count in places.values()), "a place belongs to two trees"
    if not controller.jobs:
        assert all(intent.groups == () for intent in planned.intents.values())
        kept = {"fabric"}
        assert all(
            {part.owner for part in intent.parts} == kept for intent in planned.intents.values()
        )


HOSTS = sorted(FABRIC.hosts)
UPLINKS = [(leaf, spine) for leaf in ("leaf1", "leaf2") for spine in ("spine1", "spine2")]
CHANGES = st.lists(
    st.one_of(
        st.tuples(
            st.just("register"),
            st.sampled_from("abc"),
            st.permutations(HOSTS),
            st.integers(2, 6),
            st.sampled_from(["in-network", "in-network-2", "in-network-4", "ring"]),
        ),
        st.tuples(st.just("remove"), st.sampled_from("abc")),
        st.tuples(st.just("restart")),
        st.tuples(st.just("policy"), st.sampled_from(POLICIES)),
        st.tuples(st.just("drain"), st.sampled_from([*UPLINKS, None])),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CHANGES)
def test_switches_hold_what_the_plan_says_through_any_changes(
    changes: list[tuple[Any, ...]],
) -> None:
    controller = Controller()
    planned = controller.plan()
    for change in changes:
        match change:
            case "register", name, hosts, count, collective:
                controller.register(document(name, hosts[:count], collective))
            case "remove", name:
                controller.jobs.pop(name, None)
            case ("restart",):
                controller.restart()
                again = controller.plan()
                assert {name: of.entries for name, of in again.intents.items()} == {
                    name: of.entries for name, of in planned.intents.items()
                }
                assert {name: of.groups for name, of in again.intents.items()} == {
                    name: of.groups for name, of in planned.intents.items()
                }
            case "policy", policy:
                controller.policy = policy
            case "drain", link:
                controller.fabric = FABRIC if link is None else FABRIC.without([link])
        planned = controller.plan()
        assert not planned.problems
        check(planned, controller)
    controller.jobs.clear()
    check(controller.plan(), controller)
    # The numbers of what has gone were freed when the switches had acknowledged that.
    controller.plan()
    assert not controller.saved


def test_a_job_that_comes_again_has_another_session() -> None:
    controller = Controller()
    seen = set()
    for _ in range(3):
        controller.register(document("a", HOSTS[:4]))
        (tree,) = controller.plan().trees["a"]
        seen.add((tree.number, tree.session))
        controller.jobs.clear()
        controller.plan()
    assert len(seen) == 3


def test_other_jobs_stay_where_they_are() -> None:
    for policy in POLICIES:
        controller = Controller(policy=policy)
        for name in "abc":
            controller.register(document(name, HOSTS[:4]))
        before = entries(controller.plan(), "aggregation_tree")
        del controller.jobs["a"]
        after = entries(controller.plan(), "aggregation_tree")
        for switch, of in after.items():
            assert all(
                one in before[switch]
                for one in of
                if one["action"] == "aggregate" and one["tree"] != 3
            )


@pytest.mark.parametrize(
    "policy", POLICIES, ids=lambda of: f"{of.name}-{of.parameters.get('by', '')}"
)
@pytest.mark.parametrize("gone", ["a", "b", "ab"])
def test_trees_and_their_places_stay_at_a_restart_though_jobs_have_gone(
    policy: ChosenPolicy, gone: str
) -> None:
    controller = Controller(policy=policy)
    for name in "abcd":
        controller.register(document(name, HOSTS))
        controller.plan()
    for name in gone:
        del controller.jobs[name]
        before = controller.plan()
    controller.restart()
    after = controller.plan()
    assert after.trees == before.trees
    assert {name: of.entries for name, of in after.intents.items()} == {
        name: of.entries for name, of in before.intents.items()
    }
    check(after, controller)


@pytest.mark.parametrize(
    "policy", POLICIES, ids=lambda of: f"{of.name}-{of.parameters.get('by', '')}"
)
def test_who_gives_way_is_what_the_policy_says(policy: ChosenPolicy) -> None:
    controller = Controller(policy=policy)
    controller.register(document("a", HOSTS))
    planned = controller.plan()
    takes = {one["take"] for of in entries(planned, "aggregation_tree").values() for one in of}
    by = policy.parameters.get("by") or {"fair": "first", "echelon": "deadline"}[policy.name]
    assert takes == {TAKES[by]}
    # Only packets that are ranked by when they are due have a time to compare.
    ranked = {one["action"] for of in entries(planned, "flow").values() for one in of}
    assert ranked == {"deadline" if by == "deadline" else "fixed"}
    (told,) = (AggregationTrees().host_document(tree, FABRIC) for tree in planned.trees["a"])
    assert told["memory"] == ("own" if by == "share" else by)


def test_a_switch_whose_program_adds_up_nothing_refuses_the_job() -> None:
    able = {**dict.fromkeys(FABRIC.switches, ABLE), "leaf1": softswitch()}
    controller = Controller(able)
    controller.register(document("a", HOSTS))
    controller.register(document("b", HOSTS, "ring"))
    planned = controller.plan()
    assert set(planned.plan.by_job) == {"b"}
    assert mentions(planned.problems["a"], "switch leaf1", "program", "'ring'")


def test_places_that_a_switch_lacks_are_refused() -> None:
    controller = Controller(policy=ChosenPolicy("aggregation", {"by": "first", "places": "8192"}))
    controller.register(document("a", HOSTS))
    problem = controller.plan().problems["a"]
    assert re.search(
        r"8192 places are given away, switch \w+ has 4096 \(give the policy 'places=4096' or less",
        problem,
    )


def scenario(fabric: Fabric, *documents: Mapping[str, Any]) -> Scenario:
    specs = [parse_job(of) for of in documents]
    return Scenario(
        name="sums",
        description="",
        file=Path("sums.yaml"),
        fabric=fabric,
        jobs=tuple(build_job(spec) for spec in specs),
        policies=(PolicyChoice("fair"),),
        iterations=2,
        until="exactly",
        seed=0,
        transport=Transport(),
        control_latency_s=Fraction(0),
        stop_controller_after_iteration=None,
        profile_error=Fraction(0),
        delays=(),
        background=(),
        specs={spec.job: spec for spec in specs},
    )


@pytest.mark.parametrize(
    "policy", POLICIES, ids=lambda of: f"{of.name}-{of.parameters.get('by', '')}"
)
def test_runs_from_packets_have_exact_sums(policy: ChosenPolicy) -> None:
    """Every worker compares its sums with the exact ones, so a run that ends has them."""
    chosen = PolicyChoice(policy.name, tuple(policy.parameters.items()))
    of = scenario(
        FABRIC,
        document("a", HOSTS[:4]),
        document("b", HOSTS[::-1], "in-network-4"),
        document("c", HOSTS[1:3]),
        document("d", HOSTS[:3], "ring"),
    )
    result = run(
        of, chosen.label, lambda: make_policy(policy.name, **policy.parameters), lambda *_: None
    )
    assert all(len(record.finished) == 2 for record in result.records.values())
    assert all(stats.packets_in for stats in result.switches.values())
    # Without memory for all, the fallback has more to do; nothing is lost in any case.
    alone = run(
        scenario(build_fabric(one_tor(4, RATE_BPS)), document("a", ["h1", "h2", "h3", "h4"])),
        chosen.label,
        lambda: make_policy(policy.name, **policy.parameters),
        lambda *_: None,
    )
    first = alone.records["a"].finished[0]
    assert first.finish is not None
    # 32 blocks of 206 bytes each way, in one hop and the next, after 1 ms of computing.
    least_s = Fraction(1, 1000) + 33 * Fraction(8 * 206, RATE_BPS)
    assert least_s < Fraction(first.finish) - Fraction(first.start) < least_s + Fraction(1, 1000)
    assert alone.retransmitted["a"] == 0
