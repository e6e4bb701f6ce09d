"""All-to-all by pairwise exchange.

Source: Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH, IJHPCA '05,
section 4.3.

Every rank has n chunks, one for each rank. In round k of n-1 it sends one chunk to the rank k places after it and
receives one from the rank k places before it, so that every rank sends (n-1)/n of its data.
"""

from __future__ import annotations

from collections.abc import Iterator

from echelon.jobs.collectives.algorithm import Algorithm, Round, Transfer


class AllToAll(Algorithm):
    """All-to-all by pairwise exchange; each rank has a connection to each other rank. Chunk j is for rank j."""

    def rounds(self, ranks: int) -> Iterator[Round]:
        for shift in range(1, ranks):
            targets = [(rank, (rank + shift) % ranks) for rank in range(ranks)]
            yield [Transfer(src, dst, range(dst, dst + 1)) for src, dst in targets]

    def chunks(self, ranks: int) -> int:
        return ranks

    def flow_count(self, ranks: int) -> int:
        return ranks * (ranks - 1)

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return -(-size_bytes // ranks)
