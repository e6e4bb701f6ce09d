"""The guarantees of ranking by deadline inside one EchelonFlow: the consumer's finish time, and
optimality.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.execution import tardiness_s
from echelon.planning.fluid import simulate
from echelon.planning.policies import make_policy
from tests.drawing import examples

UNIT_BYTES = 1_000_000
"""The bytes that the star's links carry in a second."""


def consumer_job(starts_s: list[Fraction], sizes: list[int], consumer_s: list[Fraction]) -> Job:
    """Return flows that start at these times, and a worker on h2 that consumes them one after the
    other.
    """
    count = len(starts_s)
    producers = tuple(ComputeUnit(f"p{j}", "h1", starts_s[j]) for j in range(count))
    flows = tuple(
        Flow(f"f{j}", "h1", "h2", sizes[j] * UNIT_BYTES, (f"p{j}",)) for j in range(count)
    )
    consumers = tuple(
        ComputeUnit(f"c{j}", "h2", consumer_s[j], (f"f{j}", *([f"c{j - 1}"] if j else [])))
        for j in range(count)
    )
    offsets = tuple(accumulate(consumer_s[:-1], initial=Fraction(0)))
    return Job(
        "job",
        producers + consumers,
        flows,
        (EchelonFlow("H", tuple(f.name for f in flows), offsets),),
    )


@st.composite
def consumer_jobs(draw: st.DrawFn) -> Job:
    durations = st.fractions(Fraction(0), Fraction(5), max_denominator=6)
    gaps = draw(st.lists(durations, min_size=1, max_size=6))
    sizes = draw(st.lists(st.integers(1, 5), min_size=len(gaps), max_size=len(gaps)))
    consumer = draw(st.lists(durations, min_size=len(gaps), max_size=len(gaps)))
    return consumer_job(list(accumulate(gaps)), sizes, consumer)


@settings(max_examples=examples(60), deadline=None)
@given(job=consumer_jobs(), policy=st.sampled_from(["fifo", "fair", "varys", "echelon"]))
def test_consumer_finishes_at_tardiness_plus_reference_plus_its_work(
    star: Callable[..., Fabric], job: Job, policy: str
) -> None:
    """The consumer finishes at t_H + r + sum of p_k, whatever the rates (technical report of
    HotNets '22, S11).
    """
    record = (
        simulate([job], star(2), make_policy(policy), 1, until="exactly", ideal=True)
        .jobs["job"]
        .iterations[0]
    )
    last = f"c{len(job.flows) - 1}"
    work = sum((c.duration_s for c in job.computes if c.name.startswith("c")), Fraction(0))
    expected = tardiness_s(job.echelonflows[0], record) + record.references["H"] + work
    assert record.computes[last].finish == pytest.approx(expected, rel=0, abs=1e-9)


def least_tardiness(starts: tuple[int, ...], sizes: tuple[int, ...], ideal: tuple[int, ...]) -> int:
    """Return the least tardiness over all preemptive schedules of unit slots, by exhaustive search
    (idling allowed).
    """

    @cache
    def best(now: int, left: tuple[int, ...]) -> int:
        if not any(left):
            return min(starts) - max(ideal) - 1
        ready = [j for j, rest in enumerate(left) if rest and starts[j] <= now]
        outcomes = []
        for j in ready:
            after = (*left[:j], left[j] - 1, *left[j + 1 :])
            late = best(now + 1, after)
            outcomes.append(late if after[j] else max(late, now + 1 - ideal[j]))
        if any(rest and starts[j] > now for j, rest in enumerate(left)):
            outcomes.append(best(now + 1, left))
        return min(outcomes)

    return best(0, sizes)


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), count=st.integers(1, 4))
def test_no_schedule_of_one_link_is_less_tardy(
    star: Callable[..., Fabric], data: st.DataObject, count: int
) -> None:
    """Preemptive EDF minimises the largest lateness on one machine with release times (Jackson
    1955, Horn 1974).
    """
    small = st.integers(0, 4)
    starts = data.draw(st.lists(small, min_size=count, max_size=count), label="starts")
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=count, max_size=count), label="sizes")
    consumer = data.draw(st.lists(small, min_size=count, max_size=count), label="consumer")
    job = consumer_job([Fraction(s) for s in starts], sizes, [Fraction(p) for p in consumer])
    record = (
        simulate([job], star(2), make_policy("echelon"), 1, until="exactly", ideal=True)
        .jobs["job"]
        .iterations[0]
    )
    ideal = tuple(min(starts) + int(offset) for offset in job.echelonflows[0].offsets_s)
    assert tardiness_s(job.echelonflows[0], record) == least_tardiness(
        tuple(starts), tuple(sizes), ideal
    )


