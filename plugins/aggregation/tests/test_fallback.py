"""The fallback, packet by packet, against the page of the protocol."""

from __future__ import annotations

from dataclasses import replace

from echelon_aggregation.fallback import Fallback
from echelon_aggregation.group import Group
from echelon_aggregation.wire import Flag, Kind, Packet

GROUP = Group(3, window=2, values=1, least_timeout_s=0.01)


def contribution(
    workers: int, value: int | None, block: int = 0, flags: int = 0, following: int = 0
) -> Packet:
    values = b"" if value is None else value.to_bytes(4, "big", signed=True)
    flags |= Flag.EMPTY if value is None else 0
    return Packet(Kind.CONTRIBUTION, 1, 1, block, workers, 130, following, flags, values)


def test_it_adds_what_is_new_and_ends_with_the_result_for_all() -> None:
    fallback = Fallback(GROUP)
    assert fallback.receive(contribution(1, 5, following=7), 0.0) == []
    assert fallback.receive(contribution(3, 100), 0.0) == [], "worker 0 is in the sum already"
    assert fallback.receive(contribution(4, None, flags=Flag.MARKED, following=9), 0.0) == []
    ((to, result),) = fallback.receive(contribution(2, -7), 0.0)
    assert to is None
    assert result == Packet(
        Kind.RESULT, 1, 1, 0, 7, 130, 9, Flag.MARKED, (-2).to_bytes(4, "big", signed=True)
    )


def test_a_sum_of_nothing_is_empty_and_one_beyond_32_bits_says_so() -> None:
    ((_, result),) = Fallback(GROUP).receive(contribution(7, None), 0.0)
    assert (result.flags, result.values) == (Flag.EMPTY, b"")
    fallback = Fallback(GROUP)
    fallback.receive(contribution(1, 2**31 - 1), 0.0)
    ((_, result),) = fallback.receive(contribution(6, 1), 0.0)
    assert (result.flags, result.values) == (
        Flag.OVERFLOW,
        (-(2**31)).to_bytes(4, "big", signed=True),
    )


def test_a_late_contribution_is_answered_to_its_workers_alone() -> None:
    fallback = Fallback(GROUP, host=1)
    fallback.receive(contribution(7, 5), 0.0)
    ((to, answer),) = fallback.receive(contribution(4, 5), 0.0)
    assert (to, answer.kind, answer.workers, answer.values) == (
        2,
        Kind.ANSWER,
        2,
        (5).to_bytes(4, "big"),
    )


def test_without_switches_each_worker_gets_the_result() -> None:
    fallback = Fallback(replace(GROUP, by_tree=False))
    assert [to for to, _ in fallback.receive(contribution(7, 5), 0.0)] == [0, 1, 2]


def test_it_asks_the_missing_after_again_at_growing_intervals() -> None:
    fallback = Fallback(GROUP)
    again = contribution(2, 5, flags=Flag.AGAIN)
    assert [(to, packet.kind) for to, packet in fallback.receive(again, 0.0)] == [
        (0, Kind.REQUEST),
        (2, Kind.REQUEST),
    ]
    asked = [at for at in range(1, 100) if fallback.receive(again, at / 1000)]
    assert asked == [10, 30, 70]


def test_an_answer_is_the_result() -> None:
    fallback = Fallback(GROUP)
    fallback.receive(contribution(1, 5, flags=Flag.AGAIN), 0.0)
    answer = replace(contribution(4, 42), kind=Kind.ANSWER)
    ((to, result),) = fallback.receive(answer, 0.0)
    assert (to, result.kind, result.workers, result.values) == (
        None,
        Kind.RESULT,
        7,
        (42).to_bytes(4, "big"),
    )
    assert fallback.receive(answer, 0.0) == []


def test_it_forgets_what_all_workers_have() -> None:
    fallback = Fallback(GROUP)
    fallback.receive(contribution(7, 5, block=0), 0.0)
    fallback.receive(contribution(1, 5, block=2), 0.0)
    assert fallback.receive(contribution(1, 5, block=0), 0.0), (
        "block 2 says only that its sender has the result"
    )
    fallback.receive(contribution(1, 5, block=4), 0.0)
    assert fallback.receive(contribution(1, 5, block=0), 0.0) == []


def test_what_belongs_to_nothing_is_counted_and_dropped() -> None:
    fallback = Fallback(GROUP)
    good = contribution(7, 5)
    wrong = [
        replace(good, session=2),
        replace(good, tree=2),
        replace(good, kind=Kind.RESULT),
        replace(good, workers=8),
        replace(good, workers=0),
        replace(good, values=b""),
        replace(good, values=bytes(8)),
    ]
    assert [fallback.receive(packet, 0.0) for packet in wrong] == [[]] * len(wrong)
    assert fallback.tally.ignored == len(wrong)
