"""The shim's sockets of one host in C (datagrams.c), with the ends of flows in C."""

from __future__ import annotations

import itertools
import os
import select
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from ctoolchain import CSource, Loaded, ToolchainError, load_or_not
from echelon.model.errors import RunError
from echelon.model.jobs.graph import Flow, Job
from echelon.planning.engine import wanted_engine
from echelon.switches.targets.virtual import NativeClock
from echelon_lab.endhosts.native import NativeEnds, NativeFlow, new_tally, tally_of
from echelon_lab.endhosts.shim import SHIM_AT, SHIM_PORT, FlowAddress, read_payload
from echelon_lab.hosts.loop import RealTimeLoop
from echelon_lab.hosts.workers.messages import Assignment, ShimCarriage
from echelon_lab.hosts.workers.shim_sockets import (
    ShimSocketCarrier,
    connection_port,
    incoming,
    outgoing,
    python_carriers,
)
from echelon_lab.hosts.workers.sockets import FlowEvents, HostPacketCounts

_FOLDER = Path(__file__).parent
_NO_MAC = "00:00:00:00:00:00"
"""The kernel makes the headers before the shim."""


def load_datagrams() -> Loaded | None:
    """Return the library; None: Python is wanted, or nothing can build it.

    Raise `RunError` if only C is wanted.
    """
    header = (_FOLDER / "datagrams.h").read_text(encoding="utf-8")
    text = (_FOLDER / "datagrams.c").read_text(encoding="utf-8")
    source = CSource("datagrams", text, {"datagrams.h": header})
    try:
        return load_or_not(
            source, header, wanted_engine(RunError), "hosts send and receive in Python"
        )
    except ToolchainError as error:
        raise RunError(f"hosts cannot send and receive in C: {error}") from None


class DatagramNetwork:
    """One host's sockets as a network in C.

    It is `echelon.switches.targets.virtual.NetworkInC` in real time.

    `unexpected` is called with the key of a flow that arrives and is not expected; it may expect
    it. `sockets` closes what is opened.
    """

    def __init__(
        self,
        native: Loaded,
        loop: RealTimeLoop,
        assignment: Assignment,
        unexpected: Callable[[bytes], None],
        sockets: ExitStack,
    ) -> None:
        self._ffi, self._library, _ = native
        self._loop = loop
        self._host = assignment.host
        self._ipv4 = assignment.addresses[assignment.host]
        self._unexpected = unexpected
        self._numbers = itertools.count(1)
        self._callbacks: dict[int, tuple[Callable[[], None], bool]] = {}
        self.told_ns = 0
        """The time of what is being told."""
        self.incoming = incoming(self._ipv4, sockets)
        """The socket that takes all packets for this host."""
        library = self._library
        ffi = self._ffi
        datagrams = library.datagrams_new(self.incoming.fileno(), assignment.rate_bps, SHIM_PORT)
        if datagrams == ffi.NULL:
            raise MemoryError
        self._datagrams = ffi.gc(datagrams, library.datagrams_free)
        pointers = {"clock": self._datagrams, "now_ns": library.datagrams_now(self._datagrams)}
        for name in ("call", "tell", "send", "waits"):
            pointers[name] = ffi.addressof(library, f"datagrams_{name}")
        addresses = {name: self._address(pointer) for name, pointer in pointers.items()}
        self.clock = NativeClock(**addresses)
        loop.wait_with(self._wait)

    def send_from(self, port: int, sockets: ExitStack) -> None:
        """Let a port send."""
        sock = outgoing(self._ipv4, port, sockets)
        self._library.datagrams_open(self._datagrams, port, sock.fileno())

    @property
    def now_ns(self) -> int:
        return self._loop.now_ns

    def nic(self, _host: str) -> int:
        return self._address(self._datagrams)

    def receive_in_c(
        self,
        host: str,
        receive: int,
        _choose: int,
        receiver: int,
    ) -> None:
        if host != self._host:
            return  # frames of other hosts arrive at them
        cast = self._ffi.cast
        function = cast("int(*)(void *, int64_t, const uint8_t *, uint32_t)", receive)
        argument = cast("void *", receiver)
        self._library.datagrams_receive_with(self._datagrams, function, argument)

    def when_told(self, callback: Callable[[], None], *, once: bool = True) -> int:
        number = next(self._numbers)
        self._callbacks[number] = callback, once
        return number

    def act(self, call: Callable[[], None]) -> None:
        """Call a function that sends."""
        self._library.datagrams_look(self._datagrams)
        call()
        self._finish()

    def _wait(
        self,
        until_ns: int,
        readers: Collection[int],
        writers: Collection[int],
    ) -> None:
        library = self._library
        ffi = self._ffi
        # The first request is for the socket that takes packets.
        polled = [(-1, 0, 0)]
        polled += [(fd, select.POLLIN, 0) for fd in readers]
        polled += [(fd, select.POLLOUT, 0) for fd in writers]
        requests = ffi.new("datagrams_request[]", polled)
        length = ffi.new("uint32_t *")
        while True:
            result = library.datagrams_wait(self._datagrams, until_ns, requests, len(requests))
            if result != library.WAIT_UNEXPECTED:
                break
            frame = library.datagrams_unexpected(self._datagrams, length)
            data = bytes(ffi.buffer(frame, length[0]))
            payload = read_payload(data[SHIM_AT:])
            if payload is not None:
                self._unexpected(payload[0])
            library.datagrams_again(self._datagrams)
        self._finish()

    def _finish(self) -> None:
        library = self._library
        error = library.datagrams_error(self._datagrams)
        if error:
            raise OSError(error, os.strerror(error))
        news = self._ffi.new("datagrams_news **")
        count = library.datagrams_told(self._datagrams, news)
        # Copied before anything is called, which may make more news.
        events = []
        for item in news[0][0:count]:
            events.append((int(item.number), int(item.time_ns)))
        for number, self.told_ns in events:
            callback, once = self._callbacks[number]
            if once:
                del self._callbacks[number]
            callback()

    def _address(self, pointer: Any) -> int:
        return int(self._ffi.cast("uintptr_t", pointer))