def coflow(name: str, sizes: list[int]) -> Job:
    flows = tuple(Flow(f"f{j}", "h1", "h2", size * UNIT_BYTES) for j, size in enumerate(sizes))
    offsets = (Fraction(0),) * len(flows)
    return Job(name, (), flows, (EchelonFlow("H", tuple(f.name for f in flows), offsets),))


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=5))
def test_equal_offsets_are_scheduled_as_varys_does(
    star: Callable[..., Fabric], sizes: list[list[int]]
) -> None:
    """EchelonFlows with equal offsets are coflows: SETF completes them when SEBF does (HotNets '22,
    property 2).
    """
    jobs = [coflow(f"j{k}", each) for k, each in enumerate(sizes)]
    ours = simulate(
        jobs, star(2), make_policy("echelon", order="setf"), 1, until="exactly", ideal=True
    )
    varys = simulate(jobs, star(2), make_policy("varys"), 1, until="exactly", ideal=True)
    for job in jobs:
        assert ours.iteration_times_s(job.name) == varys.iteration_times_s(job.name)
    # On one link both are shortest job first, whose completion times are sums.
    finish = sorted(ours.iteration_times_s(job.name)[0] for job in jobs)
    assert finish == list(accumulate(sorted(map(sum, sizes))))


def test_smallest_tardiness_first_of_two_echelonflows(star: Callable[..., Fabric]) -> None:
    """A: three flows of 2 s, 1 s apart (4 s late if alone); B: one of 1 s.

    B first costs 1 + 5 s, A first 4 + 7 s.
    """
    a = consumer_job([Fraction(0), Fraction(1), Fraction(2)], [2, 2, 2], [Fraction(1)] * 3)
    b = coflow("b", [1])
    result = simulate(
        [a, b], star(2), make_policy("echelon", order="setf"), 1, until="exactly", ideal=True
    )
    late = [tardiness_s(job.echelonflows[0], result.jobs[job.name].iterations[0]) for job in (a, b)]
    assert late == [5, 1]


def test_ranking_by_tardiness_makes_two_jobs_take_turns(
    star: Callable[..., Fabric], bulk: Callable[..., Job]
) -> None:
    """The two jobs communicate half of the time and start 2 % apart.

    Fair sharing keeps them contending for ever.
    """
    jobs = [
        bulk(name, Fraction(1, 2), UNIT_BYTES // 2, start)
        for name, start in (("a", Fraction(0)), ("b", Fraction(1, 50)))
    ]
    fair = simulate(jobs, star(2), make_policy("fair"), 12, until="exactly", ideal=True)
    ranked = simulate(jobs, star(2), make_policy("echelon"), 12, until="exactly", ideal=True)
    assert all(t == pytest.approx(1.48) for t in fair.iteration_times_s("a"))
    assert ranked.iteration_times_s("a") == pytest.approx([1] * 12)
    assert ranked.iteration_times_s("b")[1:] == pytest.approx([1] * 11)
    starts = [i.start for i in ranked.jobs["a"].iterations]
    assert all(b - a == pytest.approx(1) for a, b in pairwise(starts))
