"""The time-out, against RFC 6298 in exact fractions."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from echelon_lab.endhosts.tcp.newreno import INITIAL_NS, MAX_NS, RetransmissionTimer

MS = 1_000_000


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 10**10), min_size=1, max_size=60),
    st.sampled_from([0, 200 * MS, 1000 * MS]),
)
def test_as_in_the_rfc(rtts_ns: list[int], min_ns: int) -> None:
    timer = RetransmissionTimer(min_ns)
    srtt = rttvar = Fraction(0)
    for number, rtt in enumerate(rtts_ns):
        timer.measure(rtt)
        if not number:
            srtt, rttvar = Fraction(rtt), Fraction(rtt, 2)
        else:
            rttvar = Fraction(3, 4) * rttvar + abs(srtt - rtt) / 4
            srtt = Fraction(7, 8) * srtt + Fraction(rtt, 8)
        wanted = min(max(srtt + 4 * rttvar, Fraction(min_ns)), Fraction(MAX_NS))
        # Whole nanoseconds, rounded down at every step: the errors stay below 8 of each average.
        assert abs(timer.rto_ns - wanted) <= 8 + 4 * (8 + 4)


def test_before_the_first_measurement() -> None:
    timer = RetransmissionTimer(200 * MS)
    assert timer.srtt_ns is None
    assert timer.rto_ns == INITIAL_NS
    timer.settle()
    assert timer.rto_ns == INITIAL_NS


def test_backing_off_and_settling() -> None:
    timer = RetransmissionTimer(200 * MS)
    timer.measure(10 * MS)
    assert timer.rto_ns == 200 * MS
    waits = []
    for _ in range(12):
        timer.back_off()
        waits.append(timer.rto_ns)
    assert waits == [min(200 * MS * 2**n, MAX_NS) for n in range(1, 13)]
    timer.settle()
    assert timer.rto_ns == 200 * MS
