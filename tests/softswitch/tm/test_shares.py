"""Sharing inside a level: long-run shares, distance from ideal sharing at every packet, how finely
turns alternate.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import groupby
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch.tm import QueueConfig
from tests.drawing import examples
from tests.reference.traffic_manager import PortScheduler


def turns(weights: list[int], count: int, length: int = 1000) -> list[int]:
    """Return the order in which the queues are served, all always backlogged with packets of one
    size.
    """
    port = PortScheduler(None, [QueueConfig(weight=weight) for weight in weights])
    order = []
    for queue in range(len(weights)):
        port.enqueue(queue, None, length, 0)
        port.enqueue(queue, None, length, 0)
    for _ in range(count):
        leaving = port.dequeue(0)
        assert leaving is not None
        order.append(leaving.queue)
        port.enqueue(leaving.queue, None, length, 0)
    return order


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 1023), st.lists(st.integers(64, 1500), min_size=1, max_size=12)),
        min_size=2,
        max_size=8,
    )
)
def test_no_queue_is_ever_a_packet_away_from_its_share(queues: list[tuple[int, list[int]]]) -> None:
    # Stoica et al. 1996, theorem 1: with the backlogged queues unchanged, the lag stays below the
    # largest packet.
    weights = [weight for weight, _ in queues]
    port = PortScheduler(10**10, [QueueConfig(weight=weight) for weight in weights])
    given_packets = Counter[int]()

    def fill(queue: int) -> None:
        sizes = queues[queue][1]
        port.enqueue(queue, None, sizes[given_packets[queue] % len(sizes)], 0)
        given_packets[queue] += 1

    for queue in range(len(queues)):
        fill(queue)
        fill(queue)
    largest = max(max(sizes) for _, sizes in queues)
    served = Counter[int]()
    now_ns: int | None = 0
    for _ in range(400):
        assert now_ns is not None
        leaving = port.dequeue(now_ns)
        assert leaving is not None
        served[leaving.queue] += leaving.length_bytes
        fill(leaving.queue)
        now_ns = port.next_eligible_ns(now_ns)
        total = served.total()
        for queue, weight in enumerate(weights):
            lag = Fraction(weight * total, sum(weights)) - served[queue]
            assert abs(lag) <= largest


@pytest.mark.parametrize(
    "weights",
    [
        [1, 1],
        [1, 2],
        [1, 255],
        pytest.param([255, 254, 1], marks=pytest.mark.wide),
        [1, 2, 3, 4, 5, 6, 7, 8],
        [50, 1, 1, 100, 1, 1, 1, 200],
    ],
)
def test_shares_are_within_two_percent_of_the_weights_whatever_the_sizes(
    weights: list[int], saturate: Any
) -> None:
    random = Random(5)
    sizes = {
        # The lighter a queue the larger its packets: the worst case of any scheme that counts
        # packets.
        queue: [
            random.randint(64, 1500) if queue % 2 else random.choice([64, 1500]) for _ in range(997)
        ]
        for queue in range(len(weights))
    }
    port = PortScheduler(10**10, [QueueConfig(weight=weight) for weight in weights])
    # Long enough for one packet to be under 1 % of the smallest share.
    until_ns = max(4_000_000, 150 * 1200 * sum(weights) // min(weights))
    served = saturate(port, sizes, until_ns)
    total = served.bytes.total()
    for queue, weight in enumerate(weights):
        assert served.bytes[queue] / total == pytest.approx(weight / sum(weights), rel=0.02)


def test_weights_one_to_two_alternate_as_finely_as_packets_allow() -> None:
    assert turns([1, 2], 9) == [1, 0, 1, 1, 0, 1, 1, 0, 1]


def test_equal_weights_take_turns() -> None:
    order = turns([5] * 8, 80)
    assert all(set(order[i : i + 8]) == set(range(8)) for i in range(0, 80, 8))


def test_a_heavy_queue_is_spread_between_light_ones() -> None:
    # Fair queueing by finish time alone, and deficit round robin, would give queue 0 seven packets
    # in a row.
    order = turns([7, 1, 1, 1, 1, 1, 1, 1], 140)
    runs = [(queue, len(list(run))) for queue, run in groupby(order)]
    assert max(length for queue, length in runs if queue == 0) <= 2
    assert Counter(order) == {0: 70, **dict.fromkeys(range(1, 8), 10)}


def test_a_queue_that_pauses_is_owed_nothing_and_owes_nothing() -> None:
    port = PortScheduler(None, [QueueConfig(), QueueConfig()])
    for serial in range(100):
        port.enqueue(0, serial, 1000, 0)
    for _ in range(50):
        port.dequeue(0)
    for serial in range(100):
        port.enqueue(1, serial, 1000, 0)
    order = []
    while (leaving := port.dequeue(0)) is not None:
        order.append(leaving.queue)
    assert {tuple(sorted(order[i : i + 2])) for i in range(0, 100, 2)} == {(0, 1)}


def test_a_pause_between_packets_gains_nothing() -> None:
    """A queue that empties after each packet and returns at once still has half, not more."""
    port = PortScheduler(None, [QueueConfig(), QueueConfig()])
    for serial in range(200):
        port.enqueue(0, serial, 1000, 0)
    order = []
    for serial in range(200):
        if port.stats[1].queued_packets == 0:
            port.enqueue(1, serial, 1000, 0)
        leaving = port.dequeue(0)
        assert leaving is not None
        order.append(leaving.queue)
    assert order.count(1) == 100


def test_an_idle_level_forgets_who_had_more() -> None:
    port = PortScheduler(None, [QueueConfig(), QueueConfig()])
    for _ in range(50):  # alone, with the level idle after each packet
        port.enqueue(0, None, 1000, 0)
        port.dequeue(0)
    for queue in (1, 0):
        for _ in range(10):
            port.enqueue(queue, None, 1000, 0)
    order = [leaving.queue for _ in range(8) if (leaving := port.dequeue(0))]
    assert order.count(0) == 4


def test_a_queue_that_changes_level_brings_no_debt_along() -> None:
    port = PortScheduler(None, [QueueConfig(level=1), QueueConfig(level=0)])
    for queue in (0, 1):
        for _ in range(100):
            port.enqueue(queue, None, 1000, 0)
    for _ in range(50):
        port.dequeue(0)
    port.configure(0, QueueConfig(level=0), 0)
    order = [leaving.queue for _ in range(20) if (leaving := port.dequeue(0))]
    assert order.count(0) == 10


def test_levels_share_independently_of_each_other(saturate: Any) -> None:
    """The rate that a level above takes does not disturb the shares below."""
    configs = [
        QueueConfig(level=0, weight=1),
        QueueConfig(level=0, weight=3),
        QueueConfig(level=5, max_rate_bps=6 * 10**9),
    ]
    served = saturate(
        PortScheduler(10**10, configs), {0: [300, 1500], 1: [64], 2: [700]}, 10_000_000
    )
    assert served.rate_bps(2) == pytest.approx(6e9, rel=0.01)
    assert served.rate_bps(0) == pytest.approx(1e9, rel=0.02)
    assert served.rate_bps(1) == pytest.approx(3e9, rel=0.02)
