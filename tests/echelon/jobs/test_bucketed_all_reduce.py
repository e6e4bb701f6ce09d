"""The overlapping all-reduce against a step-by-step account of it, closed forms, and fair sharing
of a link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.jobs.analysis import earliest_start_s
from echelon.model.jobs.collectives import chunk_bytes, sent_chunk
from echelon.model.jobs.graph import Job
from echelon.model.jobs.paradigms.data import all_reduce, bucketed_all_reduce
from echelon.planning.fluid import alone_iteration_s, simulate
from echelon.planning.policies import make_policy
from tests.drawing import examples
from tests.echelon.fluid.conftest import build_star

RATE = 1_000_000
"""Bytes a second of every link of the star."""
TIMES = st.fractions(0, 10, max_denominator=100)


def job_of(
    workers: int,
    forward_s: Fraction,
    backward_s: Fraction,
    buckets: int,
    gradient_bytes: int,
    name: str = "d",
) -> Job:
    hosts = [f"h{i + 1}" for i in range(workers)]
    return Job(name, *bucketed_all_reduce(hosts, forward_s, backward_s, buckets, gradient_bytes))


def accounted_s(
    n: int, forward_s: Fraction, backward_s: Fraction, buckets: int, gradient_bytes: int
) -> Fraction:
    """Return the length of an iteration alone on links of one rate, each used by one worker, from a
    table of the times at which workers are free.
    """
    free = [Fraction(0)] * n
    for b in range(buckets):
        computed = forward_s + backward_s * (b + 1) / buckets
        free = [max(computed, at) for at in free]
        size = gradient_bytes // buckets + (1 if b < gradient_bytes % buckets else 0)
        for k in range(2 * (n - 1)):
            sent = [
                free[i] + Fraction(chunk_bytes(size, n, sent_chunk(k, i, n)), RATE)
                for i in range(n)
            ]
            free = [max(sent[i], sent[i - 1]) for i in range(n)]
    return max(*free, forward_s + backward_s)


@given(
    n=st.integers(2, 5),
    forward_s=TIMES,
    backward_s=TIMES,
    buckets=st.integers(1, 6),
    extra=st.integers(0, 3_000_000),
    policy=st.sampled_from(["fair", "varys", "echelon"]),
)
@settings(max_examples=examples(50), deadline=None)
def test_an_iteration_alone_takes_what_a_table_says(
    n: int, forward_s: Fraction, backward_s: Fraction, buckets: int, extra: int, policy: str
) -> None:
    gradient = n * buckets + extra
    job = job_of(n, forward_s, backward_s, buckets, gradient)
    result = simulate([job], build_star(n), make_policy(policy), 1, until="exactly", ideal=True)
    assert result.iteration_times_s("d") == pytest.approx(
        [accounted_s(n, forward_s, backward_s, buckets, gradient)], rel=1e-9
    )


@pytest.mark.parametrize(
    ("forward", "backward", "buckets", "megabytes", "iteration"),
    [
        # Two workers: an all-reduce takes as long as sending the gradient once.
        (
            "1",
            "2",
            4,
            "1",
            "3.25",
        ),  # compute-bound: only the last bucket's quarter of a second is exposed
        ("1", "2", 4, "2", "3.5"),  # as much to send as to compute: the stream is never idle
        (
            "1",
            "2",
            4,
            "8",
            "9.5",
        ),  # communication-bound: it begins with the first bucket, half a second in
        ("1", "2", 1, "2", "5"),  # one bucket overlaps with nothing
        ("0", "0", 8, "2", "2"),
    ],
)
def test_closed_forms(
    forward: str, backward: str, buckets: int, megabytes: str, iteration: str
) -> None:
    """The length is forward + max(backward + a, backward / buckets + buckets * a), where a is the
    all-reduce of one bucket.
    """
    f, b, all_s = Fraction(forward), Fraction(backward), Fraction(megabytes)
    job = job_of(2, f, b, buckets, int(all_s * RATE))
    assert alone_iteration_s(job, build_star(2)) == Fraction(iteration)
    assert Fraction(iteration) == f + max(b + all_s / buckets, b / buckets + all_s)


@given(st.integers(2, 6), TIMES, TIMES, st.integers(1, 8))
@settings(max_examples=examples(30), deadline=None)
def test_on_an_infinitely_fast_network_only_computing_takes_time(
    n: int, forward_s: Fraction, backward_s: Fraction, buckets: int
) -> None:
    job = job_of(n, forward_s, backward_s, buckets, 10_000)
    start_s = earliest_start_s(job, lambda _: Fraction(0))
    assert max(start_s.values()) == forward_s + backward_s
    assert start_s["allreduce-b1-k1-w1"] == forward_s + backward_s / buckets


@given(st.integers(2, 6), st.integers(1, 8), st.integers(0, 10_000))
@settings(max_examples=examples(40), deadline=None)
def test_each_bucket_is_a_ring_all_reduce_of_its_own(n: int, buckets: int, extra: int) -> None:
    gradient = n * buckets + extra
    job = job_of(n, Fraction(1), Fraction(1), buckets, gradient)
    assert sum(chunk_bytes(gradient, buckets, b) for b in range(buckets)) == gradient
    assert {chunk_bytes(gradient, buckets, b) for b in range(buckets)} <= {
        gradient // buckets,
        -(-gradient // buckets),
    }
    for b in range(buckets):
        mine = [flow for flow in job.flows if flow.name.startswith(f"allreduce-b{b + 1}-")]
        plain = all_reduce(
            [f"h{i + 1}" for i in range(n)], Fraction(0), chunk_bytes(gradient, buckets, b)
        ).flows
        assert [(f.src, f.dst, f.size_bytes, f.name.split("-", 2)[2]) for f in mine] == [
            (f.src, f.dst, f.size_bytes, f.name.split("-", 1)[1]) for f in plain
        ]
        for flow, like in zip(mine[n:], plain[n:], strict=True):
            assert [name.split("-", 2)[2] for name in flow.after] == [
                name.split("-", 1)[1] for name in like.after
            ]
    assert len(job.flows) == buckets * 2 * n * (n - 1)


@given(st.integers(2, 5), st.integers(1, 6), st.integers(0, 4), st.integers(0, 5))
@settings(max_examples=examples(40), deadline=None)
def test_a_worker_begins_a_bucket_when_it_has_computed_it_and_is_done_with_the_one_before(
    n: int, buckets: int, late: int, slow_bucket: int
) -> None:
    """A late worker delays only what needs its bucket; the others go on."""
    late, slow_bucket = late % n, slow_bucket % buckets
    job = job_of(n, Fraction(1), Fraction(buckets), buckets, n * buckets)
    name = f"backward-b{slow_bucket + 1}-w{late + 1}"
    job = replace(
        job,
        computes=tuple(
            replace(c, duration_s=Fraction(100)) if c.name == name else c for c in job.computes
        ),
    )
    start_s = earliest_start_s(job, lambda _: Fraction(1))
    last = 2 * (n - 1)
    for b in range(1, buckets + 1):
        for i in range(n):
            unit = f"backward-b{b}-w{i + 1}"
            computed = start_s[unit] + next(c.duration_s for c in job.computes if c.name == unit)
            done = (
                [start_s[f"allreduce-b{b - 1}-k{last}-w{j % n + 1}"] + 1 for j in (i, i - 1)]
                if b > 1
                else []
            )
            assert (
                start_s[f"allreduce-b{b}-k1-w{i + 1}"] == max(computed, *done) if done else computed
            )


@given(n=st.integers(2, 4), compute_s=TIMES, gradient=st.integers(4, 10**6))
@settings(max_examples=examples(20), deadline=None)
def test_one_bucket_is_the_all_reduce_without_overlap(
    n: int, compute_s: Fraction, gradient: int
) -> None:
    plain = Job("d", *all_reduce([f"h{i + 1}" for i in range(n)], compute_s, gradient))
    job = job_of(n, compute_s / 3, compute_s * 2 / 3, 1, gradient)
    assert alone_iteration_s(job, build_star(n)) == alone_iteration_s(plain, build_star(n))


@given(st.integers(2, 5), st.integers(1, 6))
@settings(max_examples=examples(20), deadline=None)
def test_all_buckets_are_one_coflow_in_order_of_the_stream(n: int, buckets: int) -> None:
    job = job_of(n, Fraction(1), Fraction(1), buckets, 1000)
    (h,) = job.echelonflows
    assert h.is_coflow
    assert h.flows == tuple(
        f"allreduce-b{b}-k{k}-w{i}"
        for b in range(1, buckets + 1)
        for k in range(1, 2 * n - 1)
        for i in range(1, n + 1)
    )


def slowdowns(jobs: Sequence[Job], policy: str, iterations: int) -> list[list[Fraction]]:
    """Return the slowdowns of each job's iterations on one link, against the time alone."""
    fabric = build_star(2)
    result = simulate(jobs, fabric, make_policy(policy), iterations, until="exactly", ideal=True)
    return [
        [took / alone_iteration_s(job, fabric) for took in result.iteration_times_s(job.name)]
        for job in jobs
    ]


