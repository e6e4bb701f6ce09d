"""Shortest remaining first (pFabric, SIGCOMM '13)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.allocation import ActiveFlow
from echelon.planning.fluid import simulate
from echelon.planning.policies.srpt import Srpt, remaining_thresholds_bytes
from echelon.planning.rankings.attained import Attained


def flow_job(name: str, start_s: Fraction, size_bytes: int) -> Job:
    flows = (Flow("f", "h1", "h2", size_bytes, ("c",)),)
    computes = (ComputeUnit("c", "h1", Fraction(0)),)
    return Job(name, computes, flows, (EchelonFlow("H", ("f",), (Fraction(0),)),), start_s)


def finish_times(arrivals: list[tuple[int, int]]) -> list[int]:
    """Return the times at which SRPT finishes each (arrival, size) on one link of 1 byte per
    millisecond, byte by byte.
    """
    left = [size for _, size in arrivals]
    done = [0] * len(arrivals)
    now = 0
    while any(left):
        here = [i for i, (at, _) in enumerate(arrivals) if at <= now and left[i]]
        now += 1
        if here:
            i = min(here, key=lambda i: (left[i], i))
            left[i] -= 1
            if not left[i]:
                done[i] = now
    return done


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30)), min_size=1, max_size=6))
def test_flows_finish_as_in_a_model_of_bytes(
    star: Callable[..., Fabric], arrivals: list[tuple[int, int]]
) -> None:
    """Mean completion times agree; in ties the order of names decides, which the two break
    differently.
    """
    jobs = [flow_job(f"j{k}", Fraction(at, 1000), size) for k, (at, size) in enumerate(arrivals)]
    result = simulate(jobs, star(2), Srpt(), 1, until="exactly", ideal=True)
    finishes = [float(record.iterations[0].finish or 0) for record in result.jobs.values()]
    assert sum(finishes) * 1000 == pytest.approx(sum(finish_times(arrivals)))


def test_a_flow_that_is_nearly_done_is_not_interrupted(
    star: Callable[..., Fabric], active: Callable[..., ActiveFlow]
) -> None:
    policy = Srpt()
    policy.plan([], star(4))
    flows = [
        active(0, (("h1", "s1"), ("s1", "h2")), remaining_bytes=10),
        active(1, (("h1", "s1"), ("s1", "h3")), remaining_bytes=9),
        active(2, (("h4", "s1"), ("s1", "h2")), remaining_bytes=20),
        active(3, (("h4", "s1"), ("s1", "h3")), job="", echelonflow=None),
    ]
    allocation = policy.allocate(Fraction(5), flows)
    assert allocation.rates_Bps == (0, 1000, 1000, 0)
    # The flow to h2 that waits for its host has 10 bytes; the one that is served there has as many
    # in 10 ms.
    assert allocation.valid_until_s == 5 + Fraction(10, 1000)


@given(st.lists(st.integers(1, 10**7), min_size=1, max_size=30), st.integers(2, 7))
def test_thresholds_give_each_queue_the_same_bytes(sizes: list[int], queues: int) -> None:
    thresholds = remaining_thresholds_bytes(sizes, queues)
    assert list(thresholds) == sorted(set(thresholds))
    assert all(0 < threshold < max(sizes) for threshold in thresholds)
    edges = [0, *thresholds, max(sizes)]
    passed = [sum(min(size, edge) for size in sizes) for edge in edges]
    # A threshold is a whole number of bytes, below the exact one by less than one byte of each
    # flow.
    for k, threshold in enumerate(thresholds):
        if len(thresholds) == queues - 1:
            assert 0 <= Fraction(sum(sizes) * (k + 1), queues) - passed[k + 1] < len(sizes), (
                threshold
            )


def test_a_flow_rises_as_its_bytes_pass(star: Callable[..., Fabric]) -> None:
    jobs = [flow_job("a", Fraction(0), 600), flow_job("b", Fraction(0), 100)]
    thresholds = remaining_thresholds_bytes([600, 100])
    rankings = {flow.job: flow.ranking for flow in Srpt().plan(jobs, star(2)).flows}
    large, small = rankings["a"], rankings["b"]
    assert isinstance(large, Attained)
    assert isinstance(small, Attained)
    assert large.thresholds_bytes == tuple(600 - left for left in reversed(thresholds))
    assert large.order == (1, 2, 3, 4, 5, 6)
    # A small flow begins where a large one is when it has as much left.
    below = [left for left in thresholds if left < 100]
    assert small.order[0] == 6 - len(below)
    assert small.order[-1] == 6
