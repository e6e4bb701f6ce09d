"""Plans in P4 terms, checked against the plan by an evaluation of the entries that does not know
how they are made.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.plan import LEVELS, FlowPlan, Plan, QueuePlan
from echelon.planning.policies import make_policy
from echelon.planning.rankings.attained import Attained
from echelon.planning.rankings.deadline import Deadline
from echelon.planning.rankings.fixed import Fixed
from echelon.switches.lowering.capabilities import Capabilities, VirtualQueueMarks
from echelon.switches.lowering.identity import Identity, SegmentIdentity, ShimIdentity
from echelon.switches.lowering.intent import ActionCall, Intent, Interval, TableEntry
from echelon.switches.lowering.lower import LoweringError, lower
from echelon.switches.targets.softswitch.capabilities import softswitch
from tests.faults import coded

BIAS = 1 << 31


def diamond() -> Fabric:
    """Return two equal paths: h1 - s1 - (s2 | s3) - s4 - h2."""
    ends = [
        ("h1", 0, "s1", 1),
        ("s1", 2, "s2", 1),
        ("s1", 3, "s3", 1),
        ("s2", 2, "s4", 1),
        ("s3", 2, "s4", 2),
    ]
    ends.append(("s4", 3, "h2", 0))
    return Fabric(
        "diamond",
        {f"h{i}": Host(f"h{i}", f"10.0.0.{i}", f"02:00:00:00:00:0{i}") for i in (1, 2)},
        {f"s{i}": Switch(f"s{i}", i) for i in (1, 2, 3, 4)},
        tuple(
            CableLink(LinkEnd(a, p), LinkEnd(b, q), 10_000_000, Fraction(0)) for a, p, b, q in ends
        ),
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
    st.lists(
        st.integers(0, 3 * 10**10).map(lambda n: Fraction(n, 10**7)), min_size=7, max_size=7
    ).map(sorted),
    st.integers(0, 7),
    st.integers(0, 7),
    st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=1, max_size=20),
)
def test_slack_intervals_say_what_the_thresholds_say(
    thresholds: list[Fraction], one: int, other: int, slacks_us: list[int]
) -> None:
    lowest, highest = min(one, other), max(one, other)
    ranking = Deadline("e", Fraction(0), tuple(thresholds), lowest, highest)
    steps = ranking.profile(softswitch().units).steps
    keys = sorted((low, high) for low, high, _ in steps)
    assert keys[0][0] == 0
    assert keys[-1][1] == (1 << 32) - 1
    assert all(a[1] + 1 == b[0] for a, b in itertools.pairwise(keys))
    edges = list(thresholds)
    for slack_us in [
        *slacks_us,
        *(-round(t * 10**6) for t in edges),
        *(-round(t * 10**6) + 1 for t in edges),
    ]:
        if not -(1 << 31) <= slack_us < 1 << 31:
            continue
        reached = sum(-slack_us >= round(t * 10**6) for t in thresholds)
        expected = min(lowest + reached, highest)
        assert [q for low, high, q in steps if low <= slack_us + BIAS <= high] == [expected]


def test_flow_is_known_only_where_it_passes() -> None:
    intents = lower(plan_of(deadline()), diamond(), {("a", "f"): ShimIdentity(1, 0)}, softswitch())
    assert set(intents) == {"s1", "s2", "s3", "s4"}
    assert [bool(only(intents[s], "shim_flow")) for s in ("s1", "s2", "s3", "s4")] == [
        True,
        False,
        True,
        True,
    ]
    (known,) = only(intents["s1"], "shim_flow")
    assert dict(known.match) == {"job": 1, "flow": 0}
    assert known.actions == (ActionCall("set_flow_of", (("flow", 0), ("pair", 0))),)
    (rank,) = only(intents["s1"], "flow")
    assert dict(rank.match) == {"flow": 0}
    arguments = {
        "port": 3,
        "dst_mac": 0x020000000002,
        "echelonflow": 0,
        "profile": 0,
        "offset_us": 1_000_000,
    }
    arguments |= {"due_us": 1_000_000, "left_shift": 63}
    assert (rank.actions[0].name, dict(rank.actions[0].arguments)) == ("deadline", arguments)
    assert intents["s1"].flows == {0: ("a", "f")}
    assert intents["s1"].flow_entry("a", "f") == rank


def test_flows_of_a_job_share_their_place_between_two_hosts_by_one_next_hop() -> None:
    """h1 sends f and g to h2 along s2, and k along s3; another job's m takes the way of f."""
    upper, lower_path = ("h1", "s1", "s2", "s4", "h2"), ("h1", "s1", "s3", "s4", "h2")
    flows = tuple(
        FlowPlan(job, flow, Fixed(1), path)
        for job, flow, path in (
            ("a", "f", upper),
            ("a", "g", upper),
            ("a", "k", lower_path),
            ("b", "m", upper),
        )
    )
    identities = {
        ("a", "f"): ShimIdentity(1, 0),
        ("a", "g"): ShimIdentity(1, 1),
        ("a", "k"): ShimIdentity(1, 2),
        ("b", "m"): ShimIdentity(2, 0),
    }
    plan = Plan("test", flows, strict())
    intents = lower(plan, diamond(), identities, softswitch())

    def pairs(switch: str) -> list[int]:
        entries = sorted(only(intents[switch], "shim_flow"), key=lambda entry: entry.match)
        return [dict(entry.actions[0].arguments)["pair"] for entry in entries]

    f, g, k, m = pairs("s1")
    assert f == g
    assert len({f, k, m}) == 3
    # Behind s4 all leave by one port.
    f, g, k, m = pairs("s4")
    assert f == g == k != m
    outside = replace(softswitch(), max_pairs=0)
    (known, *_) = only(lower(plan, diamond(), identities, outside)["s1"], "shim_flow")
    assert known.actions[0].name == "set_flow"


