"""Collective operations: an algorithm, the group of ranks that runs it, and the bytes it moves.

An algorithm is a class. It cuts the data into chunks and says, round by round, which rank sends
which chunks to which other. `Collective` turns that into flows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import ClassVar, Literal, NamedTuple

from echelon.model.jobs.combinators import Block, flow, parallel, series
from echelon.model.jobs.graph import Flow


class Transfer(NamedTuple):
    """Consecutive chunks that one rank sends to another; ranks and chunks count from 0."""

    src: int
    dst: int
    chunks: range


Round = Sequence[Transfer]
"""Transfers that may take place at the same time; each rank sends at most one of them."""


class Algorithm(ABC):
    """A collective algorithm for any number of ranks, 2 or more, that `refusal` does not
    exclude.
    """

    by_ranks: ClassVar[bool] = True
    """Whether each flow is sent by one rank."""

    @abstractmethod
    def rounds(self, ranks: int) -> Iterator[Round]:
        """Yield the rounds in order.

        A rank starts its part of a round when it has finished its part of the last.
        """

    def chunks(self, ranks: int) -> int:
        """Return into how many chunks the data is cut; the data has at least as many bytes."""
        return ranks

    @abstractmethod
    def flow_count(self, ranks: int) -> int:
        """Return the number of transfers of all rounds, without listing them."""

    def pair_count(self, ranks: int) -> int:
        """Return an upper bound on the pairs of a sender and a receiver, without listing them."""
        return min(self.flow_count(ranks), ranks * (ranks - 1))

    def step_count(self, ranks: int, times: int = 1, *, rounds: bool = False) -> int:
        """Return an upper bound on the steps of so many collectives of the same ranks, by
        arithmetic.

        A flow for each two ranks needs the list of all rounds once (`_pairs`), which is quick to
        make.
        """
        if rounds:
            return 2 * times * self.flow_count(ranks)
        return times * self.pair_count(ranks) + self.flow_count(ranks) // _LISTED_IN_A_STEP

    @abstractmethod
    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        """Return an upper bound on what one connection carries if the data has `size_bytes`. The
        bound is exact up to one byte for each chunk that the connection carries."""

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

    def whole_block(self, name: str, group: Sequence[str], size_bytes: int) -> Block:
        """Return the flows of `Collective.whole`."""
        return parallel(
            *(
                flow(f"{name}-w{src + 1}-w{dst + 1}", group[src], group[dst], size)
                for (src, dst), size in pair_bytes(self, len(group), size_bytes).items()
            )
        )

    def on(self, hosts: Sequence[str]) -> Algorithm:
        """Return the algorithm as ranks on these hosts run it; most do not depend on hosts."""
        return self

    def misplaced(self, hosts: Sequence[str]) -> str | None:
        """Return why the algorithm does not work for ranks on these hosts and what to do, or None
        if it does.
        """
        return None

    def refusal(self, ranks: int) -> str | None:
        """Return why the algorithm does not work for this number of ranks and what to do, or None
        if it does.
        """
        return None


class AllReduce(Algorithm):
    """An algorithm after which every rank has the sum of all ranks' data.

    In the rounds of `reduce` the receiver adds the chunks to its own. In the rounds of `spread` the
    chunks are complete sums, which replace the receiver's.
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
        """Return the flows that the collective sends if the data has `size_bytes`; no flow has less
        than one byte.

        ``NAME-k1-w2`` is what the second rank sends in the first round. Flows are listed by round
        and then rank.
        """
        return self.algorithm.block(name, self.group, size_bytes)

    def whole(self, name: str, size_bytes: int) -> Block:
        """Return one flow for each two ranks, with the bytes of all rounds.

        For fluids, this is the collective with its data cut into so many chunks that all its rounds
        run at the same time: every rank sends as many bytes to each other as by rounds, and starts
        when it is ready. But a rank waits only for those that it receives from, where rounds make
        it wait for all. ``NAME-w1-w2`` is what the first rank sends to the second.
        """
        return self.algorithm.whole_block(name, self.group, size_bytes)


