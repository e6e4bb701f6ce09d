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
    """A collective algorithm for two or more ranks; `refusal` excludes some numbers."""

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

    def step_count(
        self,
        ranks: int,
        times: int = 1,
        *,
        rounds: bool = False,
    ) -> int:
        """Return an upper bound on the steps of `times` collectives of the same ranks.

        Without `rounds`, flows are counted by pairs of ranks. That needs the list of all rounds
        once (`_pairs`), which is quick to make.
        """
        if rounds:
            return 2 * times * self.flow_count(ranks)
        return times * self.pair_count(ranks) + self.flow_count(ranks) // _LISTED_IN_A_STEP

    @abstractmethod
    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        """Return an upper bound on the bytes of one connection for `size_bytes` of data.

        The bound is exact up to one byte for each chunk that the connection carries.
        """

    def block(
        self,
        name: str,
        group: Sequence[str],
        size_bytes: int,
    ) -> Block:
        """Return the flows of `Collective.block`."""
        chunks = self.chunks(len(group))
        rounds = []
        for number, transfers in enumerate(self.rounds(len(group)), start=1):
            flows = []
            for src, dst, sent in transfers:
                size = max(1, chunks_bytes(size_bytes, chunks, sent))
                flow_name = f"{name}-k{number}-w{src + 1}"
                flows.append(flow(flow_name, group[src], group[dst], size))
            rounds.append(parallel(*flows))
        return series(*rounds)

    def pair_block(
        self,
        name: str,
        group: Sequence[str],
        size_bytes: int,
    ) -> Block:
        """Return the flows of `Collective.pair_block`."""
        flows = []
        sizes = pair_bytes(self, len(group), size_bytes)
        for (src, dst), size in sizes.items():
            flow_name = f"{name}-w{src + 1}-w{dst + 1}"
            flows.append(flow(flow_name, group[src], group[dst], size))
        return parallel(*flows)

    def on(self, hosts: Sequence[str]) -> Algorithm:
        """Return the algorithm as ranks on these hosts run it; most do not depend on hosts."""
        return self

    def misplaced(self, hosts: Sequence[str]) -> str | None:
        """Return why it does not work for ranks on these hosts, with a remedy; None: it does."""
        return None

    def refusal(self, ranks: int) -> str | None:
        """Return why it does not work for this number of ranks, with a remedy; None: it does."""
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
        """Return the flows of the collective for `size_bytes` of data, each of at least one byte.

        ``NAME-k1-w2`` is what the second rank sends in the first round. Flows are listed by round
        and then rank.
        """
        return self.algorithm.block(name, self.group, size_bytes)

    def pair_block(self, name: str, size_bytes: int) -> Block:
        """Return one flow for each pair of sender and receiver, with the bytes of all rounds.

        For fluids, this is the collective with its data cut into so many chunks that all its rounds
        run at the same time: every rank sends as many bytes to each other as by rounds, and starts
        when it is ready. But a rank waits only for those that it receives from, where rounds make
        it wait for all. ``NAME-w1-w2`` is what the first rank sends to the second.
        """
        return self.algorithm.pair_block(name, self.group, size_bytes)


_LISTED_IN_A_STEP = 16
"""Number of transfers that can be listed in the time it takes to build one step of a graph."""


@lru_cache(maxsize=32)
def _pairs(algorithm: Algorithm, ranks: int) -> Mapping[tuple[int, int], Sequence[int]]:
    """Return the chunks that one rank sends to another, ascending, as often as it sends them."""
    sent: dict[tuple[int, int], list[int]] = {}
    for transfers in algorithm.rounds(ranks):
        for src, dst, chunks_sent in transfers:
            sent.setdefault((src, dst), []).extend(chunks_sent)
    for chunks in sent.values():
        chunks.sort()
    return sent


def pair_bytes(
    algorithm: Algorithm,
    ranks: int,
    size_bytes: int,
) -> dict[tuple[int, int], int]:
    """Return the bytes that each rank sends to each other in all rounds, at least 1.

    Ranks count from 0.
    """
    chunks = algorithm.chunks(ranks)
    smaller, larger = divmod(size_bytes, chunks)
    sizes = {}
    for pair, sent in _pairs(algorithm, ranks).items():
        # The first `larger` chunks have one byte more.
        sizes[pair] = max(1, smaller * len(sent) + bisect_left(sent, larger))
    return sizes


def chunk_bytes(
    size_bytes: int,
    chunks: int,
    chunk: int,
) -> int:
    """Return the bytes of one chunk.

    The first `size_bytes` mod `chunks` chunks are one byte larger than the others, so that all
    chunks add up to the data.
    """
    return size_bytes // chunks + (chunk < size_bytes % chunks)


