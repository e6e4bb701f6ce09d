"""A flow's segments at a rate that changes."""

from __future__ import annotations

from echelon_lab.endhosts.shim import AckSegment, DataSegment
from echelon_lab.endhosts.transport import CREDIT_SEGMENTS, FlowEnds, FlowSender, SegmentPacer
from tests.echelon.lab.endhosts.conftest import ToyClock

SECOND = 10**9
KEY = b"\x01\x00\x01\x00\x01"


def paced(rate_Bps: float | None, count: int) -> tuple[ToyClock, SegmentPacer, list[int]]:  # noqa: N803
    """Return a pacer that was told a rate and offered segments of 1000 bytes, and the times at
    which they leave.
    """
    clock = ToyClock()
    times: list[int] = []
    pacer = SegmentPacer(clock, lambda _: times.append(clock.now_ns))
    pacer.pace(rate_Bps)
    for number in range(count, 0, -1):
        pacer.offer(DataSegment(1000 * number, 1000))
    return clock, pacer, times


def test_segments_leave_at_the_rate() -> None:
    clock, pacer, times = paced(1000.0, 10)
    clock.run()
    assert not pacer.holds
    assert times[0] == 0
    # A segment takes a second; rounding up to nanoseconds is made good, not summed up.
    assert all(number * SECOND <= time <= number * SECOND + 2 for number, time in enumerate(times))


def test_without_a_rate_they_pass_at_once() -> None:
    _, pacer, times = paced(None, 5)
    assert times == [0] * 5
    assert not pacer.holds


def test_a_new_rate_counts_for_what_is_left_of_a_wait() -> None:
    """Half of the wait passes at one segment a second, the other half at two: the second segment
    leaves after 0.75 s.
    """
    clock, pacer, times = paced(1000.0, 3)
    clock.run(until_ns=SECOND // 2)
    clock.call_at(SECOND // 2, pacer.pace, 2000.0)
    clock.run()
    assert [round(time / SECOND, 6) for time in times] == [0, 0.75, 1.25]


def test_a_flow_of_rate_zero_waits_until_it_is_told_another() -> None:
    clock, pacer, times = paced(0.0, 4)
    clock.run()
    assert times == []
    assert pacer.holds
    clock.call_at(5 * SECOND, pacer.pace, 1000.0)
    clock.run(until_ns=6 * SECOND + 1)
    clock.call_at(7 * SECOND, pacer.pace, None)
    clock.run(until_ns=7 * SECOND)
    assert [time // SECOND for time in times] == [5, 6, 7, 7]
    assert not pacer.holds


def test_what_a_sender_missed_it_may_make_good_up_to_a_limit() -> None:
    clock, pacer, times = paced(1000.0, 1)
    clock.call_at(100 * SECOND, lambda: [pacer.offer(DataSegment(1000, 1000)) for _ in range(6)])
    clock.run()
    assert times.count(100 * SECOND) == CREDIT_SEGMENTS + 1
    assert times[-1] <= 103 * SECOND + 4


def test_a_flow_that_waits_for_its_rate_is_not_sent_again() -> None:
    """Time-outs do not count while segments are held back, however long that is."""
    clock = ToyClock()
    ends = FlowEnds("h1", clock)
    sent: list[DataSegment] = []
    sender = FlowSender(10_000, 1000, 8, SECOND)
    ends.send(KEY, sender, sent.append, "a flow", paced=True)
    ends.pace(KEY, 0.0)
    ends.deliver(0, KEY, AckSegment(9000))
    clock.run(until_ns=100 * SECOND)
    assert [segment.remaining for segment in sent] == [10_000]
    clock.call_at(100 * SECOND, ends.pace, KEY, 4000.0)
    clock.run(until_ns=100 * SECOND + SECOND // 4 + 1)
    assert [segment.remaining for segment in sent] == [10_000, 9000, 8000]
    # The window is two packets by now, and both are on their way.
    assert not any(segment.resent for segment in sent)
    # Nothing answers: now the first is sent again.
    clock.run(until_ns=103 * SECOND)
    assert sent[-1].resent


def test_a_flow_that_is_over_or_not_paced_needs_no_rate() -> None:
    clock = ToyClock()
    ends = FlowEnds("h1", clock)
    ends.pace(KEY, 1.0)
    sent: list[DataSegment] = []
    ends.send(KEY, FlowSender(2000, 1000, 8, SECOND, initial=8), sent.append, "a flow")
    ends.pace(KEY, 0.0)
    assert len(sent) == 2
