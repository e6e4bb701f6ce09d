"""The expected shares of a port's classes, against the traffic manager in exact virtual time."""

from __future__ import annotations

import heapq
from collections import Counter

import pytest

from bench.switch.shares import CASES, PORT_RATE_BPS, Case, Class
from softswitch.tm import QueueConfig
from tests.reference.traffic_manager import PortScheduler

SECOND_NS = 10**9
WARM_UP_NS = SECOND_NS


def by_the_scheduler(case: Case, seconds: int = 4) -> dict[int, float]:
    """Return the bits per second of each queue after the first second, when every class sends
    evenly what it offers.
    """
    port = PortScheduler(PORT_RATE_BPS)
    for c in case.classes:
        port.configure(c.queue, QueueConfig(level=c.level, weight=c.weight), 0)
    coming = [
        (0, c.queue, c.frame_bytes, c.frame_bytes * 8 * SECOND_NS // c.offered_bps)
        for c in case.classes
    ]
    heapq.heapify(coming)
    end_ns = WARM_UP_NS + seconds * SECOND_NS
    sent: Counter[int] = Counter()
    free_ns: int | None = None
    while True:
        arrival_ns = coming[0][0]
        if free_ns is not None and free_ns < arrival_ns:
            now_ns = free_ns
        else:
            now_ns, queue, frame_bytes, gap_ns = coming[0]
            port.enqueue(queue, None, frame_bytes, now_ns)
            heapq.heapreplace(coming, (now_ns + gap_ns, queue, frame_bytes, gap_ns))
        if now_ns >= end_ns:
            return {c.queue: sent[c.queue] * 8 / seconds for c in case.classes}
        leaving = port.dequeue(now_ns)
        if leaving is not None and now_ns >= WARM_UP_NS:
            sent[leaving.queue] += leaving.length_bytes
        free_ns = port.next_eligible_ns(now_ns)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_expected_is_what_the_scheduler_does(case: Case) -> None:
    measured = by_the_scheduler(case)
    assert set(measured) == set(case.expected_bps)
    for queue, expected in case.expected_bps.items():
        assert measured[queue] == pytest.approx(float(expected), rel=2e-3, abs=PORT_RATE_BPS * 1e-3)


def test_what_a_content_class_leaves_goes_to_the_others_of_its_level() -> None:
    case = Case(
        "",
        (
            Class(1, 1_000_000, 64, 3),
            Class(2, 20_000_000, 64, 3),
            Class(3, 20_000_000, 64, 3, weight=2),
        ),
    )
    assert case.expected_bps == {1: 1_000_000, 2: 3_000_000, 3: 6_000_000}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_cycle_offers_what_the_case_says(case: Case) -> None:
    frames = case.cycle.frames
    seconds = len(frames) / case.offered_pps
    for c in case.classes:
        mine = [frame for frame in frames if frame[15] >> 5 == c.queue]
        assert {len(frame) for frame in mine} == {c.frame_bytes}
        assert len(mine) * c.frame_bytes * 8 / seconds == pytest.approx(c.offered_bps, rel=5e-3)