def chunks_bytes(
    size_bytes: int,
    chunks: int,
    sent: range,
) -> int:
    """Return the bytes of consecutive chunks."""
    larger = size_bytes % chunks
    sent_larger = max(0, min(sent.stop, larger) - sent.start)
    return len(sent) * (size_bytes // chunks) + sent_larger


def one_chunk(chunk: int) -> range:
    return range(chunk, chunk + 1)


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
        for number in range(ranks - 1):
            yield _round(number, ranks)

    def spread(self, ranks: int) -> Iterator[Round]:
        for number in range(ranks - 1, 2 * (ranks - 1)):
            yield _round(number, ranks)

    def flow_count(self, ranks: int) -> int:
        return 2 * (ranks - 1) * ranks

    def pair_count(self, ranks: int) -> int:
        return ranks

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return 2 * (ranks - 1) * -(-size_bytes // ranks)


def sent_chunk(
    number: int,
    rank: int,
    ranks: int,
) -> int:
    """Return the chunk that `rank` sends in round `number`, all counted from 0.

    A rank begins with the chunk of its own number and passes on, from then on, the chunk it has
    just received. After n-1 rounds that chunk is a complete sum, so that one rule serves both
    halves.
    """
    return (rank - number) % ranks


def _round(number: int, ranks: int) -> Round:
    transfers = []
    for rank in range(ranks):
        chunk = sent_chunk(number, rank, ranks)
        transfers.append(Transfer(rank, (rank + 1) % ranks, one_chunk(chunk)))
    return transfers


class Chain(Algorithm):
    """A broadcast from the first rank; each rank but the last has one connection, to the next.

    NCCL broadcasts this way. The data is one chunk here. Rounds therefore take n - 1 times as long
    as the data takes on one link. With one flow for each pair of ranks (`Collective.pair_block`),
    which stands for many small chunks, the broadcast takes as long as on one link.
    """

    def rounds(self, ranks: int) -> Iterator[Round]:
        for rank in range(ranks - 1):
            yield [Transfer(rank, rank + 1, _ALL)]

    def chunks(self, ranks: int) -> int:
        return 1

    def flow_count(self, ranks: int) -> int:
        return ranks - 1

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return size_bytes


class HalvingDoubling(AllReduce):
    """All-reduce by recursive halving and doubling; each rank has connections to log2 n others.

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
            transfers = []
            for rank in range(ranks):
                partner = rank ^ distance
                transfers.append(Transfer(rank, partner, _around(partner, distance)))
            yield transfers

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
                f"needs a power of two of workers, not {ranks} (add or remove workers,"
                " or use 'ring')"
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
    """All-reduce along a binomial tree, from each rank to its parent; the first rank is the root.

    Source: Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in
    MPICH, IJHPCA '05, sections 4.2 (broadcast) and 4.5 (reduce).

    The data is one chunk. It takes 2 ceil(log2 n) rounds, for any n, and the least bytes in total,
    2(n-1) times the data. But the root receives and sends all the data ceil(log2 n) times, so that
    it suits small data, where the number of rounds decides.
    """

    def reduce(self, ranks: int) -> Iterator[Round]:
        for distance in _binomial_distances(ranks):
            children = range(distance, ranks, 2 * distance)
            yield [Transfer(rank, rank - distance, _ALL) for rank in children]

    def spread(self, ranks: int) -> Iterator[Round]:
        for distance in reversed(_binomial_distances(ranks)):
            children = range(distance, ranks, 2 * distance)
            yield [Transfer(rank - distance, rank, _ALL) for rank in children]

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
    has to be passed on. With one flow for each pair of ranks, this is the direct algorithm of
    ASTRA-sim.
    """

    def reduce(self, ranks: int) -> Iterator[Round]:
        return AllToAll().rounds(ranks)

    def spread(self, ranks: int) -> Iterator[Round]:
        for shift in range(1, ranks):
            transfers = []
            for rank in range(ranks):
                transfers.append(Transfer(rank, (rank + shift) % ranks, one_chunk(rank)))
            yield transfers

    def flow_count(self, ranks: int) -> int:
        return 2 * ranks * (ranks - 1)

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return 2 * -(-size_bytes // ranks)


class AllToAll(Algorithm):
    """All-to-all by pairwise exchange; each rank has a connection to each other rank.

    Chunk j is for rank j.

    Source: Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in
    MPICH, IJHPCA '05, section 4.3.

    Every rank has n chunks, one for each rank. In round k of n-1 it sends one chunk to the rank k
    places after it and receives one from the rank k places before it, so that every rank sends
    (n-1)/n of its data.
    """

    def rounds(self, ranks: int) -> Iterator[Round]:
        for shift in range(1, ranks):
            transfers = []
            for rank in range(ranks):
                target = (rank + shift) % ranks
                transfers.append(Transfer(rank, target, one_chunk(target)))
            yield transfers

    def flow_count(self, ranks: int) -> int:
        return ranks * (ranks - 1)

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return -(-size_bytes // ranks)


@dataclass(frozen=True, slots=True)
class AllReduceHalf(Algorithm):
    """The first or the second half of `all_reduce`.

    The first half of an all-reduce that cuts the data into a chunk for each rank is a
    reduce-scatter, the second half an all-gather. Along a tree, where the data is one chunk, they
    are a reduce to the first rank and a broadcast from it. Source: Thakur, Rabenseifner and Gropp,
    Optimization of Collective Communication Operations in MPICH, IJHPCA '05, section 4.
    """

    all_reduce: AllReduce
    adds: bool
    """Whether it is the half that adds up."""

    def rounds(self, ranks: int) -> Iterator[Round]:
        if self.adds:
            return self.all_reduce.reduce(ranks)
        return self.all_reduce.spread(ranks)

    def chunks(self, ranks: int) -> int:
        return self.all_reduce.chunks(ranks)

    def flow_count(self, ranks: int) -> int:
        return self.all_reduce.flow_count(ranks) // 2

    def pair_count(self, ranks: int) -> int:
        return self.all_reduce.pair_count(ranks)

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return self.all_reduce.connection_bytes(ranks, size_bytes)

    def refusal(self, ranks: int) -> str | None:
        return self.all_reduce.refusal(ranks)


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
        starts = range(0, len(hosts), local)
        parts = [list(hosts[start : start + local]) for start in starts]
        is_mixed = any(part != [part[0]] * local for part in parts)
        if is_mixed or len(set(hosts)) < len(parts):
            return (
                "needs as many ranks of the group on each host, listed host by host (use 'ring',"
                " or list them so)"
            )
        return None

    def reduce(self, ranks: int) -> Iterator[Round]:
        hosts = ranks // self.local
        for number in range(self.local - 1):
            yield self._inside(number, hosts)
        for number in range(hosts - 1):
            yield self._between(number, hosts)

    def spread(self, ranks: int) -> Iterator[Round]:
        hosts = ranks // self.local
        for number in range(hosts - 1, 2 * (hosts - 1)):
            yield self._between(number, hosts)
        for number in range(self.local - 1, 2 * (self.local - 1)):
            yield self._inside(number, hosts)

    def flow_count(self, ranks: int) -> int:
        return 2 * ranks * (self.local - 1 + ranks // self.local - 1)

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        hosts = ranks // self.local
        most_chunks = max((self.local - 1) * hosts, hosts - 1)
        return 2 * most_chunks * -(-size_bytes // ranks)

    def refusal(self, ranks: int) -> str | None:
        if ranks % self.local:
            return f"needs a multiple of {self.local} ranks, not {ranks} (use 'ring')"
        return None

    def _inside(self, number: int, hosts: int) -> Round:
        """Return a round of the rings inside hosts, whose chunks are shards."""
        transfers = []
        for host in range(hosts):
            first_rank = host * self.local
            for place in range(self.local):
                next_place = (place + 1) % self.local
                shard = sent_chunk(number, place, self.local)
                chunks = range(shard * hosts, (shard + 1) * hosts)
                transfers.append(Transfer(first_rank + place, first_rank + next_place, chunks))
        return transfers

    def _between(self, number: int, hosts: int) -> Round:
        """Return a round of the rings along rails.

        After the rounds inside, a rank has the shard of the next place.
        """
        transfers = []
        for host in range(hosts):
            next_host = (host + 1) % hosts
            for place in range(self.local):
                shard = (place + 1) % self.local
                chunk = shard * hosts + sent_chunk(number, host, hosts)
                src = host * self.local + place
                dst = next_host * self.local + place
                transfers.append(Transfer(src, dst, one_chunk(chunk)))
        return transfers


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
        phase_rounds = _AT_A_TIME * (ranks - 1)
        for number in range(phase_rounds * (1 + self.adds)):
            phase, number_in_phase = divmod(number, phase_rounds)
            yield [self._transfer(rank, phase, number_in_phase, ranks) for rank in range(ranks)]

    def _transfer(
        self,
        rank: int,
        phase: int,
        number: int,
        ranks: int,
    ) -> Transfer:
        passed_on, half = divmod(number, _AT_A_TIME)
        if self.adds:
            dst = rank - 1
            chunk = rank + (phase == 0) + passed_on
        else:
            dst = rank + 1
            chunk = rank - passed_on
        first = chunk % ranks * _AT_A_TIME + half
        return Transfer(rank, dst % ranks, one_chunk(first))

    def chunks(self, ranks: int) -> int:
        return _AT_A_TIME * ranks

    def flow_count(self, ranks: int) -> int:
        return _AT_A_TIME * (ranks - 1) * ranks * (1 + self.adds)

    def pair_count(self, ranks: int) -> int:
        return ranks

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        half_bytes = -(-size_bytes // self.chunks(ranks))
        return (ranks - 1) * (1 + self.adds) * _AT_A_TIME * half_bytes

    def block(
        self,
        name: str,
        group: Sequence[str],
        size_bytes: int,
    ) -> Block:
        """Return the flows, and a flow of one byte for each word.

        ``NAME-k1-c2`` is the second rank's in round 1.
        """
        ranks = len(group)
        steps: dict[str, Flow] = {}
        after: dict[str, tuple[str, ...]] = {}
        first: dict[str, tuple[str, ...]] = {}
        last: dict[str, tuple[str, ...]] = {}
        for number, transfers in enumerate(self.rounds(ranks)):
            sources = {transfer.dst: transfer.src for transfer in transfers}
            for rank, target, chunks in transfers:
                host = group[rank]
                source = sources[rank]
                half = _half(name, number, rank)
                call = _call(name, number, rank)
                size = max(1, chunks_bytes(size_bytes, self.chunks(ranks), chunks))
                data = Flow(half, host, group[target], size)
                word = Flow(call, host, group[source], 1)
                steps |= {call: word, half: data} if self.adds else {half: data, call: word}

                before: tuple[str, ...] = ()
                for earlier in self._awaited_rounds(number, ranks):
                    earlier_half = _half(name, earlier, source)
                    before += (earlier_half, _call(name, earlier, target))
                after[call] = before
                after[half] = (*before, _call(name, number, target))
                if number < _AT_A_TIME:
                    first[host] = (*first.get(host, ()), half, call)
                # A rank has done its part when it has everything, and when what it sends has been
                # called for.
                former = last.get(host, ())[-2 * (_AT_A_TIME - 1) :]
                last[host] = (*former, _half(name, number, source), _call(name, number, target))
        waiting = {step: waits for step, waits in after.items() if waits}
        return Block(steps, waiting, first, last)

    def _awaited_rounds(self, number: int, ranks: int) -> range:
        """Return the rounds whose halves have arrived before a rank calls for a round's."""
        number_in_phase = number % (_AT_A_TIME * (ranks - 1))
        if number_in_phase >= _AT_A_TIME:
            return range(number - _AT_A_TIME, number - _AT_A_TIME + 1)
        # The second phase begins when everything of the first has arrived.
        phase_start = number - number_in_phase
        return range(max(0, phase_start - _AT_A_TIME), phase_start)


def _half(
    name: str,
    number: int,
    rank: int,
) -> str:
    return f"{name}-k{number + 1}-w{rank + 1}"


def _call(
    name: str,
    number: int,
    rank: int,
) -> str:
    return f"{name}-k{number + 1}-c{rank + 1}"


AllReduceName = Literal["ring", "halving-doubling", "tree", "direct"]

ALL_REDUCES: Mapping[AllReduceName, AllReduce] = {
    "ring": Ring(),
    "halving-doubling": HalvingDoubling(),
    "tree": Tree(),
    "direct": Direct(),
}
"""Echelon's own all-reduce algorithms by the name that a job file gives them."""


def _halves(adds: bool) -> Mapping[str, Algorithm]:
    halves: dict[str, Algorithm] = {}
    for name, all_reduce in ALL_REDUCES.items():
        if name != "tree":
            halves[name] = AllReduceHalf(all_reduce, adds)
    return halves


_ALL_REDUCES: dict[str, Algorithm] = {}
_ALL_REDUCES.update(ALL_REDUCES.items())
_ALL_REDUCES["hierarchical"] = Hierarchical()
_ALL_REDUCES["gloo"] = Gloo(adds=True)

OPERATIONS: Mapping[str, Mapping[str, Algorithm]] = {
    "all-reduce": _ALL_REDUCES,
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
