"""The hosts of a job's trees in a run: workers, whose sums are checked, and fallbacks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from echelon.model.errors import RunError
from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Flow
from echelon.planning.allocation import Link
from echelon.switches.lowering.trees import JobTree
from echelon_aggregation.collectives import OTHER_HEADER_BYTES, VALUES
from echelon_aggregation.door import memory_of, port_of, shim_of_answers
from echelon_aggregation.fallback import Fallback
from echelon_aggregation.frames import SHIM_KEY, SHIM_STAMP, Endpoint, Frames, read
from echelon_aggregation.group import Group
from echelon_aggregation.memory import TAKES
from echelon_aggregation.trees import Tree, tree_of
from echelon_aggregation.wire import HEADER_BYTES, PORT, Kind, Packet
from echelon_aggregation.worker import Collective, Worker, all_reduce, broadcast
from echelon_lab.endhosts.carriers import HostNetwork
from echelon_lab.endhosts.shim import PacketTally, flow_key

_FRAME_BYTES = OTHER_HEADER_BYTES + HEADER_BYTES + 4 * VALUES
_NS = 1_000_000_000
_PATIENCE, _LONGEST = 4, 64
"""A packet is sent again after at least, and at most, so many times what a window takes in an empty
network.
"""


class HostsOfJob:
    """Workers and fallbacks of a job's trees (an `echelon_lab.endhosts.carriers.TreeCarrier`)."""

    def __init__(
        self,
        network: HostNetwork,
        job: str,
        trees: Sequence[JobTree],
    ) -> None:
        self.tally = PacketTally()
        self._by_flow: dict[str, _HostsOfTree] = {}
        for tree in trees:
            hosts = _HostsOfTree(network, job, tree, self.tally)
            for flow in tree.flows:
                self._by_flow[flow.flow] = hosts

    def open(self) -> None:
        """Do nothing: there are no connections."""

    def start_flow(
        self,
        flow: Flow,
        iteration: int,
        on_complete: Callable[[], None],
    ) -> None:
        """Add up a flow's values now; call `on_complete` when all workers have the sums."""
        self._by_flow[flow.name].begin(flow, iteration, on_complete)


@dataclass(slots=True)
class _UnderWay:
    """A flow that all workers have begun."""

    label: str
    """Its job, name and iteration, for messages."""
    shim: int
    epoch: int
    collectives: Sequence[Collective]
    expected: np.ndarray
    on_complete: Callable[[], None]
    left: int
    """The number of workers that lack sums."""


class _FallbackPort:
    """The port of the fallbacks on one host: each tree has its own."""

    def __init__(self) -> None:
        self.receivers: dict[int, Callable[[int, bytes, Packet], None]] = {}

    def __call__(self, now_ns: int, frame: bytes) -> None:
        arrived = read(frame)
        if arrived is None:
            return
        receive = self.receivers.get(arrived.packet.tree)
        if receive is not None:
            receive(now_ns, frame, arrived.packet)


