"""Plans in P4 terms, checked against the plan by an evaluation of the entries that does not know how they are made."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.lowering.capabilities import Capabilities, softswitch
from echelon.lowering.identity import SegmentIdentity, ShimIdentity
from echelon.lowering.intent import Intent, Interval, TableEntry
from echelon.lowering.lower import LoweringError, lower
from echelon.lowering.profile import slack_steps
from echelon.plan import LEVELS, Deadline, Fixed, FlowPlan, Plan, QueuePlan
from echelon.policies import make_policy

BIAS = 1 << 31


def diamond() -> Fabric:
    """h1 - s1 - (s2 | s3) - s4 - h2: two equal paths."""
    ends = [("h1", 0, "s1", 1), ("s1", 2, "s2", 1), ("s1", 3, "s3", 1), ("s2", 2, "s4", 1), ("s3", 2, "s4", 2)]
    ends.append(("s4", 3, "h2", 0))
    return Fabric(
        "diamond",
        {f"h{i}": Host(f"h{i}", f"10.0.0.{i}", f"02:00:00:00:00:0{i}") for i in (1, 2)},
        {f"s{i}": Switch(f"s{i}", i) for i in (1, 2, 3, 4)},
        tuple(CableLink(LinkEnd(a, p), LinkEnd(b, q), 10_000_000, Fraction(0)) for a, p, b, q in ends),
    )


def schedule(**changes: object) -> tuple[QueuePlan, ...]:
    return tuple(QueuePlan(level=q, min_share=Fraction(1, 100), **changes) for q in range(LEVELS))  # type: ignore[arg-type]


THRESHOLDS = tuple(Fraction(n, 10) for n in range(1, 8))
PATH = ("h1", "s1", "s3", "s4", "h2")


def plan_of(*flows: FlowPlan, **changes: object) -> Plan:
    return Plan("test", flows, schedule(), **changes)  # type: ignore[arg-type]


def deadline(offset_s: Fraction = Fraction(1)) -> FlowPlan:
    return FlowPlan("a", "f", Deadline("e", offset_s, THRESHOLDS), PATH)


def only(intent: Intent, table: str) -> list[TableEntry]:
    return [e for e in intent.entries if e.table == table]


@given(
    st.lists(st.fractions(0, 3000, max_denominator=10**6), min_size=7, max_size=7).map(sorted),
    st.integers(0, 7),
    st.integers(0, 7),
    st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=1, max_size=20),
)
def test_slack_intervals_say_what_the_thresholds_say(
    thresholds: list[Fraction], one: int, other: int, slacks_us: list[int]
) -> None:
    lowest, highest = min(one, other), max(one, other)
    ranking = Deadline("e", Fraction(0), tuple(thresholds), lowest, highest)
    steps = slack_steps(ranking)
    keys = sorted((low, high) for low, high, _ in steps)
    assert keys[0][0] == 0
    assert keys[-1][1] == (1 << 32) - 1
    assert all(a[1] + 1 == b[0] for a, b in itertools.pairwise(keys))
    edges = list(thresholds)
    for slack_us in [*slacks_us, *(-round(t * 10**6) for t in edges), *(-round(t * 10**6) + 1 for t in edges)]:
        if not -(1 << 31) <= slack_us < 1 << 31:
            continue
        reached = sum(-slack_us >= round(t * 10**6) for t in thresholds)
        expected = min(lowest + reached, highest)
        assert [q for low, high, q in steps if low <= slack_us + BIAS <= high] == [expected]


def test_flow_is_known_only_where_it_passes() -> None:
    intents = lower(plan_of(deadline()), diamond(), {("a", "f"): ShimIdentity(1, 0)}, softswitch())
    assert set(intents) == {"s1", "s2", "s3", "s4"}
    assert [bool(only(intents[s], "shim_flow")) for s in ("s1", "s2", "s3", "s4")] == [True, False, True, True]
    (path,) = only(intents["s1"], "flow_path")
    assert dict(path.actions[0].arguments) == {"port": 3, "dst_mac": 0x020000000002}
    (rank,) = only(intents["s1"], "shim_flow")
    assert dict(rank.match) == {"job": 1, "flow": 0}
    assert rank.actions[0].name == "rank_deadline"
    assert dict(rank.actions[0].arguments)["offset_us"] == 1_000_000
    assert intents["s1"].flows == {0: ("a", "f")}
    assert intents["s1"].classifiers == {0: rank}


def test_two_equal_paths_make_a_group() -> None:
    intents = lower(plan_of(deadline()), diamond(), {("a", "f"): ShimIdentity(1, 0)}, softswitch())
    (group,) = only(intents["s1"], "ecmp")
    assert [dict(a.arguments)["port"] for a in group.actions] == [2, 3]
    assert only(intents["s2"], "ecmp") == []
    assert len(only(intents["s2"], "ipv4_lpm")) == 2


def test_flows_of_one_profile_share_its_entries() -> None:
    flows = [FlowPlan("a", f"f{i}", Deadline("e", Fraction(i), THRESHOLDS), PATH) for i in range(50)]
    identities = {("a", f"f{i}"): ShimIdentity(1, i) for i in range(50)}
    intent = lower(plan_of(*flows), diamond(), identities, softswitch())["s1"]
    assert len(only(intent, "slack_to_queue")) == LEVELS
    assert len(only(intent, "shim_flow")) == 50


def test_segments_of_one_connection() -> None:
    def segment(start: int, end: int) -> SegmentIdentity:
        return SegmentIdentity("10.0.0.1", "10.0.0.2", "tcp", 4000, 5000, start, end, 3000, Fraction(1, 100))

    flows = [FlowPlan("a", f"f{i}", Fixed(3), PATH) for i in range(2)]
    identities = {("a", "f0"): segment(0, 1000), ("a", "f1"): segment(1000, 3000)}
    intent = lower(plan_of(*flows), diamond(), identities, softswitch())["s1"]
    (connection,) = only(intent, "tcp_connection")
    assert dict(connection.actions[0].arguments) == {
        "connection": 0, "job": 0, "is_head": 1, "gap_us": 10_000, "head_bytes": 2850,
    }  # fmt: skip
    first, second = only(intent, "segment")
    assert dict(first.match) == {"connection": 0, "position": Interval(0, 999)}
    assert dict(second.actions[0].arguments)["end_bytes"] == 3000


def test_queue_rates_are_parts_of_the_ports() -> None:
    intent = lower(plan_of(deadline()), diamond(), {("a", "f"): ShimIdentity(1, 0)}, softswitch())["s2"]
    assert len(intent.queues) == 2 * LEVELS
    assert {(q.min_rate_bps, q.max_rate_bps) for q in intent.queues} == {(100_000, None)}


@pytest.mark.parametrize("offset_s", [Fraction(-1), Fraction(3600)])
def test_an_offset_that_does_not_fit_is_refused(offset_s: Fraction) -> None:
    with pytest.raises(LoweringError, match="job a, flow f: offset"):
        lower(plan_of(deadline(offset_s)), diamond(), {("a", "f"): ShimIdentity(1, 0)}, softswitch())


def levels_only(max_flows: int = 9) -> Capabilities:
    return Capabilities("bare", 8, weights=False, rates=False, max_flows=max_flows, max_profiles=1, max_echelonflows=1)


def strict() -> tuple[QueuePlan, ...]:
    return tuple(QueuePlan(level=q) for q in range(LEVELS))


IDENTITIES = {("a", "f"): ShimIdentity(1, 0), ("a", "g"): ShimIdentity(1, 1)}


def test_strict_levels_need_nothing_else() -> None:
    lower(Plan("test", (deadline(),), strict()), diamond(), IDENTITIES, levels_only())


def test_a_queue_that_nothing_is_sent_to_may_share_a_level() -> None:
    one_queue = (QueuePlan(0),) * (LEVELS - 1) + (QueuePlan(1),)
    lower(Plan("test", (FlowPlan("a", "f", Fixed(0), PATH),), one_queue), diamond(), IDENTITIES, levels_only())


@pytest.mark.parametrize("policy", ["fair", "coflow", "echelon"])
def test_what_a_policy_needs_is_refused_before_the_run(policy: str) -> None:
    flows = (
        Flow("f", "h1", "h2", 1000, ("c",)),
        Flow("g", "h1", "h2", 1000, ("c",)),
    )
    h = EchelonFlow("e", ("f", "g"), (Fraction(0), Fraction(0)))
    job = Job("a", (ComputeUnit("c", "h1", Fraction(1)),), flows, (h,))
    plan = make_policy(policy).plan([job], diamond())
    lower(plan, diamond(), IDENTITIES, softswitch())
    with pytest.raises(LoweringError, match=f"target bare: no (DWRR weights|queue rates), which policy {policy} needs"):
        lower(plan, diamond(), IDENTITIES, levels_only())


def test_maximum_rates_are_refused() -> None:
    capped = {("s1", "s2"): tuple(QueuePlan(q, max_share=Fraction(1, 2)) for q in range(LEVELS))}
    with pytest.raises(LoweringError, match="target bare: no queue rates"):
        lower(Plan("test", (deadline(),), strict(), capped), diamond(), IDENTITIES, levels_only())


def test_more_flows_than_identifiers_are_refused() -> None:
    flows = (deadline(), FlowPlan("a", "g", Fixed(0), PATH))
    with pytest.raises(LoweringError, match="switch s1: more than 1 flows"):
        lower(Plan("test", flows, strict()), diamond(), IDENTITIES, levels_only(max_flows=1))