_LISTED_IN_A_STEP = 16
"""Transfers that are listed in the time in which a step of a graph is made."""


@lru_cache(maxsize=32)
def _pairs(algorithm: Algorithm, ranks: int) -> Mapping[tuple[int, int], Sequence[int]]:
    """Return the chunks that one rank sends to another, in ascending order, as often as it sends
    them.
    """
    sent: dict[tuple[int, int], list[int]] = {}
    for each in algorithm.rounds(ranks):
        for transfer in each:
            sent.setdefault((transfer.src, transfer.dst), []).extend(transfer.chunks)
    for chunks in sent.values():
        chunks.sort()
    return sent


def pair_bytes(algorithm: Algorithm, ranks: int, size_bytes: int) -> dict[tuple[int, int], int]:
    """Return how many bytes each rank sends to each other in all rounds, at least 1; ranks count
    from 0.
    """
    chunks = algorithm.chunks(ranks)
    smaller, larger = divmod(size_bytes, chunks)
    return {
        pair: max(1, smaller * len(sent) + bisect_left(sent, larger))
        for pair, sent in _pairs(algorithm, ranks).items()
    }


def chunk_bytes(size_bytes: int, chunks: int, chunk: int) -> int:
    """Return the bytes of one chunk. The first `size_bytes` mod `chunks` chunks are one byte larger
    than the others, so that all chunks add up to the data."""
    return size_bytes // chunks + (chunk < size_bytes % chunks)