class DatagramCarrier:
    """One job's flows at one host, whose ends are in C. There is nothing to connect."""

    def __init__(
        self,
        network: DatagramNetwork,
        ends: NativeEnds,
        assignment: Assignment,
        job: Job,
        carriage: ShimCarriage,
        events: FlowEvents,
    ) -> None:
        self.sockets = network
        """The host's sockets, which its jobs share."""
        self._events = events
        self._job = job.name
        self._rankings = assignment.stream_rankings
        self._counters = new_tally(ends)
        self._flows: dict[str, NativeFlow] = {}
        host = assignment.host
        addresses = assignment.addresses
        for flow in job.flows:
            if host not in (flow.src, flow.dst):
                continue
            address = FlowAddress(
                _NO_MAC,
                _NO_MAC,
                addresses[flow.src],
                addresses[flow.dst],
                connection_port(carriage.number),
                carriage.number,
                carriage.flows[flow.name],
            )
            windows = assignment.flow_windows[job.name, flow.name]
            self._flows[flow.name] = NativeFlow(
                ends,
                f"job {job.name}: flow {flow.name} from {flow.src} to {flow.dst}",
                (flow.src, flow.dst),
                address,
                flow.size_bytes,
                assignment.windows,
                windows,
                assignment.retransmit_after_ns,
                self._counters,
                False,
            )
        self._arriving = {}
        for flow in job.flows:
            if flow.dst == host:
                self._arriving[carriage.flows[flow.name]] = flow

    def connect(self, connected: Callable[[], None]) -> None:
        """Call `connected` at once."""
        connected()

    @property
    def counts(self) -> HostPacketCounts:
        """Packets of the job at this host."""
        tally = tally_of(self._counters)
        return HostPacketCounts(tally.reordered, tally.retransmitted)

    def send(self, flow: Flow, iteration: int) -> None:
        """Send a flow from here."""
        self._events.started(flow.name, iteration, self.sockets.now_ns)
        native = self._flows[flow.name]
        on_sent = partial(self._events.sent, flow.name)
        ranking = self._rankings.get((self._job, flow.name))
        self.sockets.act(partial(native.send, iteration, on_sent, ranking))

    def expect(self, key: bytes) -> None:
        """Expect a flow, whose first packet has come, in the iteration of `key`.

        Do nothing if that cannot be.
        """
        flow = self._arriving.get(int.from_bytes(key[3:5], "big"))
        if flow is None:
            return
        current = self._events.iteration()
        # A host may be one iteration ahead. A packet has only the iteration's last byte.
        for iteration in (current, current + 1):
            if iteration and iteration % 256 == key[0]:
                on_complete = partial(self._on_complete, flow.name, iteration)
                shares = (self._job, flow.name) in self._rankings
                self._flows[flow.name].expect(iteration, on_complete, shares=shares)

    def _on_complete(self, flow: str, iteration: int) -> None:
        self._events.received(flow, iteration, self.sockets.told_ns)


def shim_carriers(
    loop: RealTimeLoop,
    assignment: Assignment,
    jobs: Mapping[str, tuple[Job, ShimCarriage, FlowEvents]],
    sockets: ExitStack,
) -> Mapping[str, DatagramCarrier] | Mapping[str, ShimSocketCarrier]:
    """Open the host's sockets for all jobs that use them, in C if they can be.

    `sockets` closes them, and those that are opened later.
    """
    native = load_datagrams()
    if native is None:
        return python_carriers(loop, assignment, jobs, sockets)
    by_number: dict[int, DatagramCarrier] = {}

    def unexpected(key: bytes) -> None:
        carrier = by_number.get(int.from_bytes(key[1:3], "big"))
        if carrier is not None:
            carrier.expect(key)

    network = DatagramNetwork(native, loop, assignment, unexpected, sockets)
    ends = NativeEnds(network, assignment.addresses)
    if assignment.rules is not None:
        ends.rank(assignment.rules)
    carriers = {}
    for name, (job, carriage, events) in jobs.items():
        carrier = DatagramCarrier(network, ends, assignment, job, carriage, events)
        carriers[name] = carrier
        by_number[carriage.number] = carrier
        network.send_from(connection_port(carriage.number), sockets)
    return carriers
