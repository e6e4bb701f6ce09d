"""All-reduce with a connection between every two ranks.

Source: Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH, IJHPCA '05,
sections 4.1 (all-gather) and 4.4 (reduce-scatter by pairwise exchange).

The data is cut into a chunk for each rank. In round k of n - 1 a rank sends to the rank k places after it the chunk
that this one adds up; in n - 1 more rounds it sends the complete sum of its own chunk to each. Every rank sends
2(n-1)/n of the data, as with a ring, but no chunk has to be passed on: as one flow for each two ranks, this is the
direct algorithm of ASTRA-sim.
"""

from __future__ import annotations

from collections.abc import Iterator

from echelon.jobs.collectives.algorithm import AllReduce, Round, Transfer


class Direct(AllReduce):
    """The direct all-reduce. Chunk j is added up by rank j."""

    def reduce(self, ranks: int) -> Iterator[Round]:
        for shift in range(1, ranks):
            targets = [(rank, (rank + shift) % ranks) for rank in range(ranks)]
            yield [Transfer(src, dst, range(dst, dst + 1)) for src, dst in targets]

    def spread(self, ranks: int) -> Iterator[Round]:
        for shift in range(1, ranks):
            yield [Transfer(rank, (rank + shift) % ranks, range(rank, rank + 1)) for rank in range(ranks)]

    def chunks(self, ranks: int) -> int:
        return ranks

    def flow_count(self, ranks: int) -> int:
        return 2 * ranks * (ranks - 1)

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return 2 * -(-size_bytes // ranks)
