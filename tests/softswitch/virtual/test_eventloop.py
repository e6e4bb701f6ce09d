"""Order, ends and interruptions of virtual time."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.virtual_time import EventLoop


@given(st.lists(st.integers(0, 20), max_size=60))
def test_events_come_by_time_and_equal_times_in_order_of_scheduling(times: list[int]) -> None:
    loop = EventLoop()
    seen: list[tuple[int, int]] = []
    for serial, time_ns in enumerate(times):
        loop.call_at(
            time_ns, lambda time_ns, serial: seen.append((loop.now_ns, serial)), time_ns, serial
        )
    assert loop.run() == len(times)
    assert seen == sorted((time_ns, serial) for serial, time_ns in enumerate(times))


@given(
    st.lists(st.integers(0, 20), max_size=40),
    st.lists(st.integers(0, 25), max_size=8),
    st.integers(1, 5),
)
def test_interruptions_change_nothing(times: list[int], stops: list[int], at_most: int) -> None:
    """The same events come in the same order, whatever `until_ns` and `max_events` a caller
    interleaves.
    """

    def record(loop: EventLoop, into: list[tuple[int, int]]) -> None:
        def child(serial: int) -> None:
            into.append((loop.now_ns, -serial))

        def parent(serial: int) -> None:
            into.append((loop.now_ns, serial))
            loop.after(serial % 3, child, serial)

        for serial, time_ns in enumerate(times):
            loop.call_at(time_ns, parent, serial)

    whole, parts = EventLoop(), EventLoop()
    expected: list[tuple[int, int]] = []
    seen: list[tuple[int, int]] = []
    record(whole, expected)
    record(parts, seen)
    whole.run()
    for until_ns in sorted(stops):
        while parts.run(until_ns, at_most) == at_most:
            pass
        assert parts.now_ns == until_ns
        assert seen == [event for event in expected if event[0] <= until_ns]
    parts.run()
    assert seen == expected


def test_until_includes_its_own_instant_and_moves_the_clock() -> None:
    loop = EventLoop()
    seen: list[int] = []
    for time_ns in (5, 10, 11):
        loop.call_at(time_ns, seen.append, time_ns)
    assert loop.run(until_ns=10) == 2
    assert (seen, loop.now_ns, loop.pending) == ([5, 10], 10, 1)
    loop.run(until_ns=100)
    assert (seen, loop.now_ns, loop.pending) == ([5, 10, 11], 100, 0)
    assert loop.run(until_ns=50) == 0
    assert loop.now_ns == 100


def test_stop_ends_the_run_after_the_current_event() -> None:
    loop = EventLoop()
    seen: list[int] = []

    def event(number: int) -> None:
        seen.append(number)
        if number == 2:
            loop.stop()

    for number in range(5):
        loop.call_at(number, event, number)
    assert loop.run(until_ns=100) == 3
    assert (seen, loop.now_ns) == ([0, 1, 2], 2)
    assert loop.run() == 2
    assert seen == [0, 1, 2, 3, 4]


def test_stop_in_the_last_event_leaves_the_clock_there() -> None:
    loop = EventLoop()
    loop.call_at(3, loop.stop)
    loop.run(until_ns=10)
    assert loop.now_ns == 3


def test_stop_outside_a_run_does_nothing() -> None:
    loop = EventLoop()
    loop.call_at(1, loop.stop)
    loop.stop()
    assert loop.run() == 1


def test_max_events_leaves_the_clock_at_the_last_event() -> None:
    loop = EventLoop()
    for time_ns in (1, 2, 3):
        loop.call_at(time_ns, lambda: None)
    assert loop.run(until_ns=9, max_events=2) == 2
    assert loop.now_ns == 2
    assert loop.run(max_events=0) == 0


@pytest.mark.parametrize(
    ("schedule", "error"),
    [
        (lambda loop: loop.call_at(9, print), ValueError),
        (lambda loop: loop.after(-1, print), ValueError),
        (lambda loop: loop.call_at(10.5, print), TypeError),
        (lambda loop: loop.after(1.0, print), TypeError),
    ],
)
def test_the_past_and_fractions_are_refused(schedule: Any, error: type[Exception]) -> None:
    loop = EventLoop(now_ns=10)
    with pytest.raises(error, match="time_ns"):
        schedule(loop)


def test_running_inside_a_callback_is_refused_and_an_error_leaves_the_loop_usable() -> None:
    loop = EventLoop()
    seen: list[int] = []
    loop.call_at(1, loop.run)
    loop.call_at(2, partial(seen.append, 2))
    with pytest.raises(RuntimeError):
        loop.run()
    assert loop.now_ns == 1
    assert loop.run() == 1
    assert seen == [2]
