"""The log of flows: starts at the first switch, finishes at the last, times on one clock."""

from __future__ import annotations

from fractions import Fraction

import pytest

from echelon.switches.telemetry import flow_log
from echelon.switches.telemetry.events import FlowEvent
from echelon.switches.telemetry.flow_log import APART, FlowLog

PATH = ("h1", "s1", "s2", "h2")
EPOCH = 1_700_000_000.0
"""The controller's clock at time 0 of these tests."""
BEHIND = {"s1": 1000.0, "s2": -50.0}
"""The readings of the switches' clocks at that time."""


def seen(
    log: FlowLog,
    switch: str,
    at: float,
    *,
    delay: float = 0.0,
    late: float = 0.0,
    epoch: int = 1,
    started: bool = False,
    finished: bool = False,
    has_deadline: bool = True,
    flow: str = "f",
) -> None:
    """Report what passed a switch at a time; the report takes `delay`."""
    clock = Fraction(BEHIND[switch] + at).limit_denominator(10**6)
    event = FlowEvent(
        switch, "j", flow, epoch, clock, Fraction(late).limit_denominator(10**6), started, finished
    )
    log.observe(event, PATH, EPOCH + at + delay, has_deadline=has_deadline)


def test_times_of_two_switches_come_to_one_clock_by_the_fastest_report() -> None:
    log = FlowLog()
    for switch in BEHIND:
        seen(log, switch, 0.0, epoch=0)  # reports that take no time
    seen(log, "s1", 1.0, delay=0.3, started=True)
    seen(log, "s2", 1.1, delay=0.2, started=True)
    seen(log, "s1", 3.0, delay=0.1, finished=True)
    seen(log, "s2", 3.5, delay=0.4, finished=True, late=0.25)
    (flow,) = log.after(0)
    assert (flow.job, flow.flow, flow.epoch, flow.number) == ("j", "f", 1, 1)
    # Since the fastest report, 1.3 s and 3.9 s before, the clocks may have drifted apart.
    expected_s = 1.0 + 1.3 * APART, 3.5 + 3.9 * APART
    assert (flow.start_s - EPOCH, flow.finish_s - EPOCH) == pytest.approx(expected_s, abs=1e-5)
    assert flow.tardiness_s == pytest.approx(0.25)


def test_a_clock_that_runs_slow_is_followed() -> None:
    """A switch's clock that loses 50 us a second is wrong by 0.18 s after an hour."""
    log = FlowLog()
    for second in range(3601):
        clock = Fraction(second) * (1 - Fraction(5, 10**5))
        event = FlowEvent("s1", "j", "f", 0, clock, Fraction(0), False, False)
        log.observe(event, PATH, EPOCH + second + 0.01 * (second % 3), has_deadline=False)
    at = log.since_1970("s1", float(clock))
    assert at is not None
    assert at - EPOCH - 3600 == pytest.approx(0, abs=1e-3)
    assert log.since_1970("s2", 0.0) is None


def test_a_flow_that_was_not_seen_whole_is_left_out() -> None:
    log = FlowLog()
    seen(log, "s2", 1.0, finished=True)
    seen(log, "s1", 2.0, started=True, epoch=2)
    seen(log, "s2", 3.0, finished=True, epoch=3)
    assert list(log.after(0)) == []
    seen(log, "s2", 4.0, finished=True, epoch=2)
    assert [flow.epoch for flow in log.after(0)] == [2]


def test_a_flow_without_deadline_has_no_tardiness() -> None:
    log = FlowLog()
    seen(log, "s1", 1.0, started=True)
    seen(log, "s2", 2.0, finished=True, has_deadline=False)
    assert [flow.tardiness_s for flow in log.after(0)] == [None]


def test_it_keeps_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_log, "UNFINISHED", 4)
    log = FlowLog()
    for number in range(flow_log.KEPT + 5):
        seen(log, "s1", number, started=True, flow=f"f{number}")
        seen(log, "s2", number + 0.5, finished=True, flow=f"f{number}")
    kept = list(log.after(0))
    assert (log.count, len(kept)) == (flow_log.KEPT + 5, flow_log.KEPT)
    assert [kept[0].number, kept[-1].number] == [6, flow_log.KEPT + 5]
    assert [flow.number for flow in log.after(log.count - 2)] == [log.count - 1, log.count]
    assert list(log.after(log.count + 10)) == []
    for number in range(10):
        seen(log, "s1", number, started=True, flow=f"g{number}")
    for number in range(10):
        seen(log, "s2", number + 0.5, finished=True, flow=f"g{number}")
    assert [flow.flow for flow in log.after(log.count - 10)][-4:] == ["g6", "g7", "g8", "g9"]
    assert log.count == flow_log.KEPT + 9


def test_a_switch_that_is_new_has_another_clock() -> None:
    log = FlowLog()
    seen(log, "s1", 1.0, started=True, epoch=0)
    log.reconnected("s1")
    clock = Fraction(7)
    log.observe(
        FlowEvent("s1", "j", "f", 1, clock, Fraction(0), True, False),
        PATH,
        EPOCH + 100,
        has_deadline=True,
    )
    seen(log, "s2", 101.0, finished=True)
    (flow,) = log.after(0)
    assert flow.start_s == pytest.approx(EPOCH + 100)
