"""The worker, packet by packet, against the page of the protocol."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from echelon_aggregation.group import Group
from echelon_aggregation.wire import Flag, Kind, Packet
from echelon_aggregation.worker import Worker, all_reduce, broadcast, reduce_scatter
from tests.faults import naming

TWO = Group(2, window=2, values=2, least_timeout_s=0.01)
FOUR_SLOTS = Group(2, window=4, values=1)


def whole(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "big", signed=True) for number in numbers)


def result(of: Packet, values: bytes, next_exponent: int = 0, flags: int = 0) -> Packet:
    empty = 0 if values else Flag.EMPTY
    return replace(
        of,
        kind=Kind.RESULT,
        workers=3,
        values=values,
        next_exponent=next_exponent,
        flags=flags | empty,
    )


def test_whole_numbers_go_chunk_by_chunk_to_the_slots() -> None:
    worker = Worker(TWO, 1)
    collective = all_reduce(np.array([1, -2, 3, 4, 5], np.int32))
    first, second = worker.submit(collective, 0.0)
    assert (first.block, first.values, first.workers) == (0, whole(1, -2), 2)
    assert (second.block, second.values) == (1, whole(3, 4))
    (third,) = worker.receive(result(first, whole(10, 20)), 0.1)
    assert (third.block, third.values) == (2, whole(5, 0)), "the last chunk is filled with zeros"
    assert worker.receive(result(third, whole(7, 0)), 0.2) == []
    assert not collective.done
    worker.receive(result(second, whole(30, 2**31 - 1)), 0.3)
    assert collective.done
    assert collective.result.tolist() == [10, 20, 30, 2**31 - 1, 7]
    assert worker.next_wake is None


def test_real_numbers_begin_with_an_empty_block_that_agrees_on_the_exponent() -> None:
    worker = Worker(TWO, 0)
    collective = all_reduce(np.array([1.0, 0.5], np.float32))
    (packet,) = worker.submit(collective, 0.0)
    assert (packet.flags, packet.values, packet.next_exponent) == (Flag.EMPTY, b"", 127)
    (packet,) = worker.receive(result(packet, b"", next_exponent=128), 0.1)
    # One worker's values below 2: exponent 128, two workers: h = 1; a unit is 2^(128 + 1 - 156) =
    # 2^-27.
    assert (packet.block, packet.exponent, packet.values) == (2, 128, whole(2**27, 2**26))
    worker.receive(result(packet, whole(2**28, 3)), 0.2)
    assert collective.done
    assert collective.result.tolist() == [2.0, 3 * 2.0**-27]
    assert collective.bound == 2.0**-27


def test_blocks_that_are_zero_everywhere_or_not_finite_carry_no_values() -> None:
    worker = Worker(TWO, 0)
    zero, endless = (
        all_reduce(np.zeros(2, np.float32)),
        all_reduce(np.array([np.inf, 1], np.float32)),
    )
    (packet,) = worker.submit(zero, 0.0)
    worker.submit(endless, 0.0)
    (packet,) = worker.receive(result(packet, b"", 0), 0.1)
    assert (packet.exponent, packet.flags) == (0, Flag.EMPTY)
    (packet,) = worker.receive(result(packet, b"", 0), 0.2)
    assert zero.done
    assert zero.result.tolist() == [0, 0]
    assert packet.next_exponent == 255
    (packet,) = worker.receive(result(packet, b"", 255), 0.3)
    assert (packet.exponent, packet.flags) == (255, Flag.EMPTY)
    worker.receive(result(packet, b""), 0.4)
    assert np.isnan(endless.result).all()


def test_a_sum_that_overflowed_is_sent_again_on_a_coarser_scale() -> None:
    worker = Worker(TWO, 0)
    collective = all_reduce(np.array([1.0, 0.5], np.float32))
    (packet,) = worker.submit(collective, 0.0)
    (packet,) = worker.receive(result(packet, b"", next_exponent=120), 0.1)
    assert packet.flags & Flag.OVERFLOW, "the worker knows that its values do not fit"
    (packet,) = worker.receive(result(packet, whole(1, 1), flags=Flag.OVERFLOW), 0.2)
    assert (packet.block, packet.exponent, packet.flags) == (4, 128, 0)
    worker.receive(result(packet, whole(2**27, 2**26)), 0.3)
    assert collective.result.tolist() == [1.0, 0.5]


def test_workers_that_broadcast_nothing_send_empty_blocks() -> None:
    values = np.array([1, 2], np.int32)
    (packet,) = Worker(TWO, 1).submit(broadcast(values, root=False), 0.0)
    assert (packet.flags, packet.values) == (Flag.EMPTY, b"")


def test_a_worker_keeps_its_share_of_a_reduce_scatter() -> None:
    worker = Worker(TWO, 1)
    share = reduce_scatter(np.array([1, 2, 3, 4, 5, 6], np.int32), 1, 2)
    packets = worker.submit(share, 0.0)
    packets += worker.receive(result(packets[0], whole(1, 2)), 0.0)
    worker.receive(result(packets[1], whole(3, 4)), 0.0)
    worker.receive(result(packets[2], whole(5, 6)), 0.0)
    assert share.result.tolist() == [4, 5, 6]
    with pytest.raises(ValueError, check=naming(5, 2)):
        reduce_scatter(np.zeros(5, np.int32), 1, 2)


@pytest.mark.parametrize(
    ("shared", "marked"), [(False, [False, False, True, True]), (True, [True] * 4)]
)
def test_packets_are_sent_again_as_they_were_and_then_with_again(
    shared: bool, marked: list[bool]
) -> None:
    group = replace(TWO, shared_memory=shared, least_timeout_s=0.01, most_timeout_s=1.0)
    worker = Worker(group, 0)
    (packet,) = worker.submit(all_reduce(np.array([1, 2], np.int32)), 0.0)
    now, found, waits = 0.0, [], []
    for _ in marked:
        assert worker.next_wake is not None
        waits.append(worker.next_wake - now)
        assert worker.wake(worker.next_wake - 1e-6) == []
        now = worker.next_wake
        (again,) = worker.wake(now)
        assert replace(again, flags=packet.flags) == packet
        found.append(bool(again.flags & Flag.AGAIN))
    assert found == marked
    assert waits == [1.0] * 4, "the longest timeout, as nothing has been measured"


def test_timeouts_follow_the_measured_times_and_double() -> None:
    worker = Worker(replace(TWO, least_timeout_s=0.001), 0)
    now = 0.0
    for _ in range(60):
        (packet,) = worker.submit(all_reduce(np.array([1, 2], np.int32)), now)
        now += 0.1
        worker.receive(result(packet, whole(1, 1)), now)
    assert worker.smoothed_s == pytest.approx(0.1)
    worker.submit(all_reduce(np.array([1, 2], np.int32)), now)
    waits = []
    for _ in range(5):
        assert worker.next_wake is not None
        waits.append(worker.next_wake - now)
        now = worker.next_wake
        worker.wake(now)
    assert waits[1] == pytest.approx(2 * waits[0])
    assert waits[2] == pytest.approx(4 * waits[0])
    assert waits[4] == pytest.approx(1.0)
    smoothed_s = worker.smoothed_s
    (packet,) = worker.wake(worker.next_wake or 0.0)
    worker.receive(result(packet, whole(1, 1)), now + 100)
    assert worker.smoothed_s == smoothed_s, "a packet that was sent again measures nothing (Karn)"


def test_the_first_measured_time_shortens_what_waits() -> None:
    worker = Worker(replace(TWO, most_timeout_s=10.0, least_timeout_s=0.01), 0)
    packets = worker.submit(all_reduce(np.array([1, 2, 3, 4], np.int32)), 0.0)
    assert worker.next_wake == 1.0
    worker.receive(result(packets[0], whole(1, 1)), 0.1)
    # RFC 6298: 0.1 and 4 times half of it.
    assert worker.next_wake == pytest.approx(0.1 + 0.3)


def test_a_request_is_answered_with_the_result_or_with_the_contribution() -> None:
    worker = Worker(TWO, 0)
    (packet,) = worker.submit(all_reduce(np.array([1, 2], np.int32)), 0.0)
    request = replace(packet, kind=Kind.REQUEST, values=b"", flags=Flag.EMPTY)
    assert worker.receive(request, 0.1) == [replace(packet, flags=Flag.AGAIN)]
    assert worker.receive(replace(request, block=2), 0.1) == [], "it has not come so far"
    worker.receive(result(packet, whole(8, 9)), 0.2)
    (answer,) = worker.receive(request, 0.3)
    assert (answer.kind, answer.values, answer.workers) == (Kind.ANSWER, whole(8, 9), 1)


def test_results_are_kept_for_two_windows() -> None:
    worker = Worker(TWO, 0)
    packets = []
    for _ in range(3):
        packets += worker.submit(all_reduce(np.array([1, 2], np.int32)), 0.0)
        worker.receive(result(packets[-1], whole(1, 1)), 0.0)
    kept = [
        bool(worker.receive(replace(packet, kind=Kind.REQUEST, values=b"", flags=Flag.EMPTY), 0.0))
        for packet in packets
    ]
    assert kept == [False, True, True]


def test_what_is_not_the_result_of_a_block_under_way_is_ignored() -> None:
    worker = Worker(TWO, 0)
    collective = all_reduce(np.array([1, 2], np.int32))
    (packet,) = worker.submit(collective, 0.0)
    good = result(packet, whole(1, 2))
    for wrong in (
        replace(good, session=2),
        replace(good, tree=2),
        replace(good, block=2),
        replace(good, workers=1),
        replace(good, kind=Kind.CONTRIBUTION),
        replace(good, values=whole(1)),
    ):
        assert worker.receive(wrong, 0.1) == []
    assert not collective.done
    assert worker.tally.ignored == 6


def test_marked_results_halve_the_window_once_in_a_round_trip() -> None:
    worker = Worker(FOUR_SLOTS, 0)
    packets = worker.submit(all_reduce(np.arange(40, dtype=np.int32)), 0.0)
    assert len(packets) == 4
    sent = worker.receive(result(packets[0], whole(1), flags=Flag.MARKED), 0.1)
    assert sent == [], "two may be under way, and three are"
    assert worker.receive(result(packets[1], whole(1), flags=Flag.MARKED), 0.11) == []
    (packet,) = worker.receive(result(packets[2], whole(1)), 0.12)
    assert packet.block == 4, "the first one that waits"
    for step in range(12):
        under_way = worker.waits_for
        worker.receive(result(replace(packet, block=under_way[0]), whole(1)), 0.2 + step)
    assert len(worker.waits_for) == 4


def test_the_first_block_without_a_result_is_sent_though_the_window_is_closed() -> None:
    worker = Worker(FOUR_SLOTS, 0)
    packets = worker.submit(all_reduce(np.arange(40, dtype=np.int32)), 0.0)
    sent = []
    for number in (3, 2, 1):
        sent += worker.receive(result(packets[number], whole(1)), 0.1)
    assert [packet.block for packet in sent] == [0, 7, 6, 5], (
        "the first one again, since the others overtook it"
    )
    (packet,) = worker.receive(result(packets[0], whole(1), flags=Flag.MARKED), 0.1)
    assert packet.block == 4
    assert worker.waits_for == [4, 5, 6, 7]


def test_a_group_refuses_numbers_that_the_protocol_does_not_have() -> None:
    for wrong in (
        {"workers": 33},
        {"workers": 0},
        {"window": 3},
        {"values": 0},
        {"least_timeout_s": 2.0},
    ):
        (name, value), *_ = wrong.items()
        with pytest.raises(ValueError, check=naming(f"{name}: {value}")):
            replace(TWO, **wrong)
    with pytest.raises(ValueError, check=naming("rank: 2")):
        Worker(TWO, 2)


def test_what_later_results_overtake_is_sent_again_at_once() -> None:
    worker = Worker(Group(2, window=8, values=1), 0)
    first, *others = worker.submit(all_reduce(np.arange(8, dtype=np.int32)), 0.0)
    # The results of the two packets that follow are no reason: a switch may have been given them in
    # another order.
    assert [worker.receive(result(packet, whole(1)), 0.1) for packet in others[:2]] == [[], []]
    assert worker.receive(result(others[2], whole(1)), 0.2) == [first]
    assert [worker.receive(result(packet, whole(1)), 0.3) for packet in others[3:]] == [[]] * 4
    for round_s, again in ((0.4, [first]), (0.5, [])):
        # From the third time on it would be with AGAIN, which is for the timeout.
        following = worker.submit(all_reduce(np.arange(4, dtype=np.int32)), round_s)
        assert [packet.block % 8 for packet in following] == [1, 2, 3]
        assert [worker.receive(result(packet, whole(1)), round_s) for packet in following] == [
            [],
            [],
            again,
        ]
    assert worker.tally.resent == 2


def test_where_memory_is_shared_results_may_overtake_each_other() -> None:
    worker = Worker(Group(2, window=8, values=1, shared_memory=True), 0)
    packets = worker.submit(all_reduce(np.arange(8, dtype=np.int32)), 0.0)
    assert [worker.receive(result(packet, whole(1)), 0.1) for packet in packets[1:]] == [[]] * 7
