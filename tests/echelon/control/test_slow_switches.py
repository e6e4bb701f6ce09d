"""Switches that take longer than any deadline.

No run in virtual time may depend on how long they take.
"""

from __future__ import annotations

import asyncio
from fractions import Fraction
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest

from echelon.model.errors import RunError
from echelon.planning.policies import make_policy
from echelon.switches.southbound.errors import SouthboundError
from echelon.switches.southbound.session import IntentSession, SwitchSession
from echelon.switches.targets import TARGETS
from echelon_lab.scenarios.results import PolicyRun
from echelon_lab.scenarios.scale import scaled
from echelon_lab.scenarios.scenario import Scenario
from echelon_lab.virtual.run import run, sessions
from tests.faults import coded

pytestmark = pytest.mark.io

start_server = grpc.server
KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
NEVER_S = 10.0**9
"""Less than what gRPC makes of no deadline: the end of its time."""


class Late(grpc.ServerInterceptor):  # type: ignore[misc]
    """A server to which every call that has a deadline comes too late."""

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = continuation(details)
        return handler and handler._replace(
            **{kind: self._late(serve) for kind in KINDS if (serve := getattr(handler, kind))}
        )

    @staticmethod
    def _late(serve: Any) -> Any:
        def answer(request: Any, context: Any) -> Any:
            if context.time_remaining() < NEVER_S:
                context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
            return serve(request, context)

        return answer


class LeapingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock leaps by an hour whenever it is read, so that every timer rings at
    once.
    """

    leaps = 0

    def time(self) -> float:
        self.leaps += 1
        return super().time() + 3600 * self.leaps


@pytest.fixture
def target() -> str:
    """The target whose switches are too late."""
    return "softswitch"


@pytest.fixture
def session_class() -> type[IntentSession]:
    """The class of the target's sessions."""
    return SwitchSession


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every switch be too late."""

    def slow_server(*arguments: Any, **options: Any) -> Any:
        return start_server(*arguments, interceptors=[Late()], **options)

    monkeypatch.setattr(grpc, "server", slow_server)
    monkeypatch.setattr(asyncio, "new_event_loop", LeapingLoop)


def outcome(scenario: Scenario, target: str) -> PolicyRun:
    # A reactive policy: its decisions need digests, counters, writes and acknowledgements.
    few = scaled(scenario, Fraction(1, 10)).scenario
    return run(
        few, "varys", lambda: make_policy("varys"), lambda _job, _iteration: None, target=target
    )


def test_a_run_in_virtual_time_waits_for_them(
    fig2: Scenario, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = outcome(fig2, target)
    monkeypatch.undo()
    assert slow.records == outcome(fig2, target).records


def test_other_sessions_give_up(fig2: Scenario, target: str) -> None:
    kind = TARGETS[target]
    build = kind.virtual_fabric()
    assert build is not None

    async def connect(session: IntentSession) -> None:
        async with session:
            raise AssertionError("connected")

    with build(fig2.fabric, Fraction(0), None) as testbed:
        session = sessions(kind, fig2.fabric, testbed.addresses)["s1"]
        slow = coded("switch-failed", "switch s1")
        with pytest.raises(SouthboundError, check=slow), asyncio.Runner() as runner:
            runner.run(connect(session))


def test_no_switch_waits_for_a_controller_that_has_failed(
    fig2: Scenario,
    target: str,
    session_class: type[IntentSession],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def unreadable(_session: object, _entries: object) -> None:
        raise SouthboundError("counters cannot be read")

    monkeypatch.setattr(session_class, "bytes_seen", unreadable)
    unread = coded("run-failed", "varys: counters cannot be read")
    with pytest.raises(RunError, check=unread):
        outcome(fig2, target)
