"""Broadcast along a chain: every rank passes the data on to the next.

NCCL broadcasts this way. The data is one chunk here. Rounds therefore take n - 1 times as long as the data takes on one
link; as one flow for each two ranks (`Collective.whole`), which stands for many small chunks, they take as long as one.
"""

from __future__ import annotations

from collections.abc import Iterator

from echelon.jobs.collectives.algorithm import Algorithm, Round, Transfer


class Chain(Algorithm):
    """A broadcast from the first rank; each rank but the last has one connection, to the next."""

    def rounds(self, ranks: int) -> Iterator[Round]:
        return ([Transfer(rank, rank + 1, range(1))] for rank in range(ranks - 1))

    def chunks(self, ranks: int) -> int:
        return 1

    def flow_count(self, ranks: int) -> int:
        return ranks - 1

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return size_bytes
