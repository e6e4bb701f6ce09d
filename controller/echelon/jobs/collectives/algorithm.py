"""The interface of every collective algorithm, and the flows that its rounds become."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import NamedTuple

from echelon.jobs.combinators import Block, flow, parallel, series


class Transfer(NamedTuple):
    """Consecutive chunks that one rank sends to another; ranks and chunks count from 0."""

    src: int
    dst: int
    chunks: range


Round = Sequence[Transfer]
"""Transfers that may take place at the same time; each rank sends at most one of them."""


class Algorithm(ABC):
    """A collective algorithm for any number of ranks, 2 or more, that `refusal` does not exclude."""

    @abstractmethod
    def rounds(self, ranks: int) -> Iterator[Round]:
        """Yield the rounds in order. A rank starts its part of a round when it has finished its part of the last."""

    @abstractmethod
    def chunks(self, ranks: int) -> int:
        """Return into how many chunks the data is cut; the data has at least as many bytes."""

    @abstractmethod
    def flow_count(self, ranks: int) -> int:
        """Return the number of transfers of all rounds, without listing them."""

    @abstractmethod
    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        """Return an upper bound on what one connection carries if the data has `size_bytes`. The bound is exact up to
        one byte for each chunk that the connection carries."""

    def block(self, name: str, group: Sequence[str], size_bytes: int) -> Block:
        """Return the flows of `Collective.block`."""
        chunks = self.chunks(len(group))
        return series(
            *(
                parallel(
                    *(
                        flow(
                            f"{name}-k{number}-w{transfer.src + 1}",
                            group[transfer.src],
                            group[transfer.dst],
                            max(1, chunks_bytes(size_bytes, chunks, transfer.chunks)),
                        )
                        for transfer in each
                    )
                )
                for number, each in enumerate(self.rounds(len(group)), start=1)
            )
        )

    def on(self, hosts: Sequence[str]) -> Algorithm:
        """Return the algorithm as ranks on these hosts run it; most do not depend on hosts."""
        return self

    def misplaced(self, hosts: Sequence[str]) -> str | None:
        """Return why the algorithm does not work for ranks on these hosts and what to do, or None if it does."""
        return None

    def refusal(self, ranks: int) -> str | None:
        """Return why the algorithm does not work for this number of ranks and what to do, or None if it does."""
        return None


class AllReduce(Algorithm):
    """An algorithm after which every rank has the sum of all ranks' data.

    In the rounds of `reduce` the receiver adds the chunks to its own. In the rounds of `spread` the chunks are complete
    sums, which replace the receiver's.
    """

    @abstractmethod
    def reduce(self, ranks: int) -> Iterator[Round]:
        """Yield the rounds that add up chunks."""

    @abstractmethod
    def spread(self, ranks: int) -> Iterator[Round]:
        """Yield the rounds that distribute the sums."""

    def rounds(self, ranks: int) -> Iterator[Round]:
        return chain(self.reduce(ranks), self.spread(ranks))


@dataclass(frozen=True, slots=True)
class Collective:
    """An algorithm and the ranks that run it, in the order in which the algorithm numbers them."""

    algorithm: Algorithm
    group: Sequence[str]

    def block(self, name: str, size_bytes: int) -> Block:
        """Return the flows that the collective sends if the data has `size_bytes`; no flow has less than one byte.

        ``NAME-k1-w2`` is what the second rank sends in the first round. Flows are listed by round and then rank.
        """
        return self.algorithm.block(name, self.group, size_bytes)

    def whole(self, name: str, size_bytes: int) -> Block:
        """Return one flow for each two ranks, with the bytes of all rounds.

        For fluids, this is the collective with its data cut into so many chunks that all its rounds run at the same
        time: every rank sends as many bytes to each other as by rounds, and starts when it is ready. But a rank waits
        only for those that it receives from, where rounds make it wait for all. ``NAME-w1-w2`` is what the first rank
        sends to the second.
        """
        return parallel(
            *(
                flow(f"{name}-w{src + 1}-w{dst + 1}", self.group[src], self.group[dst], size)
                for (src, dst), size in pair_bytes(self.algorithm, len(self.group), size_bytes).items()
            )
        )


@cache
def _pairs(algorithm: Algorithm, ranks: int) -> Mapping[tuple[int, int], Mapping[int, int]]:
    """Return how often one rank sends each chunk to another, by these two."""
    sent: dict[tuple[int, int], Counter[int]] = {}
    for each in algorithm.rounds(ranks):
        for transfer in each:
            sent.setdefault((transfer.src, transfer.dst), Counter()).update(transfer.chunks)
    return sent


def pair_bytes(algorithm: Algorithm, ranks: int, size_bytes: int) -> dict[tuple[int, int], int]:
    """Return how many bytes each rank sends to each other in all rounds, at least 1; ranks count from 0."""
    chunks = algorithm.chunks(ranks)
    smaller, larger = divmod(size_bytes, chunks)
    return {
        pair: max(1, sum(times * (smaller + (chunk < larger)) for chunk, times in sent.items()))
        for pair, sent in _pairs(algorithm, ranks).items()
    }


def chunk_bytes(size_bytes: int, chunks: int, chunk: int) -> int:
    """Return the bytes of one chunk. The first `size_bytes` mod `chunks` chunks are one byte larger than the others, so
    that all chunks add up to the data."""
    return size_bytes // chunks + (chunk < size_bytes % chunks)


def chunks_bytes(size_bytes: int, chunks: int, sent: range) -> int:
    """Return the bytes of consecutive chunks."""
    larger = size_bytes % chunks
    return len(sent) * (size_bytes // chunks) + max(0, min(sent.stop, larger) - sent.start)
