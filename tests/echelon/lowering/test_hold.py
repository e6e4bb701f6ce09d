"""Hold times of queues behind the switch, against the trees that those queues are."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.p4program import constants
from echelon.planning.plan import LEVELS, FlowPlan, Plan, QueuePlan
from echelon.planning.rankings.deadline import Deadline
from echelon.switches.lowering.capabilities import OuterQueues
from echelon.switches.lowering.identity import ShimIdentity
from echelon.switches.lowering.intent import Intent, Part, QueueSetting
from echelon.switches.lowering.lower import Lowering, lower
from echelon.switches.lowering.parts import PROMOTION, hold_us
from echelon.switches.targets.bmv2.htb import Port, bmv2, tree_of
from echelon.switches.targets.softswitch.capabilities import softswitch

FOREVER = constants()["HOLD_FOREVER"]
RATES_BPS = {1: 10_000_000, 2: 40_000_000}


def star() -> Fabric:
    """Return h1 and h2 at ports 1 and 2 of s1, of different rates."""
    return Fabric(
        "star",
        {f"h{n}": Host(f"h{n}", f"10.0.0.{n}", f"02:00:00:00:00:0{n}") for n in RATES_BPS},
        {"s1": Switch("s1", 1)},
        tuple(
            CableLink(LinkEnd(f"h{n}", 0), LinkEnd("s1", n), rate, Fraction(0))
            for n, rate in RATES_BPS.items()
        ),
    )


FLOW = FlowPlan("a", "f", Deadline("e", Fraction(1), (Fraction(1),) * 7), ("h1", "s1", "h2"))
IDENTITIES = {"a": {"f": ShimIdentity(1, 0)}}
SHARED = tuple(QueuePlan(level, min_share=Fraction(level, 100)) for level in range(LEVELS))


def holds(intent: Intent) -> dict[tuple[int, ...], int]:
    """Return the microseconds by (port, queue)."""
    out = {}
    for entry in intent.entries:
        if entry.table == "promotion_hold":
            (action,) = entry.actions
            assert action.name == "wait_after_last"
            key = tuple(value for _, value in entry.match if isinstance(value, int))
            ((_, out[key]),) = action.arguments
    return out


def seconds_until_sent(packets: int, leaf_bps: int, frame_bytes: int) -> Fraction:
    """Return the time at which HTB sends the last of so many packets of a class that cannot borrow.

    The bucket owes a frame at the start, the most that it can; a packet is sent when nothing is
    owed.
    """
    now, owed_bits = Fraction(0), Fraction(8 * frame_bytes)
    for _ in range(packets):
        now += owed_bits / leaf_bps
        owed_bits = Fraction(8 * frame_bytes)
    return now


@given(
    st.integers(10**6, 10**11),
    st.lists(st.integers(0, 1250), min_size=LEVELS, max_size=LEVELS),
    st.integers(1, 500),
    st.integers(68, 9000),
)
def test_a_hold_outlasts_a_full_queue_that_gets_its_minimum_rate(
    rate_bps: int, shares: list[int], depth: int, mtu: int
) -> None:
    port = Port(rate_bps, mtu, depth)
    settings = [
        QueueSetting(1, queue, queue, 1, rate_bps * share // 10_000, None)
        for queue, share in enumerate(shares)
    ]
    tree = tree_of(settings, port)
    outer = bmv2(depth, mtu).outer_queues
    assert outer is not None
    assert outer.frame_bytes == port.frame_bytes
    for setting, leaf in zip(settings, tree.leaves, strict=True):
        us = hold_us(setting, outer)
        if setting.min_rate_bps == 0:
            assert us == FOREVER
            continue
        exact_us = seconds_until_sent(leaf.limit_packets, leaf.rate_bps, port.frame_bytes) * 10**6
        assert us == FOREVER or us > exact_us
        # Not much longer than that of the rate that was asked for: a frame, the allowances, and
        # rounding.
        asked_us = Fraction(10**6 * (depth + 1) * port.frame_bytes * 8, setting.min_rate_bps)
        assert us <= asked_us * 101 / 100 + outer.delay_us + 1


def test_a_hold_that_does_not_fit_is_for_ever() -> None:
    outer = OuterQueues(depth_packets=10_000, frame_bytes=9014)
    assert hold_us(QueueSetting(1, 0, 0, 1, 1, None), outer) == FOREVER


def test_every_queue_behind_a_port_has_one() -> None:
    plan = Plan(
        "test",
        (FLOW,),
        SHARED,
        {("s1", "h2"): tuple(replace(q, min_share=Fraction(1, 10)) for q in SHARED)},
    )
    found = holds(lower(plan, star(), {("a", "f"): ShimIdentity(1, 0)}, bmv2())["s1"])
    assert sorted(found) == [(port, queue) for port in (1, 2) for queue in range(LEVELS)]
    # 12 frames of 1514 bytes at 100, 700 and 4000 kbit/s, a hundredth more, and 20 ms.
    assert (found[1, 0], found[1, 1], found[1, 7]) == (FOREVER, 1_487_975, 229_711)
    assert {found[2, queue] for queue in range(LEVELS)} == {56_700}


def test_queues_in_the_switch_have_none() -> None:
    plan = Plan("test", (FLOW,), SHARED)
    assert holds(lower(plan, star(), {("a", "f"): ShimIdentity(1, 0)}, softswitch())["s1"]) == {}


def part(intent: Intent) -> Part:
    (found,) = [part for part in intent.parts if part.owner == PROMOTION]
    return found


def test_holds_change_with_the_queues_alone() -> None:
    lowering = Lowering(star(), {"s1": bmv2()})
    first = lowering.lower(Plan("test", (FLOW,), SHARED), IDENTITIES)["s1"]
    without = lowering.lower(Plan("test", (), SHARED), {})["s1"]
    assert part(without) is part(first)
    assert lowering.lower(Plan("other", (), SHARED), {})["s1"] is without
    halves = tuple(replace(queue, min_share=queue.min_share / 2) for queue in SHARED)
    halved = lowering.lower(Plan("test", (), halves), {})["s1"]
    delay_us = 20_000
    for key, us in holds(halved).items():
        before = holds(first)[key]
        assert (
            us == FOREVER
            if before == FOREVER
            else us - delay_us == pytest.approx(2 * (before - delay_us), abs=2)
        )
    afresh = lower(Plan("test", (), halves), star(), {}, bmv2())["s1"]
    assert holds(afresh) == holds(halved)
