"""Packets go through a switch that does what a file says, and through the program of the target
`dscp`.

Queues and ports are softswitch's, in virtual time; a stand-in for the chip takes the queue of each
packet from the file, reference by reference.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from echelon.model.p4program import program
from echelon_site.switch_config.dialects import SwitchPorts
from echelon_site.switch_config.queues import (
    STRICT,
    PortQueues,
    QueueService,
    QueueServices,
    queues_by_code_point,
)
from echelon_site.switch_config.sonic.dialect import Sonic
from plugins.site.tests.switch_config.sonic_configs import Interface, delivered_config
from softswitch import load_program
from softswitch.native.fabric import EventLoop, VirtualFabric
from softswitch.tm import QueueConfig
from tests.engines import fast_switch
from tests.needs import needs
from tests.reference.frames import ipv4, udp

pytestmark = needs("a C compiler")

RATE_BPS = 10_000_000
SOURCE, SINK = 1, 2
"""Ports of the switch."""
SINK_IP = 0x0A000002
FRAME_BYTES = 500
TOS_BYTE = 15
"""The place of DSCP and ECN in a frame."""
SERIAL_BYTES = slice(42, 46)
"""The place of a packet's number: behind Ethernet, IPv4 and UDP."""


@dataclass
class Waiting:
    port: int
    queue: int
    data: bytes

    @property
    def length_bytes(self) -> int:
        return len(self.data)


@dataclass
class Sent:
    port: int
    packet: bytes
    requeue: list[Waiting] = field(default_factory=list)


@dataclass
class FileChip:
    """A switch that sends everything to the sink, in the queue that its file names."""

    interface: Interface

    def ingress(self, _port: int, data: bytes, _now_ns: int) -> list[Waiting]:
        return [Waiting(SINK, self.interface.queue(data[TOS_BYTE] >> 2), data)]

    def egress(self, waiting: Waiting, *_times_and_depths: int) -> list[Sent]:
        return [Sent(waiting.port, waiting.data)]


def of_file(services: QueueServices, marks: tuple[int, ...] = ()) -> Interface:
    """Return an interface of a file for switches with these queues."""
    queues = PortQueues(queues_by_code_point(marks), services)
    sonic = Sonic()
    config = sonic.configure(queues, SwitchPorts("s", (1, 2), 4), delivered_config(2))
    return Interface(dict(sonic.parse(sonic.text(config), "s.json")), "Ethernet4")


def traffic_manager(interface: Interface) -> list[QueueConfig]:
    """Return the queues that a file asks for, as softswitch has them.

    SONiC's strict queues go before all others, a higher number first.
    """
    settings = []
    for queue in range(8):
        served = interface.served(queue)
        level = queue if served.strict else 0
        settings.append(QueueConfig(level=level, weight=served.weight, depth_bytes=1 << 24))
    return settings


def dscp_program() -> Any:
    """Return the switch of the target `dscp`, with a route to the sink."""
    switch = fast_switch(load_program(program("dscp").binary.read_bytes()))
    route = ((SINK_IP, 32),), 0, "EchelonIngress.route", [SINK, SINK]
    switch.tables["EchelonIngress.ipv4_lpm"].insert(*route)
    return switch


def departures(
    switch: Any, settings: Sequence[QueueConfig], code_points: Sequence[int]
) -> list[tuple[int, int]]:
    """Return code point and number of packets in the order in which they reach the sink.

    They meet in the switch at one moment.
    """
    network = VirtualFabric(EventLoop())
    node = network.add_switch("s", switch)
    arrived: list[tuple[int, int]] = []

    def receive(_now_ns: int, data: bytes) -> None:
        serial = int.from_bytes(data[SERIAL_BYTES], "big")
        arrived.append((data[TOS_BYTE] >> 2, serial))

    network.add_host("source", lambda _now_ns, _data: None)
    network.add_host("sink", receive)
    network.connect(("source", 0), ("s", SOURCE), 1000 * RATE_BPS, 0)
    network.connect(("sink", 0), ("s", SINK), RATE_BPS, 0)
    for queue, config in enumerate(settings):
        node.ports[SINK].configure(queue, config, 0)
    for serial, code_point in enumerate(code_points):
        payload = serial.to_bytes(4, "big").ljust(FRAME_BYTES, b"\0")
        datagram = udp(4711, 4791, payload)
        node.inject(SOURCE, ipv4(0x0A000001, SINK_IP, 17, datagram, tos=code_point << 2 | 0b10))
    network.run()
    return arrived


def shuffled(packets_of_each: int) -> list[int]:
    code_points = [dscp for dscp in range(64) for _ in range(packets_of_each)]
    random.Random(packets_of_each).shuffle(code_points)
    return code_points


def test_packets_leave_as_from_the_program_of_the_target_dscp() -> None:
    interface = of_file(STRICT)
    settings = traffic_manager(interface)
    code_points = shuffled(3)
    strict = [QueueConfig(level=queue, depth_bytes=1 << 24) for queue in range(8)]
    by_file = departures(FileChip(interface), settings, code_points)
    by_program = departures(dscp_program(), strict, code_points)
    assert by_file == by_program
    # The first packet finds the line free. All others leave by class, in order of arrival.
    numbered = [(dscp, serial) for serial, dscp in enumerate(code_points)]
    rest = sorted(numbered[1:], key=lambda packet: (-(packet[0] // 8), packet[1]))
    assert by_file == [numbered[0], *rest]


def test_marks_of_roce_leave_in_the_order_of_their_queues() -> None:
    marks = (0, 10, 18, 26, 34, 33, 46, 56)
    interface = of_file(STRICT, marks)
    code_points = [0, *marks, *reversed(marks)]
    left = departures(FileChip(interface), traffic_manager(interface), code_points)
    assert [dscp for dscp, _ in left] == [0, *(mark for mark in reversed(marks) for _ in range(2))]


@pytest.mark.parametrize("weights", [(1, 1, 1, 1, 1, 1, 1), (1, 2, 3, 4, 5, 6, 7), (100, 1)])
def test_queues_that_share_get_bytes_by_their_weights(weights: tuple[int, ...]) -> None:
    shared = [QueueService(0, weight) for weight in weights]
    strict = map(QueueService, range(1, 9 - len(weights)))
    interface = of_file((*shared, *strict))
    # As long as the window lasts, packets of all queues wait.
    window = 60 * sum(weights)
    of_each = 80 * max(weights)
    code_points = [queue << 3 for _ in range(of_each) for queue in range(len(weights))]
    code_points += [56] * 50
    left = departures(FileChip(interface), traffic_manager(interface), code_points)
    # What is strict leaves first, behind the packet that found the line free.
    assert [dscp for dscp, _ in left[1:51]] == [56] * 50
    counts = Counter(dscp >> 3 for dscp, _ in left[51 : 51 + window])
    for queue, weight in enumerate(weights):
        # Softswitch keeps each queue within a packet of its share; one had left before.
        assert abs(counts[queue] - 60 * weight) <= 2
