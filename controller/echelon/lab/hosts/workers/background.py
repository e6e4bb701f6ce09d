"""Traffic of constant rate that no job claims, over plain UDP to the discard port (RFC 863)."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from echelon.lab.endhosts.shim import DISCARD_PORT
from echelon.lab.hosts.loop import RealTimeLoop
from echelon.lab.hosts.workers.assignment import Assignment, ConstantRate
from echelon.socket_options import ECT0

_HEADERS_BYTES = 42
_NS_PER_S = 1_000_000_000


class ConstantRateSender:
    """An open-loop sender: packet n leaves n packet times after the first. A late packet does not delay the others."""

    def __init__(self, loop: RealTimeLoop, assignment: Assignment, traffic: ConstantRate, sockets: ExitStack) -> None:
        self._loop = loop
        self._traffic = traffic
        self._payload = bytes(traffic.packet_bytes - _HEADERS_BYTES)
        self._sent = 0
        self._origin_ns = 0
        self._socket = sockets.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECT0)
        self._socket.bind((assignment.addresses[assignment.host], traffic.source_port))
        self._destination = (assignment.addresses[traffic.dst], DISCARD_PORT)

    def start(self, at_ns: int) -> None:
        self._origin_ns = at_ns
        self._loop.at(at_ns, self._send)

    def _send(self) -> None:
        self._socket.sendto(self._payload, self._destination)
        self._sent += 1
        bits = self._sent * self._traffic.packet_bytes * 8
        self._loop.at(self._origin_ns + bits * _NS_PER_S // self._traffic.rate_bps, self._send)


class Discard:
    """The discard port of a host: packets are neither looked at nor refused."""

    def __init__(self, assignment: Assignment, sockets: ExitStack) -> None:
        receiving = sockets.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        receiving.bind((assignment.addresses[assignment.host], DISCARD_PORT))
