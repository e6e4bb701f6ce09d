# ruff: noqa: N802 - methods have the names of the calls of P4Runtime
"""Timeouts on an event loop that is late, and of a switch that is at work."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc

from echelon.model.p4program import program
from echelon.switches.southbound.deadlines import deadline, no_deadlines, patience
from echelon.switches.southbound.errors import SouthboundError, UnansweredError
from echelon.switches.southbound.session import SwitchSession
from tests.echelon.southbound.conftest import bare, flow_entry

LATE_S = 0.1
PATIENCE_S = 60


async def test_an_answer_that_came_while_the_loop_was_late_is_taken() -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)

    def be_late() -> None:
        theirs.send(b"answer")
        time.sleep(LATE_S)

    with ours, theirs:
        async with patience(LATE_S / 100):
            loop.call_soon(be_late)
            assert await loop.sock_recv(ours, 100) == b"answer"


async def test_without_an_answer_the_time_is_over() -> None:
    with pytest.raises(TimeoutError):
        async with patience(LATE_S):
            await asyncio.Event().wait()
    with pytest.raises(UnansweredError, match=r"s1: asking: no answer within 0\.1 s"):
        async with deadline(LATE_S, "s1", "asking"):
            await asyncio.Event().wait()


async def test_a_deadline_leaves_nothing_to_the_collector() -> None:
    """A ring of objects would keep the task, and all that the task holds, until it is collected."""

    class Memory:
        """Something that a task keeps."""

    async def call() -> None:
        async with deadline(10 * LATE_S, "s1", "asking"):
            await asyncio.sleep(0)

    gc.disable()
    try:
        context = contextvars.copy_context()
        holder = contextvars.ContextVar[Memory]("holder")
        context.run(holder.set, Memory())
        memory = weakref.ref(context[holder])
        loop = asyncio.get_running_loop()
        await loop.create_task(call(), context=context)
        del context
        # The loop keeps timers that were cancelled until their time.
        await asyncio.sleep(2 * LATE_S)
        assert memory() is None
    finally:
        gc.enable()


async def test_in_virtual_time_nothing_is_late() -> None:
    with no_deadlines():
        async with patience(LATE_S / 100):
            await asyncio.sleep(LATE_S)


class BusySwitch(p4r_grpc.P4RuntimeServicer):
    """A switch that answers nothing else while it writes."""

    def __init__(self) -> None:
        self.config: Any = None
        self.is_writing = threading.Event()
        self.may_end = threading.Event()

    def StreamChannel(self, requests: Iterator[Any], _: Any) -> Iterator[Any]:
        for request in requests:
            yield p4r.StreamMessageResponse(arbitration=request.arbitration)

    def SetForwardingPipelineConfig(self, request: Any, _: Any) -> Any:
        self.config = request.config
        return p4r.SetForwardingPipelineConfigResponse()

    def GetForwardingPipelineConfig(self, _request: Any, _: Any) -> Any:
        return p4r.GetForwardingPipelineConfigResponse(config=self.config)

    def Read(self, _request: Any, _: Any) -> Iterator[p4r.ReadResponse]:
        yield p4r.ReadResponse()

    def Write(self, _request: Any, _: Any) -> p4r.WriteResponse:
        self.is_writing.set()
        self.may_end.wait(PATIENCE_S)
        return p4r.WriteResponse()

    def Capabilities(self, _request: Any, _: Any) -> p4r.CapabilitiesResponse:
        return p4r.CapabilitiesResponse()


@pytest.fixture
def busy() -> Iterator[tuple[BusySwitch, str]]:
    switch = BusySwitch()
    # One thread for the stream, and one for all calls.
    server = grpc.server(ThreadPoolExecutor(2))
    p4r_grpc.add_P4RuntimeServicer_to_server(switch, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield switch, f"127.0.0.1:{port}"
    switch.may_end.set()
    server.stop(None).wait()


async def test_a_switch_that_is_at_work_on_entries_may_answer_later(
    busy: tuple[BusySwitch, str],
) -> None:
    switch, address = busy
    async with SwitchSession("s1", address, 1, program()) as session:
        entries = [flow_entry(number) for number in range(900)]
        writing = asyncio.create_task(session.update(bare(*entries)))
        await asyncio.to_thread(switch.is_writing.wait, PATIENCE_S)
        pinging = asyncio.create_task(session.ping(LATE_S))
        await asyncio.sleep(3 * LATE_S)
        assert not pinging.done()
        switch.may_end.set()
        await pinging
        await writing


async def test_a_switch_that_has_little_to_do_and_says_nothing_is_missed(
    busy: tuple[BusySwitch, str],
) -> None:
    switch, address = busy
    async with SwitchSession("s1", address, 1, program()) as session:
        writing = asyncio.create_task(session.update(bare(flow_entry(1))))
        await asyncio.to_thread(switch.is_writing.wait, PATIENCE_S)
        with pytest.raises(SouthboundError, match=r"no answer at .* within 0\.12 s"):
            await session.ping(LATE_S)
        switch.may_end.set()
        await writing
