"""Fabrics of embedded switches in virtual time, reached only as real switches are: by the messages
of their protocols.

A fabric hands out frames, addresses and counters. Only modules like this one import softswitch.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from ctoolchain import Loaded, ToolchainError, say_once
from echelon.model.errors import RunError
from echelon.model.fabric.model import Fabric
from echelon.planning.engine import wanted_engine
from echelon.switches.targets.virtual import Interfaces, NativeClock, NetworkInC
from softswitch import Switch
from softswitch.native.choice import Choice
from softswitch.native.fabric import NativeFabric, NativeHost, NativeLoop, load_fabric
from softswitch.p4runtime.device import Device
from softswitch.p4runtime.server import Server
from softswitch.tm import QUEUES
from softswitch.virtual import EventLoop, VirtualFabric
from softswitch.virtual.eventloop import Loop
from softswitch.virtual.fabric import HostNode, SwitchNode
from softswitch.virtual.switch import DepartedPacket, QueuedPacket

if TYPE_CHECKING:
    from echelon.switches.southbound.channel import Connect

_BATCH_EVENTS = 4096


def passes_in_c() -> bool:
    """Return whether virtual time passes in C. Raise `RunError` if it has to and cannot."""
    return _library() is not None


def _library() -> Loaded | None:
    try:
        return load_fabric(wanted_engine(RunError))
    except ToolchainError as error:
        raise RunError(f"virtual time cannot pass in C: {error}") from None


class _Unprogrammed:
    """A switch before any pipeline was pushed; it drops every packet."""

    def ingress(self, port: int, data: bytes, now_ns: int, /) -> Sequence[QueuedPacket]:
        return ()

    def egress(
        self, q: object, enq_ns: int, now_ns: int, enq_qdepth: int, deq_qdepth: int, /
    ) -> Sequence[DepartedPacket]:
        return ()


class SwitchServer(Protocol):
    """The server of one switch on the loopback interface."""

    @property
    def address(self) -> str:
        """host:port."""
        ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


S = TypeVar("S", bound=SwitchServer)


class _Native:
    """The network of a fabric in C, for senders and receivers in C."""

    def __init__(self, loop: NativeLoop, nics: Mapping[str, HostNode | Interfaces]) -> None:
        self._loop = loop
        self._nics = nics
        self.clock = NativeClock(**loop.addresses)

    @property
    def now_ns(self) -> int:
        return self._loop.now_ns

    def nic(self, host: str) -> int:
        return self._host(host).address

    def receive_in_c(self, host: str, receive: int, choose: int, receiver: int) -> None:
        self._host(host).receive_in_c(receive, choose, receiver)

    def when_told(self, callback: Callable[[], None], *, once: bool = True) -> int:
        return self._loop.when_told(callback, once=once)

    def _host(self, host: str) -> NativeHost:
        nic = self._nics[host]
        assert isinstance(nic, NativeHost)
        return nic


class Testbed(ABC, Generic[S]):
    """The `VirtualSwitches` of a fabric: a context manager inside which the switches' servers run
    on loopback.

    Subclasses say what a switch is. `control_latency_s` passes in virtual time between an event on
    a switch and the moment when its controller hears of it. `queue_bytes` is the memory of each
    queue of a port, which no controller sets (None: the switch's default).
    """

    def __init__(
        self,
        fabric: Fabric,
        control_latency_s: Fraction = Fraction(0),
        queue_bytes: int | None = None,
    ) -> None:
        self._latency_ns = round(control_latency_s * 1_000_000_000)
        native = _library()
        self.clock: Loop = EventLoop() if native is None else NativeLoop(native)
        self._lock = threading.RLock()
        self._network = (
            NativeFabric(self.clock)
            if isinstance(self.clock, NativeLoop)
            else VirtualFabric(self.clock)
        )
        self._receivers: dict[str, Callable[[int, bytes], None]] = {}
        self._decided: Callable[[], None] | None = None
        self.nics: dict[str, HostNode | Interfaces] = {}
        self.digests: dict[str, int] = dict.fromkeys(fabric.switches, 0)
        """Number of flow events that each switch has reported."""
        attached: dict[tuple[str, int], tuple[str, int]] = {}
        for name in fabric.hosts:
            made = {}
            for number, switch in fabric.ports[name].items():
                attached[name, number] = (label := f"{name} {switch}" if number else name), 0
                made[switch] = self._network.add_host(label, partial(self._deliver, name))
            self.nics[name] = Interfaces(made) if len(made) > 1 else next(iter(made.values()))
        nodes = {name: self._network.add_switch(name, _Unprogrammed()) for name in fabric.switches}
        for cable in fabric.cables:
            self._network.connect(
                attached.get((cable.a.node, cable.a.port), (cable.a.node, cable.a.port)),
                attached.get((cable.b.node, cable.b.port), (cable.b.node, cable.b.port)),
                cable.rate_bps,
                round(cable.delay_s * 1_000_000_000),
            )
        if queue_bytes is not None:
            for node in nodes.values():
                for port in node.ports.values():
                    for queue in range(QUEUES):
                        port.configure(
                            queue, replace(port.config(queue), depth_bytes=queue_bytes), 0
                        )
        self.servers: dict[str, S] = {
            name: self._serve(nodes[name], description.device_id)
            for name, description in fabric.switches.items()
        }
        """The server of each switch."""

    @abstractmethod
    def _serve(self, node: SwitchNode, device_id: int) -> S:
        """Return the server of a switch, which gives the switch the programs that controllers
        bring.
        """

    @abstractmethod
    def _await_controller(self, switch: str) -> None:
        """Block until the switch's controller has acknowledged what was reported, if it has to, or
        has hung up.
        """

    def _tick(self) -> None:
        """Do what servers do as time passes."""

    def acknowledged(self, switch: str) -> None:
        """Take note that a controller has dealt with a report, where that cannot be told by its own
        channel.
        """

    def __enter__(self) -> Self:
        for server in self.servers.values():
            server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for server in self.servers.values():
            server.stop()

    @property
    def native(self) -> NetworkInC | None:
        """The network, if it is in C."""
        if isinstance(self.clock, NativeLoop):
            return _Native(self.clock, self.nics)
        return None

    @property
    def addresses(self) -> Mapping[str, str]:
        """host:port of the service that holds the tables, by switch."""
        return {name: server.address for name, server in self.servers.items()}

    @property
    def connect(self) -> Connect | None:
        """What opens a connection to one of these addresses inside the process; None: they are
        reached over sockets.
        """
        return None

    @property
    def switches(self) -> Mapping[str, SwitchNode]:
        return self._network.switches

    def receive_with(self, host: str, receiver: Callable[[int, bytes], None]) -> None:
        """Hand each frame that arrives at `host` to `receiver(now_ns, frame)`."""
        self._receivers[host] = receiver

    def decide_with(self, decided: Callable[[], None]) -> None:
        """Call `decided` whenever a controller has acknowledged a flow event that its switch waited
        for.
        """
        self._decided = decided

    def _deliver(self, host: str, now_ns: int, frame: bytes) -> None:
        receiver = self._receivers.get(host)
        if receiver is not None:
            receiver(now_ns, frame)

    def _report_later(self, switch: str, now_ns: int, report: Callable[[], None]) -> None:
        """Call `report`, which tells the controller of a flow event at `now_ns`, when the control
        latency has passed.

        It is an event of its own, so that the packet that caused it leaves first.
        """

        def deliver() -> None:
            report()
            # The lock is released meanwhile, so that a reactive controller can read counters and
            # write.
            self._await_controller(switch)
            if self._decided is not None:
                self._decided()

        self.digests[switch] += 1
        self.clock.at(now_ns + self._latency_ns, deliver)

    def run(self, done: Callable[[], bool]) -> None:
        """Advance virtual time until `done()`, or until nothing is left to happen. Raise an error
        if any packet is unaccounted for."""
        while not done() and self.clock.pending:
            with self._lock:
                self.clock.run(max_events=_BATCH_EVENTS)
                self._tick()
            # A thread that releases a lock and takes it again at once would keep all other threads
            # out.
            time.sleep(0)
        self._network.check()


class VirtualTestbed(Testbed[Server]):
    """A fabric of embedded switches that serve P4Runtime and gNMI. Virtual time waits until a
    controller has acknowledged a report, if the switch was told to await that."""

    def __init__(
        self,
        fabric: Fabric,
        control_latency_s: Fraction = Fraction(0),
        queue_bytes: int | None = None,
    ) -> None:
        self._devices: dict[str, Device] = {}
        super().__init__(fabric, control_latency_s, queue_bytes)

    def rpc_log(self, switch: str) -> Sequence[tuple[int, str]]:
        """Return (virtual nanoseconds, kind) of every message that controllers sent to `switch`."""
        return self._devices[switch].rpc_log

    @property
    def connect(self) -> Connect:
        of_address = {server.address: server for server in self.servers.values()}
        return lambda address, _credentials: of_address[address].local_channel()

    def _serve(self, node: SwitchNode, device_id: int) -> Server:
        choice = Choice("python" if self.native is None else wanted_engine(RunError))
        device = Device(
            None,
            device_id,
            self._lock,
            ports=node.ports,
            now_ns=lambda: self.clock.now_ns,
            engines=choice,
        )
        choice.on_said = say_once
        device.on_pipeline = partial(self._program, node, choice)
        self._devices[node.name] = device
        return Server(device)

    def _program(self, node: SwitchNode, choice: Choice, switch: Switch) -> None:
        node.switch = switch
        if switch.native is None:
            choice.tell()
        report = switch.on_digest
        assert report is not None, "the device listens to every switch that it makes"

        def on_digest(now_ns: int, digest: str, list_id: int, values: tuple[int, ...]) -> None:
            self._report_later(node.name, now_ns, partial(report, now_ns, digest, list_id, values))

        switch.on_digest = on_digest

    def _await_controller(self, switch: str) -> None:
        device = self._devices[switch]
        if device.awaits_acknowledgement:
            device.wait_acknowledged()

    def _tick(self) -> None:
        for device in self._devices.values():
            device.tick(self.clock.now_ns)
