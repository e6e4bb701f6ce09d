"""Rates against exact fractions."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.traffic_manager import Pacer

lengths = st.integers(0, 9216)
rates = st.integers(1, 800 * 10**9)


@given(rates, lengths, st.integers(0, 10**15))
def test_a_lone_packet_takes_its_bits_over_the_rate_rounded_up(
    rate_bps: int, length: int, start_ns: int
) -> None:
    assert Pacer(rate_bps).charge(length, start_ns) == start_ns + ceil(
        Fraction(length * 8 * 10**9, rate_bps)
    )


@given(rates, st.lists(lengths, min_size=1, max_size=50))
def test_back_to_back_packets_together_take_exactly_their_bits_over_the_rate(
    rate_bps: int, packets: list[int]
) -> None:
    pacer = Pacer(rate_bps)
    sent = 0
    for length in packets:
        sent += length
        assert pacer.charge(length, 0) == ceil(Fraction(sent * 8 * 10**9, rate_bps))


@given(rates, st.lists(st.tuples(lengths, st.integers(0, 10**4)), min_size=1, max_size=40))
def test_never_faster_than_the_rate_from_any_idle_instant_on(
    rate_bps: int, packets: list[tuple[int, int]]
) -> None:
    pacer = Pacer(rate_bps)
    exact = Fraction(0)
    now_ns = 0
    for length, pause_ns in packets:
        now_ns = max(now_ns, pacer.free_ns) + pause_ns
        # The line is free less than 1 ns before the event that says so; only then does a packet
        # start earlier.
        exact = (max(exact, now_ns) if now_ns > ceil(exact) else exact) + Fraction(
            length * 8 * 10**9, rate_bps
        )
        assert pacer.charge(length, now_ns) == ceil(exact)


@given(rates, lengths, lengths)
def test_a_correction_is_as_if_charged_so_at_first(rate_bps: int, wrong: int, right: int) -> None:
    corrected, plain = Pacer(rate_bps), Pacer(rate_bps)
    for pacer in (corrected, plain):
        pacer.charge(1001, 5)
    corrected.charge(wrong, 5)
    corrected.correct(right - wrong)
    plain.charge(right, 5)
    assert corrected.free_ns == plain.free_ns
    assert corrected.charge(777, 5) == plain.charge(777, 5)


@given(rates, rates, lengths, st.integers(0, 10**6))
def test_what_is_still_due_goes_at_the_new_rate(
    before_bps: int, after_bps: int, length: int, now_ns: int
) -> None:
    pacer = Pacer(before_bps)
    pacer.charge(length, 0)
    due_bits = max(Fraction(0), length * 8 - Fraction(now_ns * before_bps, 10**9))
    pacer.set_rate(after_bps, now_ns)
    if due_bits:
        assert pacer.free_ns == now_ns + ceil(due_bits * 10**9 / after_bps)
    else:
        assert pacer.free_ns <= now_ns


def test_setting_the_same_rate_changes_nothing() -> None:
    touched, plain = Pacer(7), Pacer(7)
    for pacer in (touched, plain):
        pacer.charge(3, 0)
    touched.set_rate(7, 1000)
    assert [touched.charge(2, 0) for _ in range(9)] == [plain.charge(2, 0) for _ in range(9)]


@pytest.mark.parametrize("rate_bps", [0, -1])
def test_no_rate_is_refused(rate_bps: int) -> None:
    with pytest.raises(ValueError, match="rate_bps"):
        Pacer(rate_bps)
    with pytest.raises(ValueError, match="rate_bps"):
        Pacer(1).set_rate(rate_bps, 0)
