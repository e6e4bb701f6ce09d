"""The rules of the RFCs for a sender and a receiver, on networks where the outcome can be worked
out by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from echelon_lab.endhosts.tcp.frames import CE, CWR, ECE, ECT0, SYN, parse
from echelon_lab.endhosts.tcp.newreno import NewReno, initial_window
from echelon_lab.endhosts.tcp.sender import TcpSettings

MS = 1_000_000
S = 1000 * MS
MSS = 1184
PACKET = TcpSettings(1250)
FAST = 10**12
"""The bits per second of a link on which a packet takes practically no time."""


def first_byte(path: Any) -> int:
    """Return the sequence number of the first byte of data."""
    first = parse(path.there.frames[0][1])
    return first.seq + bool(first.flags & SYN)


def data_of(path: Any) -> list[tuple[int, int]]:
    """Return (time in ms, first byte) of each frame with data that the sender sent."""
    first = first_byte(path)
    return [
        (round(now_ns / MS), parse(frame).seq - first & 0xFFFFFFFF)
        for now_ns, frame in path.there.frames
        if parse(frame).length_bytes
    ]


def acks_of(path: Any) -> list[tuple[int, int]]:
    """Return (time in ms, bytes acknowledged) of each acknowledgement that the receiver sent."""
    first = first_byte(path)
    return [
        (round(now_ns / MS), parse(frame).ack - first & 0xFFFFFFFF)
        for now_ns, frame in path.back.frames
        if not parse(frame).flags & SYN
    ]


def lose(*numbers: int) -> Callable[[int, bytes], list[tuple[int, bytes]]]:
    """Return a fate that loses frames of these numbers (from 0, in order of sending)."""
    return lambda number, frame: [] if number in numbers else [(0, frame)]


def test_handshake_then_ten_segments_then_twice_as_many(path: Callable[..., Any]) -> None:
    p = path(PACKET, rate_bps=FAST, delay_ns=5 * MS)
    p.write(70 * MSS)
    p.connection.close()
    p.connection.open()
    p.clock.run()
    times = [time_ms for time_ms, _ in data_of(p)]
    # The SYN is answered after a round trip of 10 ms; every second segment is acknowledged and lets
    # 2 + 2 go.
    assert [times.count(10 * round_trip) for round_trip in (1, 2, 3)] == [10, 20, 40]
    assert [first for _, first in data_of(p)] == [n * MSS for n in range(70)]
    assert p.received == [(35 * MS + p.received[0][0] % MS, 70 * MSS)]
    # Acknowledged two by two; the last, with the FIN, at once.
    assert [acked // MSS for _, acked in acks_of(p)] == [*range(2, 70, 2), 70]
    assert p.tally.retransmitted == 0


def test_a_lone_segment_is_acknowledged_after_40_ms(path: Callable[..., Any]) -> None:
    p = path(PACKET, rate_bps=FAST, delay_ns=5 * MS)
    p.connection.establish()
    p.write(3 * MSS)
    p.clock.run()
    assert acks_of(p) == [(5, 2 * MSS), (45, 3 * MSS)]


@pytest.mark.parametrize("lost", [1, 2])
def test_a_lost_syn_is_sent_again_after_a_second_then_two(
    path: Callable[..., Any], lost: int
) -> None:
    p = path(PACKET, rate_bps=FAST, there=lose(*range(lost)))
    p.write(20 * MSS)
    p.connection.open()
    p.clock.run()
    syns = [round(now_ns / S, 1) for now_ns, frame in p.there.frames if parse(frame).flags & SYN]
    assert syns == [0, 1, 3][: lost + 1]
    # RFC 5681, 3.1: then one segment at first.
    first_ms = data_of(p)[0][0]
    assert [time_ms for time_ms, _ in data_of(p)].count(first_ms) == 1
    assert p.received[0][1] == 20 * MSS


def test_fast_retransmit_after_three_duplicates(path: Callable[..., Any]) -> None:
    p = path(PACKET, rate_bps=FAST, delay_ns=5 * MS, there=lose(2))
    p.connection.establish()
    p.write(10 * MSS)
    p.clock.run()
    # Segments 3 to 9 arrive ahead of 2: seven duplicates at 10 ms, of which the third sends 2
    # again. The time-out would have taken 200 ms.
    assert data_of(p)[10:] == [(10, 2 * MSS)]
    assert [acked // MSS for _, acked in acks_of(p)] == [2, *[2] * 7, 10]
    assert p.received == [(15 * MS + p.received[0][0] % MS, 10 * MSS)]
    assert (p.tally.retransmitted, p.tally.timeouts) == (1, 0)


def test_new_reno_sends_one_more_of_several_losses_each_round_trip(
    path: Callable[..., Any],
) -> None:
    p = path(PACKET, rate_bps=FAST, delay_ns=5 * MS, there=lose(2, 4, 6))
    p.connection.establish()
    p.write(10 * MSS)
    p.clock.run()
    assert data_of(p)[10:] == [(10, 2 * MSS), (20, 4 * MSS), (30, 6 * MSS)]
    assert (p.tally.retransmitted, p.tally.timeouts) == (3, 0)


def test_two_duplicates_let_new_segments_go(path: Callable[..., Any]) -> None:
    """There are no three duplicates with only two segments behind the lost one; RFC 3042 helps."""
    p = path(PACKET, rate_bps=FAST, delay_ns=5 * MS, there=lose(7))
    p.connection.establish()
    p.write(14 * MSS)
    p.clock.run()
    assert (p.tally.retransmitted, p.tally.timeouts) == (1, 0)
    again_ms = [time_ms for time_ms, first in data_of(p) if first == 7 * MSS][1]
    assert again_ms == 10 or again_ms == 20
    assert p.received[0][0] < 40 * MS


def test_the_last_segment_waits_for_the_time_out(path: Callable[..., Any]) -> None:
    p = path(PACKET, rate_bps=FAST, delay_ns=5 * MS, there=lose(3))
    p.connection.establish()
    p.write(4 * MSS)
    p.clock.run()
    # Acknowledgements of 0 and 1 at 10 ms, of 2 after 40 ms more; then the least time-out.
    assert data_of(p)[4:] == [(250, 3 * MSS)]
    assert p.tally.timeouts == 1


def test_time_outs_double(path: Callable[..., Any]) -> None:
    p = path(PACKET, rate_bps=FAST, delay_ns=5 * MS, there=lose(3, 4, 5, 6))
    p.connection.establish()
    p.write(4 * MSS)
    p.clock.run()
    assert [time_ms for time_ms, _ in data_of(p)[4:]] == [250, 650, 1450, 3050]


@pytest.mark.parametrize("segments", [200, 20])
def test_a_time_out_that_was_impatience_costs_one_segment(
    path: Callable[..., Any], segments: int
) -> None:
    """Nothing is lost when everything is held up for 300 ms, as in a starved queue, whether there
    is more to send or not (RFC 3522).
    """

    # What was sent at 10 ms reaches its destination at once at 310 ms, and what was sent again at
    # 210 ms behind it.
    def starved(number: int, frame: bytes) -> list[tuple[int, bytes]]:
        return [(max(0, 305 * MS + number * 1000 - p.clock.now_ns) if number >= 10 else 0, frame)]

    p = path(PACKET, rate_bps=FAST, delay_ns=5 * MS, there=starved)
    p.connection.establish()
    p.write(segments * MSS)
    p.clock.run()
    assert p.tally.timeouts == p.tally.undone == 1
    assert p.tally.retransmitted == p.tally.duplicate == 1
    assert len(data_of(p)) == segments + 1
    assert p.received[0][1] == segments * MSS


def test_starved_for_several_time_outs(path: Callable[..., Any]) -> None:
    def starved(number: int, frame: bytes) -> list[tuple[int, bytes]]:
        return [(max(0, 5 * S + number * 1000 - p.clock.now_ns), frame)]

    p = path(PACKET, rate_bps=FAST, delay_ns=5 * MS, there=starved)
    p.connection.establish()
    p.write(10 * MSS)
    p.clock.run()
    # After 1, 2 and 4 s more: the first segment again, each time.
    assert [at for at in data_of(p) if at[0]] == [(1000, 0), (3000, 0)]
    assert (p.tally.timeouts, p.tally.undone, p.tally.retransmitted) == (2, 1, 2)


def test_three_duplicates_that_were_only_reordering_are_forgiven(path: Callable[..., Any]) -> None:
    p = path(
        PACKET,
        rate_bps=FAST,
        delay_ns=5 * MS,
        there=lambda number, frame: [(7 * MS if number == 2 else 0, frame)],
    )
    p.connection.establish()
    p.write(60 * MSS)
    p.clock.run()
    assert (p.tally.retransmitted, p.tally.undone, p.tally.reordered) == (1, 1, 1)


def test_a_time_out_that_was_right_begins_anew(path: Callable[..., Any]) -> None:
    p = path(PACKET, rate_bps=FAST, delay_ns=5 * MS, there=lose(*range(10, 30)))
    p.connection.establish()
    p.write(200 * MSS)
    p.clock.run()
    assert (p.tally.timeouts, p.tally.undone) == (1, 0)
    assert p.received[0][1] == 200 * MSS
    assert p.tally.retransmitted >= 20


@pytest.mark.parametrize(("pause_ms", "burst"), [(150, 32), (300, 10)])
def test_what_is_idle_for_longer_than_a_time_out_starts_slowly(
    path: Callable[..., Any], pause_ms: int, burst: int
) -> None:
    """The window grows as long as it limits the sender: 50 segments open it to 32 (RFC 5681,
    4.1).
    """
    p = path(PACKET, rate_bps=FAST, delay_ns=5 * MS)
    p.connection.establish()
    p.write(50 * MSS)
    p.clock.call_at(pause_ms * MS, p.write, 100 * MSS)
    p.clock.run()
    assert [time_ms for time_ms, _ in data_of(p)].count(pause_ms) == burst


def test_the_receive_window_bounds_what_is_in_flight(path: Callable[..., Any]) -> None:
    p = path(TcpSettings(1250, receive_window_bytes=20_000), rate_bps=FAST, delay_ns=5 * MS)
    p.connection.establish()
    p.write(1000 * MSS)
    p.clock.run()
    times = [time_ms for time_ms, _ in data_of(p)]
    assert max(times.count(t) for t in set(times)) == 20_000 // MSS
    assert p.tally.retransmitted == 0


def mark(*numbers: int) -> Callable[[int, bytes], list[tuple[int, bytes]]]:
    """Return the fate of a switch that marks frames of these numbers, if they may be marked."""

    def fate(number: int, frame: bytes) -> list[tuple[int, bytes]]:
        if number in numbers and frame[15] & 3 == ECT0:
            frame = frame[:15] + bytes([frame[15] | CE]) + frame[16:]
        return [(0, frame)]

    return fate


def test_a_mark_halves_the_window_without_loss(path: Callable[..., Any]) -> None:
    settings = TcpSettings(1250, ecn=True)
    p = path(settings, rate_bps=FAST, delay_ns=5 * MS, there=mark(5))
    p.write(100 * MSS)
    p.connection.open()
    p.clock.run()
    syn, syn_ack = parse(p.there.frames[0][1]), parse(p.back.frames[0][1])
    assert syn.flags & (ECE | CWR) == ECE | CWR
    assert syn_ack.flags & (ECE | CWR) == ECE
    segments = [parse(frame) for _, frame in p.there.frames[1:]]
    assert {s.ecn for s in segments if s.length_bytes} == {ECT0}
    assert {s.ecn for s in segments if not s.length_bytes} <= {0}
    # 10 segments in flight when the echo comes (RFC 5681: half of them stay); CWR once, on the
    # first new one after it.
    reduced = [index for index, s in enumerate(segments) if s.flags & CWR]
    assert len(reduced) == 1
    echoes = [
        index for index, (_, frame) in enumerate(p.back.frames[1:]) if parse(frame).flags & ECE
    ]
    assert echoes
    assert echoes == list(range(echoes[0], echoes[0] + len(echoes)))
    assert p.tally.retransmitted == 0
    q = path(PACKET, rate_bps=FAST, delay_ns=5 * MS)
    q.write(100 * MSS)
    q.connection.open()
    before_ns = q.clock.now_ns
    q.clock.run()
    assert q.received[0][0] - before_ns < p.received[0][0]


def test_without_ecn_at_both_ends_nothing_may_be_marked(path: Callable[..., Any]) -> None:
    p = path(PACKET, rate_bps=FAST, there=mark(*range(100)))
    p.write(50 * MSS)
    p.connection.open()
    p.clock.run()
    assert {parse(frame).ecn for _, frame in p.there.frames} == {0}
    assert not any(
        parse(frame).flags & (ECE | CWR) for _, frame in (*p.there.frames, *p.back.frames)
    )


def test_reordering_is_counted_by_what_was_sent_later(path: Callable[..., Any]) -> None:
    # Segment 3 comes behind 4 and 5.
    p = path(
        PACKET, rate_bps=FAST, there=lambda number, frame: [(2 * MS if number == 3 else 0, frame)]
    )
    p.connection.establish()
    p.write(6 * MSS)
    p.clock.run()
    assert p.tally.reordered == 1
    assert p.tally.retransmitted == p.tally.duplicate == 0


def test_a_probe_opens_a_window_that_was_closed(path: Callable[..., Any]) -> None:
    from echelon_lab.endhosts.tcp.frames import ACK, Options, SegmentFrames
    from echelon_lab.endhosts.tcp.sender import TcpSender

    p = path()
    sender = TcpSender(p.connection.address, PACKET)
    peer = SegmentFrames(p.connection.address.reversed(), window=0)
    sender.write(0, 100)
    sender.open(0)
    assert sender.on_segment(
        0, parse(peer.build_syn(0, 1, SYN | ACK, Options(1000, 0), 0)), Options(1000, 0)
    )
    assert sender.deadline_ns is not None
    (probe,) = sender.on_deadline(sender.deadline_ns)
    assert parse(probe).length_bytes == 1
    peer.window = 500
    (rest,) = sender.on_segment(S, parse(peer.build(1, 2, ACK)))
    assert parse(rest).length_bytes == 99


def test_initial_window_of_rfc_6928() -> None:
    assert [initial_window(mss) for mss in (536, 1460, 5000, 8946)] == [5360, 14600, 14600, 17892]


def test_growth_by_bytes() -> None:
    window = NewReno(1000, 4000)
    window.grow(2000, 0)
    assert window.cwnd == 6000
    window.grow(5000, 0)
    assert window.cwnd == 8000, "at most two segments an acknowledgement"
    window.enter_recovery(8000)
    assert (window.ssthresh, window.cwnd) == (4000, 7000)
    window.leave_recovery(10_000)
    assert window.cwnd == 4000
    for _ in range(3):
        window.grow(1000, 0)
    assert window.cwnd == 4000
    window.grow(1000, 0)
    assert window.cwnd == 5000, "one segment a window"


def test_nothing_grows_while_marks_are_echoed(path: Callable[..., Any]) -> None:
    """RFC 3168, 6.1.2: a window in which every segment is marked is followed by half of it, down to
    two segments.
    """
    p = path(
        TcpSettings(1250, ecn=True), rate_bps=FAST, delay_ns=5 * MS, there=mark(*range(1, 100))
    )
    p.write(40 * MSS)
    p.connection.open()
    p.clock.run()
    cwnds = []
    for now_ms, _ in data_of(p):
        if cwnds and cwnds[-1][0] == now_ms:
            cwnds[-1][1] += 1
        else:
            cwnds.append([now_ms, 1])
    sent = [count for _, count in cwnds]
    assert sum(sent) == 40
    assert sent[0] == 10
    assert all(after <= max(2, before // 2) for before, after in pairwise(sent))
