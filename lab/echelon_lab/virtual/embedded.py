"""Fabrics of embedded switches in virtual time.

They are reached only as real switches are: by the messages of their protocols. A fabric hands out
frames, addresses and counters. Only modules like this one import softswitch.
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

from ctoolchain import ToolchainError, say_once
from echelon.model.errors import RunError
from echelon.model.fabric.model import Fabric
from echelon.planning.engine import VARIABLE, wanted_engine
from echelon.switches.targets.virtual import Interfaces, NativeClock, NetworkInC
from softswitch import Switch
from softswitch.native.choice import Choice
from softswitch.native.fabric import EventLoop, VirtualFabric, VirtualHost
from softswitch.p4runtime.device import Device
from softswitch.p4runtime.server import Server
from softswitch.tm import QUEUES
from softswitch.virtual.fabric import HostNode, SwitchNode
from softswitch.virtual.switch import DepartedPacket, QueuedPacket

if TYPE_CHECKING:
    from echelon.switches.southbound.channel import Connect

_BATCH_EVENTS = 4096


def runs_in_c() -> bool:
    """Return whether programs and the ends of flows may run in C, as time and queues always do."""
    return wanted_engine(RunError) != "python"


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

    def __init__(self, loop: EventLoop, nics: Mapping[str, HostNode | Interfaces]) -> None:
        self._loop = loop
        self._nics = nics
        self.clock = NativeClock(**loop.addresses)

    @property
    def now_ns(self) -> int:
        return self._loop.now_ns

    def nic(self, host: str) -> int:
        return self._host(host).address

    def receive_in_c(
        self,
        host: str,
        receive: int,
        choose: int,
        receiver: int,
    ) -> None:
        self._host(host).receive_in_c(receive, choose, receiver)

    def when_told(self, callback: Callable[[], None], *, once: bool = True) -> int:
        return self._loop.when_told(callback, once=once)

    def _host(self, host: str) -> VirtualHost:
        nic = self._nics[host]
        assert isinstance(nic, VirtualHost)
        return nic


class Testbed(ABC, Generic[S]):
    """The `VirtualSwitches` of a fabric.

    A context manager: inside it the switches' servers run on loopback. Subclasses say what a switch
    is. `control_latency_s` passes in virtual time between an event on a switch and the moment when
    its controller hears of it. `queue_bytes` is the memory of each queue of a port, which no
    controller sets (None: the switch's default). `clock` is the event loop, whose library has the
    ports.
    """

    def __init__(
        self,
        fabric: Fabric,
        control_latency_s: Fraction = Fraction(0),
        queue_bytes: int | None = None,
        clock: EventLoop | None = None,
    ) -> None:
        self._latency_ns = round(control_latency_s * 1_000_000_000)
        try:
            self.clock = clock or EventLoop()
        except ToolchainError as error:
            raise RunError(f"switches in virtual time need C: {error}") from None
        self._lock = threading.RLock()
        self._network = VirtualFabric(self.clock)
        self._receivers: dict[str, Callable[[int, bytes], None]] = {}
        self._decided: Callable[[], None] | None = None
        self.nics: dict[str, HostNode | Interfaces] = {}
        self.digests: dict[str, int] = dict.fromkeys(fabric.switches, 0)
        """Number of flow events that each switch has reported."""
        attached: dict[tuple[str, int], tuple[str, int]] = {}
        for name in fabric.hosts:
            attached |= self._add_host(name, fabric.ports[name])
        nodes = {}
        for name in fabric.switches:
            nodes[name] = self._network.add_switch(name, _Unprogrammed())
        for cable in fabric.cables:
            a = cable.a.node, cable.a.port
            b = cable.b.node, cable.b.port
            delay_ns = round(cable.delay_s * 1_000_000_000)
            self._network.connect(attached.get(a, a), attached.get(b, b), cable.rate_bps, delay_ns)
        if queue_bytes is not None:
            for node in nodes.values():
                _limit_queues(node, queue_bytes)
        self.servers: dict[str, S] = {}
        """The server of each switch."""
        for name, description in fabric.switches.items():
            self.servers[name] = self._serve(nodes[name], description.device_id)

    def _add_host(
        self, name: str, ports: Mapping[int, str]
    ) -> dict[tuple[str, int], tuple[str, int]]:
        """Add the interfaces of a host, and return where each of its ports is in the network."""
        places = {}
        interfaces = {}
        for number, switch in ports.items():
            # The first interface has the name of the host.
            label = name
            if number:
                label = f"{name} {switch}"
            places[name, number] = label, 0
            interfaces[switch] = self._network.add_host(label, partial(self._deliver, name))
        if len(interfaces) > 1:
            self.nics[name] = Interfaces(interfaces)
        else:
            (self.nics[name],) = interfaces.values()
        return places

    @abstractmethod
    def _serve(self, node: SwitchNode, device_id: int) -> S:
        """Return the server of a switch, which gives it the programs that controllers bring."""

    @abstractmethod
    def _await_controller(self, switch: str) -> None:
        """Block until the switch's controller has acknowledged what was reported, or has hung up.

        Not every report has to be acknowledged.
        """

    def _tick(self) -> None:
        """Do what servers do as time passes."""

    def acknowledged(self, switch: str) -> None:
        """Take note that a controller has dealt with a report, where its channel does not tell."""

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
        """The network for ends of flows in C; None: Python is asked for."""
        if runs_in_c():
            return _Native(self.clock, self.nics)
        return None

    @property
    def addresses(self) -> Mapping[str, str]:
        """host:port of the service that holds the tables, by switch."""
        return {name: server.address for name, server in self.servers.items()}

    @property
    def connect(self) -> Connect | None:
        """Return the function that connects to one of these addresses inside the process.

        None: they are reached over sockets.
        """
        return None

    @property
    def switches(self) -> Mapping[str, SwitchNode]:
        return self._network.switches

    def receive_with(self, host: str, receiver: Callable[[int, bytes], None]) -> None:
        """Hand each frame that arrives at `host` to `receiver(now_ns, frame)`."""
        self._receivers[host] = receiver

    def decide_with(self, decided: Callable[[], None]) -> None:
        """Call `decided` whenever a controller has acknowledged a flow event.

        These are the events that its switch waited for.
        """
        self._decided = decided

    def _deliver(
        self,
        host: str,
        now_ns: int,
        frame: bytes,
    ) -> None:
        receiver = self._receivers.get(host)
        if receiver is not None:
            receiver(now_ns, frame)

    def _report_later(
        self,
        switch: str,
        now_ns: int,
        report: Callable[[], None],
    ) -> None:
        """Call `report`, which tells the controller of a flow event, after the control latency.

        The event was at `now_ns`. It is an event of its own, so that the packet that caused it
        leaves first.
        """

        def deliver() -> None:
            report()
            # The lock is released meanwhile, so that a reactive
            # controller can read counters and write.
            self._await_controller(switch)
            if self._decided is not None:
                self._decided()

        self.digests[switch] += 1
        self.clock.call_at(now_ns + self._latency_ns, deliver)

    def run(self, done: Callable[[], bool]) -> None:
        """Advance virtual time until `done()`, or until nothing is left to happen.

        Raise an error if any packet is unaccounted for.
        """
        while not done() and self.clock.pending:
            with self._lock:
                self.clock.run(max_events=_BATCH_EVENTS)
                self._tick()
            # A thread that releases a lock and takes it again at once
            # would keep all other threads out.
            time.sleep(0)
        self._network.check()


def _limit_queues(node: SwitchNode, queue_bytes: int) -> None:
    for port in node.ports.values():
        for queue in range(QUEUES):
            config = replace(port.config(queue), depth_bytes=queue_bytes)
            port.configure(queue, config, 0)


class VirtualTestbed(Testbed[Server]):
    """A fabric of embedded switches that serve P4Runtime and gNMI.

    Virtual time waits until a controller has acknowledged a report, if the switch was told to await
    that.
    """

    def __init__(
        self,
        fabric: Fabric,
        control_latency_s: Fraction = Fraction(0),
        queue_bytes: int | None = None,
        clock: EventLoop | None = None,
    ) -> None:
        self._devices: dict[str, Device] = {}
        super().__init__(fabric, control_latency_s, queue_bytes, clock)

    def rpc_log(self, switch: str) -> Sequence[tuple[int, str]]:
        """Return (virtual nanoseconds, kind) of every message that controllers sent to `switch`."""
        return self._devices[switch].rpc_log

    @property
    def connect(self) -> Connect:
        by_address = {server.address: server for server in self.servers.values()}
        return lambda address, _credentials: by_address[address].local_channel()

    def _serve(self, node: SwitchNode, device_id: int) -> Server:
        choice = Choice(wanted_engine(RunError), option=f"{VARIABLE}=")
        device = Device(
            None,
            device_id,
            self._lock,
            ports=node.ports,
            now_ns=lambda: self.clock.now_ns,
            engines=choice,
        )
        choice.on_line = say_once
        device.on_pipeline = partial(self._program, node, choice)
        self._devices[node.name] = device
        return Server(device)

    def _program(
        self,
        node: SwitchNode,
        choice: Choice,
        switch: Switch,
    ) -> None:
        node.switch = switch
        if switch.native is None:
            choice.tell()
        report = switch.on_digest
        assert report is not None, "the device listens to every switch that it makes"

        def on_digest(
            now_ns: int,
            digest: str,
            list_id: int,
            values: tuple[int, ...],
        ) -> None:
            self._report_later(node.name, now_ns, partial(report, now_ns, digest, list_id, values))

        switch.on_digest = on_digest

    def _await_controller(self, switch: str) -> None:
        device = self._devices[switch]
        if device.awaits_acknowledgement:
            device.wait_acknowledged()

    def _tick(self) -> None:
        for device in self._devices.values():
            device.tick(self.clock.now_ns)