class _HostsOfTree:
    """The workers of one tree, and its fallback on the first one's host."""

    def __init__(
        self,
        network: HostNetwork,
        job: str,
        tree: JobTree,
        tally: PacketTally,
    ) -> None:
        shape = tree_of(tree.path)
        fabric = network.fabric
        self._clock = network.clock
        self._job = job
        self._tree = tree
        self._tally = tally
        self._group = _group(tree, shape, fabric)
        ranks = range(self._group.workers)
        self._cores = [Worker(self._group, rank) for rank in ranks]
        self._fallback = Fallback(self._group)

        port = port_of(tree)
        self._hosts = []
        self._ends = []
        for name in shape.hosts:
            address = fabric.hosts[name]
            self._hosts.append(network.hosts[name])
            self._ends.append(Endpoint(address.ipv4, address.mac, port))
        first_end = self._ends[0]
        self._server = Endpoint(first_end.ip, first_end.mac, PORT)
        self._frames: dict[tuple[Endpoint, int], Frames] = {}
        self._shims: dict[str, int] = {}
        for flow, shim in zip(tree.flows, tree.shims, strict=True):
            self._shims[flow.flow] = shim.flow
        self._under_way: deque[_UnderWay] = deque()

        port_bytes = port.to_bytes(2, "big")
        for rank, host in enumerate(self._hosts):
            host.of_trees[port_bytes] = partial(self._deliver, rank)
        first_host = self._hosts[0]
        fallback_bytes = PORT.to_bytes(2, "big")
        fallbacks = first_host.of_trees.setdefault(fallback_bytes, _FallbackPort())
        assert isinstance(fallbacks, _FallbackPort)
        fallbacks.receivers[tree.number] = self._deliver_to_fallback

    def begin(
        self,
        flow: Flow,
        iteration: int,
        on_complete: Callable[[], None],
    ) -> None:
        """Give all workers their numbers."""
        frames = -(-flow.size_bytes // _FRAME_BYTES)
        numbers = np.arange(frames * VALUES, dtype=np.int32)
        workers = self._group.workers
        ranks = range(workers)
        if flow.src == flow.dst:
            # Worker r adds r to each number, so that a sum that lacks one is wrong.
            collectives = [all_reduce(numbers + np.int32(rank)) for rank in ranks]
            expected = numbers * np.int32(workers) + np.int32(sum(ranks))
        else:
            collectives = [broadcast(numbers, rank == 0) for rank in ranks]
            expected = numbers
        label = f"job {self._job}: flow {flow.name} in iteration {iteration}"
        shim = self._shims[flow.name]
        epoch = iteration % 256
        now_ns = self._clock.now_ns
        begun = _UnderWay(label, shim, epoch, collectives, expected, on_complete, workers)
        self._under_way.append(begun)
        key = self._key(epoch, shim)
        for host in self._hosts:
            host.agreement.begin(key, now_ns)
        for rank, collective in enumerate(collectives):
            core = self._cores[rank]
            packets = core.submit(collective, now_ns / _NS)
            self._go_on(rank, packets)

    @property
    def _job_number(self) -> int:
        """The number of the job in shims."""
        return self._tree.shims[0].job

    def _key(self, epoch: int, shim: int) -> bytes:
        return flow_key(epoch, self._job_number, shim)

    def _send(
        self,
        rank: int,
        src: Endpoint,
        dst: Endpoint,
        shim: int,
        packet: Packet,
    ) -> None:
        host = self._hosts[rank]
        if host.closed:
            return
        epoch = 0
        left = 0
        if self._under_way:
            under_way = self._under_way[0]
            collective = under_way.collectives[rank]
            epoch = under_way.epoch
            left = collective.left
        frames = self._frames.get((src, shim))
        if frames is None:
            frames = Frames(src, self._job_number, shim)
            self._frames[src, shim] = frames
        key = self._key(epoch, shim)
        stamp = host.agreement.stamp(key)
        frame = frames.encode(dst, packet, epoch, left * _FRAME_BYTES, stamp)
        host.nic.send(frame)

    @property
    def _present_shim(self) -> int:
        """The shim's flow that is under way, or the tree's first."""
        if self._under_way:
            return self._under_way[0].shim
        return self._tree.shims[0].flow

    def _go_on(self, rank: int, packets: Sequence[Packet]) -> None:
        """Send a worker's packets, and wake it when it has to send again."""
        shim = self._present_shim
        for packet in packets:
            self._send(rank, self._ends[rank], self._server, shim, packet)
        wake_s = self._cores[rank].next_wake
        if wake_s is not None:
            # Rounded up, so that the worker's time has come when it is woken.
            wake_ns = -int(-wake_s * _NS // 1)
            self._clock.call_at(max(self._clock.now_ns, wake_ns), self._wake, rank)

    def _wake(self, rank: int) -> None:
        core = self._cores[rank]
        now_s = self._clock.now_ns / _NS
        wake_s = core.next_wake
        is_due = wake_s is not None and wake_s <= now_s
        if is_due and not self._hosts[rank].closed:
            packets = core.wake(now_s)
            self._tally.retransmitted += len(packets)
            self._go_on(rank, packets)

    def _deliver(
        self,
        rank: int,
        now_ns: int,
        frame: bytes,
    ) -> None:
        arrived = read(frame)
        if arrived is None:
            return
        host = self._hosts[rank]
        host.agreement.hear(frame[SHIM_KEY], frame[SHIM_STAMP])
        undone = (flow for flow in self._under_way if not flow.collectives[rank].done)
        present = next(undone, None)
        core = self._cores[rank]
        packets = core.receive(arrived.packet, now_ns / _NS)
        # Flows of a worker end in their order, and a packet ends at most one.
        if present is not None and present.collectives[rank].done:
            present.left -= 1
        self._go_on(rank, packets)
        while self._under_way and not self._under_way[0].left:
            self._finish(self._under_way.popleft())

    def _finish(self, flow: _UnderWay) -> None:
        for rank, collective in enumerate(flow.collectives):
            if not np.array_equal(collective.result, flow.expected):
                raise RunError(
                    f"{flow.label}: worker {rank} has wrong sums; this is a defect of the switch's"
                    " program"
                )
        flow.on_complete()

    def _deliver_to_fallback(
        self,
        now_ns: int,
        frame: bytes,
        packet: Packet,
    ) -> None:
        host = self._hosts[0]
        host.agreement.hear(frame[SHIM_KEY], frame[SHIM_STAMP])
        for worker, answer in self._fallback.receive(packet, now_ns / _NS):
            rank = worker or 0
            if answer.kind == Kind.RESULT:
                shim = self._present_shim
            else:
                shim = shim_of_answers(self._tree, rank)
            self._send(0, self._server, self._ends[rank], shim, answer)


def _group(tree: JobTree, shape: Tree, fabric: Fabric) -> Group:
    """Return the group of a tree's workers."""
    memory = memory_of(tree)
    grant = memory.grant
    round_s = _round_s(fabric, shape, memory.window)
    return Group(
        len(shape.hosts),
        tree.number,
        tree.session,
        memory.window,
        VALUES,
        shared_memory=grant is not None and grant.take != TAKES["share"],
        least_timeout_s=_PATIENCE * round_s,
        most_timeout_s=_LONGEST * round_s,
        by_tree=grant is not None,
    )


def _round_s(
    fabric: Fabric,
    tree: Tree,
    window: int,
) -> float:
    """Return how long a window's packets and their results take in an empty network."""
    takes_s: dict[Link, float] = {}
    for link in tree.links:
        sending_s = 8 * _FRAME_BYTES / fabric.rate_bps[link]
        takes_s[link] = sending_s + float(fabric.delay_s[link])
    longest_s = 0.0
    for host in tree.hosts:
        up_s = sum(takes_s[link] for link in tree.way_up(host))
        longest_s = max(longest_s, up_s)
    return window * max(takes_s.values()) + 2 * longest_s
