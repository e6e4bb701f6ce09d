"""Virtual time in C (fabric.c): an event loop, and switches and hosts joined by links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any, cast

from ctoolchain import CSource, Loaded, load
from softswitch.native.programs import CProgram, PythonProgram, functions_of
from softswitch.native.scheduler import PortScheduler, c_source
from softswitch.tm import PortQueues, check_number
from softswitch.virtual.eventloop import check_time
from softswitch.virtual.fabric import FabricOfNodes, HostNode, Node, SwitchNode, Urgency, WireLine
from softswitch.virtual.switch import Pipelines, VirtualDrop

__all__ = [
    "EventLoop",
    "VirtualFabric",
    "VirtualHost",
    "VirtualSwitch",
    "fabric_source",
    "load_fabric",
]

_FOREVER_NS = (1 << 63) - 1
_MOST_RATE_BPS = 1 << 62
_DROPS = (
    VirtualDrop.INGRESS,
    VirtualDrop.NO_LINK,
    VirtualDrop.NO_QUEUE,
    VirtualDrop.QUEUE_FULL,
    VirtualDrop.EGRESS,
)
"""The reasons, in the order of fabric.h."""


def fabric_source() -> tuple[CSource, str]:
    """Return fabric.c with its includes, and the declarations of the library."""
    source, declared = c_source("fabric", "fabric.h")
    return source, declared + source.includes["fabric.h"]


@cache
def load_fabric() -> Loaded:
    """Return the library of fabric.c. Raise `ToolchainError` if there is none."""
    return load(*fabric_source())


class EventLoop:
    """A clock that jumps from event to event.

    Callbacks come in order of time and, at equal times, of scheduling. Threads that share a loop
    hold a lock around `run`. Raise `ToolchainError` if there is no library of fabric.c.

    `native` is another library with all that fabric.c declares, such as one whose ports serve
    packets in another order.
    """

    __slots__ = (
        "_calls",
        "_notices",
        "_numbers",
        "_running",
        "_state",
        "error",
        "fabric",
        "ffi",
        "hosts",
        "library",
        "native",
    )

    def __init__(self, now_ns: int = 0, native: Loaded | None = None) -> None:
        self.native = native or load_fabric()
        self.ffi, self.library, _ = self.native
        fabric = _allocated(self.library.fabric_new(now_ns))
        self.fabric = self.ffi.gc(fabric, self.library.fabric_free)
        """The structure in C."""
        self._state = self.library.fabric_state_of(self.fabric)
        self._calls: dict[int, tuple[Callable[..., object], tuple[object, ...]]] = {}
        self._notices: dict[int, tuple[Callable[[], object], bool]] = {}
        self._numbers = count(1)
        self._running = False
        self.hosts: list[VirtualHost] = []
        self.error: BaseException | None = None
        """The error of a program in Python."""

    @property
    def now_ns(self) -> int:
        """The present time."""
        return cast("int", self._state.now_ns)

    @property
    def pending(self) -> int:
        """Return the number of events still to come."""
        return int(self._state.pending)

    def call_at(
        self,
        time_ns: int,
        callback: Callable[..., object],
        *args: object,
    ) -> None:
        """Call `callback(*args)` at `time_ns`.

        Raise ValueError for a time in the past, TypeError for anything but an integer.
        """
        check_time(time_ns, self.now_ns)
        number = next(self._numbers)
        self._calls[number] = callback, args
        self.library.fabric_at(self.fabric, time_ns, number)

    def after(
        self,
        delay_ns: int,
        callback: Callable[..., object],
        *args: object,
    ) -> None:
        """Call `callback(*args)` in `delay_ns`. Raise as `call_at` does."""
        self.call_at(self.now_ns + delay_ns, callback, *args)

    def when_told(self, callback: Callable[[], object], *, once: bool = True) -> int:
        """Return the number with which `fabric_tell` has this called after the present event."""
        number = next(self._numbers)
        self._notices[number] = callback, once
        return number

    @property
    def addresses(self) -> dict[str, int]:
        """Return the addresses of the clock, its time, and the functions of the network in C."""
        library = self.library
        ffi = self.ffi
        pointers = {
            "clock": self.fabric,
            "now_ns": ffi.addressof(self._state, "now_ns"),
            "call": ffi.addressof(library, "fabric_call"),
            "tell": ffi.addressof(library, "fabric_tell"),
            "send": ffi.addressof(library, "fabric_send"),
            "waits": ffi.addressof(library, "fabric_waits"),
        }
        addresses = {}
        for name, pointer in pointers.items():
            addresses[name] = int(ffi.cast("uintptr_t", pointer))
        return addresses

    def stop(self) -> None:
        """Make the `run` in progress return after the current callback. Do nothing without one."""
        self._state.stopped = self._running

    def run(self, until_ns: int | None = None, max_events: int | None = None) -> int:
        """Run the events due up to and including `until_ns`, at most `max_events`.

        Return how many ran.

        Afterwards `now_ns` is `until_ns`, unless `stop` or `max_events` ended the run first;
        another call then continues. An exception in a callback ends the run, and its event is gone.
        Raises RuntimeError inside a callback.
        """
        if self._running:
            raise RuntimeError(
                "the event loop is already running: a callback schedules with call_at() or after()"
            )
        library = self.library
        fabric = self.fabric
        state = self._state
        last_ns = _FOREVER_NS if until_ns is None else until_ns
        most = _FOREVER_NS if max_events is None else max_events
        state.ran = 0
        self._running = True
        try:
            # C comes back for each event that is Python's, and goes on where it was.
            while True:
                reason = library.fabric_run(fabric, last_ns, most)
                if reason == library.RUN_CALL:
                    callback, args = self._calls.pop(state.value)
                    callback(*args)
                elif reason == library.RUN_TOLD:
                    number = state.value
                    notify, once = self._notices[number]
                    if once:
                        del self._notices[number]
                    notify()
                elif reason == library.RUN_RECEIVED:
                    data = self.ffi.buffer(state.data, state.length)[:]
                    self.hosts[state.host.number].on_packet(state.now_ns, data)
                elif reason == library.RUN_CHOOSE:
                    self.hosts[state.host.number].choose(state.now_ns)
                elif reason == library.RUN_DONE or reason == library.RUN_STOPPED:
                    break
                elif reason == library.RUN_NO_MEMORY:
                    raise MemoryError
                else:
                    error = self.error
                    self.error = None
                    state.failed = 0
                    assert error is not None
                    raise error
            if (
                reason == library.RUN_DONE
                and until_ns is not None
                and not state.stopped
                and until_ns > state.now_ns
            ):
                state.now_ns = until_ns
            return int(state.ran)
        finally:
            self._running = False
            state.stopped = 0

    def fail(
        self,
        _kind: object,
        error: BaseException,
        _traceback: object,
    ) -> None:
        """Let the run end with an error of a function that C has called."""
        self.error = self.error or error
        self._state.failed = self.library.RUN_FAILED


class VirtualHost:
    """A host: an interface that sends, with queues without bound, and a receiver of what arrives.

    Packets with the same urgency function wait in one FIFO. The interface serves the most urgent of
    these FIFOs. Packets without urgency wait in another FIFO, which takes turns with the most
    urgent packets.
    """

    __slots__ = (
        "_loop",
        "_new_numbers",
        "_numbers",
        "_urgencies",
        "host",
        "name",
        "on_packet",
        "wire",
    )

    def __init__(
        self,
        loop: EventLoop,
        name: str,
        on_packet: Callable[[int, bytes], None],
    ) -> None:
        self._loop = loop
        self.name = name
        self.on_packet = on_packet
        self.wire: Wire | None = None
        self.host = _allocated(loop.library.fabric_add_host(loop.fabric, len(loop.hosts)))
        """The structure in C."""
        loop.hosts.append(self)
        self._numbers: dict[Urgency, int] = {}
        self._urgencies: dict[int, Urgency] = {}
        self._new_numbers = count(1)

    @property
    def backlog_bytes(self) -> int:
        """The bytes waiting behind the packet that is being sent."""
        return int(self.host.backlog_bytes)

    @property
    def packets_sent(self) -> int:
        return int(self.host.packets_sent)

    @property
    def packets_received(self) -> int:
        return int(self.host.packets_received)

    @property
    def packets_dropped(self) -> int:
        """The packets sent while the host was not connected."""
        return int(self.host.packets_dropped)

    def check_free(self, port: int) -> None:
        """Raise ValueError if `port` cannot be connected."""
        if port != 0:
            raise ValueError(f"{self.name}: port {port} does not exist (the port of a host is 0)")
        if self.wire is not None:
            raise ValueError(f"{self.name}: port 0 is already connected")

    def attach(self, port: int, wire: Wire) -> None:
        """Connect the host to its outgoing wire. Raise as `check_free` does."""
        self.check_free(port)
        self.wire = wire
        self.host.wire = wire.wire

    def send(self, data: bytes, urgency: Urgency | None = None) -> None:
        """Send a packet when it is its turn."""
        number = 0 if urgency is None else self._number(urgency)
        self._loop.library.fabric_send(self.host, data, len(data), number)

    def receive(self, port: int, data: bytes) -> None:
        """Receive a packet from nowhere."""
        self.host.packets_received += 1
        self.on_packet(self._loop.now_ns, data)

    @property
    def address(self) -> int:
        """Return the address of the structure in C."""
        return int(self._loop.ffi.cast("uintptr_t", self.host))

    def receive_in_c(
        self,
        receive: int,
        choose: int,
        receiver: int,
    ) -> None:
        """Give frames that arrive to a function in C first.

        `on_packet` gets those for which it returns 0. Another function chooses which urgency goes
        first.
        """
        ffi = self._loop.ffi
        self.host.receive = ffi.cast(ffi.typeof(self.host.receive), receive)
        self.host.choose = ffi.cast(ffi.typeof(self.host.choose), choose)
        self.host.receiver = ffi.cast("void *", receiver)

    def choose(self, now_ns: int) -> None:
        """Send the next of the most urgent packets."""
        urgencies = [self._urgencies[number](now_ns) for number in self._waiting()]
        self._loop.library.fabric_chosen(self.host, urgencies.index(max(urgencies)))

    def _number(self, urgency: Urgency) -> int:
        number = self._numbers.get(urgency)
        if number is None:
            if len(self._numbers) > 2 * self.host.ranked_count + 16:
                # Most flows have ended.
                self._urgencies = {waiting: self._urgencies[waiting] for waiting in self._waiting()}
                self._numbers = {key: waiting for waiting, key in self._urgencies.items()}
            number = self._numbers[urgency] = next(self._new_numbers)
            self._urgencies[number] = urgency
        return number

    def _waiting(self) -> list[int]:
        """Return the numbers of the urgencies of which packets wait."""
        return [queue.urgency for queue in self.host.ranked[0 : self.host.ranked_count]]


class Wire:
    """A sender of packets one after another at `rate_bps`.

    Each arrives `delay_ns` after its last bit left.

    It stores and forwards: a packet of L bytes occupies the wire for 8e9 L / rate_bps ns, rounded
    as tm.c's pacer does. Raises ValueError for a rate below 1 or a negative delay.
    """

    __slots__ = (
        "delay_ns",
        "destination",
        "destination_port",
        "rate_bps",
        "source",
        "source_port",
        "wire",
    )

    def __init__(
        self,
        loop: EventLoop,
        source: tuple[Node, int],
        destination: tuple[Node, int],
        rate_bps: int,
        delay_ns: int,
    ) -> None:
        if delay_ns < 0:
            raise ValueError(f"delay_ns: {delay_ns} is negative")
        check_number("rate_bps", rate_bps, 1)
        self.source, self.source_port = source
        self.destination, self.destination_port = destination
        self.rate_bps = rate_bps
        self.delay_ns = delay_ns
        counted_bps = min(rate_bps, _MOST_RATE_BPS)
        self.wire = _allocated(loop.library.fabric_add_wire(loop.fabric, counted_bps, delay_ns))
        """The structure in C."""
        if isinstance(self.destination, VirtualHost):
            self.wire.to_host = self.destination.host
        else:
            self.wire.to_switch = cast("VirtualSwitch", self.destination).node
        self.wire.to_port = self.destination_port

    @property
    def name(self) -> str:
        """Return the names of its two ends."""
        return (
            f"{self.source.name}:{self.source_port} ->"
            f" {self.destination.name}:{self.destination_port}"
        )

    @property
    def sent_packets(self) -> int:
        return int(self.wire.sent_packets)

    @property
    def sent_bytes(self) -> int:
        return int(self.wire.sent_bytes)

    @property
    def delivered_packets(self) -> int:
        return int(self.wire.delivered_packets)


class VirtualSwitch:
    """A switch whose ingress and egress take no time.

    Ingress runs when a packet has arrived, egress when its turn has come.

    Packets in plus `replicated` always equals packets out plus dropped plus queued
    (`VirtualFabric.check`).
    """

    __slots__ = ("_loop", "_programs", "_switch", "name", "node", "packets_injected", "ports")

    def __init__(
        self,
        loop: EventLoop,
        name: str,
        switch: Pipelines,
    ) -> None:
        self._loop = loop
        self.name = name
        self.node = _allocated(loop.library.fabric_add_switch(loop.fabric))
        """The structure in C."""
        self.ports: dict[int, PortQueues] = {}
        """The queues of each connected port, which may be configured at any time."""
        self.packets_injected = 0
        """The `packets_in` that no wire delivered."""
        self._programs: list[tuple[Any, CProgram | PythonProgram, Any]] = []
        """The structures in C of the program, and of those before it of which packets wait.

        They come with what they refer to.
        """
        self.switch = switch

    @property
    def switch(self) -> Pipelines:
        """The pipeline.

        It may be replaced at any time; waiting packets still leave by the one that queued them.
        """
        return self._switch

    @switch.setter
    def switch(self, switch: Pipelines) -> None:
        self._switch = switch
        # Packets in queues still need the functions of the program that queued them.
        self._programs = [old for old in self._programs if old[0].waiting]
        ffi = self._loop.ffi
        in_c = getattr(switch, "native", None)
        if in_c is None:
            program = PythonProgram(switch)
            functions = program.functions(ffi, "fabric_program *", self._loop.fail)
            report = None
        else:
            functions = functions_of(
                in_c, ffi.new("fabric_program *"), ffi, ("ingress", "egress", "drop")
            )
            report = ffi.callback(
                "void(uint64_t)", lambda _number: in_c.report(), onerror=self._loop.fail
            )
            functions.report = report
            in_c.report()
            program = in_c
        self._programs.append((functions, program, report))
        self.node.program = functions

    @property
    def packets_in(self) -> int:
        return int(self.node.packets_in)

    @property
    def packets_out(self) -> int:
        return int(self.node.packets_out)

    @property
    def replicated(self) -> int:
        """Return the number of packets that the switch made itself.

        Each copy beyond the first of a multicast or a clone counts.
        """
        return int(self.node.replicated)

    @property
    def dropped(self) -> Counter[VirtualDrop]:
        """Return the packets that ended here, by reason."""
        return Counter(
            {
                reason: count
                for reason, count in zip(_DROPS, self.node.dropped, strict=True)
                if count
            }
        )

    @property
    def packets_dropped(self) -> int:
        """Return the number of packets that ended here, for any reason."""
        return sum(self.node.dropped)

    @property
    def packets_queued(self) -> int:
        """Return the number of packets in queues, or on their way to a port without a link."""
        waiting = sum(scheduler.queued_packets for scheduler in self.ports.values())
        return int(self.node.unlinked) + waiting

    def check_free(self, port: int) -> None:
        """Raise ValueError if `port` cannot be connected."""
        if not 0 <= port < self._loop.library.FABRIC_PORTS:
            raise ValueError(
                f"{self.name}: port {port} is not in 0..{self._loop.library.FABRIC_PORTS - 1}"
            )
        if port in self.ports:
            raise ValueError(f"{self.name}: port {port} is already connected")

    def attach(self, port: int, wire: Wire) -> None:
        """Connect a port to its outgoing wire, with queues of the wire's rate.

        Raise as `check_free` does.
        """
        self.check_free(port)
        scheduler = PortScheduler(self._loop.native, wire.rate_bps)
        library = self._loop.library
        outlet = _allocated(library.fabric_attach(self.node, port, scheduler.port, wire.wire))
        scheduler.on_reconfigured = lambda _now_ns: library.fabric_wake(outlet)
        self.ports[port] = scheduler

    def inject(self, port: int, data: bytes) -> None:
        """Process a packet as if it had come in at `port` now, such as a packet-out."""
        self.packets_injected += 1
        self.receive(port, data)

    def receive(self, port: int, data: bytes) -> None:
        """Receive a packet."""
        self._loop.library.fabric_receive(self.node, port, data, len(data))


class VirtualFabric(FabricOfNodes):
    """Nodes and links on one event loop."""

    def __init__(self, loop: EventLoop) -> None:
        super().__init__(loop)
        self._loop = loop

    def _new_switch(self, name: str, switch: Pipelines) -> SwitchNode:
        return VirtualSwitch(self._loop, name, switch)

    def _new_host(self, name: str, on_packet: Callable[[int, bytes], None]) -> HostNode:
        return VirtualHost(self._loop, name, on_packet)

    def _new_wire(
        self,
        source: Any,
        destination: Any,
        rate_bps: int,
        delay_ns: int,
    ) -> WireLine:
        return Wire(self._loop, source, destination, rate_bps, delay_ns)


def _allocated(pointer: Any) -> Any:
    """Return a structure that C has made. Raise `MemoryError` if it has not."""
    if not pointer:
        raise MemoryError
    return pointer
