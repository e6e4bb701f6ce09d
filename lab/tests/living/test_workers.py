"""Emulated hosts: frames keep the rate of their link; a job that breaks starts anew."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from echelon.model.errors import RunError
from echelon.model.jobs.graph import Job
from echelon_lab.hosts.loop import RealTimeLoop
from echelon_lab.living import workers as living
from echelon_lab.living.emulation import OwnClock
from echelon_lab.living.registry import LivingJob
from echelon_lab.living.wires import Wire, unix_ends
from echelon_lab.living.workers import Workers, Workplace
from echelon_lab.scenarios.scenario import Scenario, load_scenario

FILE = Path(__file__).parents[3] / "topologies" / "scenarios" / "fig2.yaml"
RATE_BPS = 8_000_000
FRAME = bytes(1000)
"""It takes a millisecond."""


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_frames_leave_at_the_rate_of_the_link_in_their_order(closing: ExitStack) -> None:
    """A wait for a processor makes none earlier than its time."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    closing.enter_context(near)
    closing.enter_context(far)
    loop = RealTimeLoop()
    wire = Wire(loop, near, None, RATE_BPS, lambda _now_ns, _frame: None)
    began_ns = loop.now_ns
    times_ns = []
    frames = []

    def on_frame() -> None:
        frames.append(far.recv(2000))
        times_ns.append(loop.now_ns - began_ns)
        if len(frames) == 30:
            loop.stop()

    loop.on_readable(far.fileno(), on_frame)
    # More than the socket of the other end holds.
    for number in range(30):
        wire.send(bytes([number]) + FRAME[1:])
    loop.run()
    assert [frame[0] for frame in frames] == list(range(30))
    for number, time_ns in enumerate(times_ns):
        assert time_ns >= number * 1_000_000
    loop.on_readable(far.fileno(), None)


def test_frames_for_a_switch_that_is_gone_are_lost(closing: ExitStack, tmp_path: Path) -> None:
    sock = closing.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    loop = RealTimeLoop()
    wire = Wire(loop, sock, str(tmp_path / "gone"), RATE_BPS, lambda _now_ns, _frame: None)
    for _ in range(3):
        wire.send(FRAME)
    loop.call_at(loop.now_ns + 4_000_000, loop.stop)
    loop.run()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as switch:
        switch.bind(str(tmp_path / "gone"))
        wire.send(FRAME)
        assert switch.recv(2000) == FRAME


def test_a_clock_that_is_stopped_calls_nobody_and_one_that_breaks_says_why() -> None:
    loop = RealTimeLoop()
    reasons: list[str] = []
    calls: list[str] = []
    clock = OwnClock(loop, reasons.append)
    stopped = OwnClock(loop, reasons.append)

    def fail() -> None:
        raise RunError("a flow gets nowhere")

    clock.call_at(loop.now_ns, calls.append, "first")
    clock.call_at(loop.now_ns, fail)
    clock.call_at(loop.now_ns, calls.append, "after the end")
    stopped.call_at(loop.now_ns, calls.append, "stopped")
    stopped.stopped = True
    loop.call_at(loop.now_ns + 1_000_000, loop.stop)
    loop.run()
    assert calls == ["first"]
    assert reasons == ["a flow gets nowhere"]


@pytest.fixture
def scenario() -> Scenario:
    return load_scenario(FILE)


def test_a_job_whose_flows_get_nowhere_starts_anew_until_it_is_removed(
    scenario: Scenario,
    closing: ExitStack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No switch is there. What is said names the job, and that its workers start anew."""
    transport = replace(scenario.transport, retransmit_after_s=Fraction(1, 10**5))
    scenario = replace(scenario, transport=transport)
    loop = RealTimeLoop()
    said: list[str] = []
    monkeypatch.setattr(living, "_AGAIN_NS", 0)
    with ExitStack() as given:
        ends = []
        for end in unix_ends(scenario.fabric, tmp_path, given):
            ends.append(replace(end, descriptor=os.dup(end.descriptor)))
    workers = Workers(Workplace("", scenario, tuple(ends)), loop, closing)
    job = at_once(scenario.jobs[0])
    registered = LivingJob(1, scenario.specs[job.name], job, {}, ())

    def warn(line: str) -> None:
        said.append(line)
        if len(said) == 2:
            workers.look({})
            loop.call_at(loop.now_ns + 20_000_000, loop.stop)

    monkeypatch.setattr(living, "warn", warn)
    workers.start()
    workers.look({job.name: registered})
    loop.run()
    assert len(said) == 2
    for line in said:
        assert line.startswith(f"job {job.name}: flow ")
        assert line.endswith("; its workers start anew")


def at_once(job: Job) -> Job:
    """Return the job without computing."""
    flows = tuple(replace(flow, after=()) for flow in job.flows)
    return replace(job, computes=(), flows=flows)
