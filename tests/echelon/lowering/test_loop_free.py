"""Flows that take other paths: on the way from plan to plan, packets arrive whatever is written
when.

Fabrics and paths are random, and most paths are no shortest ones. A walk through the entries of all
switches is what packets do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain, pairwise
from random import Random

import networkx
import pytest
from finsy import P4Schema
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.p4program import program
from echelon.planning.plan import LEVELS, FlowPlan, Plan, QueuePlan
from echelon.planning.rankings.deadline import Deadline
from echelon.planning.rankings.fixed import Fixed
from echelon.switches.lowering.identity import Identity, SegmentIdentity, ShimIdentity
from echelon.switches.lowering.intent import Intent, TableEntry
from echelon.switches.lowering.loop_free import LastPlan, LoopFreeOrder, reroutes
from echelon.switches.lowering.lower import Lowering
from echelon.switches.southbound.codec import Codec
from echelon.switches.southbound.encoding import EncodedEntry, UpdateKind
from echelon.switches.southbound.reconcile import difference
from echelon.switches.targets.softswitch.capabilities import softswitch
from tests.drawing import examples
from tests.reference.walk import Packet, Tables, faults, match_of, next_nodes, tables_of

SCHEDULE = tuple(QueuePlan(level) for level in range(LEVELS))
CODEC = Codec(P4Schema(program().p4info))
HOSTS = {"h1": "s1", "h2": "s2", "h3": "s3"}
JOBS = {"a": 1, "b": 2}
FLOWS = 3

Paths = dict[tuple[str, str], tuple[str, ...]]


def fabric_of(graph: networkx.Graph[str]) -> Fabric:
    """Return the fabric of switches that are linked so, and of the hosts."""
    ports = dict.fromkeys(graph.nodes, 0)

    def end(node: str) -> LinkEnd:
        ports[node] += 1
        return LinkEnd(node, ports[node])

    to_hosts = [
        CableLink(LinkEnd(host, 0), end(switch), 10**9, Fraction(0))
        for host, switch in HOSTS.items()
    ]
    between = [
        CableLink(end(a), end(b), 10**9, Fraction(0)) for a, b in sorted(map(sorted, graph.edges))
    ]
    return Fabric(
        "random",
        {f"h{i}": Host(f"h{i}", f"10.0.0.{i}", f"02:00:00:00:00:0{i}") for i in range(1, 4)},
        {name: Switch(name, i) for i, name in enumerate(sorted(graph.nodes), start=1)},
        (*to_hosts, *between),
    )


def random_graph(rng: Random, switches: int) -> networkx.Graph[str]:
    names = [f"s{number}" for number in range(1, switches + 1)]
    graph = networkx.Graph([(rng.choice(names[:at]), name) for at, name in enumerate(names) if at])
    for _ in range(rng.randrange(switches + 2)):
        graph.add_edge(*rng.sample(names, 2))
    return graph


def random_path(rng: Random, graph: networkx.Graph[str], src: str, dst: str) -> tuple[str, ...]:
    """Return any path without a circle."""
    ways = (
        list(networkx.all_simple_paths(graph, HOSTS[src], HOSTS[dst]))
        if HOSTS[src] != HOSTS[dst]
        else [[HOSTS[src]]]
    )
    return (src, *rng.choice(ways), dst)


@dataclass
class Change:
    """A plan, and the next one with other paths and other routes by address."""

    fabric: Fabric
    old: Paths
    before: Mapping[str, Intent]
    steps: Sequence[Mapping[str, Intent]]
    after: Mapping[str, Intent]
    packets: Mapping[tuple[str, str], Packet]

    @property
    def all_steps(self) -> Iterator[tuple[Mapping[str, Intent], Mapping[str, Intent]]]:
        return pairwise((self.before, *self.steps, self.after))


def identity_of(fabric: Fabric, job: str, flow: str, path: tuple[str, ...]) -> Identity:
    number = int(flow[1:])
    if job == "a":
        return ShimIdentity(JOBS[job], number)
    src, dst = fabric.hosts[path[0]].ipv4, fabric.hosts[path[-1]].ipv4
    return SegmentIdentity(src, dst, "tcp", 1000 + number, 2000, 0, 100, 100, Fraction(1, 100))


def random_change(seed: int, switches: int = 6) -> Change:
    rng = Random(seed)
    graph = random_graph(rng, switches)
    fabric = fabric_of(graph)
    ends = {
        (job, f"f{flow}"): rng.sample(sorted(HOSTS), 2) for job in JOBS for flow in range(FLOWS)
    }
    lowering = Lowering(fabric, dict.fromkeys(fabric.switches, softswitch()))
    # In the other plan, a link is drained: routes by address are others, too.
    cut = [(a, b) for a, b in sorted(graph.edges) if (a, b) not in set(networkx.bridges(graph))]
    drained = fabric.without([rng.choice(cut)]) if cut and rng.random() < 0.7 else fabric
    fabrics = (fabric, drained) if rng.random() < 0.5 else (drained, fabric)
    old: Paths = {}
    identities: dict[str, dict[str, Identity]] = {job: {} for job in JOBS}
    newest: LastPlan | None = None
    for number, now in enumerate(fabrics):
        flows: dict[str, tuple[FlowPlan, ...]] = dict.fromkeys(JOBS, ())
        for (job, flow), (src, dst) in ends.items():
            path = random_path(rng, graph, src, dst)
            if number == 0:
                old[job, flow] = path
                identities[job][flow] = identity_of(fabric, job, flow, path)
            unit = rng.randrange(1, 3)
            ranking = (
                Deadline("e", Fraction(0), tuple(Fraction(unit * step) for step in range(1, 8)))
                if rng.random() < 0.5
                else Fixed(rng.randrange(6))
            )
            flows[job] += (FlowPlan(job, flow, ranking, path),)
        plan = Plan.of_jobs("test", flows, default_schedule=SCHEDULE)
        moved = {} if newest is None else reroutes(newest, plan.by_job, now, identities)
        intents = lowering.lower(plan, identities, fabric=now)
        last, newest = newest, LastPlan(plan.by_job, now, identities, intents)
    assert last is not None
    packets = {key: Packet(identities[key[0]][key[1]], path[-1]) for key, path in old.items()}
    return Change(
        fabric,
        old,
        last.intents,
        list(LoopFreeOrder(moved).between(last.intents, intents)),
        intents,
        packets,
    )


@dataclass
class Written:
    """Entries of all switches, one written after the other."""

    before: Mapping[str, Intent]
    tables: dict[str, Tables] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tables = {name: tables_of(intent.entries) for name, intent in self.before.items()}

    def updates(
        self, switch: str, one: Intent, other: Intent, rng: Random
    ) -> list[Callable[[], None]]:
        """Return what takes a switch from one intent to another, update by update, in an order that
        sessions keep.
        """
        names: dict[bytes, TableEntry] = {}

        def encoded(intent: Intent) -> dict[bytes, EncodedEntry]:
            out = {}
            for entry in intent.entries:
                code = CODEC.encode(entry)
                assert code.key not in out, "two entries of one key"
                out[code.key] = code
                names[code.value + code.key] = entry
            return out

        def write(kind: UpdateKind, entry: TableEntry) -> None:
            table = self.tables[switch].setdefault(entry.table, {})
            if kind is UpdateKind.DELETE:
                del table[match_of(entry)]
            else:
                table[match_of(entry)] = entry.actions

        out = []
        for chunk in difference(encoded(one), encoded(other)).chunks():
            entries = [names[code.value + code.key] for code in chunk.entries]
            out += [
                lambda kind=chunk.kind, entry=entry: write(kind, entry)
                for entry in rng.sample(entries, len(entries))
            ]
        return out


def interleaved(
    rng: Random, queues: Sequence[list[Callable[[], None]]]
) -> Iterator[Callable[[], None]]:
    """Yield what is in all of these queues, each in its order."""
    turns = list(chain.from_iterable([number] * len(queue) for number, queue in enumerate(queues)))
    rng.shuffle(turns)
    iterators = [iter(queue) for queue in queues]
    for turn in turns:
        yield next(iterators[turn])


def updates_of(
    change: Change, written: Written, rng: Random, *, ordered: bool = True
) -> Iterator[None]:
    """Write one update after the other, of switches at random; step by step if `ordered`."""
    for one, other in change.all_steps if ordered else [(change.before, change.after)]:
        queues = [written.updates(name, one[name], other[name], rng) for name in one]
        for update in interleaved(rng, queues):
            update()
            yield


seeds = st.integers(0, 2**32)


@given(seeds, seeds)
@settings(max_examples=examples(300), deadline=None)
def test_in_no_state_between_two_plans_does_a_packet_circle_or_fall_into_a_hole(
    seed: int, order: int
) -> None:
    change = random_change(seed)
    written, rng = Written(change.before), Random(order)
    for _ in updates_of(change, written, rng):
        for key, packet in change.packets.items():
            for at in change.old[key][1:-1]:
                assert not list(faults(written.tables, change.fabric, packet, at))
        for tables in written.tables.values():
            levels = {dict(match)["profile"] for match, _ in tables.get("level", {})}
            arguments = [dict(actions[0].arguments) for actions in tables.get("flow", {}).values()]
            assert levels.issuperset(one["profile"] for one in arguments if "profile" in one), (
                "a rank without levels"
            )
    for name, intent in change.after.items():
        assert {table: held for table, held in written.tables[name].items() if held} == tables_of(
            intent.entries
        )


@given(seeds, seeds)
@settings(max_examples=examples(400), deadline=None)
def test_a_packet_arrives_however_slow_it_is(seed: int, order: int) -> None:
    """Between any two hops, any number of updates."""
    change = random_change(seed)
    written, rng = Written(change.before), Random(order)
    under_way: list[tuple[Packet, tuple[str, ...]]] = []
    most, speed = 2 * len(change.fabric.switches), rng.choice((0.02, 0.1, 0.3))

    def pass_time(speed: float) -> None:
        """Let some packets go on."""
        going, under_way[:] = under_way[:], []
        for packet, way in going:
            if rng.random() < speed:
                following = next_nodes(written.tables[way[-1]], change.fabric, packet, way[-1])
                assert following, f"{packet} is dropped: {way}"
                way = (*way, rng.choice(following))
                assert len(way) <= most, f"{packet} circles: {way}"
            if way[-1] in change.fabric.switches:
                under_way.append((packet, way))
            else:
                assert way[-1] == packet.dst

    for _ in updates_of(change, written, rng):
        key = rng.choice(sorted(change.old))
        under_way.append((change.packets[key], change.old[key][1:2]))
        pass_time(speed)
    while under_way:
        pass_time(1.0)


@pytest.mark.parametrize("switches", [4, 6])
def test_without_the_order_packets_circle(switches: int) -> None:
    """The fault for which the property tests look can happen."""
    found: set[str] = set()
    for seed in range(10):
        change = random_change(seed, switches)
        written = Written(change.before)
        for _ in updates_of(change, written, Random(seed), ordered=False):
            for key, packet in change.packets.items():
                found.update(faults(written.tables, change.fabric, packet, change.old[key][1]))
    assert any("circles" in fault for fault in found)


def test_switches_learn_then_change_then_forget_from_the_source_on() -> None:
    links = [("s1", "s4"), ("s4", "s5"), ("s2", "s5"), ("s1", "s3"), ("s2", "s3")]
    fabric = fabric_of(networkx.Graph(links))
    identities: dict[str, dict[str, Identity]] = {"a": {"f0": ShimIdentity(1, 0)}}
    old = ("h1", "s1", "s4", "s5", "s2", "h2")
    new = ("h1", "s1", "s3", "s2", "h2")
    lowering = Lowering(fabric, dict.fromkeys(fabric.switches, softswitch()))

    def plan(path: tuple[str, ...]) -> Plan:
        flows = {"a": (FlowPlan("a", "f0", Fixed(0), path),)}
        return Plan.of_jobs("test", flows, default_schedule=SCHEDULE)

    def ports(intents: Mapping[str, Intent]) -> dict[str, int]:
        """Return the port to which each switch that knows the flow sends it."""
        found = {}
        for name, intent in intents.items():
            for entry in intent.entries:
                if entry.table == "flow":
                    found[name] = dict(entry.actions[0].arguments)["port"]
        return found

    before = lowering.lower(plan(old), identities)
    last = LastPlan(plan(old).by_job, fabric, identities, before)
    moved = reroutes(last, plan(new).by_job, fabric, identities)
    after = lowering.lower(plan(new), identities)
    order = LoopFreeOrder(moved)
    learnt, changed, half_forgotten = map(ports, order.between(before, after))

    assert order.steps == 3
    assert learnt == {**ports(before), "s3": fabric.port_to["s3", "s2"]}
    assert changed == {**learnt, "s1": fabric.port_to["s1", "s3"]}
    assert half_forgotten == {name: port for name, port in changed.items() if name != "s4"}
    assert ports(after) == {name: port for name, port in half_forgotten.items() if name != "s5"}