@pytest.mark.parametrize("buckets", [4, 8])
def test_equal_jobs_get_out_of_each_others_way(buckets: int) -> None:
    """Half of an iteration is communication, all but a bucket of it hidden behind the backward
    pass. Fair sharing keeps the jobs in step."""
    jobs = [
        replace(
            job_of(2, Fraction(1), Fraction(2), buckets, 1_500_000, f"j{k}"),
            start_s=Fraction(k, 16),
        )
        for k in range(2)
    ]
    fair = slowdowns(jobs, "fair", 6)
    assert len({took for job in fair for took in job}) == 1
    assert fair[0][0] > Fraction(13, 10)
    assert [job[-1] for job in slowdowns(jobs, "echelon", 6)] == [1, 1]


MIXES = {  # forward seconds (backward: twice as long), buckets, communication of computing
    "as in the scenario": [("0.3", 4, "0.7"), ("0.15", 4, "0.7")],
    "one with overlap, one without": [("0.5", 4, "0.4"), ("0.75", 1, "0.4")],
    "light": [("1", 4, "0.3"), ("0.75", 2, "0.4"), ("0.5", 4, "0.2")],
    "heavy": [("1", 2, "0.8"), ("0.5", 2, "0.6")],
}


@pytest.mark.parametrize("mix", MIXES)
def test_echelon_is_not_worse_than_fair_sharing(mix: str) -> None:
    """Neither the mean slowdown nor that of the worst job is larger."""
    jobs = []
    for number, (forward, buckets, share) in enumerate(MIXES[mix]):
        forward_s = Fraction(forward)
        gradient = int(Fraction(share) * 3 * forward_s * RATE)
        job = job_of(2, forward_s, 2 * forward_s, buckets, gradient, f"j{number}")
        jobs.append(replace(job, start_s=Fraction(number, 10)))
    mean, worst = {}, {}
    for policy in ("fair", "echelon"):
        of_jobs = [sum(job) / len(job) for job in slowdowns(jobs, policy, 8)]
        mean[policy], worst[policy] = sum(of_jobs) / len(of_jobs), max(of_jobs)
    assert mean["echelon"] <= mean["fair"]
    assert worst["echelon"] <= worst["fair"]
