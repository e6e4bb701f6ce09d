"""The hosts of a job's trees in a run: workers with numbers whose sums are checked, and the
fallback of each tree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from echelon.model.errors import RunError
from echelon.model.jobs.graph import Flow
from echelon.switches.lowering.trees import JobTree
from echelon_aggregation.collectives import OTHER_HEADER_BYTES, VALUES
from echelon_aggregation.door import memory_of, port_of, shim_of_answers
from echelon_aggregation.fallback import Fallback
from echelon_aggregation.frames import SHIM_KEY, SHIM_STAMP, Endpoint, Frames, read
from echelon_aggregation.group import Group
from echelon_aggregation.memory import TAKES
from echelon_aggregation.trees import tree_of
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
    """The workers and fallbacks of a job's trees (an
    `echelon_lab.endhosts.carriers.TreeCarrier`).
    """

    def __init__(self, network: HostNetwork, job: str, trees: Sequence[JobTree]) -> None:
        self.tally = PacketTally()
        self._of: dict[str, _HostsOfTree] = {}
        for tree in trees:
            hosts = _HostsOfTree(network, job, tree, self.tally)
            self._of |= {flow.flow: hosts for flow in tree.flows}

    def open(self) -> None:
        """Do nothing: there are no connections."""

    def start_flow(self, flow: Flow, iteration: int, on_complete: Callable[[], None]) -> None:
        """Add up a flow's values now; call `on_complete` when all workers have the sums."""
        self._of[flow.name].begin(flow, iteration, on_complete)


@dataclass(slots=True)
class _UnderWay:
    """A flow that all workers have begun."""

    what: str
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
        self.of_tree: dict[int, Callable[[int, bytes, Packet], None]] = {}

    def __call__(self, now_ns: int, frame: bytes) -> None:
        arrived = read(frame)
        if arrived is not None and (receive := self.of_tree.get(arrived.packet.tree)) is not None:
            receive(now_ns, frame, arrived.packet)


