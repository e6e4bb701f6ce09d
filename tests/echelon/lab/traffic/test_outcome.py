"""Summaries against a brute force that counts byte by byte, and numpy's percentiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon_lab.traffic.outcome import FlowOutcome, percentile, summary
from echelon_lab.traffic.schedule import PacedFlow, ScheduledFlow
from tests.faults import naming

TICKS = 40
"""Times of these tests are whole ticks of 0.25 s, sizes whole multiples of what makes a byte count
for each tick.
"""
TICK_S = 0.25


@st.composite
def outcomes(draw: st.DrawFn) -> FlowOutcome:
    due = draw(st.integers(0, TICKS))
    started = draw(st.integers(due, TICKS))
    end = draw(st.integers(started + 1, TICKS + 1))
    per_tick = draw(st.integers(1, 50))
    flow = ScheduledFlow(int(due * TICK_S * 1e6), "a", "b", per_tick * (end - started))
    outcome = FlowOutcome(flow, started * TICK_S, end * TICK_S)
    match draw(st.sampled_from(["finished", "unfinished", "unknown", "failed"])):
        case "finished":
            return outcome
        case "unfinished":
            larger = replace(flow, size_bytes=flow.size_bytes + 7)
            return FlowOutcome(larger, outcome.started_s, None, (end * TICK_S, flow.size_bytes))
        case "unknown":
            return FlowOutcome(flow, outcome.started_s, None)
        case _:
            return FlowOutcome(flow, outcome.started_s, None, failed="Connection refused")


@given(st.lists(outcomes(), max_size=8), st.integers(0, TICKS - 1), st.integers(1, TICKS))
def test_loads_count_each_byte_where_it_was_received(
    drawn: list[FlowOutcome], first: int, length: int
) -> None:
    from_s, to_s = first * TICK_S, (first + length) * TICK_S
    offered = received = flows = unfinished = failed = 0
    for outcome in drawn:
        if from_s <= outcome.flow.start_us / 1e6 < to_s:
            offered += outcome.flow.size_bytes
            flows += 1
            unfinished += outcome.finished_s is None
            failed += outcome.failed is not None
        end_s, size = outcome.finished_s, outcome.flow.size_bytes
        if end_s is None:
            if outcome.received is None:
                continue
            end_s, size = outcome.received
        ticks = range(round(outcome.started_s / TICK_S), round(end_s / TICK_S))
        received += sum(size // len(ticks) for tick in ticks if first <= tick < first + length)
    seen = summary(drawn, from_s, to_s)
    assert seen.offered_bps == pytest.approx(offered * 8 / (to_s - from_s))
    assert seen.achieved_bps == pytest.approx(received * 8 / (to_s - from_s))
    assert (seen.flows, seen.unfinished, seen.failed) == (flows, unfinished, failed)


def test_completion_times_and_slowdown() -> None:
    flow = ScheduledFlow(0, "a", "b", 1000)
    paced = PacedFlow(0, "a", "b", 1000, 4000, 0)
    drawn = [
        FlowOutcome(flow, 0.5, 2.5),
        FlowOutcome(paced, 0.0, 4.0),
        FlowOutcome(flow, 0.0, None),
    ]
    seen = summary(drawn, 0, 10, capacity_bps=8000)
    assert (seen.mean_completion_s, seen.p50_completion_s, seen.p99_completion_s) == (3.0, 2.0, 4.0)
    # 1 s would do for the first; the second's own rate is what limits it, to 2 s.
    assert seen.mean_slowdown == pytest.approx((2 + 2) / 2)
    assert summary(drawn, 0, 10).mean_slowdown is None
    nothing = summary([], 0, 1)
    assert (nothing.flows, nothing.mean_completion_s, nothing.p99_completion_s) == (0, None, None)
    with pytest.raises(ValueError, check=naming("1 s")):
        summary([], 1, 1)


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=300),
    st.sampled_from([1, 25, 50, 75, 90, 99, 100]),
)
def test_percentiles_are_those_of_numpy(values: list[float], per_cent: int) -> None:
    ordered = sorted(values)
    assert percentile(ordered, per_cent) == np.percentile(ordered, per_cent, method="inverted_cdf")
