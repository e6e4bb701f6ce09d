"""Digests of the TNA program, against times that never wrap."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.switches.telemetry.events import decode_event
from echelon_tofino.target.flow_events import TnaFlowEvents

TICK_S = Fraction(1024, 10**9)
WRAP_S = float(2**32 * TICK_S)


def digest(
    ticks: int, *, slack: int = 0, epoch: int = 0, first: int = 0, last: int = 0
) -> Mapping[str, int]:
    """Return a digest at an absolute time, with the fields that the program has room for."""
    key = (slack + (1 << 31)) % (1 << 32)
    return {
        "last": last,
        "first": first,
        "flow": 7,
        "epoch": epoch % (1 << 32),
        "slack_key": key,
        "time_ticks": ticks % (1 << 32),
    }


@given(
    st.integers(0, (1 << 32) - 1),
    st.lists(st.floats(0, 3 * WRAP_S), max_size=8),
    st.floats(-1, 1),
)
def test_times_continue_over_wraps_whatever_the_pauses(
    start: int, pauses_s: list[float], delay_s: float
) -> None:
    events, ticks, arrived_s = TnaFlowEvents(), start, 100.0
    found = [events.report(digest(ticks), arrived_s)["time_us"]]
    for number, pause_s in enumerate(pauses_s):
        ticks += int(pause_s / float(TICK_S))
        # A report may be under way for longer or shorter than the one before.
        arrived_s += max(0.0, pause_s + (delay_s if number % 2 else -delay_s))
        found.append(events.report(digest(ticks), arrived_s)["time_us"])
    assert found[-1] - found[0] == pytest.approx((ticks - start) * 1.024, abs=1)


def test_a_time_may_be_a_little_before_the_last() -> None:
    events = TnaFlowEvents()
    later, earlier = (
        events.report(digest(ticks), 5.0)["time_us"] for ticks in (2**32 + 3, 2**32 - 997)
    )
    assert later == 3
    assert earlier == pytest.approx(later - 1024, abs=1)


def test_a_report_means_what_one_of_the_v1model_program_means() -> None:
    report = TnaFlowEvents().report(digest(1_000_000, slack=-250_000, epoch=0x1234, first=1), 0.0)
    event = decode_event("s1", {7: ("a", "f")}, report)
    assert (event.job, event.flow, event.epoch) == ("a", "f", 0x34)
    assert (event.started, event.finished) == (True, False)
    assert event.time_s == Fraction(1024, 1000)
    assert event.tardiness_s == Fraction(256, 1000)
    both = decode_event(
        "s1", {7: ("a", "f")}, TnaFlowEvents().report(digest(0, first=1, last=1), 0.0)
    )
    assert (both.started, both.finished, both.tardiness_s) == (True, True, 0)


def test_another_digest_stays_what_it_is() -> None:
    assert TnaFlowEvents().report({"time_us": 5, "event": 2}, 0.0) == {"time_us": 5, "event": 2}
