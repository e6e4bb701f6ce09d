"""Ring all-reduce (Patarasu and Yuan, Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations, JPDC '09).

The data is cut into n chunks. In each of 2(n-1) rounds every rank sends one chunk to its successor on the ring and
receives one from its predecessor. The first n-1 rounds add up (reduce-scatter), the others spread the sums
(all-gather). Every rank sends 2(n-1)/n of the data, the least that any all-reduce can do (section 3 of the paper).
"""

from __future__ import annotations

from collections.abc import Iterator

from echelon.jobs.collectives.algorithm import AllReduce, Round, Transfer


class Ring(AllReduce):
    """The ring all-reduce; each rank has one connection, to its successor."""

    def reduce(self, ranks: int) -> Iterator[Round]:
        return (_round(number, ranks) for number in range(ranks - 1))

    def spread(self, ranks: int) -> Iterator[Round]:
        return (_round(number, ranks) for number in range(ranks - 1, 2 * (ranks - 1)))

    def chunks(self, ranks: int) -> int:
        return ranks

    def flow_count(self, ranks: int) -> int:
        return 2 * (ranks - 1) * ranks

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return 2 * (ranks - 1) * -(-size_bytes // ranks)


def sent_chunk(number: int, rank: int, ranks: int) -> int:
    """Return the chunk that `rank` sends in round `number`, all counted from 0.

    A rank begins with the chunk of its own number and passes on, from then on, the chunk it has just received. After
    n-1 rounds that chunk is a complete sum, so that one rule serves both halves.
    """
    return (rank - number) % ranks


def _round(number: int, ranks: int) -> Round:
    sent = [sent_chunk(number, rank, ranks) for rank in range(ranks)]
    return [Transfer(rank, (rank + 1) % ranks, range(chunk, chunk + 1)) for rank, chunk in enumerate(sent)]
