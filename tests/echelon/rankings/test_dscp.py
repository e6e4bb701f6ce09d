"""Ranking by the code point that hosts mark, in switches and in the fluid engine.

plugins/tofino_model/tests/virtual/test_dscp.py has the switches of the other architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd
from echelon.model.fabric.model import Switch as FabricSwitch
from echelon.model.jobs.graph import ComputeUnit, Flow, Job
from echelon.model.p4program import constants, program
from echelon.planning.fluid import simulate
from echelon.planning.plan import LEVELS, FlowPlan, Plan, QueuePlan
from echelon.planning.rankings.dscp import Dscp
from echelon.switches.lowering.capabilities import Capabilities
from echelon.switches.lowering.identity import ShimIdentity
from echelon.switches.lowering.intent import Interval, Match, Prefix, TableEntry
from echelon.switches.lowering.lower import LoweringError, lower
from echelon.switches.targets.softswitch.capabilities import softswitch
from softswitch import Switch, load_program
from tests.drawing import examples
from tests.reference.frames import ipv4, shim

ALONE = constants()["SHIM_FLAG_ALONE"]
RATE_BPS = 8_000_000
RANGES = [(0, 7), (1, 6), (3, 3), (5, 7)]
"""The lowest and highest queue of each flow."""


def expected_queue(code_point: int, lowest: int, highest: int) -> int:
    """Return the queue by RFC 2474, section 4.2.2: code point xxx000 selects class xxx."""
    return sorted((lowest, code_point // 8, highest))[1]


def two_switches() -> Fabric:
    """Return h1 and h3 - s1 - s2 - h2."""
    ends = [("h1", 0, "s1", 1), ("h3", 0, "s1", 3), ("s1", 2, "s2", 1), ("s2", 2, "h2", 0)]
    return Fabric(
        "two_switches",
        {f"h{i}": Host(f"h{i}", f"10.0.0.{i}", f"02:00:00:00:00:0{i}") for i in (1, 2, 3)},
        {f"s{i}": FabricSwitch(f"s{i}", i) for i in (1, 2)},
        tuple(
            CableLink(LinkEnd(a, p), LinkEnd(b, q), RATE_BPS, Fraction(0)) for a, p, b, q in ends
        ),
    )


def plan_of(rankings: Mapping[str, Dscp], sources: Mapping[str, str] | None = None) -> Plan:
    """Return a plan with a flow of each ranking, from h1 unless `sources` says otherwise, and
    strict levels that leave every queue a share."""
    source = {**dict.fromkeys(rankings, "h1"), **(sources or {})}
    flows = tuple(
        FlowPlan("a", flow, ranking, (source[flow], "s1", "s2", "h2"))
        for flow, ranking in rankings.items()
    )
    return Plan(
        "test", flows, tuple(QueuePlan(level=q, min_share=Fraction(1, 100)) for q in range(LEVELS))
    )


Write = Callable[[Any, TableEntry], None]


def path_of(capabilities: Capabilities, make: Callable[[], Any], write: Write) -> list[Any]:
    """Return the switches s1 and s2 with the entries for a flow of each range."""
    plan = plan_of({f"f{n}": Dscp(*queues) for n, queues in enumerate(RANGES)})
    identities = {("a", f"f{n}"): ShimIdentity(1, n) for n in range(len(RANGES))}
    intents = lower(plan, two_switches(), identities, capabilities)
    path = []
    for name in ("s1", "s2"):
        switch = make()
        for entry in intents[name].entries:
            write(switch, entry)
        path.append(switch)
    return path


def full_name(names: Sequence[str], name: str) -> str:
    """Return the one that the P4Info shortens to `name`."""
    (found,) = (each for each in names if each.rpartition(".")[2] == name)
    return found


def write(switch: Switch, entry: TableEntry) -> None:
    (call,) = entry.actions
    key = tuple(element(match) for _, match in entry.match)
    table = switch.tables[full_name([*switch.tables], entry.table)]
    values = [value for _, value in call.arguments]
    table.insert(key, entry.priority, full_name([*table.actions], call.name), values)


def element(match: Match) -> int | tuple[int, int]:
    match match:
        case Prefix(value, length):
            return value, length
        case Interval(low, high):
            return low, high
    return match


@pytest.fixture(scope="module")
def switches() -> list[Switch]:
    loaded = load_program(program().binary.read_bytes(), "v1model")
    return path_of(softswitch(), lambda: Switch(loaded), write)


@dataclass(frozen=True)
class Packet:
    flow: int
    code_point: int
    ecn: int

    def frame(self) -> bytes:
        tos = self.code_point << 2 | self.ecn
        return ipv4(0x0A000001, 0x0A000002, 17, shim(1, self.flow, 1, 1000, flags=ALONE), tos=tos)


packets = st.builds(Packet, st.integers(0, len(RANGES) - 1), st.integers(0, 63), st.integers(0, 3))


MILLISECONDS_NS = count(1_000_000_000, 1_000_000)


@given(st.lists(packets, min_size=1, max_size=20))
@settings(max_examples=examples(50), deadline=None)
def test_packets_have_the_queue_of_their_class_at_every_switch(
    switches: list[Any], sent: list[Packet]
) -> None:
    for packet in sent:
        queue = expected_queue(packet.code_point, *RANGES[packet.flow])
        frame = packet.frame()
        for switch in switches:
            now_ns = next(MILLISECONDS_NS)
            (queued,) = switch.ingress(1, frame, now_ns)
            assert (queued.port, queued.queue) == (2, queue)
            (gone,) = switch.egress(queued, now_ns, now_ns, 0, 0)
            assert gone.packet is not None
            frame = gone.packet
            # The class selector of the queue, and the sender's ECN.
            assert frame[15] == queue << 5 | packet.ecn


def test_the_rank_does_not_run_out_while_the_packet_waits(switches: list[Switch]) -> None:
    switch = switches[0]
    for code_point in range(64):
        now_ns = next(MILLISECONDS_NS)
        (queued,) = switch.ingress(1, Packet(0, code_point, 0).frame(), now_ns)
        (gone,) = switch.egress(queued, now_ns, now_ns + 10**9, 0, 0)
        assert gone.packet is not None
        assert not gone.packet[42] & constants()["SHIM_FLAG_DRAIN"]


@pytest.mark.parametrize(("lowest", "highest"), [(-1, 7), (0, 8), (5, 4)])
def test_queues_without_a_class_are_refused(lowest: int, highest: int) -> None:
    plan = plan_of({"f": Dscp(lowest, highest)})
    with pytest.raises(LoweringError):
        lower(plan, two_switches(), {("a", "f"): ShimIdentity(1, 0)}, softswitch())


@dataclass
class Marked:
    """A policy under which hosts mark the packets of each flow with a code point."""

    code_points: Mapping[str, int]

    def plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan:
        sources = {flow.name: flow.src for flow in jobs[0].flows}
        plan = plan_of(
            {flow: Dscp(0, 7, code_point) for flow, code_point in self.code_points.items()}, sources
        )
        return replace(
            plan, default_schedule=tuple(QueuePlan(level=queue) for queue in range(LEVELS))
        )


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_the_fluid_engine_serves_flows_by_the_code_points_that_hosts_mark(
    first: str, second: str
) -> None:
    flows = (Flow("a", "h1", "h2", 1_000_000), Flow("b", "h3", "h2", 1_000_000))
    job = Job("a", (ComputeUnit("c", "h1", Fraction(0)),), flows, (), Fraction(0))
    result = simulate([job], two_switches(), Marked({first: 46, second: 34}), 1)
    (iteration,) = result.jobs["a"].finished
    # A megabyte takes a second at 8 Mbit/s, and class 5 goes before class 4.
    assert {name: span.finish for name, span in iteration.flows.items()} == {first: 1, second: 2}
