"""Virtual time in C (fabric.c): what `softswitch.virtual` is in Python, event for event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any, cast

from ctoolchain import Loaded, load_or_not
from softswitch.native.programs import CProgram, PythonProgram, functions_of
from softswitch.native.scheduler import NativeScheduler, c_source
from softswitch.tm import PortScheduler
from softswitch.virtual.eventloop import check_time
from softswitch.virtual.fabric import HostNode, SwitchNode, VirtualFabric, WireLine
from softswitch.virtual.host import Urgency
from softswitch.virtual.switch import Pipelines, VirtualDrop
from softswitch.virtual.wire import Node

__all__ = ["NativeFabric", "NativeHost", "NativeLoop", "NativeSwitch", "load_fabric"]

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


@cache
def load_fabric(wanted: str = "auto") -> Loaded | None:
    """Return the library of fabric.c; None: Python is wanted, or has to do. Raise `ToolchainError`
    if there is none and "native" is wanted."""
    source, declared = c_source("fabric", "fabric.h")
    instead = "virtual time passes in Python, many times as slowly"
    return load_or_not(source, declared + source.includes["fabric.h"], wanted, instead)


class NativeLoop:
    """The clock and the events of a fabric in C."""

    __slots__ = (
        "_calls",
        "_numbers",
        "_running",
        "_state",
        "_told",
        "error",
        "fabric",
        "ffi",
        "hosts",
        "library",
        "native",
    )

    def __init__(self, native: Loaded, now_ns: int = 0) -> None:
        self.native = native
        self.ffi, self.library, _ = native
        made = self.library.fabric_new(now_ns)
        if made == self.ffi.NULL:
            raise MemoryError
        self.fabric = self.ffi.gc(made, self.library.fabric_free)
        """The structure in C."""
        self._state = self.library.fabric_state_of(self.fabric)
        self._calls: dict[int, tuple[Callable[..., object], tuple[object, ...]]] = {}
        self._told: dict[int, tuple[Callable[[], object], bool]] = {}
        self._numbers = count(1)
        self._running = False
        self.hosts: list[NativeHost] = []
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

    def at(self, time_ns: int, callback: Callable[..., object], *args: object) -> None:
        """Call `callback(*args)` at `time_ns`, as `EventLoop.at` does."""
        check_time(time_ns, self.now_ns)
        number = next(self._numbers)
        self._calls[number] = callback, args
        self.library.fabric_at(self.fabric, time_ns, number)

    def after(self, delay_ns: int, callback: Callable[..., object], *args: object) -> None:
        """Call `callback(*args)` in `delay_ns`. Raise as `at` does."""
        self.at(self.now_ns + delay_ns, callback, *args)

    def when_told(self, callback: Callable[[], object], *, once: bool = True) -> int:
        """Return the number for `fabric_tell` that has this called after the event in which it is
        told.
        """
        number = next(self._numbers)
        self._told[number] = callback, once
        return number

    @property
    def addresses(self) -> dict[str, int]:
        """Return the addresses of the clock, its time, and the functions that act at a time, tell,
        and send.
        """
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
        return {name: int(ffi.cast("uintptr_t", pointer)) for name, pointer in pointers.items()}

    def stop(self) -> None:
        """Make the `run` in progress return after the current callback. Do nothing without one."""
        self._state.stopped = self._running

    def run(self, until_ns: int | None = None, max_events: int | None = None) -> int:
        """Run events as `EventLoop.run` does."""
        if self._running:
            raise RuntimeError(
                "the event loop is already running: a callback schedules with at() or after()"
            )
        library = self.library
        fabric = self.fabric
        state = self._state
        last_ns = _FOREVER_NS if until_ns is None else until_ns
        most = _FOREVER_NS if max_events is None else max_events
        state.ran = 0
        self._running = True
        try:
            while True:
                reason = library.fabric_run(fabric, last_ns, most)
                if reason == library.RUN_CALL:
                    callback, args = self._calls.pop(state.value)
                    callback(*args)
                elif reason == library.RUN_TOLD:
                    number = state.value
                    told, once = self._told[number]
                    if once:
                        del self._told[number]
                    told()
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

    def fail(self, _kind: object, error: BaseException, _traceback: object) -> None:
        """Let the run end with an error of a function that C has called."""
        self.error = self.error or error
        self._state.failed = self.library.RUN_FAILED


class NativeHost:
    """A host; see `softswitch.virtual.VirtualHost`."""

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
        self, loop: NativeLoop, name: str, on_packet: Callable[[int, bytes], None]
    ) -> None:
        self._loop = loop
        self.name = name
        self.on_packet = on_packet
        self.wire: NativeWire | None = None
        self.host = _made(loop.library.fabric_add_host(loop.fabric, len(loop.hosts)))
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

    def attach(self, port: int, wire: NativeWire) -> None:
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

    def receive_in_c(self, receive: int, choose: int, receiver: int) -> None:
        """Give frames that arrive to a function in C first; `on_packet` gets those for which it
        returns 0. Another chooses which urgency goes first."""
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
                self._numbers = {of: waiting for waiting, of in self._urgencies.items()}
            number = self._numbers[urgency] = next(self._new_numbers)
            self._urgencies[number] = urgency
        return number

    def _waiting(self) -> list[int]:
        """Return the numbers of the urgencies of which packets wait."""
        return [one.urgency for one in self.host.ranked[0 : self.host.ranked_count]]


class _Line:
    """The rate of a wire."""

    __slots__ = ("rate_bps",)

    def __init__(self, rate_bps: int) -> None:
        self.rate_bps = rate_bps


class NativeWire:
    """One direction of a link; see `softswitch.virtual.Wire`."""

    __slots__ = (
        "delay_ns",
        "destination",
        "destination_port",
        "line",
        "source",
        "source_port",
        "wire",
    )

    def __init__(
        self,
        loop: NativeLoop,
        source: tuple[Node, int],
        destination: tuple[Node, int],
        rate_bps: int,
        delay_ns: int,
    ) -> None:
        if delay_ns < 0:
            raise ValueError(f"delay_ns: {delay_ns} is negative")
        self.source, self.source_port = source
        self.destination, self.destination_port = destination
        self.line = _Line(PortScheduler(rate_bps).rate_bps or 0)
        self.delay_ns = delay_ns
        made = loop.library.fabric_add_wire(loop.fabric, min(rate_bps, _MOST_RATE_BPS), delay_ns)
        self.wire = _made(made)
        """The structure in C."""
        if isinstance(self.destination, NativeHost):
            self.wire.to_host = self.destination.host
        else:
            self.wire.to_switch = cast("NativeSwitch", self.destination).node
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


class NativeSwitch:
    """A switch; see `softswitch.virtual.VirtualSwitch`."""

    __slots__ = ("_loop", "_programs", "_switch", "name", "node", "packets_injected", "ports")

    def __init__(self, loop: NativeLoop, name: str, switch: Pipelines) -> None:
        self._loop = loop
        self.name = name
        self.node = _made(loop.library.fabric_add_switch(loop.fabric))
        """The structure in C."""
        self.ports: dict[int, PortScheduler] = {}
        self.packets_injected = 0
        self._programs: list[tuple[Any, CProgram | PythonProgram, Any]] = []
        """The structures in C of the program and of those before it of which packets wait, and what
        these refer to.
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
        """Packets that the switch made itself."""
        return int(self.node.replicated)

    @property
    def dropped(self) -> Counter[VirtualDrop]:
        """Return the packets that ended here, by reason."""
        return Counter(
            {reason: made for reason, made in zip(_DROPS, self.node.dropped, strict=True) if made}
        )

    @property
    def packets_dropped(self) -> int:
        """Return the number of packets that ended here, for any reason."""
        return sum(self.node.dropped)

    @property
    def packets_queued(self) -> int:
        """Return the number of packets waiting in the queues of all ports, or on their way to a
        port without a link.
        """
        return int(self.node.unlinked) + sum(
            scheduler.queued_packets for scheduler in self.ports.values()
        )

    def check_free(self, port: int) -> None:
        """Raise ValueError if `port` cannot be connected."""
        if not 0 <= port < self._loop.library.FABRIC_PORTS:
            raise ValueError(
                f"{self.name}: port {port} is not in 0..{self._loop.library.FABRIC_PORTS - 1}"
            )
        if port in self.ports:
            raise ValueError(f"{self.name}: port {port} is already connected")

    def attach(self, port: int, wire: NativeWire) -> None:
        """Connect a port to its outgoing wire, with queues of the wire's rate.

        Raise as `check_free` does.
        """
        self.check_free(port)
        scheduler = NativeScheduler(self._loop.native, wire.line.rate_bps)
        library = self._loop.library
        outlet = _made(library.fabric_attach(self.node, port, scheduler.port, wire.wire))
        scheduler.on_reconfigured = lambda _now_ns: library.fabric_wake(outlet)
        self.ports[port] = cast("PortScheduler", scheduler)

    def inject(self, port: int, data: bytes) -> None:
        """Process a packet as if it had come in at `port`, now: a controller's packet-out, for
        example.
        """
        self.packets_injected += 1
        self.receive(port, data)

    def receive(self, port: int, data: bytes) -> None:
        """Receive a packet."""
        self._loop.library.fabric_receive(self.node, port, data, len(data))


class NativeFabric(VirtualFabric):
    """Nodes and links in C, on an event loop in C."""

    def __init__(self, loop: NativeLoop) -> None:
        super().__init__(loop)
        self._native = loop

    def _new_switch(self, name: str, switch: Pipelines) -> SwitchNode:
        return NativeSwitch(self._native, name, switch)

    def _new_host(self, name: str, on_packet: Callable[[int, bytes], None]) -> HostNode:
        return NativeHost(self._native, name, on_packet)

    def _new_wire(self, source: Any, destination: Any, rate_bps: int, delay_ns: int) -> WireLine:
        return NativeWire(self._native, source, destination, rate_bps, delay_ns)


def _made(pointer: Any) -> Any:
    if not pointer:
        raise MemoryError
    return pointer
