"""Sums of all workers' values in virtual time: in the network, at a server, around a ring.

The switch runs the P4 program. Hosts are on one switch, whose links all have the same rate. A
packet has as many values in all three ways, so that they differ by nothing but their ways.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from random import Random
from struct import Struct
from typing import Self

import numpy as np
from numpy.typing import NDArray

from echelon.model.errors import RunError
from echelon.model.fabric.builders import one_tor
from echelon.model.fabric.load import build_fabric
from echelon.model.fabric.model import Fabric
from echelon.switches.lowering.intent import Intent, Part
from echelon.switches.lowering.parts import fabric_part
from echelon.switches.targets import TARGETS
from echelon.switches.targets.virtual import VirtualSwitches
from echelon_aggregation.fallback import Fallback
from echelon_aggregation.frames import Endpoint, Frames, read
from echelon_aggregation.group import Group
from echelon_aggregation.installed import TreeAtSwitch, TreeRun, WorkerPort
from echelon_aggregation.memory import TAKES, Grant
from echelon_aggregation.wire import HEADER_BYTES, PORT, Packet
from echelon_aggregation.worker import Worker, all_reduce
from echelon_lab.endhosts.shim import DISCARD_PORT, FlowAddress, headers

Floats = NDArray[np.float32]
RATE_BPS = 10_000_000_000
DELAY_S = Fraction(1, 1_000_000)
WINDOW = 64
VALUES = 32
_NS = 1_000_000_000
_QUEUE_BYTES = 4 << 20
_WORKER_PORT = 5000
_UNITS = 1 << 16
"""The units of 1 in which values are drawn."""
_SEGMENT_BYTES = 62 + HEADER_BYTES + 4 * VALUES
"""Length of a frame in the ring: that of a packet of the protocol with all its values."""
_RING = Struct("!II")
"""The head of a frame in the ring: the step, and the index of the first value."""
_RING_START = 14 + 20 + 8

Install = Callable[[VirtualSwitches, Fabric, TreeRun], None]
"""A function that makes the switches of a fabric aggregate a tree."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one sum."""

    way: str
    workers: int
    values: int
    loss: float
    """The chance with which a link to a host loses a packet."""
    seconds: Fraction
    lost: int
    sent_again: int
    exact: bool
    """All workers have the same exact sums."""

    @property
    def rate_bps(self) -> Fraction:
        """Return the bits of values that each worker had added up in a second."""
        return 32 * self.values / self.seconds


class Installer:
    """A controller that loads the P4 program into a single switch, and writes the entries.

    A context manager. gRPC holds on to the event loop that it has seen first, so all installations
    share one. Raises `RunError` if the program was not compiled.
    """

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        try:
            target = TARGETS["softswitch"]
            self._program = target.program(target.aggregating())
        except FileNotFoundError as error:
            raise RunError(str(error)) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def __call__(
        self,
        testbed: VirtualSwitches,
        fabric: Fabric,
        tree: TreeRun,
    ) -> None:
        target = TARGETS["softswitch"]
        options = target.options()
        (name,) = fabric.switches
        device = fabric.switches[name].device_id
        connect = target.session_factory(options)
        session = connect(name, testbed.addresses[name], device, self._program, queues=None)
        at_switch = TreeAtSwitch(tree, name, fabric)
        routes = fabric_part(name, fabric, 0, target.capabilities(options))
        sums = Part("aggregation", at_switch.entries())
        intent = Intent(name, (routes, sums), groups=(at_switch.group,))

        async def write() -> None:
            async with session:
                outcome = await session.reconcile(intent)
                outcome.require()

        self._runner.run(write())