def test_two_equal_paths_make_a_group() -> None:
    intents = lower(plan_of(deadline()), diamond(), {("a", "f"): ShimIdentity(1, 0)}, softswitch())
    (group,) = only(intents["s1"], "ecmp")
    assert [dict(a.arguments)["port"] for a in group.actions] == [2, 3]
    assert only(intents["s2"], "ecmp") == []
    assert len(only(intents["s2"], "ipv4_lpm")) == 2


def test_flows_of_one_profile_share_its_entries() -> None:
    flows = [
        FlowPlan("a", f"f{i}", Deadline("e", Fraction(i), THRESHOLDS), PATH) for i in range(50)
    ]
    identities = {("a", f"f{i}"): ShimIdentity(1, i) for i in range(50)}
    intent = lower(plan_of(*flows), diamond(), identities, softswitch())["s1"]
    assert len(only(intent, "level")) == LEVELS
    assert len(only(intent, "shim_flow")) == len(only(intent, "flow")) == 50


def test_segments_of_one_connection() -> None:
    def segment(start: int, end: int) -> SegmentIdentity:
        return SegmentIdentity(
            "10.0.0.1", "10.0.0.2", "tcp", 4000, 5000, start, end, 3000, Fraction(1, 100)
        )

    flows = [FlowPlan("a", f"f{i}", Fixed(3), PATH) for i in range(2)]
    identities = {("a", "f0"): segment(0, 1000), ("a", "f1"): segment(1000, 3000)}
    intent = lower(plan_of(*flows), diamond(), identities, softswitch())["s1"]
    (connection,) = only(intent, "tcp_connection")
    assert dict(connection.actions[0].arguments) == {
        "connection": 0, "job": 0, "is_head": 1, "gap_us": 10_000, "head_bytes": 2850, "whole_bytes": 0,
        "in_sequence": 1,
    }  # fmt: skip
    first, second, unplanned = only(intent, "segment")
    assert dict(first.match) == {"connection": 0, "position": Interval(0, 999)}
    assert dict(second.actions[0].arguments)["end_bytes"] == 3000
    # What the program sends beside is of the last flow.
    assert dict(unplanned.match) == {
        "connection": 0,
        "position": Interval(3000, 3000 + (1 << 13) - 1),
    }
    assert dict(unplanned.actions[0].arguments)["flow"] == dict(second.actions[0].arguments)["flow"]


