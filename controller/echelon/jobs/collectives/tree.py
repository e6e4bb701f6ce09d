"""All-reduce along a binomial tree: reduce to the root, then broadcast.

Source: Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH, IJHPCA '05,
sections 4.2 (broadcast) and 4.5 (reduce).

The data is one chunk. It takes 2 ceil(log2 n) rounds, for any n, and the least bytes in total, 2(n-1) times the data.
But the root receives and sends all the data ceil(log2 n) times, so that it suits small data, where the number of rounds
decides.
"""

from __future__ import annotations

from collections.abc import Iterator

from echelon.jobs.collectives.algorithm import AllReduce, Round, Transfer

_ALL = range(1)


class Tree(AllReduce):
    """All-reduce along a binomial tree whose root is the first rank; each other rank has a connection to its parent."""

    def reduce(self, ranks: int) -> Iterator[Round]:
        for distance in _distances(ranks):
            yield [Transfer(rank, rank - distance, _ALL) for rank in range(distance, ranks, 2 * distance)]

    def spread(self, ranks: int) -> Iterator[Round]:
        for distance in reversed(_distances(ranks)):
            yield [Transfer(rank - distance, rank, _ALL) for rank in range(distance, ranks, 2 * distance)]

    def chunks(self, ranks: int) -> int:
        return 1

    def flow_count(self, ranks: int) -> int:
        return 2 * (ranks - 1)

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return size_bytes


def _distances(ranks: int) -> list[int]:
    """Return 1, 2, 4, ... below `ranks`: from children to their parents, round by round."""
    return [1 << bit for bit in range((ranks - 1).bit_length())]
