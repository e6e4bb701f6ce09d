"""Collectives that switches carry out: each link of a tree carries the data once.

A worker sends what it has once, up; the result comes to each once, down. A ring sends 2(n-1)/n of
the data over each link in each direction, in 2(n-1) rounds. So a tree gains up to two times the
rate of n workers at full links, less what its smaller packets spend on headers: a flow's
`size_bytes` are those on the wire, with all headers.

By the protocol (`docs/aggregation-protocol.md`), all workers get the result of a block. So a
reduce-scatter takes as much as an all-reduce, which is more than a ring's (n-1)/n of the data, but
has no rounds. In a broadcast, all others send EMPTY contributions, whose bytes are left out here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from echelon.model.jobs.collectives import Algorithm, Round
from echelon.model.jobs.combinators import Block
from echelon.model.jobs.graph import Flow
from echelon_aggregation.wire import HEADER_BYTES, MAX_WORKERS

VALUES = 32
"""Values of 32 bits in a packet on v1model."""
OTHER_HEADER_BYTES = 14 + 20 + 8 + 20
"""Ethernet, IPv4, UDP and Echelon's shim."""


def wire_bytes(size_bytes: int, values: int = VALUES) -> int:
    """Return the bytes that values take on a link, in packets of so many, with all headers."""
    packets = -(-size_bytes // (4 * values))
    return size_bytes + packets * (OTHER_HEADER_BYTES + HEADER_BYTES)


@dataclass(frozen=True, slots=True)
class InNetwork(Algorithm):
    """An all-reduce, a reduce-scatter or a broadcast by switches.

    The data is cut evenly over several `trees`: each is a flow of its own, `NAME-k1-w2` that of the
    second tree. Its hosts are the same, but each begins with another, whose connections are others:
    so each tree may have another root (PANAMA, Gebara, Ghobadi and Costa, In-network Aggregation
    for Shared Machine Learning Clusters, MLSys '21).
    """

    by_ranks: ClassVar[bool] = False

    trees: int = 1
    values: int = VALUES
    """Values of 32 bits in a packet."""
    sums: bool = True
    """Whether all ranks send; otherwise the first alone does, and all others receive."""

    def rounds(self, ranks: int) -> Iterator[Round]:
        """Yield nothing: no rank sends to another."""
        return iter(())

    def flow_count(self, ranks: int) -> int:
        return self.trees

    def pair_count(self, ranks: int) -> int:
        return self.trees

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return wire_bytes(-(-size_bytes // self.trees), self.values)

    def block(
        self,
        name: str,
        group: Sequence[str],
        size_bytes: int,
    ) -> Block:
        """Return a flow for each tree.

        It starts when all ranks that send are there, and is part of the work of all.
        """
        steps: dict[str, Flow] = {}
        for tree in range(self.trees):
            first = tree % len(group)
            hosts = (*group[first:], *group[:first])
            among = (*hosts, hosts[0]) if self.sums else hosts
            # The first trees have the bytes that are left over.
            size = size_bytes // self.trees + (tree < size_bytes % self.trees)
            sent_bytes = wire_bytes(max(1, size), self.values)
            label = f"{name}-k1-w{tree + 1}"
            steps[label] = Flow(label, among[0], among[-1], sent_bytes, among=among)
        names = tuple(steps)
        senders = group if self.sums else group[:1]
        first_steps = dict.fromkeys(senders, names)
        last_steps = dict.fromkeys(group, names)
        return Block(steps, {}, first_steps, last_steps)

    def pair_block(
        self,
        name: str,
        group: Sequence[str],
        size_bytes: int,
    ) -> Block:
        return self.block(name, group, size_bytes)

    def misplaced(self, hosts: Sequence[str]) -> str | None:
        if len(set(hosts)) < len(hosts):
            return (
                "needs a host for each rank of the group (use 'hierarchical', or one rank per"
                " worker)"
            )
        return None

    def refusal(self, ranks: int) -> str | None:
        if ranks < 2:
            return "needs two ranks or more (use 'ring')"
        if ranks > MAX_WORKERS:
            return (
                f"adds up at most {MAX_WORKERS} ranks, not {ranks} (use 'ring', or smaller groups)"
            )
        return None


ALL_REDUCE = REDUCE_SCATTER = InNetwork()
OVER_2_TREES = InNetwork(trees=2)
OVER_4_TREES = InNetwork(trees=4)
BROADCAST = InNetwork(sums=False)
