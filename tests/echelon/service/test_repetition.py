"""Log records that repeat: which are dropped, and what the next one says of it."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest

from echelon.controller.service import logs
from echelon.controller.service.logs import MOST, MOST_KINDS, WINDOW_S, RepetitionLimit

pytestmark = pytest.mark.usefixtures("logging_as_before")


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def out(clock: Clock) -> io.StringIO:
    """Return a stream that receives the log."""
    stream = io.StringIO()
    logs.configure("json", "debug", stream, RepetitionLimit(clock))
    return stream


def records(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_the_record_after_the_window_says_how_many_were_dropped(
    out: io.StringIO, clock: Clock
) -> None:
    log = logs.get("x")
    for number in range(100):
        log.error("cannot connect", switch="s1", problem=number)
    assert [one["problem"] for one in records(out)] == list(range(MOST))
    clock.now += WINDOW_S
    log.error("cannot connect", switch="s1")
    log.error("cannot connect", switch="s1")
    assert [one.get("dropped") for one in records(out)[MOST:]] == [100 - MOST, None]


def test_other_switches_events_and_levels_are_counted_apart(out: io.StringIO) -> None:
    log = logs.get("x")
    for _ in range(2 * MOST):
        for switch in ("s1", "s2"):
            log.error("cannot connect", switch=switch)
            log.warning("cannot connect", switch=switch)
            log.error("refused", switch=switch)
    assert len(records(out)) == 6 * MOST


def test_a_librarys_records_are_alike_by_their_first_line(out: io.StringIO, clock: Clock) -> None:
    for number in range(100):
        logging.getLogger("asyncio").error(
            "socket.accept() out of system resource\nsocket: %d", number
        )
        logging.getLogger("asyncio").error(f"never retrieved\nfuture: {number}")
    assert len(records(out)) == 2 * MOST
    clock.now += WINDOW_S
    logging.getLogger("asyncio").error("never retrieved\nfuture: 100")
    assert records(out)[-1]["dropped"] == 100 - MOST


@pytest.mark.parametrize("level", ["debug", "info"])
def test_what_is_no_problem_is_always_written(out: io.StringIO, level: str) -> None:
    for _ in range(500):
        getattr(logs.get("x"), level)("job registered", job="a")
    assert len(records(out)) == 500


def test_memory_does_not_grow_with_the_kinds_of_records(out: io.StringIO) -> None:
    """A kind that was forgotten begins a window of its own."""
    log = logs.get("x")
    for _ in range(2 * MOST):
        log.error("the first")
    for number in range(MOST_KINDS):
        log.error(f"kind {number}")
    log.error("the first")
    assert sum(one["event"] == "the first" for one in records(out)) == MOST + 1
