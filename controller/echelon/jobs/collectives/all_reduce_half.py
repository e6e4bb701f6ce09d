"""Half of an all-reduce: its rounds that add up, or its rounds that distribute the sums.

The first half of an all-reduce that cuts the data into a chunk for each rank is a reduce-scatter, the second half an
all-gather. Along a tree, where the data is one chunk, they are a reduce to the first rank and a broadcast from it.
Source: Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH, IJHPCA '05,
section 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from echelon.jobs.collectives.algorithm import Algorithm, AllReduce, Round


@dataclass(frozen=True, slots=True)
class AllReduceHalf(Algorithm):
    """The first or the second half of `whole`."""

    whole: AllReduce
    adds: bool
    """Whether it is the half that adds up."""

    def rounds(self, ranks: int) -> Iterator[Round]:
        return self.whole.reduce(ranks) if self.adds else self.whole.spread(ranks)

    def chunks(self, ranks: int) -> int:
        return self.whole.chunks(ranks)

    def flow_count(self, ranks: int) -> int:
        return self.whole.flow_count(ranks) // 2

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return self.whole.connection_bytes(ranks, size_bytes)

    def refusal(self, ranks: int) -> str | None:
        return self.whole.refusal(ranks)
