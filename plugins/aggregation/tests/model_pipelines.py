"""The model of a switch as the pipelines of one in virtual time."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from echelon.model.fabric.model import Fabric
from echelon.switches.targets.virtual import VirtualSwitches
from echelon_aggregation.installed import TreeRun
from echelon_aggregation.wire import PORT, decode
from echelon_lab.endhosts.shim import FlowAddress, headers
from plugins.aggregation.tests.reference_switch import Datagram, Entry, Member, Switch
from softswitch.native.fabric import VirtualSwitch

SHIM_AT, PACKET_AT = 42, 62


@dataclass(frozen=True)
class Queued:
    port: int
    frame: bytes
    queue: int = 0

    @property
    def length_bytes(self) -> int:
        return len(self.frame)


@dataclass(frozen=True)
class Departed:
    port: int
    packet: bytes | None
    requeue: Sequence[Queued] = ()


class ModelPipelines:
    """A switch that knows aggregation packets from the model, and forwards all others."""

    def __init__(self, fabric: Fabric, tree: TreeRun) -> None:
        self.switch = switch = Switch()
        self._macs = {host.ipv4: host.mac for host in fabric.hosts.values()}
        ports = {host: fabric.port_to["tor", host] for host in fabric.hosts}
        addresses = [(fabric.hosts[worker.host].ipv4, worker.port) for worker in tree.workers]
        key = tree.number, tree.session
        for bit, worker in enumerate(tree.workers):
            kind = Member.FALLBACK if worker.host == tree.fallback else Member.CHILD
            switch.members[tree.number, ports[worker.host]] = kind, 1 << bit
        switch.routes = {fabric.hosts[host].ipv4: port for host, port in ports.items()}
        children = tuple(
            (ports[worker.host], at) for worker, at in zip(tree.workers, addresses, strict=True)
        )
        places = tree.places.get("tor")
        everyone = (1 << len(addresses)) - 1
        switch.trees[key] = places and Entry(places.first, places.mask, everyone, children)
        switch.holders[key] = addresses[0], (fabric.hosts[tree.fallback].ipv4, PORT)

    def ingress(self, port: int, data: bytes, now_ns: int, /) -> Sequence[Queued]:
        src, dst, src_port, dst_port = struct.unpack_from("!4s4sHH", data, 26)
        source, destination = (socket.inet_ntoa(src), src_port), (socket.inet_ntoa(dst), dst_port)
        if PORT not in (src_port, dst_port):
            return [Queued(self.switch.routes[destination[0]], data)]
        found = []
        for out, sent in self.switch.receive(
            port, Datagram(decode(data[PACKET_AT:]), source, destination)
        ):
            made = sent.packet.encode()
            address = FlowAddress(
                self._macs[sent.src[0]],
                self._macs[sent.dst[0]],
                sent.src[0],
                sent.dst[0],
                sent.src[1],
            )
            head = headers(address, PACKET_AT + len(made), sent.dst[1])
            found.append(Queued(out, head + data[SHIM_AT:PACKET_AT] + made))
        return found

    def egress(self, queued: Queued, *_: int) -> Sequence[Departed]:
        return [Departed(queued.port, queued.frame)]


def install_model(testbed: VirtualSwitches, fabric: Fabric, tree: TreeRun) -> None:
    """Make the only switch do what the model does."""
    node = testbed.switches["tor"]
    assert isinstance(node, VirtualSwitch)
    node.switch = ModelPipelines(fabric, tree)
