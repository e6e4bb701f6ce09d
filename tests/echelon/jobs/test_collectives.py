"""Collectives against a simulation of who holds whose contributions, and against closed forms."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.jobs.analysis import connections, earliest_start_s, topological_order
from echelon.model.jobs.collectives import (
    ALL_REDUCES,
    Algorithm,
    AllReduce,
    AllReduceName,
    AllToAll,
    Collective,
    Hierarchical,
    Round,
    chunk_bytes,
    chunks_bytes,
    pair_bytes,
)
from echelon.model.jobs.graph import EchelonFlow, Job
from tests.drawing import examples

SUMS: dict[str, AllReduce] = {
    **{str(name): algorithm for name, algorithm in ALL_REDUCES.items()},
    **{f"hierarchical-{local}": Hierarchical(local) for local in (1, 2, 3, 4)},
}
ALGORITHMS: dict[str, Algorithm] = {**SUMS, "all-to-all": AllToAll()}


@st.composite
def groups(draw: st.DrawFn, names: list[str]) -> tuple[str, int]:
    """Draw an algorithm and a number of ranks that it accepts."""
    name = draw(st.sampled_from(names))
    ranks = draw(st.integers(2, 17).filter(lambda n: ALGORITHMS[name].refusal(n) is None))
    return name, ranks


def job_of(algorithm: Algorithm, ranks: int, size_bytes: int) -> Job:
    block = Collective(algorithm, [f"h{i}" for i in range(ranks)]).block("c", size_bytes)
    return Job("j", *block.graph(EchelonFlow.coflow("c", block.flows)))


@given(groups(list(SUMS)))
@settings(max_examples=examples(60), deadline=None)
def test_after_an_all_reduce_every_rank_has_every_contribution_once(drawn: tuple[str, int]) -> None:
    algorithm, n = SUMS[drawn[0]], drawn[1]
    chunks = range(algorithm.chunks(n))
    # How often the value that a rank holds of a chunk contains the contribution of each rank.
    held = [[Counter({rank: 1}) for _ in chunks] for rank in range(n)]

    def exchange(each: Round, *, adds: bool) -> None:
        sent = [(t.dst, chunk, Counter(held[t.src][chunk])) for t in each for chunk in t.chunks]
        for dst, chunk, value in sent:
            held[dst][chunk] = held[dst][chunk] + value if adds else value

    for each in algorithm.reduce(n):
        exchange(each, adds=True)
    for each in algorithm.spread(n):
        exchange(each, adds=False)
    complete = Counter(range(n))
    assert all(value == complete for values in held for value in values)


@given(st.integers(2, 17))
@settings(max_examples=examples(16), deadline=None)
def test_all_to_all_brings_every_chunk_to_its_rank(n: int) -> None:
    arrived: list[set[int]] = [{rank} for rank in range(n)]
    for each in AllToAll().rounds(n):
        for transfer in each:
            assert transfer.chunks == range(transfer.dst, transfer.dst + 1)
            assert transfer.src not in arrived[transfer.dst]
            arrived[transfer.dst].add(transfer.src)
    assert arrived == [set(range(n))] * n


@given(groups(list(ALGORITHMS)), st.integers(0, 1000))
@settings(max_examples=examples(100), deadline=None)
def test_a_rank_sends_what_it_has_when_it_has_it(drawn: tuple[str, int], extra: int) -> None:
    """The dependencies of the flows are those of the data: a rank starts its part of a round after
    everything that it sent and received in the rounds before."""
    algorithm, n = ALGORITHMS[drawn[0]], drawn[1]
    job = job_of(algorithm, n, n + extra)
    flows = {flow.name: flow for flow in job.flows}
    before: dict[str, set[str]] = {}
    for name in topological_order(job):
        before[name] = set(flows[name].after).union(*(before[other] for other in flows[name].after))
    touched: list[set[str]] = [set() for _ in range(n)]
    for number, each in enumerate(algorithm.rounds(n), start=1):
        assert len({transfer.src for transfer in each}) == len(each)
        names = [f"c-k{number}-w{transfer.src + 1}" for transfer in each]
        for name, transfer in zip(names, each, strict=True):
            assert before[name] >= touched[transfer.src]
            assert (flows[name].src, flows[name].dst) == (f"h{transfer.src}", f"h{transfer.dst}")
        for name, transfer in zip(names, each, strict=True):
            touched[transfer.src].add(name)
            touched[transfer.dst].add(name)


@given(groups(list(ALGORITHMS)), st.integers(0, 1000))
@settings(max_examples=examples(100), deadline=None)
def test_flows_and_bytes_are_counted_without_the_rounds(drawn: tuple[str, int], extra: int) -> None:
    algorithm, n = ALGORITHMS[drawn[0]], drawn[1]
    job = job_of(algorithm, n, n + extra)
    assert algorithm.flow_count(n) == len(job.flows)
    assert algorithm.pair_count(n) >= len(pair_bytes(algorithm, n, n + extra))
    carried = [sum(flow.size_bytes for flow in flows) for flows in connections(job).values()]
    chunks = Counter(
        (transfer.src, transfer.dst)
        for each in algorithm.rounds(n)
        for transfer in each
        for _ in transfer.chunks
    )
    assert (
        max(carried)
        <= algorithm.connection_bytes(n, n + extra)
        <= max(carried) + max(chunks.values())
    )


@pytest.mark.parametrize("name", ALGORITHMS)
@given(bits=st.integers(1, 5), unit=st.integers(1, 100))
@settings(max_examples=examples(20), deadline=None)
def test_bytes_of_every_rank_are_the_published_ones(name: str, bits: int, unit: int) -> None:
    """Each of n ranks sends 2(n-1)/n of S bytes with a ring, with halving and doubling and in two
    levels, and (n-1)/n of S in an all-to-all; along a tree, all ranks together send 2(n-1) S."""
    n = getattr(ALGORITHMS[name], "local", 1) << bits
    size = n * unit
    sent: Counter[str] = Counter()
    for flow in job_of(ALGORITHMS[name], n, size).flows:
        sent[flow.src] += flow.size_bytes
    if name == "tree":
        assert sum(sent.values()) == 2 * (n - 1) * size
    else:
        share = Fraction(n - 1, n) * (1 if name == "all-to-all" else 2)
        assert set(sent.values()) == {share * size}


@pytest.mark.parametrize(
    ("name", "rounds"), [("ring", 30), ("halving-doubling", 8), ("tree", 8), ("all-to-all", 15)]
)
def test_the_longest_chain_of_flows_of_sixteen_ranks(name: str, rounds: int) -> None:
    start_s = earliest_start_s(job_of(ALGORITHMS[name], 16, 1600), lambda _: Fraction(1))
    assert max(start_s.values()) + 1 == rounds


@given(groups(list(ALGORITHMS)), st.integers(0, 1000))
@settings(max_examples=examples(60), deadline=None)
def test_a_connection_carries_one_flow_after_the_other(drawn: tuple[str, int], extra: int) -> None:
    job = job_of(ALGORITHMS[drawn[0]], drawn[1], drawn[1] + extra)
    rounds = {flow.name: int(flow.name.split("-")[1][1:]) for flow in job.flows}
    for flows in connections(job).values():
        assert all(rounds[early.name] < rounds[late.name] for early, late in pairwise(flows))


@given(st.integers(1, 40), st.integers(0, 2000), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_chunks_add_up(chunks: int, size: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, chunks))
    sent = range(start, data.draw(st.integers(start, chunks)))
    sizes = [chunk_bytes(size, chunks, chunk) for chunk in range(chunks)]
    assert sum(sizes) == size
    assert max(sizes) - min(sizes) <= 1
    assert chunks_bytes(size, chunks, sent) == sum(sizes[chunk] for chunk in sent)


def test_halving_and_doubling_needs_a_power_of_two() -> None:
    refused = [n for n in range(2, 33) if ALL_REDUCES["halving-doubling"].refusal(n)]
    assert refused == [n for n in range(2, 33) if n not in (2, 4, 8, 16, 32)]


def test_every_name_that_a_file_may_give_has_an_algorithm() -> None:
    assert set(ALL_REDUCES) == set(get_args(AllReduceName))
