"""The scale of rates and sizes that a machine carries, by what it does in a third of a second."""

from __future__ import annotations

import os
import socket
import time
from fractions import Fraction
from functools import partial
from itertools import cycle

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Flow, Job
from echelon.switches.lowering.identity import ShimIdentity
from echelon_lab.endhosts.emulator import TrainingEmulator
from echelon_lab.hosts.loop import RealTimeLoop
from echelon_lab.living.wires import Wire
from echelon_lab.run import estimate
from echelon_lab.scenarios.results import alone_iterations_s
from echelon_lab.scenarios.scenario import Scenario

_NS_PER_S = 1_000_000_000
_MEASURED_NS = 300_000_000
_FAST_BPS = 10**12
_HOSTS_SHARE = 0.4
"""The part of a processor that hosts may take: they are one thread, and late above."""
_ALL_SHARE = 0.6
"""The part of all processors that hosts and switches may take: the service and a browser need some,
and switches of which some wait for a processor are late."""
_LEAST_PACKET_S = 5e-4
"""The time of a packet on the slowest link. A packet and its acknowledgement wait for processors
for one or two milliseconds, and a window holds a few packets: the link idles where they take less.
"""
_COSTS = {"softswitch": 1.5, "bmv2": 15.0}
"""The processor time of a packet in a switch, in that of a packet that a host sends and another one
receives. softswitch: 1.0 at 20,000 packets a second and 1.6 at 1,500. BMv2 carries a tenth."""
_STEPS = (Fraction(2), Fraction(5, 2), Fraction(2))
"""The steps from 1 to 1/2, 1/5 and 1/10, and so on."""
_DEFAULT_COST = max(_COSTS.values())


def carried(scenario: Scenario, target: str) -> Fraction:
    """Return the largest factor, 1 or a round one below, that this machine carries now.

    Each job is assumed to be as fast as alone. Raise `PlanError` for a job that cannot run.
    """
    fabric = scenario.fabric
    expected = estimate(scenario, target)
    if not expected.packets:
        # Nothing is sent.
        return Fraction(1)
    alone_s = alone_iterations_s(scenario)
    length_s = len(scenario.policies) * scenario.iterations * float(max(alone_s.values()))
    everything = _packets_per_s(fabric) * length_s
    hosts = expected.packets / everything
    cost = _COSTS.get(target, _DEFAULT_COST)
    switches = cost * expected.switch_packets / everything
    processors = os.cpu_count() or 1
    packet_bits = 8 * scenario.transport.packet_bytes
    slowest_bps = min(cable.rate_bps for cable in fabric.cables)
    most = min(
        _HOSTS_SHARE / hosts,
        _ALL_SHARE * processors / (hosts + switches),
        packet_bits / _LEAST_PACKET_S / slowest_bps,
    )
    factor = Fraction(1)
    steps = cycle(_STEPS)
    while factor > most:
        factor /= next(steps)
    return factor


def _packets_per_s(fabric: Fabric) -> float:
    """Return the packets that one host sends and another one receives in a second.

    Other work of the machine makes them fewer.
    """
    src, dst, *_ = fabric.hosts
    flow = Flow("flow", src, dst, 1 << 30)
    job = Job("measured", (), (flow,), ())
    loop = RealTimeLoop()
    packets = 0

    def deliver(
        host: str,
        now_ns: int,
        frame: bytes,
    ) -> None:
        nonlocal packets
        packets += 1
        emulator.hosts[host].deliver(now_ns, frame)

    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    wires: dict[str, Wire] = {}
    for host, sock in zip((src, dst), pair, strict=True):
        wires[host] = Wire(loop, sock, None, _FAST_BPS, partial(deliver, host))
    emulator = TrainingEmulator(
        loop,
        {host: wires.get(host, wires[src]) for host in fabric.hosts},
        fabric,
        [job],
        {(job.name, flow.name): ShimIdentity(1, 0)},
        iterations=None,
    )
    emulator.start()
    loop.call_at(loop.now_ns + _MEASURED_NS, loop.stop)
    began_ns = time.monotonic_ns()
    with pair[0], pair[1]:
        loop.run()
    return packets * _NS_PER_S / (time.monotonic_ns() - began_ns)
