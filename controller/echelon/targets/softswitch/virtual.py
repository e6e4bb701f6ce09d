"""A fabric of embedded switches in virtual time, reached only as real switches are: P4Runtime and gNMI over sockets.

This is the only module of echelon that imports softswitch. It hands out frames, addresses and counters.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from types import TracebackType
from typing import Self

from echelon.fabric.model import Fabric
from echelon.targets.virtual import ControllerSilentError
from softswitch import Switch
from softswitch.p4runtime.device import Device
from softswitch.p4runtime.server import Server
from softswitch.tm import QUEUES
from softswitch.virtual import EventLoop, VirtualFabric, VirtualHost, VirtualSwitch
from softswitch.virtual.switch import DepartedPacket, QueuedPacket

_BATCH_EVENTS = 4096
_ACKNOWLEDGE_TIMEOUT_S = 60.0
"""How long virtual time stands still for a controller that does not answer, in real seconds."""


class _Unprogrammed:
    """A switch before any pipeline was pushed; it drops every packet."""

    def ingress(self, port: int, data: bytes, now_ns: int, /) -> Sequence[QueuedPacket]:
        return ()

    def egress(
        self, q: object, enq_ns: int, now_ns: int, enq_qdepth: int, deq_qdepth: int, /
    ) -> Sequence[DepartedPacket]:
        return ()


class VirtualTestbed:
    """The `VirtualSwitches` of a fabric. A context manager: the switches' servers run on loopback inside.

    `control_latency_s` passes in virtual time between an event on a switch and the moment when its controller hears of
    it. Virtual time then waits until the controller has acknowledged, if the switch was told to await that.
    `queue_bytes` is the memory of each queue of a port, which no controller sets (None: the switch's default).
    """

    def __init__(
        self, fabric: Fabric, control_latency_s: Fraction = Fraction(0), queue_bytes: int | None = None
    ) -> None:
        self._latency_ns = round(control_latency_s * 1_000_000_000)
        self.clock = EventLoop()
        self._lock = threading.RLock()
        self._network = VirtualFabric(self.clock)
        self._devices: dict[str, Device] = {}
        self.servers: dict[str, Server] = {}
        """The P4Runtime and gNMI server of each switch."""
        self._receivers: dict[str, Callable[[int, bytes], None]] = {}
        self._decided: Callable[[], None] = lambda: None
        self.nics: dict[str, VirtualHost] = {}
        self.digests: dict[str, int] = dict.fromkeys(fabric.switches, 0)
        """Number of flow events that each switch has reported."""
        for name in fabric.hosts:
            self.nics[name] = self._network.add_host(name, partial(self._deliver, name))
        nodes = {name: self._network.add_switch(name, _Unprogrammed()) for name in fabric.switches}
        for cable in fabric.cables:
            self._network.connect(
                (cable.a.node, cable.a.port),
                (cable.b.node, cable.b.port),
                cable.rate_bps,
                round(cable.delay_s * 1_000_000_000),
            )
        for name, description in fabric.switches.items():
            node = nodes[name]
            if queue_bytes is not None:
                for port in node.ports.values():
                    for queue in range(QUEUES):
                        port.configure(queue, replace(port.config(queue), depth_bytes=queue_bytes), 0)
            device = Device(None, description.device_id, self._lock, ports=node.ports, now_ns=lambda: self.clock.now_ns)
            device.on_pipeline = partial(self._program, name, node, device)
            self._devices[name] = device
            self.servers[name] = Server(device)

    def __enter__(self) -> Self:
        for server in self.servers.values():
            server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for server in self.servers.values():
            server.stop()

    @property
    def addresses(self) -> Mapping[str, str]:
        """host:port of the P4Runtime and gNMI services, by switch."""
        return {name: server.address for name, server in self.servers.items()}

    @property
    def switches(self) -> Mapping[str, VirtualSwitch]:
        return self._network.switches

    def rpc_log(self, switch: str) -> Sequence[tuple[int, str]]:
        """Return (virtual nanoseconds, kind) of every message that controllers sent to `switch`."""
        return self._devices[switch].rpc_log

    def receive_with(self, host: str, receiver: Callable[[int, bytes], None]) -> None:
        """Hand each frame that arrives at `host` to `receiver(now_ns, frame)`."""
        self._receivers[host] = receiver

    def decide_with(self, decided: Callable[[], None]) -> None:
        """Call `decided` whenever a controller has acknowledged a flow event that its switch waited for."""
        self._decided = decided

    def _deliver(self, host: str, now_ns: int, frame: bytes) -> None:
        receiver = self._receivers.get(host)
        if receiver is not None:
            receiver(now_ns, frame)

    def _program(self, name: str, node: VirtualSwitch, device: Device, switch: Switch) -> None:
        node.switch = switch
        report = switch.on_digest
        assert report is not None, "the device listens to every switch that it makes"

        def deliver(now_ns: int, digest: str, list_id: int, values: tuple[int, ...]) -> None:
            report(now_ns, digest, list_id, values)
            # The lock is released meanwhile, so that a reactive controller can read counters and write.
            if not device.wait_acknowledged(_ACKNOWLEDGE_TIMEOUT_S):
                raise ControllerSilentError(
                    f"switch {name}: its controller did not acknowledge a flow event within "
                    f"{_ACKNOWLEDGE_TIMEOUT_S:g} s (check whether it is stuck)"
                )
            self._decided()

        def on_digest(now_ns: int, digest: str, list_id: int, values: tuple[int, ...]) -> None:
            self.digests[name] += 1
            # The digest is an event of its own, so that the packet that caused it leaves first.
            self.clock.at(now_ns + self._latency_ns, deliver, now_ns, digest, list_id, values)

        switch.on_digest = on_digest

    def run(self, done: Callable[[], bool]) -> None:
        """Advance virtual time until `done()`, or until nothing is left to happen.

        Raises `ControllerSilentError`, and an error if any packet is unaccounted for.
        """
        while not done() and self.clock.pending:
            with self._lock:
                self.clock.run(max_events=_BATCH_EVENTS)
                for device in self._devices.values():
                    device.tick(self.clock.now_ns)
        self._network.check()
