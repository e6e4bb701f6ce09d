"""Port rate, maximum rates, minimum rates."""

from __future__ import annotations

from collections import Counter
from math import ceil
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch.tm import QueueConfig
from tests.drawing import examples
from tests.reference.traffic_manager import SHAPER_CREDIT_BYTES, PortScheduler

MIXED = [Random(3).randint(64, 1500) for _ in range(499)]
GBPS = 10**9


@pytest.mark.parametrize("rate_bps", [10**7, 3 * 10**9, 10**11, 7_777_777_777])
def test_a_saturated_port_sends_at_exactly_its_rate(rate_bps: int, saturate: Any) -> None:
    sizes = dict.fromkeys(range(8), MIXED)
    served = saturate(
        PortScheduler(rate_bps, [QueueConfig(weight=i + 1) for i in range(8)]),
        sizes,
        10**13 // rate_bps,
    )
    sent = 0
    for start_ns, leaving in served.order:
        assert start_ns == ceil(sent * 8 * 10**9 / rate_bps)
        sent += leaving.length_bytes


def test_a_port_without_a_rate_gives_all_at_once() -> None:
    port = PortScheduler(None)
    for serial in range(10):
        port.enqueue(serial % 8, serial, 1500, 7)
    assert [port.dequeue(7) is not None for _ in range(11)] == [True] * 10 + [False]
    assert port.next_eligible_ns(7) is None


