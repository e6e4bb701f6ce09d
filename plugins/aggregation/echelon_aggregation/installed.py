"""The state of a tree at each of its switches: table entries and a multicast group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from echelon.model.fabric.model import Fabric
from echelon.switches.lowering.intent import FIRST_GROUP, Match, MulticastGroup, TableEntry
from echelon.switches.lowering.parts import entry, ipv4, mac
from echelon_aggregation.memory import TAKES, Grant


@dataclass(frozen=True, slots=True)
class WorkerPort:
    """The UDP port of a worker on its host."""

    host: str
    port: int


@dataclass(frozen=True)
class TreeRun:
    """The tree of a group of workers, for one run of the group."""

    number: int
    """The number that packets carry, from 1."""
    session: int
    workers: Sequence[WorkerPort]
    """The workers; the index of each is its bit in packets."""
    fallback: str
    """The host of the fallback, that of one of the workers."""
    parents: Mapping[str, str]
    """The switch above each switch but the root."""
    root: str
    places: Mapping[str, Grant]
    """The places at each switch; one that has none passes packets on."""
    job: int = 0
    """The job's number in shims."""
    up_flow: int = 0
    """The flow, in shims, of sums on their way to a parent, and of what goes to the fallback."""
    down_flow: int = 0
    """The flow of results."""


@dataclass(frozen=True)
class TreeAtSwitch:
    """A tree as one of its switches sees it."""

    tree: TreeRun
    switch: str
    fabric: Fabric

    @cached_property
    def children(self) -> Mapping[str, int]:
        """The bitmap of the workers behind each child, which is a host or a switch."""
        bitmaps: dict[str, int] = {}
        for bit, worker in enumerate(self.tree.workers):
            below = worker.host
            node = self.fabric.neighbour[worker.host, 0]
            while node != self.switch and node != self.tree.root:
                below = node
                node = self.tree.parents[node]
            if node == self.switch:
                bitmaps[below] = bitmaps.get(below, 0) | 1 << bit
        return bitmaps

    @property
    def _workers(self) -> list[tuple[int, WorkerPort]]:
        """The workers on hosts of this switch, with their bits."""
        workers = []
        for bit, worker in enumerate(self.tree.workers):
            if worker.host in self.children:
                workers.append((bit, worker))
        return workers

    @property
    def group(self) -> MulticastGroup:
        """The copies of a result: one for each worker here, and one for each switch below.

        The instance of a worker's copy is its bit plus 1.
        """
        copies = []
        for bit, worker in self._workers:
            port = self._port(worker.host)
            copies.append((port, bit + 1))
        for child in self.children:
            if child in self.fabric.switches:
                port = self._port(child)
                copies.append((port, 0))
        copies.sort()
        return MulticastGroup(FIRST_GROUP + self.tree.number, tuple(copies))

    def entries(self, *, hands_over: bool = True) -> tuple[TableEntry, ...]:
        """Return the entries of the tree, in the order in which they may be written.

        `hands_over`: whether the program can hand over an incomplete sum, with its table
        `aggregation_holder`; a program that cannot gives no memory by deadline. Raises
        `ValueError`.
        """
        tree = self.tree
        entries = [self._copy(bit, worker) for bit, worker in self._workers]
        key: dict[str, Match] = {"tree": tree.number, "session": tree.session}
        grant = tree.places.get(self.switch)
        if grant is None:
            entries.append(entry("aggregation_tree", key, "pass_on"))
        else:
            if hands_over:
                entries.append(self._holder(key))
            elif grant.take == TAKES["deadline"]:
                raise ValueError(
                    f"{self.switch} has a program that gives no memory by deadline (use first or"
                    " share)"
                )
            entries.append(self._aggregate(key, grant))
        return (*entries, *self._members())

    def _copy(self, bit: int, worker: WorkerPort) -> TableEntry:
        """Return the entry that addresses the copy of a result to a worker."""
        host = self.fabric.hosts[worker.host]
        key: dict[str, Match] = {"tree": self.tree.number, "copy": bit + 1}
        return entry(
            "aggregation_copy",
            key,
            "deliver",
            dst_mac=mac(host.mac),
            dst=ipv4(host.ipv4),
            udp_port=worker.port,
        )

    def _aggregate(self, key: dict[str, Match], grant: Grant) -> TableEntry:
        tree = self.tree
        is_root = self.switch == tree.root
        parent_port = 0 if is_root else self._parent_port
        return entry(
            "aggregation_tree",
            key,
            "aggregate",
            first=grant.first,
            mask=grant.mask,
            start=grant.start,
            all=sum(self.children.values()),
            take=grant.take,
            is_root=int(is_root),
            parent_port=parent_port,
            group=self.group.number,
            up_flow=tree.up_flow,
            down_flow=tree.down_flow,
        )

    def _members(self) -> Iterator[TableEntry]:
        """Yield the entries that say who sends to each port: a child, or the parent."""
        number = self.tree.number
        towards_fallback = self._towards_fallback()
        for node, workers in self.children.items():
            key: dict[str, Match] = {"tree": number, "port": self._port(node)}
            action = "from_fallback" if node == towards_fallback else "from_child"
            yield entry("aggregation_member", key, action, workers_behind=workers)
        if self.switch != self.tree.root:
            key = {"tree": number, "port": self._parent_port}
            yield entry("aggregation_member", key, "from_parent")

    def _holder(self, key: dict[str, Match]) -> TableEntry:
        """Return the entry that says where an incomplete sum goes that gives its place up."""
        tree = self.tree
        first = tree.workers[0]
        first_host = self.fabric.hosts[first.host]
        fallback = self.fabric.hosts[tree.fallback]
        port = self._port(self._towards_fallback())
        return entry(
            "aggregation_holder",
            key,
            "hand_over",
            src=ipv4(first_host.ipv4),
            src_port=first.port,
            dst=ipv4(fallback.ipv4),
            dst_mac=mac(fallback.mac),
            port=port,
            job=tree.job,
            flow=tree.up_flow,
        )

    def _towards_fallback(self) -> str:
        """Return the child that leads to the fallback, or the parent."""
        hosts = [worker.host for worker in self.tree.workers]
        bit = 1 << hosts.index(self.tree.fallback)
        for child, workers in self.children.items():
            if workers & bit:
                return child
        return self.tree.parents[self.switch]

    @property
    def _parent_port(self) -> int:
        return self._port(self.tree.parents[self.switch])

    def _port(self, node: str) -> int:
        return self.fabric.port_to[self.switch, node]
