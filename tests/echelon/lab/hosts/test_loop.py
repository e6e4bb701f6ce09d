"""Real time: what is due is called, in order, and never early."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from fractions import Fraction

import pytest

from echelon_lab.hosts.loop import RealTimeLoop
from echelon_lab.hosts.workers.worker import COMPUTING


def test_calls_come_in_order_of_time_and_never_early() -> None:
    loop = RealTimeLoop()
    now_ns = loop.now_ns
    seen: list[tuple[int, int]] = []
    due = [3_000_000, 1_000_000, 2_000_000, 1_000_000, 0, -5]
    for number, after_ns in enumerate(due):
        loop.call_at(now_ns + after_ns, lambda number=number: seen.append((number, loop.now_ns)))  # type: ignore[misc]
    loop.call_at(now_ns + 4_000_000, loop.stop)
    loop.run()
    assert [number for number, _ in seen] == [5, 4, 1, 3, 2, 0]
    assert all(at_ns >= now_ns + due[number] for number, at_ns in seen)


def test_what_is_always_due_does_not_keep_sockets_waiting() -> None:
    loop = RealTimeLoop()
    reading, writing = os.pipe()

    def again() -> None:
        loop.call_at(loop.now_ns, again)

    try:
        again()
        loop.on_readable(reading, loop.stop)
        os.write(writing, b".")
        loop.run()
    finally:
        os.close(reading)
        os.close(writing)


def test_a_descriptor_that_was_given_up_is_not_called() -> None:
    loop = RealTimeLoop()
    pipes = [os.pipe() for _ in range(2)]
    seen: list[int] = []

    def first(mine: int, other: int) -> None:
        seen.append(mine)
        loop.on_readable(other, None)
        loop.on_readable(mine, None)
        loop.stop()

    try:
        (a, to_a), (b, to_b) = pipes
        loop.on_readable(a, lambda: first(a, b))
        loop.on_readable(b, lambda: first(b, a))
        os.write(to_a, b".")
        os.write(to_b, b".")
        loop.run()
        assert len(seen) == 1
        loop.call_at(loop.now_ns + 1_000_000, loop.stop)
        loop.run()
        assert len(seen) == 1
    finally:
        for ends in pipes:
            for end in ends:
                os.close(end)


@pytest.mark.parametrize("kind", list(COMPUTING))
def test_a_compute_unit_takes_its_time(kind: str) -> None:
    loop = RealTimeLoop()
    ends: list[int] = []

    def done() -> None:
        ends.append(time.monotonic_ns())
        if len(ends) == 1:
            computing.start(Fraction(3, 100), done)
        else:
            loop.stop()

    with ExitStack() as closing:
        computing = COMPUTING[kind](loop, closing)
        began_ns = time.monotonic_ns()
        computing.start(Fraction(2, 100), done)
        loop.run()
    assert ends[0] - began_ns >= 20_000_000
    assert ends[1] - ends[0] >= 30_000_000