def in_network(
    install: Install,
    workers: int,
    values: int,
    loss: float = 0.0,
    memory: bool = True,
) -> Outcome:
    """Return the outcome of the workers' sum; host links lose packets with the chance `loss`.

    Without `memory` the switch adds up nothing, and the fallback is a parameter server on the host
    of worker 0.
    """
    fabric = build_fabric(one_tor(workers, RATE_BPS, DELAY_S))
    hosts = list(fabric.hosts.values())
    server_host = hosts[0]
    endpoints = [Endpoint(host.ipv4, host.mac, _WORKER_PORT) for host in hosts]
    server = Endpoint(server_host.ipv4, server_host.mac, PORT)
    tree = _tree(fabric, memory)
    # Packets to a parameter server queue for longer than the network takes.
    least_s = 0.0001 if memory else 0.001
    group = Group(
        workers,
        1,
        1,
        WINDOW,
        VALUES,
        least_timeout_s=least_s,
        most_timeout_s=0.01,
        by_tree=memory,
    )
    arrays = _drawn(workers, values)
    with _testbed(fabric) as testbed:
        install(testbed, fabric, tree)
        clock = testbed.clock
        rng = Random(workers)
        cores = [Worker(group, rank) for rank in range(workers)]
        fallback = Fallback(group)
        collectives = [all_reduce(array) for array in arrays]
        frames = [Frames(endpoint) for endpoint in endpoints]
        server_frames = Frames(server)
        lost = 0
        began_ns = clock.now_ns
        ended_ns = clock.now_ns

        def is_lost() -> bool:
            nonlocal lost
            if loss and rng.random() < loss:
                lost += 1
                return True
            return False

        def send(host: str, frame: bytes) -> None:
            if not is_lost():
                testbed.nics[host].send(frame)

        def go_on(rank: int, packets: Sequence[Packet]) -> None:
            host = hosts[rank]
            for packet in packets:
                frame = frames[rank].encode(server, packet)
                send(host.name, frame)
            wake_s = cores[rank].next_wake
            if wake_s is not None:
                # Rounded up, so that the worker's time has come when it is woken.
                wake_ns = -int(-wake_s * _NS // 1)
                clock.call_at(max(clock.now_ns, wake_ns), wake, rank)

        def wake(rank: int) -> None:
            now_s = clock.now_ns / _NS
            core = cores[rank]
            wake_s = core.next_wake
            if wake_s is not None and wake_s <= now_s:
                packets = core.wake(now_s)
                go_on(rank, packets)

        def deliver(
            rank: int,
            now_ns: int,
            frame: bytes,
        ) -> None:
            nonlocal ended_ns
            if is_lost():
                return
            arrived = read(frame)
            if arrived is None:
                return
            now_s = now_ns / _NS
            if arrived.port == PORT and rank == 0:
                for worker, packet in fallback.receive(arrived.packet, now_s):
                    receiver = endpoints[worker or 0]
                    answer = server_frames.encode(receiver, packet)
                    send(server_host.name, answer)
                return
            collective = collectives[rank]
            was_done = collective.done
            packets = cores[rank].receive(arrived.packet, now_s)
            go_on(rank, packets)
            if collective.done and not was_done:
                ended_ns = now_ns

        for rank, host in enumerate(hosts):
            testbed.receive_with(host.name, partial(deliver, rank))
        for rank, core in enumerate(cores):
            packets = core.submit(collectives[rank], clock.now_ns / _NS)
            go_on(rank, packets)
        testbed.run(lambda: all(collective.done for collective in collectives))
    exact = _sum(arrays)
    return Outcome(
        "in the network" if memory else "parameter server",
        workers,
        values,
        loss,
        Fraction(ended_ns - began_ns, _NS),
        lost,
        sum(core.tally.resent for core in cores),
        all(np.array_equal(collective.result, exact) for collective in collectives),
    )


def around_ring(
    install: Install,
    workers: int,
    values: int,
) -> Outcome:
    """Return the outcome of the sum around a ring, where packets go on 2 (workers - 1) times."""
    fabric = build_fabric(one_tor(workers, RATE_BPS, DELAY_S))
    hosts = list(fabric.hosts.values())
    arrays = _drawn(workers, values)
    sums = [array.copy() for array in arrays]
    steps = 2 * (workers - 1)
    heads = []
    for rank, src in enumerate(hosts):
        dst = hosts[(rank + 1) % workers]
        address = FlowAddress(src.mac, dst.mac, src.ipv4, dst.ipv4, _WORKER_PORT)
        head = headers(address, _SEGMENT_BYTES, DISCARD_PORT)
        heads.append(head)
    with _testbed(fabric) as testbed:
        install(testbed, fabric, _tree(fabric, memory=False))
        began_ns = ended_ns = testbed.clock.now_ns
        left = workers * steps * (values // workers // VALUES)

        def send(
            rank: int,
            step: int,
            start: int,
        ) -> None:
            part = sums[rank][start : start + VALUES]
            frame = heads[rank] + _RING.pack(step, start) + part.tobytes()
            nic = testbed.nics[hosts[rank].name]
            nic.send(frame.ljust(_SEGMENT_BYTES, b"\0"))

        def deliver(
            rank: int,
            now_ns: int,
            frame: bytes,
        ) -> None:
            nonlocal left, ended_ns
            step, start = _RING.unpack_from(frame, _RING_START)
            received = np.frombuffer(frame, np.float32, VALUES, _RING_START + _RING.size)
            part = sums[rank][start : start + VALUES]
            # The first round adds up; the second passes the sums on.
            if step < workers - 1:
                part += received
            else:
                part[:] = received
            left -= 1
            ended_ns = now_ns
            if step + 1 < steps:
                send(rank, step + 1, start)

        share = values // workers
        for rank, host in enumerate(hosts):
            testbed.receive_with(host.name, partial(deliver, rank))
            first = rank * share
            for start in range(first, first + share, VALUES):
                send(rank, 0, start)
        testbed.run(lambda: not left)
    total = _sum(arrays)
    seconds = Fraction(ended_ns - began_ns, _NS)
    is_exact = all(np.array_equal(array, total) for array in sums)
    return Outcome("ring", workers, values, 0.0, seconds, 0, 0, is_exact)


def _tree(fabric: Fabric, memory: bool) -> TreeRun:
    """Return the tree of all hosts at the only switch."""
    workers = [WorkerPort(host, _WORKER_PORT) for host in fabric.hosts]
    places = {}
    if memory:
        places["tor"] = Grant(0, 2 * WINDOW - 1, 0, TAKES["share"])
    return TreeRun(1, 1, workers, workers[0].host, {}, "tor", places)


def _testbed(fabric: Fabric) -> AbstractContextManager[VirtualSwitches]:
    build = TARGETS["softswitch"].virtual_fabric()
    assert build is not None, "softswitch runs in virtual time"
    return build(fabric, Fraction(0), _QUEUE_BYTES)


def _drawn(workers: int, values: int) -> list[Floats]:
    """Return values whose sums a float holds exactly: multiples of 1 / `_UNITS` below 1."""
    rng = np.random.default_rng(workers)
    drawn = []
    for _ in range(workers):
        numbers = rng.integers(-_UNITS, _UNITS, values)
        reals = numbers / _UNITS
        drawn.append(reals.astype(np.float32))
    return drawn


def _sum(arrays: Sequence[Floats]) -> Floats:
    rows = np.array(arrays, np.float64)
    total: NDArray[np.float64] = np.sum(rows, axis=0)
    return total.astype(np.float32)
