"""Many switches behind one slow processor, in virtual time: their sessions open, and stay open.

Switches of a laboratory run on one machine, as the stubs of `bench.stubs` do. They are slow when
all are asked at once, and calls that miss their deadlines, and are made again, never end.
"""

from __future__ import annotations

import asyncio
import random
import selectors
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

from echelon.model.p4program import program
from echelon.switches.lowering.intent import Intent
from echelon.switches.southbound import connection
from echelon.switches.southbound.connection import Endpoint, SwitchConnection
from echelon.switches.southbound.deadlines import deadline, patience
from echelon.switches.southbound.errors import (
    ProgramRefusedError,
    SouthboundError,
    UnansweredError,
)
from echelon.switches.southbound.lifecycle import Timing, shared_heartbeat_s
from echelon.switches.southbound.outcomes import Applied
from echelon.switches.southbound.places import SharedPlaces
from echelon.switches.southbound.session import IntentSession
from tests.echelon.southbound.conftest import bare

SWITCHES = 300
AUDIT_S = 60.0
PUSH_S = 0.006
READ_S = 0.015
PING_S = 0.0008
"""A processor's time for a program of 2 MB, for 2,800 entries, and for a ping, of stubs."""
SHARE = 0.15
"""The part of a processor that the switches have; other programs have the rest."""
ANSWER_S = 10.0
"""The timeout of a real session for a program."""
APPLIED = Applied(0, 0, 0, (), True, 0, 0, 0, 0, 0.0, 0.0, 0.0)


class LeapingSelector(selectors.DefaultSelector):
    """A selector that waits for nothing: the time that it was to wait has passed at once."""

    now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "nothing is due any more"
        self.now_s += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock leaps to what is due next."""

    def __init__(self) -> None:
        self._leaping = LeapingSelector()
        super().__init__(self._leaping)

    def time(self) -> float:
        return self._leaping.now_s


class Processor:
    """A processor that serves all switches, one call after the other."""

    def __init__(self) -> None:
        self.waiting = 0
        """The number of programs and readings that are under way."""
        self.most_waiting = 0
        self._free_at = 0.0

    async def work(self, work_s: float) -> None:
        """Return when it has done so much, behind what waited already."""
        now_s = asyncio.get_running_loop().time()
        self._free_at = max(now_s, self._free_at) + work_s / SHARE
        await asyncio.sleep(self._free_at - now_s)

    async def work_long(self, work_s: float) -> None:
        """Do the same for a program or a reading."""
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        try:
            await self.work(work_s)
        finally:
            self.waiting -= 1


class StandIn:
    """A session whose calls take the processor's time, and have the deadlines of real ones."""

    entries = 0

    def __init__(
        self,
        name: str,
        processor: Processor,
        is_stuck: bool,
    ) -> None:
        self._name = name
        self._processor = processor
        self._is_stuck = is_stuck
        self.differences = Counter[str]()

    async def __aenter__(self) -> Self:
        try:
            async with deadline(ANSWER_S, self._name, "pushing the program"):
                if self._is_stuck:
                    await asyncio.Event().wait()
                await self._processor.work_long(PUSH_S)
        except UnansweredError as error:
            raise ProgramRefusedError(str(error)) from None
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def wait_lost(self) -> SouthboundError:
        await asyncio.Event().wait()
        raise AssertionError

    async def reconcile(self, _: Intent, on_read: Callable[[], None] = lambda: None) -> Applied:
        await self._processor.work_long(READ_S)
        on_read()
        return APPLIED

    async def ports_down(self) -> None:
        return None

    async def ping(self, timeout_s: float) -> None:
        try:
            async with patience(timeout_s):
                await self._processor.work(PING_S)
        except TimeoutError:
            raise SouthboundError(f"switch {self._name}: no answer") from None


@dataclass(frozen=True)
class Outcome:
    """What has become of the switches."""

    states: list[str]
    sessions: list[int]
    """The number of sessions that were opened with each."""
    most_waiting: int


async def connected(duration_s: float, stuck: int) -> Outcome:
    """Connect with all switches for so long; the first ones say nothing."""
    processor = Processor()
    timing = Timing(audit_s=AUDIT_S, heartbeat_s=shared_heartbeat_s(SWITCHES))
    places = SharedPlaces()
    connections = []
    for number in range(SWITCHES):
        name = f"s{number}"
        stand_in = StandIn(name, processor, is_stuck=number < stuck)
        session = cast(IntentSession, stand_in)
        endpoint = Endpoint(
            name,
            f"unix:{name}",
            number,
            program(),
            "softswitch",
            session=lambda *_, session=session, **__: session,
        )
        switch = SwitchConnection(
            endpoint,
            term=1,
            on_event=lambda _: None,
            rng=random.Random(number),
            timing=timing,
            places=places,
        )
        switch.set_intent(bare(), 1)
        connections.append(switch)
    tasks = [asyncio.create_task(switch.run()) for switch in connections]
    await asyncio.sleep(duration_s)
    snapshots = [switch.snapshot() for switch in connections]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return Outcome(
        [snapshot.state for snapshot in snapshots],
        [snapshot.sessions for snapshot in snapshots],
        processor.most_waiting,
    )


def outcome(
    monkeypatch: pytest.MonkeyPatch,
    duration_s: float,
    stuck: int = 0,
) -> Outcome:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        virtual_time = SimpleNamespace(monotonic=runner.get_loop().time, time=time.time)
        monkeypatch.setattr(connection, "time", virtual_time)
        return runner.run(connected(duration_s, stuck))


def test_no_session_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = outcome(monkeypatch, 1.5 * AUDIT_S)
    assert set(seen.states) == {"ready"}
    assert set(seen.sessions) == {1}
    # Few programs and readings are under way at a time.
    assert 1 < seen.most_waiting <= 2 * 16


def test_switches_that_are_stuck_do_not_keep_others_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stuck = 100
    seen = outcome(monkeypatch, AUDIT_S, stuck)
    assert set(seen.states[:stuck]) == {"refused"}
    assert set(seen.states[stuck:]) == {"ready"}
    assert set(seen.sessions[stuck:]) == {1}