@pytest.mark.parametrize(
    "max_rate_bps", [GBPS // 100, GBPS // 10, 6 * GBPS // 10, 999 * GBPS // 1000]
)
def test_a_maximum_rate_is_met_alone(max_rate_bps: int, saturate: Any) -> None:
    port = PortScheduler(GBPS, [QueueConfig(max_rate_bps=max_rate_bps)])
    served = saturate(port, {0: MIXED}, 10**15 // max_rate_bps)
    assert served.rate_bps(0) == pytest.approx(max_rate_bps, rel=0.01)


@pytest.mark.parametrize("max_rate_bps", [GBPS // 100, GBPS // 10, 6 * GBPS // 10])
def test_a_maximum_rate_is_met_against_traffic_it_must_wait_for(
    max_rate_bps: int, saturate: Any
) -> None:
    # The other queue yields, but not before its packet on the line has finished.
    configs = [QueueConfig(level=0), QueueConfig(level=1, max_rate_bps=max_rate_bps)]
    served = saturate(PortScheduler(GBPS, configs), {0: [1500], 1: MIXED}, 10**15 // max_rate_bps)
    assert served.rate_bps(1) == pytest.approx(max_rate_bps, rel=0.01)
    assert served.rate_bps(0) + served.rate_bps(1) == pytest.approx(GBPS, rel=0.001)


@settings(max_examples=examples(25), deadline=None)
@given(
    st.integers(10**6, 2 * GBPS),
    st.lists(st.tuples(st.integers(1, 1500), st.integers(0, 30_000)), min_size=20, max_size=120),
)
def test_no_interval_carries_more_than_the_maximum_rate(
    max_rate_bps: int, packets: list[tuple[int, int]]
) -> None:
    port = PortScheduler(GBPS, [QueueConfig(max_rate_bps=max_rate_bps), QueueConfig(level=1)])
    sent: list[tuple[int, int]] = []
    now_ns = 0

    def advance(until_ns: int) -> None:
        while (
            eligible_ns := port.next_eligible_ns(now_ns)
        ) is not None and eligible_ns <= until_ns:
            leaving = port.dequeue(eligible_ns)
            assert leaving is not None
            if leaving.queue == 0:
                sent.append((eligible_ns, leaving.length_bytes))

    for length, pause_ns in packets:
        port.enqueue(0, None, length, now_ns)
        port.enqueue(1, None, length, now_ns)
        advance(now_ns + pause_ns)
        now_ns += pause_ns
    for first in range(len(sent)):
        carried = 0
        for start_ns, length in sent[first:]:
            # Bytes before this packet since `first`: rate x time, and what waiting may save up.
            assert (
                carried
                <= max_rate_bps * (start_ns - sent[first][0] + 1) / 8e9 + SHAPER_CREDIT_BYTES
            )
            carried += length


@pytest.mark.parametrize(
    ("share", "others"),
    [
        *((share, others) for share in (0.2, 0.37, 0.9) for others in ([1500], [64], MIXED)),
        *((0.02, others) for others in ([1500], MIXED)),
        # It takes as long as all others.
        pytest.param(0.02, [64], marks=pytest.mark.wide),
    ],
)
def test_a_minimum_rate_is_kept_under_a_saturated_higher_level(
    share: float, others: list[int], saturate: Any
) -> None:
    min_rate_bps = int(share * GBPS)
    configs = [QueueConfig(level=0, min_rate_bps=min_rate_bps), QueueConfig(level=7)]
    served = saturate(PortScheduler(GBPS, configs), {0: MIXED, 1: others}, int(2_000_000 / share))
    assert served.rate_bps(0) == pytest.approx(min_rate_bps, rel=0.02)
    assert all(leaving.guaranteed == (leaving.queue == 0) for _, leaving in served.order)


def test_many_minimum_rates_are_kept_together_up_to_the_whole_port(saturate: Any) -> None:
    shares = [0.02, 0.03, 0.05, 0.1, 0.3, 0.5]
    configs = [QueueConfig(level=0, min_rate_bps=int(share * GBPS)) for share in shares] + [
        QueueConfig(level=7)
    ]
    sizes = {0: [64], 1: [1500], 2: [9000], 3: MIXED, 4: [64], 5: [200], 6: [1500]}
    served = saturate(PortScheduler(GBPS, configs), sizes, 150_000_000)
    for queue, share in enumerate(shares):
        assert served.rate_bps(queue) == pytest.approx(share * GBPS, rel=0.02)


def test_owed_queues_take_turns() -> None:
    port = PortScheduler(
        None, [QueueConfig(min_rate_bps=1000), QueueConfig(), *[QueueConfig(min_rate_bps=1000)] * 2]
    )
    order: list[int] = []
    for round_ns in range(0, 4 * 10**9, 10**9):  # 125 B of credit a second
        for queue in range(4):
            port.enqueue(queue, None, 125, round_ns)
        for _ in range(3):
            leaving = port.dequeue(round_ns)
            assert leaving is not None
            assert leaving.guaranteed
            order.append(leaving.queue)
    assert order == [0, 2, 3] * 4


def test_owed_queues_of_a_higher_guaranteed_level_go_first() -> None:
    levels = [0, 3, 3, 7]
    port = PortScheduler(
        None, [QueueConfig(min_rate_bps=1000, guaranteed_level=level) for level in levels]
    )
    for queue in range(4):
        for _ in range(2):
            port.enqueue(queue, None, 125, 0)
    order = [
        leaving.queue for leaving in iter(lambda: port.dequeue(0), None) if leaving is not None
    ]
    # One packet each is owed. The rest goes by strict level, where all are equal.
    assert order[:4] == [3, 1, 2, 0]


def test_a_share_is_of_what_the_minimum_rates_leave(saturate: Any) -> None:
    configs = [QueueConfig(weight=1, min_rate_bps=3 * GBPS // 10), QueueConfig(weight=1)]
    served = saturate(PortScheduler(GBPS, configs), {0: MIXED, 1: MIXED}, 50_000_000)
    assert served.rate_bps(0) == pytest.approx(0.65 * GBPS, rel=0.02)
    assert served.rate_bps(1) == pytest.approx(0.35 * GBPS, rel=0.02)


@pytest.mark.parametrize(
    "config", [QueueConfig(min_rate_bps=8000), QueueConfig(min_rate_bps=8000, max_rate_bps=8000)]
)
def test_an_idle_queue_saves_up_one_packet_of_guarantee(config: QueueConfig) -> None:
    port = PortScheduler(None, [config, QueueConfig(level=7)])
    now_ns = 3600 * 10**9
    for _ in range(3):
        port.enqueue(0, None, 1000, now_ns)
        port.enqueue(1, None, 1000, now_ns)
    order = []
    for _ in range(4):
        leaving = port.dequeue(now_ns)
        assert leaving is not None
        order.append((leaving.queue, leaving.guaranteed))
    assert order == [(0, True), (1, False), (1, False), (1, False)]


def test_an_idle_queue_saves_up_one_packet_of_its_maximum_rate() -> None:
    port = PortScheduler(None, [QueueConfig(max_rate_bps=8000)])
    now_ns = 3600 * 10**9
    for _ in range(3):
        port.enqueue(0, None, 1000, now_ns)
    assert port.dequeue(now_ns) is not None
    assert port.dequeue(now_ns) is None
    assert port.next_eligible_ns(now_ns) == now_ns + 10**9


def test_a_maximum_rate_also_limits_a_queue_that_is_owed_more() -> None:
    # Guaranteed in the past, when it may not have been served for its maximum: what it is owed has
    # to wait.
    port = PortScheduler(None, [QueueConfig(min_rate_bps=8000, max_rate_bps=8000)])
    for _ in range(2):
        port.enqueue(0, None, 1000, 0)
    assert port.dequeue(0) is not None
    port.configure(0, QueueConfig(min_rate_bps=0, max_rate_bps=8000), 0)
    port.configure(0, QueueConfig(min_rate_bps=8000, max_rate_bps=8000), 0)
    port.enqueue(1, None, 1000, 0)
    leaving = port.dequeue(0)
    assert leaving is not None
    assert leaving.queue == 1


def test_the_first_of_several_held_queues_is_announced() -> None:
    port = PortScheduler(None, [QueueConfig(max_rate_bps=8000), QueueConfig(max_rate_bps=80_000)])
    for queue in (0, 1):
        for _ in range(2):
            port.enqueue(queue, None, 1000, 0)
        assert port.dequeue(0) is not None
    assert port.dequeue(0) is None
    assert port.next_eligible_ns(0) == 10**8
    leaving = port.dequeue(10**8)
    assert leaving is not None
    assert leaving.queue == 1


def test_a_shaped_high_level_leaves_the_rest_to_those_below(saturate: Any) -> None:
    configs = [
        QueueConfig(level=level, max_rate_bps=GBPS // 4 if level else None) for level in range(3)
    ]
    served = saturate(PortScheduler(GBPS, configs), dict.fromkeys(range(3), MIXED), 50_000_000)
    shares = Counter({queue: round(served.rate_bps(queue) / GBPS, 2) for queue in range(3)})
    assert shares == {0: 0.5, 1: 0.25, 2: 0.25}


def test_a_shaped_queue_still_has_its_share_inside_its_level(saturate: Any) -> None:
    # Its maximum is above its share, so only its share limits it.
    configs = [QueueConfig(weight=1, max_rate_bps=6 * GBPS // 10), QueueConfig(weight=1)]
    served = saturate(PortScheduler(GBPS, configs), {0: MIXED, 1: [1500, 64, 700]}, 100_000_000)
    assert served.rate_bps(0) == pytest.approx(GBPS / 2, rel=0.02)
