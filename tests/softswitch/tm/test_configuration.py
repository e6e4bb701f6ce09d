"""Configuration: its limits, its defaults, and its change while packets wait. Depth and drops."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softswitch.tm import STRICT_QUEUES, QueueConfig
from tests.faults import naming
from tests.reference.traffic_manager import PortScheduler


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("level", -1),
        ("level", 8),
        ("weight", 0),
        ("weight", 1024),
        ("weight", 1.5),
        ("level", True),
        ("min_rate_bps", -1),
        ("max_rate_bps", 0),
        ("depth_bytes", -1),
        ("guaranteed_level", 8),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{field}: "):
        QueueConfig(**{field: value})


def test_a_minimum_above_the_maximum_is_refused() -> None:
    with pytest.raises(ValueError, check=naming("max_rate_bps: 10", "min_rate_bps 11")):
        QueueConfig(min_rate_bps=11, max_rate_bps=10)


def test_wrong_queues_and_rates_are_refused_at_configuration() -> None:
    with pytest.raises(ValueError, check=naming(33, 32)):
        PortScheduler(None, [QueueConfig()] * 33)
    port = PortScheduler(None)
    for queue in (-1, 8):
        with pytest.raises(ValueError, check=naming(f"queue: {queue}")):
            port.configure(queue, QueueConfig(), 0)
    with pytest.raises(ValueError, match="rate_bps"):
        port.set_rate(0, 0)


def test_an_unconfigured_port_is_strict_by_queue_number() -> None:
    port = PortScheduler(None)
    for queue in (3, 0, 7, 5):
        port.enqueue(queue, None, 100, 0)
    order = []
    while (leaving := port.dequeue(0)) is not None:
        order.append(leaving.queue)
    assert order == [7, 5, 3, 0]
    assert [port.config(queue) for queue in range(8)] == list(STRICT_QUEUES)


def test_a_port_may_have_as_many_queues_as_a_port_group() -> None:
    port = PortScheduler(None, [QueueConfig(level=queue // 4) for queue in range(32)])
    for queue in range(32):
        assert port.enqueue(queue, None, 100, 0)
    assert not port.enqueue(32, None, 100, 0)
    order = [
        leaving.queue for leaving in iter(lambda: port.dequeue(0), None) if leaving is not None
    ]
    assert [queue // 4 for queue in order] == sorted(
        (queue // 4 for queue in range(32)), reverse=True
    )


def test_queues_are_added_and_removed_but_not_with_packets_in_them() -> None:
    port = PortScheduler(None)
    port.set_queues(12, 0)
    assert port.enqueue(11, None, 100, 0)
    with pytest.raises(ValueError, check=naming("1 packets", "queue 11")):
        port.set_queues(8, 0)
    assert port.dequeue(0) is not None
    port.set_queues(3, 0)
    assert (port.queues, len(port.stats)) == (3, 3)
    assert not port.enqueue(3, None, 100, 0)
    assert port.unknown_queue_packets == 1


def test_packets_stay_in_a_queue_that_is_not_scheduled() -> None:
    port = PortScheduler(None, [QueueConfig(), QueueConfig(scheduled=False)])
    assert not port.is_transparent
    for queue in (0, 1, 1):
        port.enqueue(queue, None, 100, 0)
    leaving = port.dequeue(0)
    assert leaving is not None
    assert leaving.queue == 0
    assert port.dequeue(0) is None
    assert port.next_eligible_ns(0) is None
    port.configure(1, QueueConfig(), 5)
    assert [port.dequeue(5) is not None for _ in range(3)] == [True, True, False]


@given(st.integers(0, 5000), st.lists(st.integers(0, 1500), max_size=60))
def test_a_queue_never_holds_more_than_its_depth(depth_bytes: int, lengths: list[int]) -> None:
    port = PortScheduler(None, [QueueConfig(depth_bytes=depth_bytes)])
    for length in lengths:
        room = depth_bytes - port.stats[0].queued_bytes
        assert port.enqueue(0, None, length, 0) == (length <= room)
        assert port.stats[0].queued_bytes <= depth_bytes
    stats = port.stats[0]
    assert stats.enqueued_packets + stats.dropped_packets == len(lengths)
    assert stats.enqueued_bytes + stats.dropped_bytes == sum(lengths)
    assert stats.peak_bytes == stats.queued_bytes


@pytest.mark.parametrize("queue", [-1, 8, 1000])
def test_an_unknown_queue_is_a_counted_drop(queue: int) -> None:
    port = PortScheduler(None)
    assert not port.enqueue(queue, None, 99, 0)
    assert port.unknown_queue_packets == 1
    assert port.dequeue(0) is None


def test_depths_are_of_the_packets_own_queue_without_itself() -> None:
    port = PortScheduler(None, [QueueConfig(), QueueConfig()])
    port.enqueue(1, None, 100, 0)
    for _ in range(3):
        port.enqueue(0, None, 100, 0)
    left = [port.dequeue(5) for _ in range(4)]
    assert sorted((d.queue, d.enq_qdepth_pkts, d.deq_qdepth_pkts) for d in left if d) == [
        (0, 0, 2),
        (0, 1, 1),
        (0, 2, 0),
        (1, 0, 0),
    ]


def waiting_port(*configs: QueueConfig) -> PortScheduler:
    port = PortScheduler(None, configs)
    for queue in range(len(configs)):
        for serial in range(60):
            port.enqueue(queue, serial, 100, 0)
    return port


def drain(port: PortScheduler, count: int, now_ns: int = 0) -> list[int]:
    order = []
    for _ in range(count):
        leaving = port.dequeue(now_ns)
        assert leaving is not None
        order.append(leaving.queue)
    return order


def test_a_new_level_counts_from_the_next_packet_on() -> None:
    port = waiting_port(QueueConfig(level=3), QueueConfig(level=2))
    assert drain(port, 3) == [0, 0, 0]
    port.configure(1, QueueConfig(level=4), 0)
    assert drain(port, 3) == [1, 1, 1]
    port.configure(1, QueueConfig(level=3), 0)
    assert sorted(drain(port, 20)) == [0] * 10 + [1] * 10


def test_a_new_weight_counts_from_the_next_packet_on() -> None:
    port = waiting_port(QueueConfig(weight=1), QueueConfig(weight=1))
    drain(port, 20)
    port.configure(1, QueueConfig(weight=3), 0)
    order = drain(port, 20)
    assert order.count(1) == 15
    assert order[:8].count(1) == 6


def test_lifting_a_maximum_releases_the_queue_at_once() -> None:
    port = waiting_port(QueueConfig(max_rate_bps=8))
    drain(port, 1)
    assert port.dequeue(0) is None
    assert port.next_eligible_ns(0) == 100 * 10**9
    port.configure(0, QueueConfig(max_rate_bps=80), 50 * 10**9)  # 50 bytes are still owed
    assert port.next_eligible_ns(50 * 10**9) == 55 * 10**9
    port.configure(0, QueueConfig(), 51 * 10**9)
    assert drain(port, 59, 51 * 10**9) == [0] * 59


def test_a_new_maximum_counts_from_the_next_packet_on() -> None:
    port = waiting_port(QueueConfig())
    drain(port, 10)
    port.configure(0, QueueConfig(max_rate_bps=800), 0)
    drain(port, 1)
    assert port.dequeue(0) is None
    assert port.next_eligible_ns(0) == 10**9


def test_a_new_minimum_counts_from_the_next_packet_on() -> None:
    port = waiting_port(QueueConfig(level=0), QueueConfig(level=7))
    assert drain(port, 2) == [1, 1]
    port.configure(0, QueueConfig(level=0, min_rate_bps=8), 0)
    assert drain(port, 3) == [0, 1, 1]


def test_a_smaller_depth_loses_nothing_that_waits() -> None:
    port = waiting_port(QueueConfig())
    port.configure(0, QueueConfig(depth_bytes=150), 0)
    assert not port.enqueue(0, None, 100, 0)
    drain(port, 60)
    assert port.enqueue(0, None, 100, 0)
    assert port.stats[0].dropped_packets == 1


def test_a_new_port_rate_also_moves_the_packet_on_the_line() -> None:
    port = PortScheduler(8000)
    for _ in range(3):
        port.enqueue(0, None, 1000, 0)
    drain(port, 1)
    assert port.next_eligible_ns(0) == 10**9
    port.set_rate(80_000, 500_000_000)  # half of it is still to go
    assert port.rate_bps == 80_000
    assert port.next_eligible_ns(500_000_000) == 550_000_000
    port.set_rate(None, 500_000_000)
    assert drain(port, 2, 500_000_000) == [0, 0]


def test_whoever_serves_the_port_hears_of_changes() -> None:
    port = PortScheduler(8000)
    heard: list[int] = []
    port.on_reconfigured = heard.append
    port.configure(2, QueueConfig(), 5)
    port.set_rate(9000, 6)
    assert heard == [5, 6]


def test_a_packet_that_changed_length_behind_the_queue_occupies_the_line_for_its_new_length() -> (
    None
):
    port = PortScheduler(8 * 10**9)
    for _ in range(4):
        port.enqueue(0, None, 100, 0)
    drain(port, 1)
    port.correct_line(-100)
    assert port.next_eligible_ns(0) == 0
    drain(port, 1)
    port.correct_line(+20)
    assert port.next_eligible_ns(0) == 120
