"""The ring all-reduce really reduces: its flows are carried out on sets of contributions."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.jobs.analysis import connections, earliest_start_s, topological_order
from echelon.model.jobs.collectives import chunk_bytes, sent_chunk
from echelon.model.jobs.graph import Job
from echelon.model.jobs.paradigms.data import all_reduce
from tests.drawing import examples


def ring(n: int, gradient_bytes: int, compute_s: Fraction = Fraction(1)) -> Job:
    return Job("d", *all_reduce([f"h{i}" for i in range(n)], compute_s, gradient_bytes))


@given(st.integers(2, 9), st.integers(0, 200))
@settings(max_examples=examples(60), deadline=None)
def test_every_worker_ends_with_every_chunk_of_every_worker(n: int, extra_bytes: int) -> None:
    job = ring(n, n + extra_bytes)
    flows = {flow.name: flow for flow in job.flows}
    # What each worker knows of each chunk: whose contributions are summed up in it.
    knows = [[{i} for _ in range(n)] for i in range(n)]
    computed: set[str] = set()
    sends: dict[str, set[int]] = {}
    for name in topological_order(job):
        if name not in flows:
            computed.add(name)
            continue
        _, step, worker = name.split("-")
        k, i = int(step[1:]) - 1, int(worker[1:]) - 1
        flow, chunk = flows[name], sent_chunk(k, i, n)
        assert (flow.src, flow.dst) == (f"h{i}", f"h{(i + 1) % n}")
        assert flow.size_bytes == chunk_bytes(n + extra_bytes, n, chunk)
        assert f"compute-w{i + 1}" in computed
        sends[name] = knows[i][chunk]
        knows[(i + 1) % n][chunk] = (knows[(i + 1) % n][chunk] if k < n - 1 else set()) | sends[
            name
        ]
    assert len(sends) == 2 * n * (n - 1)
    assert all(known == set(range(n)) for chunks in knows for known in chunks)


@given(st.integers(2, 9), st.integers(0, 10**6))
@settings(max_examples=examples(60), deadline=None)
def test_bytes_are_exact(n: int, extra_bytes: int) -> None:
    gradient = n + extra_bytes
    job = ring(n, gradient)
    assert sum(chunk_bytes(gradient, n, chunk) for chunk in range(n)) == gradient
    assert sum(flow.size_bytes for flow in job.flows) == 2 * (n - 1) * gradient
    assert all(flow.size_bytes in (gradient // n, gradient // n + 1) for flow in job.flows)


@given(st.integers(2, 9))
@settings(max_examples=examples(20), deadline=None)
def test_one_coflow_in_order_of_steps_and_one_flow_at_a_time_on_a_connection(n: int) -> None:
    job = ring(n, 1000)
    (coflow,) = job.echelonflows
    assert coflow.is_coflow
    assert coflow.offsets_s == (0,) * len(job.flows)
    assert coflow.flows == tuple(
        f"allreduce-k{k}-w{i}" for k in range(1, 2 * n - 1) for i in range(1, n + 1)
    )
    assert coflow.flows == tuple(flow.name for flow in job.flows)
    for flows in connections(job).values():
        assert [int(flow.name.split("-")[1][1:]) for flow in flows] == list(range(1, 2 * n - 1))
        for before, after in pairwise(flows):
            assert before.name in after.after


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_time_on_an_idle_network_is_the_published_one(n: int) -> None:
    """The time is 2(n-1)/n of the gradient at the rate of a link, which is optimal (Patarasu and
    Yuan).
    """
    gradient, rate = 1000 * n, 10
    start = earliest_start_s(ring(n, gradient), lambda flow: Fraction(flow.size_bytes, rate))
    last = max(start.values()) + Fraction(gradient // n, rate)
    assert last == 1 + Fraction(2 * (n - 1), n) * Fraction(gradient, rate)


def test_a_late_worker_holds_up_what_needs_its_gradient() -> None:
    n, late = 4, 2
    graph = all_reduce([f"h{i}" for i in range(n)], Fraction(0), 4)
    slow = tuple(
        c if c.name != f"compute-w{late + 1}" else type(c)(c.name, c.worker, Fraction(100))
        for c in graph.computes
    )
    start = earliest_start_s(Job("d", slow, graph.flows, graph.echelonflows), lambda _: Fraction(1))
    for step in range(2 * (n - 1)):
        for worker in range(n):
            # The delay travels one worker per step around the ring.
            behind = step >= (worker - late) % n
            assert (start[f"allreduce-k{step + 1}-w{worker + 1}"] >= 100) == behind
