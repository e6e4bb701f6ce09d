"""All-reduce by recursive halving and doubling, Rabenseifner's algorithm.

Source: Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH, IJHPCA '05,
section 4.5.

The data is cut into n chunks, n a power of two. Reduce-scatter: in log2 n rounds every rank exchanges half of what it
is still adding up with the rank at a distance of n/2, n/4, ..., 1. All-gather: the same rounds in reverse order, with
complete sums. Every rank sends 2(n-1)/n of the data, as with a ring, in 2 log2 n rounds where a ring takes 2(n-1).

The paper also folds other numbers of ranks into the next lower power of two, at the price of two rounds with all the
data. That variant is not implemented; such groups are refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from echelon.jobs.collectives.algorithm import AllReduce, Round, Transfer


class HalvingDoubling(AllReduce):
    """All-reduce by recursive halving and doubling; each rank has a connection to each of log2 n others."""

    def reduce(self, ranks: int) -> Iterator[Round]:
        for distance in reversed(_distances(ranks)):
            yield [Transfer(rank, rank ^ distance, _around(rank ^ distance, distance)) for rank in range(ranks)]

    def spread(self, ranks: int) -> Iterator[Round]:
        for distance in _distances(ranks):
            yield [Transfer(rank, rank ^ distance, _around(rank, distance)) for rank in range(ranks)]

    def chunks(self, ranks: int) -> int:
        return ranks

    def flow_count(self, ranks: int) -> int:
        return 2 * ranks * len(_distances(ranks))

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return ranks * -(-size_bytes // ranks)

    def refusal(self, ranks: int) -> str | None:
        if ranks & (ranks - 1):
            return f"needs a power of two of workers, not {ranks} (add or remove workers, or use 'ring')"
        return None


def _distances(ranks: int) -> list[int]:
    """Return 1, 2, 4, ... below `ranks`."""
    return [1 << bit for bit in range(ranks.bit_length() - 1)]


def _around(rank: int, count: int) -> range:
    """Return the `count` chunks, aligned to `count`, among which is that of `rank`'s own number."""
    start = rank // count * count
    return range(start, start + count)
