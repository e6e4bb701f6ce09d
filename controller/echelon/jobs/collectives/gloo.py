"""The all-reduce and the all-gather of Gloo, the library that PyTorch uses on processors, as messages over TCP.

Both are rings on which every rank's chunk is cut into two halves, so that one half is on its way while the other is
added up. The all-reduce goes against the order of the ranks, the all-gather with it.

A half is sent when its receiver has called for it, with a word on the way back. A rank calls for two halves at a time:
for the third when the first has arrived, and so on. In an all-gather it hands over its own half before it calls for the
other's, in an all-reduce behind that. Where a rank sends one thing after the other (`echelon.jobs.graph.Job.in_turn`),
this is why an all-gather takes longer than its bytes: the word of the rank that comes last is behind its data, so its
neighbour begins when that has arrived. Of n ranks, that is one half more than the 2(n-1) that each of them sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from echelon.jobs.collectives.algorithm import Algorithm, Round, Transfer, chunks_bytes
from echelon.jobs.combinators import Block
from echelon.jobs.graph import Flow

_AT_A_TIME = 2
"""The number of halves that a rank calls for before the first has arrived."""


@dataclass(frozen=True, slots=True)
class Gloo(Algorithm):
    """A ring of halves, with the words that call for them."""

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
            dst, chunk = rank - 1, rank + (phase == 0) + passed_on
        else:
            dst, chunk = rank + 1, rank - passed_on
        first = chunk % ranks * _AT_A_TIME + half
        return Transfer(rank, dst % ranks, range(first, first + 1))

    def chunks(self, ranks: int) -> int:
        return _AT_A_TIME * ranks

    def flow_count(self, ranks: int) -> int:
        return _AT_A_TIME * (ranks - 1) * ranks * (1 + self.adds)

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return (ranks - 1) * (1 + self.adds) * _AT_A_TIME * -(-size_bytes // (_AT_A_TIME * ranks))

    def block(self, name: str, group: Sequence[str], size_bytes: int) -> Block:
        """Return the flows, and a flow of one byte for each word: ``NAME-k1-c2`` is the second rank's in round 1."""
        ranks, each = len(group), _AT_A_TIME * (len(group) - 1)
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
                for flow in (call, data) if self.adds else (data, call):
                    steps[flow.name] = flow
                number_in_phase = number % each
                if number_in_phase >= _AT_A_TIME:
                    awaited = [number - _AT_A_TIME]
                else:
                    # The second phase begins when everything of the first has arrived.
                    awaited = [*range(max(0, number - number_in_phase - _AT_A_TIME), number - number_in_phase)]
                before = tuple(
                    part
                    for one in awaited
                    for part in (f"{name}-k{one + 1}-w{source[rank] + 1}", f"{name}-k{one + 1}-c{to[rank] + 1}")
                )
                after[word] = before
                after[half] = (*before, f"{name}-k{number + 1}-c{to[rank] + 1}")
                if number < _AT_A_TIME:
                    first[group[rank]] = (*first.get(group[rank], ()), half, word)
                # A rank has done its part when it has everything, and when what it sends has been called for.
                last[group[rank]] = (
                    *last.get(group[rank], ())[-2 * (_AT_A_TIME - 1) :],
                    f"{name}-k{number + 1}-w{source[rank] + 1}",
                    f"{name}-k{number + 1}-c{to[rank] + 1}",
                )
        return Block(steps, {step: waits for step, waits in after.items() if waits}, first, last)