@pytest.mark.parametrize(
    ("by_bytes", "size_bytes", "past"),
    [
        (False, 1 << 20, (1 << 20) // 20),
        (False, 100, 1 << 13),
        (False, (1 << 32) - 2, 1),
        (True, 1 << 20, None),
    ],
)
def test_only_a_silence_leaves_bytes_past_the_last_flow(
    by_bytes: bool, size_bytes: int, past: int | None
) -> None:
    one = SegmentIdentity(
        "10.0.0.1",
        "10.0.0.2",
        "tcp",
        4000,
        5000,
        0,
        size_bytes,
        size_bytes,
        Fraction(1, 100),
        by_bytes=by_bytes,
    )
    own = (0, size_bytes)
    assert one.ranges == ((own,) if past is None else (own, (size_bytes, size_bytes + past)))
    assert replace(one, end_bytes=size_bytes - 1).ranges == ((0, size_bytes - 1),)


@pytest.mark.parametrize(("ports", "paused"), [(((5000, 4000),), False), (((5001, 4000),), True)])
def test_a_connection_that_carries_flows_both_ways_is_not_paused(
    ports: tuple[tuple[int, int], ...], paused: bool
) -> None:
    """Refuse to pause such a connection: with windows closed both ways, both ends would wait for
    ever.
    """
    there = SegmentIdentity(
        "10.0.0.1", "10.0.0.2", "tcp", 0, 0, 0, 3000, 3000, Fraction(1, 100), True, ((4000, 5000),)
    )
    back = replace(there, src_ipv4="10.0.0.2", dst_ipv4="10.0.0.1", reported=ports)
    # The switch knows of the other direction although none of its flows pass it.
    plan = plan_of(FlowPlan("a", "f0", Fixed(3), PATH))
    intent = lower(plan, diamond(), {("a", "f0"): there, ("a", "f1"): back}, softswitch())["s1"]
    (connection,), (answer,) = only(intent, "tcp_connection"), only(intent, "tcp_answer")
    assert dict(connection.actions[0].arguments)["in_sequence"] == 1
    assert dict(answer.actions[0].arguments)["closes"] == int(paused)


@pytest.mark.parametrize("pause", [True, False])
@pytest.mark.parametrize(
    ("ports", "protocol", "capabilities", "alone"),
    [(None, "tcp", softswitch(), True), (((1, 2),), "tcp", softswitch(), True),
     (((1, 2), (3, 4)), "tcp", softswitch(), False), (None, "udp", softswitch(), False)],
    ids=["its own", "the only one reported", "one of two", "UDP"],
)  # fmt: skip
def test_a_connection_goes_by_sequence_numbers_if_it_is_alone_between_its_hosts(
    ports: tuple[tuple[int, int], ...] | None,
    protocol: str,
    capabilities: Capabilities,
    alone: bool,
    pause: bool,
) -> None:
    gap_s = Fraction(1, 100)
    one = SegmentIdentity(
        "10.0.0.1", "10.0.0.2", protocol, 4000, 5000, 0, 3000, 3000, gap_s, pause, reported=ports
    )
    intent = lower(
        plan_of(FlowPlan("a", "f0", Fixed(3), PATH)), diamond(), {("a", "f0"): one}, capabilities
    )["s1"]
    connections, answers = only(intent, f"{protocol}_connection"), only(intent, "tcp_answer")
    assert {dict(entry.actions[0].arguments).get("in_sequence", 0) for entry in connections} == {
        int(alone)
    }
    assert len(answers) == alone
    if len(connections) > 1:
        arguments = [dict(entry.actions[0].arguments) for entry in connections]
        assert {one.pop("sequence_of") for one in arguments}.isdisjoint(
            {arguments[0]["connection"]}
        )
        assert arguments[0] == arguments[1], "they count as one"
    if alone:
        there, back = dict(connections[0].match), dict(answers[0].match)
        assert (back["src"], back["src_port"]) == (there["dst"], there["dst_port"])
        assert (back["dst"], back["dst_port"]) == (there["src"], there["src_port"])
        number = dict(connections[0].actions[0].arguments)["connection"]
        assert dict(answers[0].actions[0].arguments) == {"answered": number, "closes": int(pause)}


@pytest.mark.parametrize("capabilities", [softswitch()], ids=["softswitch"])
@pytest.mark.parametrize("by_bytes", [True, False])
def test_iterations_by_bytes_are_for_switches_that_can(
    capabilities: Capabilities, by_bytes: bool
) -> None:
    gap_s = Fraction(1, 100)
    one = SegmentIdentity(
        "10.0.0.1", "10.0.0.2", "tcp", 1, 2, 0, 1000, 3000, gap_s, by_bytes=by_bytes
    )
    intent = lower(
        plan_of(FlowPlan("a", "f0", Fixed(3), PATH)), diamond(), {("a", "f0"): one}, capabilities
    )["s1"]
    (connection,) = only(intent, "tcp_connection")
    told = dict(connection.actions[0].arguments).get("whole_bytes")
    assert told == ((3000 if by_bytes else 0) if capabilities.iterations_by_bytes else None)


def test_queue_rates_are_parts_of_the_ports() -> None:
    intent = lower(plan_of(deadline()), diamond(), {("a", "f"): ShimIdentity(1, 0)}, softswitch())[
        "s2"
    ]
    assert len(intent.queues) == 2 * LEVELS
    assert {(q.min_rate_bps, q.max_rate_bps) for q in intent.queues} == {(100_000, None)}


@pytest.mark.parametrize("offset_s", [Fraction(-1), Fraction(3600)])
def test_an_offset_that_does_not_fit_is_refused(offset_s: Fraction) -> None:
    with pytest.raises(LoweringError, check=coded("does-not-fit", "flow f", job="a")):
        lower(
            plan_of(deadline(offset_s)), diamond(), {("a", "f"): ShimIdentity(1, 0)}, softswitch()
        )


def levels_only(max_flows: int = 9) -> Capabilities:
    limited = replace(softswitch(), max_flows=max_flows, max_profiles=1, max_echelonflows=1)
    return replace(limited, target="bare", weights=False, rates=False)


def strict() -> tuple[QueuePlan, ...]:
    return tuple(QueuePlan(level=q) for q in range(LEVELS))


IDENTITIES = {("a", "f"): ShimIdentity(1, 0), ("a", "g"): ShimIdentity(1, 1)}


def test_strict_levels_need_nothing_else() -> None:
    lower(Plan("test", (deadline(),), strict()), diamond(), IDENTITIES, levels_only())


def test_a_queue_that_nothing_is_sent_to_may_share_a_level() -> None:
    one_queue = (QueuePlan(0),) * (LEVELS - 1) + (QueuePlan(1),)
    lower(
        Plan("test", (FlowPlan("a", "f", Fixed(0), PATH),), one_queue),
        diamond(),
        IDENTITIES,
        levels_only(),
    )


@pytest.mark.parametrize("policy", ["fair", "varys", "srpt"])
def test_what_a_policy_needs_is_refused_before_the_run(policy: str) -> None:
    flows = (
        Flow("f", "h1", "h2", 1000, ("c",)),
        Flow("g", "h1", "h2", 1000, ("c",)),
    )
    h = EchelonFlow("e", ("f", "g"), (Fraction(0), Fraction(0)))
    job = Job("a", (ComputeUnit("c", "h1", Fraction(1)),), flows, (h,))
    plan = make_policy(policy).plan([job], diamond())
    lower(plan, diamond(), IDENTITIES, softswitch())
    with pytest.raises(
        LoweringError, check=coded("does-not-fit", "target bare", f"policy {policy}")
    ):
        lower(plan, diamond(), IDENTITIES, levels_only())


def test_queues_in_the_order_of_ranks_need_levels_alone() -> None:
    job = Job(
        "a",
        (ComputeUnit("c", "h1", Fraction(1)),),
        (Flow("f", "h1", "h2", 1000, ("c",)), Flow("g", "h1", "h2", 1000, ("c",))),
        (EchelonFlow("e", ("f", "g"), (Fraction(0), Fraction(0))),),
    )
    plan = make_policy("echelon").plan([job], diamond())
    lower(plan, diamond(), IDENTITIES, levels_only())


def test_maximum_rates_are_refused() -> None:
    capped = {("s1", "s2"): tuple(QueuePlan(q, max_share=Fraction(1, 2)) for q in range(LEVELS))}
    with pytest.raises(LoweringError, check=coded("does-not-fit", "target bare", "queue rates")):
        lower(Plan("test", (deadline(),), strict(), capped), diamond(), IDENTITIES, levels_only())


def test_more_flows_than_identifiers_are_refused() -> None:
    flows = (deadline(), FlowPlan("a", "g", Fixed(0), PATH))
    with pytest.raises(LoweringError, check=coded("numbers-exhausted", "switch s1")):
        lower(Plan("test", flows, strict()), diamond(), IDENTITIES, levels_only(max_flows=1))


def test_a_switch_recognises_as_many_connections_as_it_has_room_for_and_no_more() -> None:
    """The connections of all jobs count together: two of one and three of the other.

    Those of UDP between two hosts share one number, so numbers do not run out first.
    """
    able = replace(softswitch(), max_connections=5)
    gap_s = Fraction(1, 100)
    plan = plan_of(*(FlowPlan(job, "f", Fixed(0), PATH) for job in ("a", "b")))

    def between_hosts(*sources: int) -> SegmentIdentity:
        ports = tuple((source, 5000) for source in sources)
        return SegmentIdentity(
            "10.0.0.1", "10.0.0.2", "udp", 0, 0, 0, 3000, 3000, gap_s, reported=ports
        )

    full = {("a", "f"): between_hosts(1, 2), ("b", "f"): between_hosts(3, 4, 5)}
    entries = only(lower(plan, diamond(), full, able)["s1"], "udp_connection")
    assert len(entries) == 5
    beyond = {**full, ("b", "f"): between_hosts(3, 4, 5, 6)}
    with pytest.raises(LoweringError, check=coded("numbers-exhausted", "switch s1", job="b")):
        lower(plan, diamond(), beyond, able)


@pytest.mark.parametrize(("connections", "fits"), [(2, True), (3, False)])
def test_connections_of_tcp_that_count_as_one_take_a_number_each_and_one_together(
    connections: int, fits: bool
) -> None:
    able = replace(softswitch(), max_connections=3)
    ports = tuple((source, 5000) for source in range(connections))
    identity = SegmentIdentity(
        "10.0.0.1", "10.0.0.2", "tcp", 0, 0, 0, 3000, 3000, Fraction(1, 100), reported=ports
    )
    plan = plan_of(FlowPlan("a", "f", Fixed(0), PATH))
    if fits:
        intent = lower(plan, diamond(), {("a", "f"): identity}, able)["s1"]
        assert len(only(intent, "tcp_connection")) == connections
    else:
        with pytest.raises(LoweringError, check=coded("numbers-exhausted", "switch s1", job="a")):
            lower(plan, diamond(), {("a", "f"): identity}, able)


def test_marks_by_a_virtual_queue_where_the_target_has_no_queue_of_its_own() -> None:
    able = replace(softswitch(), ecn=VirtualQueueMarks(backlog_bytes=7000))
    intent = lower(plan_of(deadline()), diamond(), {("a", "f"): ShimIdentity(1, 0)}, able)["s2"]
    assert only(intent, "ecn_threshold") == []
    marks = [
        (dict(e.match), e.actions[0].name, dict(e.actions[0].arguments))
        for e in only(intent, "virtual_queue")
    ]
    assert marks == [
        ({"port": p}, "drain", {"bits_per_ms": 10_000, "mark_above_bytes": 7000}) for p in (1, 2)
    ]
    inside = lower(plan_of(deadline()), diamond(), {("a", "f"): ShimIdentity(1, 0)}, softswitch())[
        "s2"
    ]
    assert len(only(inside, "ecn_threshold")) == 2 * LEVELS
    assert only(inside, "virtual_queue") == []


def test_levels_and_shares_that_cannot_be_are_refused() -> None:
    few = replace(softswitch(), levels=4)
    lower(
        Plan("test", (FlowPlan("a", "f", Fixed(0), PATH),), (QueuePlan(0),) * 7 + (QueuePlan(3),)),
        diamond(),
        IDENTITIES,
        few,
    )
    with pytest.raises(
        LoweringError, check=coded("does-not-fit", "switch s1", "target softswitch", "4", "8")
    ):
        lower(Plan("test", (deadline(),), strict()), diamond(), IDENTITIES, few)
    one_above = (QueuePlan(0),) * 7 + (QueuePlan(4),)
    with pytest.raises(LoweringError, check=coded("does-not-fit", "switch s1", "4", "5")):
        lower(
            Plan("test", (FlowPlan("a", "f", Fixed(0), PATH),), one_above),
            diamond(),
            IDENTITIES,
            few,
        )
    half = QueuePlan(0, min_share=Fraction(1, 2))
    with pytest.raises(LoweringError, check=coded("does-not-fit", "policy test", "every port")):
        lower(Plan("test", (), (half,) * 8), diamond(), IDENTITIES, softswitch())
    torn = {("s1", "s2"): (replace(half, max_share=Fraction(1, 4)), *strict()[1:])}
    with pytest.raises(LoweringError, check=coded("does-not-fit", "port s1 to s2")):
        lower(Plan("test", (), strict(), torn), diamond(), IDENTITIES, softswitch())


def test_shares_may_take_the_whole_port_and_be_a_queues_maximum() -> None:
    eighth = QueuePlan(0, min_share=Fraction(1, 8), max_share=Fraction(1, 8))
    intents = lower(Plan("test", (), (eighth,) * 8), diamond(), {}, softswitch())
    rates = {(queue.min_rate_bps, queue.max_rate_bps) for queue in intents["s1"].queues}
    assert rates == {(1_250_000, 1_250_000)}


def test_a_switch_needs_a_queue_for_each_level() -> None:
    lower(plan_of(), diamond(), {}, replace(softswitch(), queues=LEVELS))
    with pytest.raises(LoweringError, check=coded("does-not-fit", "switch s1", "7", "8")):
        lower(plan_of(), diamond(), {}, replace(softswitch(), queues=LEVELS - 1))


@pytest.mark.parametrize(
    ("kind", "needed"),
    [
        ("max_flows", 4),
        ("max_echelonflows", 2),
        ("max_profiles", 3),
        ("max_groups", 2),
        ("max_jobs", 1),
        ("max_connections", 2),
    ],
)
def test_a_switch_numbers_as_many_things_as_it_has_room_for_and_no_more(
    kind: str, needed: int
) -> None:
    """Two flows have a connection, an EchelonFlow and a profile each, two others a group each."""
    gap_s = Fraction(1, 100)
    others = tuple(2 * threshold for threshold in THRESHOLDS)
    flows = (
        FlowPlan("a", "f", Deadline("e", Fraction(1), THRESHOLDS), PATH),
        FlowPlan("a", "g", Deadline("h", Fraction(1), others), PATH),
        FlowPlan("a", "x", Attained("p", (1000,), (1, 0)), PATH),
        FlowPlan("a", "y", Attained("q", (1000,), (1, 0)), PATH),
    )
    identities: dict[tuple[str, str], Identity] = {
        ("a", "x"): ShimIdentity(1, 0),
        ("a", "y"): ShimIdentity(1, 1),
    }
    for source, flow in enumerate("fg"):
        identities["a", flow] = SegmentIdentity(
            "10.0.0.1", "10.0.0.2", "tcp", source, 5000, 0, 3000, 3000, gap_s
        )
    lower(plan_of(*flows), diamond(), identities, replace(softswitch(), **{kind: needed}))
    with pytest.raises(LoweringError, check=coded("numbers-exhausted", "switch s1", job="a")):
        lower(plan_of(*flows), diamond(), identities, replace(softswitch(), **{kind: needed - 1}))


def test_what_is_drained_keeps_its_queues_and_loses_its_routes() -> None:
    drained = diamond().without([("s1", "s2")])
    whole = lower(plan_of(), diamond(), {}, softswitch())
    intents = lower(plan_of(), drained, {}, softswitch())
    assert intents["s1"].queues == whole["s1"].queues
    assert only(intents["s1"], "ecn_threshold") == only(whole["s1"], "ecn_threshold")
    assert only(intents["s1"], "ecmp") == []
    ports = [dict(e.actions[0].arguments)["port"] for e in only(intents["s1"], "ipv4_lpm")]
    assert ports == [1, 3]
    cut = lower(plan_of(), diamond().without([("h2", "s4")]), {}, softswitch())
    assert [len(only(cut[s], "ipv4_lpm")) for s in ("s1", "s2", "s3", "s4")] == [1, 1, 1, 1]
    assert [len(only(cut[s], "station")) for s in ("s1", "s4")] == [1, 1]


def wide(hosts: int, spines: int) -> Fabric:
    """Return two leaves, with hosts on the second."""
    ends = [("h0", 0, "l1", 1)] + [(f"h{i}", 0, "l2", i) for i in range(1, hosts + 1)]
    ends += [
        (leaf, 400 + j, f"p{j}", n) for n, leaf in enumerate(("l1", "l2")) for j in range(spines)
    ]
    names = ["l1", "l2", *(f"p{j}" for j in range(spines))]
    return Fabric(
        "wide",
        {
            f"h{i}": Host(
                f"h{i}", f"10.0.{i >> 8}.{i & 255}", f"02:00:00:00:{i >> 8:02x}:{i & 255:02x}"
            )
            for i in range(hosts + 1)
        },
        {name: Switch(name, n) for n, name in enumerate(names, start=1)},
        tuple(
            CableLink(LinkEnd(a, p), LinkEnd(b, q), 10_000_000, Fraction(0)) for a, p, b, q in ends
        ),
    )


def test_a_switch_spreads_packets_if_it_has_a_group_for_each_host_that_needs_one() -> None:
    fits = lower(plan_of(), wide(4, 2), {}, replace(softswitch(), max_ecmp_groups=4))["l1"]
    assert len(only(fits, "ecmp")) == 4
    one_less = replace(softswitch(), max_ecmp_groups=3)
    assert only(lower(plan_of(), wide(4, 2), {}, one_less)["l1"], "ecmp") == []


def test_groups_that_do_not_fit_give_way_to_one_next_hop_a_host() -> None:
    """A selector holds 1,024 members: 64 hosts over 16 spines fit, 65 do not."""
    fits = lower(plan_of(), wide(64, 16), {}, softswitch())["l1"]
    assert sum(len(e.actions) for e in only(fits, "ecmp")) == 1024
    too_many = lower(plan_of(), wide(65, 16), {}, softswitch())["l1"]
    assert only(too_many, "ecmp") == []
    ports = Counter(dict(e.actions[0].arguments)["port"] for e in only(too_many, "ipv4_lpm"))
    assert ports.pop(1) == 1
    assert sorted(ports) == list(range(400, 416))
    assert set(ports.values()) == {4, 5}, "hosts take the spines in turn"
    routes = [dict(e.actions[0].arguments) for e in only(too_many, "ipv4_lpm")]
    stations = [
        (dict(e.match)["dst"], dict(e.actions[0].arguments)["port"])
        for e in only(too_many, "station")
    ]
    assert stations == [(route["dst_mac"], route["port"]) for route in routes]


def test_switches_that_reach_a_host_by_the_same_ports_share_its_entries() -> None:
    leaves = [f"l{number}" for number in range(1, 7)]
    hosts = [(f"h{number}", leaf) for number, leaf in enumerate(leaves, start=1)]
    between = [(leaf, spine) for leaf in leaves for spine in ("p1", "p2")]
    ports = Counter[str]()
    cables = []
    for a, b in (*hosts, *between):
        ports.update((a, b))
        ends = LinkEnd(a, 0 if (a, b) in hosts else ports[a]), LinkEnd(b, ports[b])
        cables.append(CableLink(*ends, 10_000_000, Fraction(0)))
    fabric = Fabric(
        "leaves",
        {
            name: Host(name, f"10.0.1.{name[1:]}", f"02:00:00:00:01:0{name[1:]}")
            for name, _ in hosts
        },
        {name: Switch(name, number) for number, name in enumerate([*leaves, "p1", "p2"], start=1)},
        tuple(cables),
    )
    intents = lower(plan_of(), fabric, {}, softswitch())
    routes = [
        entry
        for intent in intents.values()
        for entry in intent.entries
        if entry.table in ("ecmp", "ipv4_lpm")
    ]
    assert len(routes) > 2 * len(set(routes))
    assert len({id(entry) for entry in routes}) == len(set(routes))