class _HostsOfTree:
    """The workers of one tree, and its fallback on the first one's host."""

    def __init__(self, network: HostNetwork, job: str, tree: JobTree, tally: PacketTally) -> None:
        shape = tree_of(tree.path)
        memory = memory_of(tree)
        fabric = network.fabric
        self._clock = network.clock
        self._job = job
        self._tree = tree
        self._tally = tally
        self._hosts = [network.hosts[name] for name in shape.hosts]
        takes_s = {
            link: 8 * _FRAME_BYTES / fabric.rate_bps[link] + float(fabric.delay_s[link])
            for link in shape.links
        }
        round_s = memory.window * max(takes_s.values())
        round_s += 2 * max(
            sum(map(takes_s.__getitem__, shape.way_up(host))) for host in shape.hosts
        )
        self._group = Group(
            len(shape.hosts),
            tree.number,
            tree.session,
            memory.window,
            VALUES,
            shared_memory=memory.grant is not None and memory.grant.take != TAKES["share"],
            least_timeout_s=_PATIENCE * round_s,
            most_timeout_s=_LONGEST * round_s,
            by_tree=memory.grant is not None,
        )
        self._cores = [Worker(self._group, rank) for rank in range(self._group.workers)]
        self._fallback = Fallback(self._group)
        self._ends = [
            Endpoint(host.ipv4, host.mac, port_of(tree))
            for host in map(fabric.hosts.__getitem__, shape.hosts)
        ]
        first = fabric.hosts[shape.hosts[0]]
        self._server = Endpoint(first.ipv4, first.mac, PORT)
        self._frames: dict[tuple[Endpoint, int], Frames] = {}
        self._shims = {
            flow.flow: shim.flow for flow, shim in zip(tree.flows, tree.shims, strict=True)
        }
        self._under_way: deque[_UnderWay] = deque()
        for rank, host in enumerate(self._hosts):
            host.of_trees[port_of(tree).to_bytes(2, "big")] = partial(self._deliver, rank)
        port = self._hosts[0].of_trees.setdefault(PORT.to_bytes(2, "big"), _FallbackPort())
        assert isinstance(port, _FallbackPort)
        port.of_tree[tree.number] = self._deliver_to_fallback

    def begin(self, flow: Flow, iteration: int, on_complete: Callable[[], None]) -> None:
        """Give all workers their numbers."""
        count = VALUES * -(-flow.size_bytes // _FRAME_BYTES)
        numbers = np.arange(count, dtype=np.int32)
        workers = self._group.workers
        if flow.src == flow.dst:
            given = [all_reduce(numbers + np.int32(rank)) for rank in range(workers)]
            expected = numbers * np.int32(workers) + np.int32(workers * (workers - 1) // 2)
        else:
            given = [broadcast(numbers, rank == 0) for rank in range(workers)]
            expected = numbers
        what = f"job {self._job}: flow {flow.name} in iteration {iteration}"
        shim = self._shims[flow.name]
        epoch = iteration % 256
        now_ns = self._clock.now_ns
        self._under_way.append(_UnderWay(what, shim, epoch, given, expected, on_complete, workers))
        for host in self._hosts:
            host.agreement.begin(flow_key(epoch, self._tree.shims[0].job, shim), now_ns)
        for rank, collective in enumerate(given):
            self._go_on(rank, self._cores[rank].submit(collective, now_ns / _NS))

    def _send(self, rank: int, own: Endpoint, to: Endpoint, shim: int, packet: Packet) -> None:
        host = self._hosts[rank]
        if host.closed:
            return
        under_way = self._under_way[0] if self._under_way else None
        epoch = 0 if under_way is None else under_way.epoch
        if under_way is None:
            left = 0
        else:
            left = under_way.collectives[rank].left
        frames = self._frames.get((own, shim))
        if frames is None:
            frames = self._frames[own, shim] = Frames(own, self._tree.shims[0].job, shim)
        stamp = host.agreement.stamp(flow_key(epoch, self._tree.shims[0].job, shim))
        host.nic.send(frames.encode(to, packet, epoch, left * _FRAME_BYTES, stamp))

    def _go_on(self, rank: int, packets: Sequence[Packet]) -> None:
        """Send a worker's packets, and wake it when it has to send again."""
        if self._under_way:
            shim = self._under_way[0].shim
        else:
            shim = self._tree.shims[0].flow
        for packet in packets:
            self._send(rank, self._ends[rank], self._server, shim, packet)
        if (at := self._cores[rank].next_wake) is not None:
            self._clock.at(max(self._clock.now_ns, -int(-at * _NS // 1)), self._wake, rank)

    def _wake(self, rank: int) -> None:
        core = self._cores[rank]
        now_s = self._clock.now_ns / _NS
        if (at := core.next_wake) is not None and at <= now_s and not self._hosts[rank].closed:
            packets = core.wake(now_s)
            self._tally.retransmitted += len(packets)
            self._go_on(rank, packets)

    def _deliver(self, rank: int, now_ns: int, frame: bytes) -> None:
        arrived = read(frame)
        if arrived is None:
            return
        self._hosts[rank].agreement.hear(frame[SHIM_KEY], frame[SHIM_STAMP])
        undone = next((one for one in self._under_way if not one.collectives[rank].done), None)
        packets = self._cores[rank].receive(arrived.packet, now_ns / _NS)
        if undone is not None and undone.collectives[rank].done:
            undone.left -= 1
        self._go_on(rank, packets)
        while self._under_way and not self._under_way[0].left:
            self._finish(self._under_way.popleft())

    def _finish(self, flow: _UnderWay) -> None:
        for rank, collective in enumerate(flow.collectives):
            if not np.array_equal(collective.result, flow.expected):
                raise RunError(
                    f"{flow.what}: worker {rank} has wrong sums; this is a defect of the switch's"
                    " program"
                )
        flow.on_complete()

    def _deliver_to_fallback(self, now_ns: int, frame: bytes, packet: Packet) -> None:
        self._hosts[0].agreement.hear(frame[SHIM_KEY], frame[SHIM_STAMP])
        for to, answer in self._fallback.receive(packet, now_ns / _NS):
            if answer.kind == Kind.RESULT:
                if self._under_way:
                    shim = self._under_way[0].shim
                else:
                    shim = self._tree.shims[0].flow
            else:
                shim = shim_of_answers(self._tree, to or 0)
            self._send(0, self._server, self._ends[to or 0], shim, answer)
