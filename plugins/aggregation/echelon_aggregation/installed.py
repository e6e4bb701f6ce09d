"""What each switch of a tree holds for it: table entries and a multicast group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    def behind(self) -> Mapping[str, int]:
        """The bitmap of the workers behind each child, which is a host or a switch."""
        found: dict[str, int] = {}
        for bit, worker in enumerate(self.tree.workers):
            below = worker.host
            node = self.fabric.neighbour[worker.host, 0]
            while node != self.switch and node != self.tree.root:
                below = node
                node = self.tree.parents[node]
            if node == self.switch:
                found[below] = found.get(below, 0) | 1 << bit
        return found

    @property
    def group(self) -> MulticastGroup:
        """The copies of a result: one for each worker here, whose instance is its bit plus 1, and
        one for each switch below."""
        copies = [
            (self._port(worker.host), bit + 1)
            for bit, worker in enumerate(self.tree.workers)
            if worker.host in self.behind
        ]
        copies += [(self._port(node), 0) for node in self.behind if node in self.fabric.switches]
        return MulticastGroup(FIRST_GROUP + self.tree.number, tuple(sorted(copies)))

    def entries(self, *, hands_over: bool = True) -> tuple[TableEntry, ...]:
        """Return the entries of the tree, in the order in which they may be written.

        `hands_over`: whether the program can hand over an incomplete sum, with its table
        `aggregation_holder`; a program that cannot gives no memory by deadline. Raises
        `ValueError`.
        """
        tree = self.tree
        number = self.tree.number
        key: dict[str, Match] = {"tree": number, "session": tree.session}
        towards = self._towards_fallback()
        found = [
            entry(
                "aggregation_copy",
                {"tree": number, "copy": bit + 1},
                "deliver",
                dst_mac=mac(self.fabric.hosts[worker.host].mac),
                dst=ipv4(self.fabric.hosts[worker.host].ipv4),
                udp_port=worker.port,
            )
            for bit, worker in enumerate(tree.workers)
            if worker.host in self.behind
        ]
        places = tree.places.get(self.switch)
        if places is None:
            found.append(entry("aggregation_tree", key, "pass_on"))
        else:
            is_root = self.switch == tree.root
            if hands_over:
                found.append(self._holder(key))
            elif places.take == TAKES["deadline"]:
                raise ValueError(
                    f"{self.switch} has a program that gives no memory by deadline (use first or"
                    " share)"
                )
            found.append(
                entry(
                    "aggregation_tree",
                    key,
                    "aggregate",
                    first=places.first,
                    mask=places.mask,
                    start=places.start,
                    all=sum(self.behind.values()),
                    take=places.take,
                    is_root=int(is_root),
                    parent_port=0 if is_root else self._port(tree.parents[self.switch]),
                    group=self.group.number,
                    up_flow=tree.up_flow,
                    down_flow=tree.down_flow,
                )
            )
        for node, workers in self.behind.items():
            action = "from_fallback" if node == towards else "from_child"
            found.append(
                entry(
                    "aggregation_member",
                    {"tree": number, "port": self._port(node)},
                    action,
                    workers_behind=workers,
                )
            )
        if self.switch != tree.root:
            port = self._port(tree.parents[self.switch])
            found.append(entry("aggregation_member", {"tree": number, "port": port}, "from_parent"))
        return tuple(found)

    def _holder(self, key: dict[str, Match]) -> TableEntry:
        """Return the entry that says where an incomplete sum goes that gives its place up."""
        first = self.tree.workers[0]
        host = self.fabric.hosts[self.tree.fallback]
        return entry(
            "aggregation_holder",
            key,
            "hand_over",
            src=ipv4(self.fabric.hosts[first.host].ipv4),
            src_port=first.port,
            dst=ipv4(host.ipv4),
            dst_mac=mac(host.mac),
            port=self._port(self._towards_fallback()),
            job=self.tree.job,
            flow=self.tree.up_flow,
        )

    def _towards_fallback(self) -> str:
        """Return the child that leads to the fallback, or the parent."""
        bit = next(
            bit for bit, worker in enumerate(self.tree.workers) if worker.host == self.tree.fallback
        )
        below = next((node for node, workers in self.behind.items() if workers >> bit & 1), None)
        return below or self.tree.parents[self.switch]

    def _port(self, node: str) -> int:
        return self.fabric.port_to[self.switch, node]
