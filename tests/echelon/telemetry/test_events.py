"""Digests of the real program on the real switch, through P4Runtime, decoded; times by hand."""

from __future__ import annotations

import asyncio
from fractions import Fraction

import pytest

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.p4program import constants, program
from echelon.planning.plan import LEVELS, FlowPlan, Plan, QueuePlan
from echelon.planning.rankings.deadline import Deadline
from echelon.planning.rankings.fixed import Fixed
from echelon.switches.lowering.identity import ShimIdentity
from echelon.switches.lowering.lower import DIGEST, lower
from echelon.switches.southbound.session import SwitchSession
from echelon.switches.targets.softswitch.capabilities import softswitch
from echelon.switches.targets.softswitch.queues import GnmiQueues
from echelon.switches.telemetry.events import FlowEvent, decode_event
from echelon_lab.endhosts.shim import DataSegment, FlowAddress, ShimFrames
from softswitch.p4runtime.device import Device
from softswitch.p4runtime.server import Server
from tests.softswitch.tm.native import SchedulerInC

FABRIC = Fabric(
    "one",
    {f"h{i}": Host(f"h{i}", f"10.0.0.{i}", f"02:00:00:00:00:0{i}") for i in (1, 2)},
    {"s1": Switch("s1", 1)},
    tuple(
        CableLink(LinkEnd(f"h{i}", 0), LinkEnd("s1", i), 10_000_000, Fraction(0)) for i in (1, 2)
    ),
)
PATH = ("h1", "s1", "h2")
THRESHOLDS = tuple(Fraction(k) for k in range(1, 8))
PLAN = Plan(
    "test",
    (
        FlowPlan("a", "fixed", Fixed(1), PATH),
        FlowPlan("a", "head", Deadline("e", Fraction(0), THRESHOLDS), PATH),
        FlowPlan("a", "tail", Deadline("e", Fraction(5, 2), THRESHOLDS), PATH),
    ),
    tuple(QueuePlan(level) for level in range(LEVELS)),
)


def packet(flow: int, epoch: int, last: bool = False) -> bytes:
    address = FlowAddress(
        FABRIC.hosts["h1"].mac, FABRIC.hosts["h2"].mac, "10.0.0.1", "10.0.0.2", 0xC001, 1, flow
    )
    return ShimFrames(address, epoch, 200).data(DataSegment(200, 200, last=last))


async def test_first_and_last_packets_are_reported() -> None:
    identities = {(f.job, f.flow): ShimIdentity(1, number) for number, f in enumerate(PLAN.flows)}
    intent = lower(PLAN, FABRIC, identities, softswitch())["s1"]
    device = Device(
        None, 1, ports={port: SchedulerInC(10_000_000) for port in (1, 2)}, now_ns=lambda: 0
    )
    sent = [
        (10, packet(1, 255)),  # opens the EchelonFlow: d = 10 s for the head, 12.5 s for the tail
        (11, packet(1, 255)),
        (12, packet(0, 255)),
        (12, packet(2, 255, last=True)),
        (13, packet(1, 255, last=True)),
        (20, packet(1, 0)),  # the next iteration, over the wrap
        (22, packet(0, 255, last=True)),
    ]
    expected = [
        ("head", 255, 10, Fraction(0), True, False),
        ("fixed", 255, 12, Fraction(0), True, False),
        ("tail", 255, 12, Fraction(-1, 2), True, True),
        ("head", 255, 13, Fraction(3), False, True),
        ("head", 0, 20, Fraction(0), True, False),
        ("fixed", 255, 22, Fraction(0), False, True),
    ]
    with Server(device) as server:
        async with SwitchSession(
            "s1", server.address, 1, program(), queues=GnmiQueues("s1")
        ) as session:
            await session.reconcile(intent)
            lists = session.digests(DIGEST)
            following = asyncio.ensure_future(anext(lists))
            await asyncio.sleep(0)
            assert device.switch is not None
            for time_s, frame in sent:
                with device.lock:
                    assert device.switch.ingress(1, frame, time_s * 10**9)
            device.tick(23 * 10**9)
            received = await asyncio.wait_for(following, 10)
            await lists.aclose()  # type: ignore[attr-defined]
    events = [decode_event("s1", intent.flows, data) for data in received.fields]
    assert events == [
        FlowEvent("s1", "a", flow, epoch, Fraction(time_s), tardiness_s, started, finished)
        for flow, epoch, time_s, tardiness_s, started, finished in expected
    ]


@pytest.mark.parametrize("slack_us", [-(1 << 31) + 1, -1, 0, 1, (1 << 31) - 1])
def test_slack_is_tardiness_with_the_other_sign(slack_us: int) -> None:
    key = slack_us + constants()["SLACK_BIAS"]
    data = {"event": 2, "flow": 0, "epoch": 7, "slack_key": key, "time_us": 1_500_000}
    event = decode_event("s", {0: ("j", "f")}, data)
    assert event == FlowEvent(
        "s", "j", "f", 7, Fraction(3, 2), Fraction(-slack_us, 10**6), False, True
    )