def chunks_bytes(size_bytes: int, chunks: int, sent: range) -> int:
    """Return the bytes of consecutive chunks."""
    larger = size_bytes % chunks
    return len(sent) * (size_bytes // chunks) + max(0, min(sent.stop, larger) - sent.start)


class Ring(AllReduce):
    """The ring all-reduce; each rank has one connection, to its successor.

    Source: Patarasu and Yuan, Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations,
    JPDC '09.

    The data is cut into n chunks. In each of 2(n-1) rounds every rank sends one chunk to its
    successor on the ring and receives one from its predecessor. The first n-1 rounds add up
    (reduce-scatter), the others spread the sums (all-gather). Every rank sends 2(n-1)/n of the
    data, the least that any all-reduce can do (section 3 of the paper).
    """

    def reduce(self, ranks: int) -> Iterator[Round]:
        return (_round(number, ranks) for number in range(ranks - 1))

    def spread(self, ranks: int) -> Iterator[Round]:
        return (_round(number, ranks) for number in range(ranks - 1, 2 * (ranks - 1)))

    def flow_count(self, ranks: int) -> int:
        return 2 * (ranks - 1) * ranks

    def pair_count(self, ranks: int) -> int:
        return ranks

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return 2 * (ranks - 1) * -(-size_bytes // ranks)


def sent_chunk(number: int, rank: int, ranks: int) -> int:
    """Return the chunk that `rank` sends in round `number`, all counted from 0.

    A rank begins with the chunk of its own number and passes on, from then on, the chunk it has
    just received. After n-1 rounds that chunk is a complete sum, so that one rule serves both
    halves.
    """
    return (rank - number) % ranks


def _round(number: int, ranks: int) -> Round:
    sent = [sent_chunk(number, rank, ranks) for rank in range(ranks)]
    return [
        Transfer(rank, (rank + 1) % ranks, range(chunk, chunk + 1))
        for rank, chunk in enumerate(sent)
    ]


class Chain(Algorithm):
    """A broadcast from the first rank; each rank but the last has one connection, to the next.

    NCCL broadcasts this way. The data is one chunk here. Rounds therefore take n - 1 times as long
    as the data takes on one link; as one flow for each two ranks (`Collective.whole`), which stands
    for many small chunks, they take as long as one.
    """

    def rounds(self, ranks: int) -> Iterator[Round]:
        return ([Transfer(rank, rank + 1, range(1))] for rank in range(ranks - 1))

    def chunks(self, ranks: int) -> int:
        return 1

    def flow_count(self, ranks: int) -> int:
        return ranks - 1

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return size_bytes


class HalvingDoubling(AllReduce):
    """All-reduce by recursive halving and doubling; each rank has a connection to each of log2 n
    others.

    Source: Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in
    MPICH, IJHPCA '05, section 4.5.

    The data is cut into n chunks, n a power of two. Reduce-scatter: in log2 n rounds every rank
    exchanges half of what it is still adding up with the rank at a distance of n/2, n/4, ..., 1.
    All-gather: the same rounds in reverse order, with complete sums. Every rank sends 2(n-1)/n of
    the data, as with a ring, in 2 log2 n rounds where a ring takes 2(n-1).

    The paper also folds other numbers of ranks into the next lower power of two, at the price of
    two rounds with all the data. That variant is not implemented; such groups are refused.
    """

    def reduce(self, ranks: int) -> Iterator[Round]:
        for distance in reversed(_distances(ranks)):
            yield [
                Transfer(rank, rank ^ distance, _around(rank ^ distance, distance))
                for rank in range(ranks)
            ]

    def spread(self, ranks: int) -> Iterator[Round]:
        for distance in _distances(ranks):
            yield [
                Transfer(rank, rank ^ distance, _around(rank, distance)) for rank in range(ranks)
            ]

    def flow_count(self, ranks: int) -> int:
        return 2 * ranks * len(_distances(ranks))

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return ranks * -(-size_bytes // ranks)

    def refusal(self, ranks: int) -> str | None:
        if ranks & (ranks - 1):
            return (
                f"needs a power of two of workers, not {ranks} (add or remove workers, or use"
                " 'ring')"
            )
        return None


def _distances(ranks: int) -> list[int]:
    """Return 1, 2, 4, ... below `ranks`."""
    return [1 << bit for bit in range(ranks.bit_length() - 1)]


def _around(rank: int, count: int) -> range:
    """Return the `count` chunks, aligned to `count`, among which is that of `rank`'s own number."""
    start = rank // count * count
    return range(start, start + count)


_ALL = range(1)


class Tree(AllReduce):
    """All-reduce along a binomial tree whose root is the first rank; each other rank has a
    connection to its parent.

    Source: Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in
    MPICH, IJHPCA '05, sections 4.2 (broadcast) and 4.5 (reduce).

    The data is one chunk. It takes 2 ceil(log2 n) rounds, for any n, and the least bytes in total,
    2(n-1) times the data. But the root receives and sends all the data ceil(log2 n) times, so that
    it suits small data, where the number of rounds decides.
    """

    def reduce(self, ranks: int) -> Iterator[Round]:
        for distance in _binomial_distances(ranks):
            yield [
                Transfer(rank, rank - distance, _ALL)
                for rank in range(distance, ranks, 2 * distance)
            ]

    def spread(self, ranks: int) -> Iterator[Round]:
        for distance in reversed(_binomial_distances(ranks)):
            yield [
                Transfer(rank - distance, rank, _ALL)
                for rank in range(distance, ranks, 2 * distance)
            ]

    def chunks(self, ranks: int) -> int:
        return 1

    def flow_count(self, ranks: int) -> int:
        return 2 * (ranks - 1)

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return size_bytes


def _binomial_distances(ranks: int) -> list[int]:
    """Return 1, 2, 4, ... below `ranks`: from children to their parents, round by round."""
    return [1 << bit for bit in range((ranks - 1).bit_length())]


class Direct(AllReduce):
    """The direct all-reduce. Chunk j is added up by rank j.

    Source: Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in
    MPICH, IJHPCA '05, sections 4.1 (all-gather) and 4.4 (reduce-scatter by pairwise exchange).

    The data is cut into a chunk for each rank. In round k of n - 1 a rank sends to the rank k
    places after it the chunk that this one adds up; in n - 1 more rounds it sends the complete sum
    of its own chunk to each. Every rank sends 2(n-1)/n of the data, as with a ring, but no chunk
    has to be passed on: as one flow for each two ranks, this is the direct algorithm of ASTRA-sim.
    """

    def reduce(self, ranks: int) -> Iterator[Round]:
        return AllToAll().rounds(ranks)

    def spread(self, ranks: int) -> Iterator[Round]:
        for shift in range(1, ranks):
            yield [
                Transfer(rank, (rank + shift) % ranks, range(rank, rank + 1))
                for rank in range(ranks)
            ]

    def flow_count(self, ranks: int) -> int:
        return 2 * ranks * (ranks - 1)

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return 2 * -(-size_bytes // ranks)


class AllToAll(Algorithm):
    """All-to-all by pairwise exchange; each rank has a connection to each other rank. Chunk j is
    for rank j.

    Source: Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in
    MPICH, IJHPCA '05, section 4.3.

    Every rank has n chunks, one for each rank. In round k of n-1 it sends one chunk to the rank k
    places after it and receives one from the rank k places before it, so that every rank sends
    (n-1)/n of its data.
    """

    def rounds(self, ranks: int) -> Iterator[Round]:
        for shift in range(1, ranks):
            targets = [(rank, (rank + shift) % ranks) for rank in range(ranks)]
            yield [Transfer(src, dst, range(dst, dst + 1)) for src, dst in targets]

    def flow_count(self, ranks: int) -> int:
        return ranks * (ranks - 1)

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return -(-size_bytes // ranks)


@dataclass(frozen=True, slots=True)
class AllReduceHalf(Algorithm):
    """The first or the second half of `whole`.

    The first half of an all-reduce that cuts the data into a chunk for each rank is a
    reduce-scatter, the second half an all-gather. Along a tree, where the data is one chunk, they
    are a reduce to the first rank and a broadcast from it. Source: Thakur, Rabenseifner and Gropp,
    Optimization of Collective Communication Operations in MPICH, IJHPCA '05, section 4.
    """

    whole: AllReduce
    adds: bool
    """Whether it is the half that adds up."""

    def rounds(self, ranks: int) -> Iterator[Round]:
        if self.adds:
            return self.whole.reduce(ranks)
        return self.whole.spread(ranks)

    def chunks(self, ranks: int) -> int:
        return self.whole.chunks(ranks)

    def flow_count(self, ranks: int) -> int:
        return self.whole.flow_count(ranks) // 2

    def pair_count(self, ranks: int) -> int:
        return self.whole.pair_count(ranks)

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return self.whole.connection_bytes(ranks, size_bytes)

    def refusal(self, ranks: int) -> str | None:
        return self.whole.refusal(ranks)


@dataclass(frozen=True, slots=True)
class Hierarchical(AllReduce):
    """The all-reduce in two levels, with `local` ranks on each host.

    Source: Cho et al., BlueConnect: Decomposing All-Reduce for Deep Learning on Heterogeneous
    Network Hierarchy, MLSys '19, section 3. With L ranks on each of H hosts, the ranks of a host
    reduce-scatter the data over a ring, so that each has the sum of one of L shards. Ranks that are
    in the same place on their hosts (a rail) all-reduce their shard over a ring. Then the ranks of
    a host all-gather the shards. Every rank sends 2(L-1)/L of the data inside its host, and
    2(H-1)/(L H) of it to another host: hosts send L times less than if each rank ran a ring of its
    own.

    Ranks are in the order of hosts, L from each. The shards are cut into H chunks each.
    """

    local: int = 1

    def on(self, hosts: Sequence[str]) -> Algorithm:
        return Hierarchical(hosts.count(hosts[0]))

    def misplaced(self, hosts: Sequence[str]) -> str | None:
        local = hosts.count(hosts[0])
        parts = [list(hosts[at : at + local]) for at in range(0, len(hosts), local)]
        if any(part != [part[0]] * local for part in parts) or len(set(hosts)) < len(parts):
            return (
                "needs as many ranks of the group on each host, listed host by host (use 'ring', or"
                " list them so)"
            )
        return None

    def reduce(self, ranks: int) -> Iterator[Round]:
        hosts = ranks // self.local
        yield from (self._inside(number, hosts) for number in range(self.local - 1))
        yield from (self._between(number, hosts) for number in range(hosts - 1))

    def spread(self, ranks: int) -> Iterator[Round]:
        hosts = ranks // self.local
        yield from (self._between(number, hosts) for number in range(hosts - 1, 2 * (hosts - 1)))
        yield from (
            self._inside(number, hosts) for number in range(self.local - 1, 2 * (self.local - 1))
        )

    def flow_count(self, ranks: int) -> int:
        return 2 * ranks * (self.local - 1 + ranks // self.local - 1)

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        hosts = ranks // self.local
        return 2 * max((self.local - 1) * hosts, hosts - 1) * -(-size_bytes // ranks)

    def refusal(self, ranks: int) -> str | None:
        if ranks % self.local:
            return f"needs a multiple of {self.local} ranks, not {ranks} (use 'ring')"
        return None

    def _inside(self, number: int, hosts: int) -> Round:
        """Return a round of the rings inside hosts, whose chunks are shards."""
        out = []
        for host in range(hosts):
            for place in range(self.local):
                shard = sent_chunk(number, place, self.local)
                src, dst = (host * self.local + at for at in (place, (place + 1) % self.local))
                out.append(Transfer(src, dst, range(shard * hosts, (shard + 1) * hosts)))
        return out

    def _between(self, number: int, hosts: int) -> Round:
        """Return a round of the rings along rails.

        After the rounds inside, a rank has the shard of the next place.
        """
        out = []
        for host in range(hosts):
            for place in range(self.local):
                chunk = (place + 1) % self.local * hosts + sent_chunk(number, host, hosts)
                src, dst = (at * self.local + place for at in (host, (host + 1) % hosts))
                out.append(Transfer(src, dst, range(chunk, chunk + 1)))
        return out


_AT_A_TIME = 2
"""The number of halves that a rank calls for before the first has arrived."""


@dataclass(frozen=True, slots=True)
class Gloo(Algorithm):
    """A ring of halves, with the words that call for them.

    Both are rings on which every rank's chunk is cut into two halves, so that one half is on its
    way while the other is added up. The all-reduce goes against the order of the ranks, the
    all-gather with it.

    A half is sent when its receiver has called for it, with a word on the way back. A rank calls
    for two halves at a time: for the third when the first has arrived, and so on. In an all-gather
    it hands over its own half before it calls for the other's, in an all-reduce behind that. Where
    a rank sends one thing after the other (`echelon.model.jobs.graph.Job.in_turn`), this is why an
    all-gather takes longer than its bytes: the word of the rank that comes last is behind its data,
    so its neighbour begins when that has arrived. Of n ranks, that is one half more than the 2(n-1)
    that each of them sends.
    """

    adds: bool
    """Whether it is the all-reduce."""

    def rounds(self, ranks: int) -> Iterator[Round]:
        each = _AT_A_TIME * (ranks - 1)
        for number in range(each * (1 + self.adds)):
            phase, number_in_phase = divmod(number, each)
            yield [self._transfer(rank, phase, number_in_phase, ranks) for rank in range(ranks)]

    def _transfer(self, rank: int, phase: int, number: int, ranks: int) -> Transfer:
        passed_on, half = divmod(number, _AT_A_TIME)
        if self.adds:
            dst = rank - 1
            chunk = rank + (phase == 0) + passed_on
        else:
            dst = rank + 1
            chunk = rank - passed_on
        first = chunk % ranks * _AT_A_TIME + half
        return Transfer(rank, dst % ranks, range(first, first + 1))

    def chunks(self, ranks: int) -> int:
        return _AT_A_TIME * ranks

    def flow_count(self, ranks: int) -> int:
        return _AT_A_TIME * (ranks - 1) * ranks * (1 + self.adds)

    def pair_count(self, ranks: int) -> int:
        return ranks

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return (ranks - 1) * (1 + self.adds) * _AT_A_TIME * -(-size_bytes // (_AT_A_TIME * ranks))

    def block(self, name: str, group: Sequence[str], size_bytes: int) -> Block:
        """Return the flows, and a flow of one byte for each word: ``NAME-k1-c2`` is the second
        rank's in round 1.
        """
        ranks = len(group)
        each = _AT_A_TIME * (len(group) - 1)
        steps: dict[str, Flow] = {}
        after: dict[str, tuple[str, ...]] = {}
        first: dict[str, tuple[str, ...]] = {}
        last: dict[str, tuple[str, ...]] = {}
        for number, transfers in enumerate(self.rounds(ranks)):
            to = {transfer.src: transfer.dst for transfer in transfers}
            source = {transfer.dst: transfer.src for transfer in transfers}
            for rank, _, sent in transfers:
                half = f"{name}-k{number + 1}-w{rank + 1}"
                word = f"{name}-k{number + 1}-c{rank + 1}"
                size = max(1, chunks_bytes(size_bytes, self.chunks(ranks), sent))
                data = Flow(half, group[rank], group[to[rank]], size)
                call = Flow(word, group[rank], group[source[rank]], 1)
                for one in (call, data) if self.adds else (data, call):
                    steps[one.name] = one
                number_in_phase = number % each
                if number_in_phase >= _AT_A_TIME:
                    awaited = [number - _AT_A_TIME]
                else:
                    # The second phase begins when everything of the first has arrived.
                    awaited = [
                        *range(
                            max(0, number - number_in_phase - _AT_A_TIME), number - number_in_phase
                        )
                    ]
                before = tuple(
                    part
                    for one in awaited
                    for part in (
                        f"{name}-k{one + 1}-w{source[rank] + 1}",
                        f"{name}-k{one + 1}-c{to[rank] + 1}",
                    )
                )
                after[word] = before
                after[half] = (*before, f"{name}-k{number + 1}-c{to[rank] + 1}")
                if number < _AT_A_TIME:
                    first[group[rank]] = (*first.get(group[rank], ()), half, word)
                # A rank has done its part when it has everything, and when what it sends has been
                # called for.
                last[group[rank]] = (
                    *last.get(group[rank], ())[-2 * (_AT_A_TIME - 1) :],
                    f"{name}-k{number + 1}-w{source[rank] + 1}",
                    f"{name}-k{number + 1}-c{to[rank] + 1}",
                )
        return Block(steps, {step: waits for step, waits in after.items() if waits}, first, last)


AllReduceName = Literal["ring", "halving-doubling", "tree", "direct"]

ALL_REDUCES: Mapping[AllReduceName, AllReduce] = {
    "ring": Ring(),
    "halving-doubling": HalvingDoubling(),
    "tree": Tree(),
    "direct": Direct(),
}
"""Echelon's own all-reduce algorithms by the name that a job file gives them."""


def _halves(adds: bool) -> Mapping[str, Algorithm]:
    return {
        name: AllReduceHalf(whole, adds) for name, whole in ALL_REDUCES.items() if name != "tree"
    }


OPERATIONS: Mapping[str, Mapping[str, Algorithm]] = {
    "all-reduce": {
        **{str(name): algorithm for name, algorithm in ALL_REDUCES.items()},
        "hierarchical": Hierarchical(),
        "gloo": Gloo(adds=True),
    },
    "all-gather": {**_halves(adds=False), "gloo": Gloo(adds=False)},
    "reduce-scatter": _halves(adds=True),
    "all-to-all": {"direct": AllToAll()},
    "broadcast": {"ring": Chain(), "tree": AllReduceHalf(Tree(), adds=False)},
    "reduce": {"tree": AllReduceHalf(Tree(), adds=True)},
    "barrier": {"tree": Tree()},
}
"""Echelon's own algorithms of each collective operation by name; the first is the default.

Sizes are those of NCCL's performance tests. S is, for an all-reduce, a broadcast and a reduce, the
buffer that every rank has before and after; for an all-gather, what every rank has *after*; for a
reduce-scatter and an all-to-all, what every rank has *before*. Of n ranks, each sends 2(n-1)/n S in
an all-reduce (ring, halving and doubling, direct) and (n-1)/n S in an all-gather, a reduce-scatter
and an all-to-all. A barrier is an all-reduce of one byte.
"""
