"""Plan after plan: what switches end up with is read by an evaluation that follows a packet through
the entries.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.planning.plan import LEVELS, FlowPlan, Plan, QueuePlan
from echelon.planning.rankings.base import Ranking
from echelon.planning.rankings.deadline import Deadline
from echelon.planning.rankings.fixed import Fixed
from echelon.switches.lowering.identity import Identity, SegmentIdentity, ShimIdentity
from echelon.switches.lowering.intent import Intent, Interval, Part, TableEntry
from echelon.switches.lowering.lower import Lowering, LoweringError, lower
from echelon.switches.targets.softswitch.capabilities import softswitch
from tests.drawing import examples
from tests.faults import coded, naming

LEAVES, SPINES = ("l1", "l2"), ("p1", "p2")
HOSTS = {"h1": "l1", "h2": "l1", "h3": "l2", "h4": "l2"}
JOBS = {name: number for number, name in enumerate(("a", "b", "c"), start=1)}
SCHEDULE = tuple(QueuePlan(level) for level in range(LEVELS))
OTHER_SCHEDULE = tuple(QueuePlan(level, min_share=Fraction(1, 100)) for level in range(LEVELS))
THRESHOLDS = (
    tuple(Fraction(k, 10) for k in range(1, 8)),
    tuple(Fraction(k, 5) for k in range(1, 8)),
)
ABLE = replace(softswitch(), max_flows=10)


def leaf_spine() -> Fabric:
    ends = [(host, 0, leaf, port) for port, (host, leaf) in enumerate(HOSTS.items(), start=1)]
    ends += [
        (leaf, 10 + j, spine, i)
        for i, leaf in enumerate(LEAVES, start=1)
        for j, spine in enumerate(SPINES)
    ]
    return Fabric(
        "leaf-spine",
        {f"h{i}": Host(f"h{i}", f"10.0.0.{i}", f"02:00:00:00:00:0{i}") for i in range(1, 5)},
        {name: Switch(name, i) for i, name in enumerate((*LEAVES, *SPINES), start=1)},
        tuple(
            CableLink(LinkEnd(a, p), LinkEnd(b, q), 10_000_000, Fraction(0)) for a, p, b, q in ends
        ),
    )


FABRIC = leaf_spine()

rankings = st.one_of(
    st.builds(Fixed, st.integers(0, 6)),
    st.builds(
        Deadline,
        st.sampled_from(["x", "y"]),
        st.integers(0, 5).map(Fraction),
        st.sampled_from(THRESHOLDS),
        st.integers(0, 1),
    ),
)
routes = st.tuples(
    st.sampled_from(sorted(HOSTS)), st.sampled_from(sorted(HOSTS)), st.sampled_from(SPINES)
).filter(lambda ends: ends[0] != ends[1])
specs = st.dictionaries(
    st.sampled_from(["f1", "f2", "f3", "f4", "f5"]),
    st.tuples(rankings, routes, st.booleans()),
    min_size=1,
)
"""Flows by name: ranking, (source, destination, spine), and whether the flow is recognised by
bytes.
"""


def path_of(src: str, dst: str, spine: str) -> tuple[str, ...]:
    between = (HOSTS[src],) if HOSTS[src] == HOSTS[dst] else (HOSTS[src], spine, HOSTS[dst])
    return (src, *between, dst)


def identity_of(job: str, flow: str, route: tuple[str, str, str], by_bytes: bool) -> Identity:
    number = int(flow[1:])
    if not by_bytes:
        return ShimIdentity(JOBS[job], number)
    src, dst = (FABRIC.hosts[name].ipv4 for name in route[:2])
    port = 1000 * JOBS[job] + number
    return SegmentIdentity(
        src, dst, "tcp", port, port, 0, 100 * number, 100 * number, Fraction(1, 100)
    )


def the_only(entries: list[TableEntry]) -> dict[str, int]:
    (found,) = entries
    return dict(found.actions[0].arguments)


class Held:
    """The entries of one switch, as packets look them up."""

    def __init__(self, intent: Intent) -> None:
        self.entries = intent.entries
        keys = [(e.table, e.match, e.priority) for e in self.entries]
        assert len(set(keys)) == len(keys), "two entries of one key"

    def look_up(self, table: str, **key: int) -> list[TableEntry]:
        def fits(entry: TableEntry) -> bool:
            return entry.table == table and all(
                match.low <= key[name] <= match.high
                if isinstance(match, Interval)
                else match == key[name]
                for name, match in entry.match
            )

        return [entry for entry in self.entries if fits(entry)]

    def classify(self, identity: Identity) -> TableEntry:
        """Return the entry that recognises a packet in the middle of the flow."""
        if isinstance(identity, ShimIdentity):
            (found,) = self.look_up("shim_flow", job=identity.job, flow=identity.flow)
            return found
        connections = [e for e in self.entries if e.table == "tcp_connection"]
        of_it = [e for e in connections if dict(e.match)["src_port"] == identity.src_port]
        connection = the_only(of_it)["connection"]
        (found,) = self.look_up("segment", connection=connection, position=identity.end_bytes // 2)
        return found

    def queue(self, flow: int, tardiness_us: int) -> int:
        arguments = the_only(self.look_up("flow", flow=flow))
        if "queue" in arguments:
            return arguments["queue"]
        return the_only(
            self.look_up("level", profile=arguments["profile"], key=(1 << 31) - tardiness_us)
        )["queue"]


class Plans(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.lowering = Lowering(FABRIC, dict.fromkeys(FABRIC.switches, ABLE))
        self.flows: dict[str, tuple[FlowPlan, ...]] = {}
        self.identities: dict[str, Mapping[str, Identity]] = {}
        self.schedule = SCHEDULE
        self.version = 0
        self.intents: dict[str, Intent] = {}
        self.make()

    def make(self, flows: Mapping[str, tuple[FlowPlan, ...]] | None = None) -> None:
        wanted = self.flows if flows is None else flows
        self.version += 1
        plan = Plan.of_jobs("test", wanted, default_schedule=self.schedule)
        self.intents = self.lowering.lower(plan, self.identities, version=self.version)

    @rule(job=st.sampled_from(sorted(JOBS)), spec=specs)
    def submit(
        self, job: str, spec: Mapping[str, tuple[Ranking, tuple[str, str, str], bool]]
    ) -> None:
        before, old = self.intents, (self.flows, self.identities)
        flows = tuple(
            FlowPlan(job, f, ranking, path_of(*route)) for f, (ranking, route, _) in spec.items()
        )
        self.flows = {**self.flows, job: flows}
        self.identities = {
            **self.identities,
            job: {f: identity_of(job, f, r, b) for f, (_, r, b) in spec.items()},
        }
        try:
            self.make()
        except LoweringError as error:
            assert coded("numbers-exhausted", "10 flows", job=job)(error)  # noqa: PT017
            self.flows, self.identities = old
            self.make()
            assert all(self.intents[name] is before[name] for name in before), (
                "a refused plan left something behind"
            )
            return
        for name, intent in self.intents.items():
            others = [
                part
                for part in before[name].parts
                if part.owner != job and not part.owner.startswith("profile")
            ]
            assert all(any(part is now for now in intent.parts) for part in others), (
                "another job's part was remade"
            )
            if job not in {part.owner for part in (*before[name].parts, *intent.parts)}:
                assert intent is before[name]

    @rule(job=st.sampled_from(sorted(JOBS)))
    def remove(self, job: str) -> None:
        self.flows = {name: flows for name, flows in self.flows.items() if name != job}
        self.make()

    @rule()
    def plan_again(self) -> None:
        """Plan equal flows in new objects."""
        before = self.intents
        self.make(
            {job: tuple(replace(flow) for flow in flows) for job, flows in self.flows.items()}
        )
        assert all(self.intents[name] is before[name] for name in before)

    @rule(
        job=st.sampled_from(sorted(JOBS)),
        queues=st.lists(st.integers(0, 6), min_size=1, max_size=5),
    )
    def move_to_other_queues(self, job: str, queues: list[int]) -> None:
        """Move flows of one job from one fixed queue to another, as a reactive policy does."""
        before, flows = self.intents, self.flows.get(job, ())
        moved = tuple(
            replace(flow, ranking=Fixed(queue)) if isinstance(flow.ranking, Fixed) else flow
            for flow, queue in zip(flows, itertools.cycle(queues), strict=False)
        )
        self.flows = {**self.flows, job: moved} if flows else self.flows
        self.make()
        there = {
            name
            for was, now in zip(flows, moved, strict=True)
            if was != now
            for name in now.path[1:-1]
        }
        assert {name for name in before if self.intents[name] is not before[name]} == there

    @rule()
    def change_queues(self) -> None:
        before = self.intents
        self.schedule = OTHER_SCHEDULE if self.schedule is SCHEDULE else SCHEDULE
        self.make()
        assert all(self.intents[name].parts == before[name].parts for name in before)
        assert all(self.intents[name].queues != before[name].queues for name in before)

    @rule(switch=st.sampled_from(sorted(FABRIC.switches)), behind=st.integers(0, 2))
    def acknowledge(self, switch: str, behind: int) -> None:
        self.lowering.numbering.settle(switch, self.version - behind)

    @invariant()
    def every_packet_finds_its_queue_and_port(self) -> None:
        for name, intent in self.intents.items():
            held = Held(intent)
            passing = [flow for flows in self.flows.values() for flow in flows if name in flow.path]
            assert sorted(intent.flows.values()) == sorted((f.job, f.flow) for f in passing)
            for flow in passing:
                classifier = held.classify(self.identities[flow.job][flow.flow])
                number = dict(classifier.actions[0].arguments)["flow"]
                assert intent.flows[number] == (flow.job, flow.flow)
                assert [intent.flow_entry(flow.job, flow.flow)] == held.look_up("flow", flow=number)
                port = FABRIC.port_to[name, flow.path[flow.path.index(name) + 1]]
                assert the_only(held.look_up("flow", flow=number))["port"] == port
                for tardiness_us in (0, 150_000, 450_000):
                    assert held.queue(number, tardiness_us) == wanted_queue(
                        flow.ranking, tardiness_us
                    )
            # Nothing is left of others, and what belongs together is numbered together.
            tables = [entry.table for entry in intent.entries]
            segments = {
                dict(of.actions[0].arguments)["flow"]
                for of in intent.entries
                if of.table == "segment"
            }
            assert tables.count("flow") == len(passing) == tables.count("shim_flow") + len(segments)
            profiles = {
                (*f.ranking.thresholds_s, f.ranking.lowest)
                for f in passing
                if isinstance(f.ranking, Deadline)
            }
            assert sum(part.owner.startswith("profile") for part in intent.parts) == len(profiles)
            self.no_two_echelonflows_share_a_reference(intent)

    def no_two_echelonflows_share_a_reference(self, intent: Intent) -> None:
        owner: dict[int, tuple[str, str]] = {}
        rankings_of = {(f.job, f.flow): f.ranking for flows in self.flows.values() for f in flows}
        for job, flow in intent.flows.values():
            ranking = rankings_of[job, flow]
            if isinstance(ranking, Deadline):
                reference = dict(intent.flow_entry(job, flow).actions[0].arguments)["echelonflow"]
                assert owner.setdefault(reference, (job, ranking.echelonflow)) == (
                    job,
                    ranking.echelonflow,
                )


def wanted_queue(ranking: Ranking, tardiness_us: int) -> int:
    if isinstance(ranking, Fixed):
        return ranking.queue
    reached = sum(t * 10**6 <= tardiness_us for t in ranking.thresholds_s)
    return min(ranking.lowest + reached, ranking.highest)


TestPlans = Plans.TestCase
TestPlans.settings = settings(max_examples=examples(40), stateful_step_count=20, deadline=None)


def plan_of(**flows: tuple[FlowPlan, ...]) -> Plan:
    return Plan.of_jobs("test", flows, default_schedule=SCHEDULE)


def flow(job: str, name: str = "f1", spine: str = "p1") -> FlowPlan:
    return FlowPlan(job, name, Fixed(1), path_of("h1", "h3", spine))


SHIMS: dict[str, dict[str, Identity]] = {
    job: {f"f{k}": ShimIdentity(number, k) for k in range(12)} for job, number in JOBS.items()
}


def test_a_number_is_not_given_to_another_job_before_the_switch_has_forgotten_the_first() -> None:
    lowering = Lowering(FABRIC, dict.fromkeys(FABRIC.switches, replace(ABLE, max_flows=2)))
    lowering.lower(plan_of(a=(flow("a"),)), SHIMS, version=1)
    second = lowering.lower(plan_of(b=(flow("b"),)), SHIMS, version=2)
    assert second["l1"].flows == {1: ("b", "f1")}
    both = plan_of(b=(flow("b"),), c=(flow("c"),))
    full = coded("numbers-exhausted", "switch l1", "2 flows", "up to 1", job="c")
    with pytest.raises(LoweringError, check=full):
        lowering.lower(both, SHIMS, version=3)
    for switch in ("l1", "p1", "l2"):
        lowering.numbering.settle(switch, 2)
    third = lowering.lower(both, SHIMS, version=3)
    assert third["l1"].flows == third["l2"].flows == {1: ("b", "f1"), 0: ("c", "f1")}


def test_a_flow_that_moves_leaves_the_switches_of_its_old_path() -> None:
    lowering = Lowering(FABRIC, dict.fromkeys(FABRIC.switches, ABLE))
    first = lowering.lower(plan_of(a=(flow("a"),), b=(flow("b"),)), SHIMS)
    second = lowering.lower(plan_of(a=(flow("a"),), b=(flow("b", spine="p2"),)), SHIMS)
    assert [second[s].flows for s in SPINES] == [{0: ("a", "f1")}, {0: ("b", "f1")}]
    assert second["l2"] is first["l2"], "the last switch forwards as before"


def test_versions_rise() -> None:
    lowering = Lowering(FABRIC, dict.fromkeys(FABRIC.switches, ABLE))
    lowering.lower(plan_of(), {}, version=7)
    with pytest.raises(ValueError, check=naming("version 7")):
        lowering.lower(plan_of(), {}, version=7)
    lowering.lower(plan_of(), {})


def test_each_switch_is_held_to_its_own_abilities() -> None:
    able = dict.fromkeys(FABRIC.switches, softswitch()) | {
        "p2": replace(softswitch(), target="small", max_flows=1)
    }
    flows = tuple(flow("a", f"f{k}", "p1") for k in range(5))
    Lowering(FABRIC, able).lower(plan_of(a=flows), SHIMS)
    with pytest.raises(LoweringError, check=coded("numbers-exhausted", "switch p2", job="a")):
        Lowering(FABRIC, able).lower(
            plan_of(a=tuple(flow("a", f"f{k}", "p2") for k in range(5))), SHIMS
        )
    weak = dict.fromkeys(FABRIC.switches, softswitch()) | {
        "p2": replace(softswitch(), target="weak", weights=False)
    }
    shared = (QueuePlan(0),) * (LEVELS - 1) + (QueuePlan(1),)
    only_there = Plan("test", (), SCHEDULE, {("p2", "l1"): shared})
    Lowering(FABRIC, weak).lower(replace(only_there, schedules={("p1", "l1"): shared}), {})
    with pytest.raises(
        LoweringError, check=coded("does-not-fit", "switch p2", "target weak", "port p2 to l1")
    ):
        Lowering(FABRIC, weak).lower(replace(only_there, flows=(flow("a", spine="p2"),)), SHIMS)


def test_a_connection_is_of_one_job() -> None:
    lowering = Lowering(FABRIC, dict.fromkeys(FABRIC.switches, ABLE))
    of_a = {"a": {"f1": identity_of("a", "f1", ("h1", "h3", "p1"), True)}}
    first = lowering.lower(plan_of(a=(flow("a"),)), of_a)
    both = {"b": of_a["a"], **of_a}
    with pytest.raises(
        LoweringError, check=coded("duplicate", "10.0.0.1:1001", "10.0.0.3:1001", "job a", job="b")
    ):
        lowering.lower(plan_of(b=(flow("b"),), a=(flow("a"),)), both)
    again = lowering.lower(plan_of(a=(flow("a"),)), of_a)
    assert all(again[name] is first[name] for name in first)


def test_one_lowering_of_everything_is_the_one_shot_function() -> None:
    plan = plan_of(a=(flow("a"), flow("a", "f2", "p2")), b=(flow("b"),))
    flat = {
        (job, name): identity for job, of_job in SHIMS.items() for name, identity in of_job.items()
    }
    able = dict.fromkeys(FABRIC.switches, ABLE)
    assert Lowering(FABRIC, able).lower(plan, SHIMS) == lower(plan, FABRIC, flat, ABLE)


def test_parts_are_ordered_so_that_they_can_be_written_one_after_the_other() -> None:
    late = replace(flow("a"), ranking=Deadline("x", Fraction(0), THRESHOLDS[0]))
    (fabric, profile, job) = (
        Lowering(FABRIC, dict.fromkeys(FABRIC.switches, ABLE))
        .lower(plan_of(a=(late,)), SHIMS)["l1"]
        .parts
    )
    assert [part.owner for part in (fabric, profile, job)] == ["fabric", "profile 0", "a"]
    assert [entry.table for entry in job.entries] == ["flow", "shim_flow"]
    assert isinstance(job, Part)
