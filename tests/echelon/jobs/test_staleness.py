"""Staleness of one step and local SGD against formulas for one link, an account step by step, and
each other.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.documents import DocumentError
from echelon.model.errors import Code
from echelon.model.fabric.load import load_fabric
from echelon.model.jobs import build_job
from echelon.model.jobs.analysis import with_offsets
from echelon.model.jobs.graph import Job
from echelon.model.jobs.paradigms.data import bucketed_all_reduce
from echelon.model.jobs.spec import make_job_spec
from echelon.planning.fluid import alone_iteration_s, simulate
from echelon.planning.policies import make_policy
from tests.drawing import examples
from tests.echelon.fluid.conftest import build_star
from tests.faults import coded

TOPOLOGIES = Path(__file__).parents[3] / "topologies"
RATE = 1_000_000
"""Bytes a second of every link of the star."""
TIMES = st.fractions(0, 10, max_denominator=100)


def job_of(
    forward_s: Fraction,
    backward_s: Fraction,
    buckets: int,
    stale: int,
    bucket_s: Fraction,
    name: str = "d",
) -> Job:
    """Two workers, whose all-reduce of a bucket takes `bucket_s` alone."""
    gradient = int(bucket_s * RATE) * buckets
    graph = bucketed_all_reduce(
        ["h1", "h2"], forward_s, backward_s, buckets, gradient, stale_buckets=stale
    )
    return Job(name, *graph)


def overlapping_s(
    forward_s: Fraction,
    backward_s: Fraction,
    buckets: int,
    stale: int,
    bucket_s: Fraction,
    iterations: int,
) -> list[Fraction]:
    """Return when each iteration ends, by an account of iterations that overlap, from an idle
    start.

    An iteration computes when that before has computed and its fresh gradients are summed, and the
    stale ones of the one before that. One stream sends all buckets in the order in which they are
    complete.
    """
    fresh = buckets - stale
    stream_s = computed_s = Fraction(0)
    fresh_s = stale_s = Fraction(0)
    ends = []
    for _ in range(iterations):
        begin_s = max(computed_s, fresh_s, stale_s)
        ready = [begin_s + forward_s + backward_s * (b + 1) / buckets for b in range(buckets)]
        # The stale buckets of the iteration before are consumed when this one ends, those of this
        # one by the next.
        stale_s = stream_s
        for at_s in ready[:fresh]:
            stream_s = max(stream_s, at_s) + bucket_s
        fresh_s, computed_s = stream_s, ready[-1]
        ends.append(max(computed_s, fresh_s, stale_s))
        for at_s in ready[fresh:]:
            stream_s = max(stream_s, at_s) + bucket_s
    return ends


@given(TIMES, TIMES, st.integers(1, 6), st.integers(0, 6), st.integers(1, 300))
@settings(max_examples=examples(80), deadline=None)
def test_an_iteration_alone_takes_what_the_formula_says(
    forward_s: Fraction, backward_s: Fraction, buckets: int, stale: int, bucket_cs: int
) -> None:
    stale, bucket_s = min(stale, buckets), Fraction(bucket_cs, 100)
    fresh = buckets - stale
    ends_s = [forward_s + backward_s, buckets * bucket_s]
    ends_s += [
        forward_s + backward_s * b / buckets + (fresh - b + 1) * bucket_s
        for b in range(1, fresh + 1)
    ]
    job = job_of(forward_s, backward_s, buckets, stale, bucket_s)
    assert alone_iteration_s(job, build_star(2)) == max(ends_s)


@given(TIMES, TIMES, st.integers(1, 6), st.integers(0, 6), st.integers(1, 300))
@settings(max_examples=examples(150), deadline=None)
def test_iterations_that_really_overlap_come_at_the_same_pace_if_the_stream_has_no_time_left(
    forward_s: Fraction, backward_s: Fraction, buckets: int, stale: int, bucket_cs: int
) -> None:
    """Else they come sooner, by at most the time in which the stale buckets but the last are
    computed.
    """
    stale, bucket_s = min(stale, buckets), Fraction(bucket_cs, 100)
    ours_s = alone_iteration_s(
        job_of(forward_s, backward_s, buckets, stale, bucket_s), build_star(2)
    )
    ends = overlapping_s(forward_s, backward_s, buckets, stale, bucket_s, 12)
    theirs_s = (ends[-1] - ends[5]) / 6
    fresh_ends_s = max(
        (
            forward_s + backward_s * b / buckets + (buckets - stale - b + 1) * bucket_s
            for b in range(1, buckets - stale + 1)
        ),
        default=Fraction(0),
    )
    if stale <= 1 or fresh_ends_s >= forward_s + backward_s:
        assert theirs_s == ours_s
    else:
        assert ours_s - backward_s * (stale - 1) / buckets <= theirs_s <= ours_s


def test_staleness_hides_the_last_bucket() -> None:
    """A bucket takes a quarter of a second, and without staleness the last one is all that is
    exposed.
    """
    second, quarter = Fraction(1), Fraction(1, 4)
    assert alone_iteration_s(job_of(second, 2 * second, 4, 0, quarter), build_star(2)) == Fraction(
        13, 4
    )
    assert alone_iteration_s(job_of(second, 2 * second, 4, 1, quarter), build_star(2)) == 3


@given(st.integers(2, 5), st.integers(1, 6), st.integers(0, 6), st.integers(0, 3000))
@settings(max_examples=examples(50), deadline=None)
def test_staleness_sends_the_same_flows(n: int, buckets: int, stale: int, extra: int) -> None:
    hosts, stale = [f"h{i}" for i in range(n)], min(stale, buckets)
    build = [
        bucketed_all_reduce(
            hosts, Fraction(1), Fraction(2), buckets, n * buckets + extra, stale_buckets=of
        )
        for of in (0, stale)
    ]
    plain, late = ({(f.name, f.src, f.dst, f.size_bytes) for f in graph.flows} for graph in build)
    assert plain == late
    held = {h.name: h for h in build[1].echelonflows}
    assert (
        {name.split("-")[1] for name in held["stale"].flows}
        == {f"b{b}" for b in range(buckets - stale + 1, buckets + 1)}
        if stale
        else "stale" not in held
    )


@pytest.mark.parametrize("order", ["memory", "normalised", "deadline"])
def test_stale_buckets_wait_for_flows_that_are_due_before_them(order: str) -> None:
    """A job's stale bucket is due 2.5 s after its start.

    After 1 s, 1 s before it ends, the other all-reduce is due.
    """
    fabric = load_fabric(TOPOLOGIES / "dumbbell_2.yaml")
    all_reduce_s = 1_250_000
    stale = bucketed_all_reduce(
        ["a1", "b1"], Fraction(2), Fraction(2), 4, 8 * all_reduce_s, stale_buckets=1
    )
    needed = bucketed_all_reduce(["a2", "b2"], Fraction(0), Fraction(1), 1, all_reduce_s)
    jobs = [Job("stale", *stale), Job("needed", *needed)]
    policy = make_policy("echelon", order=order)
    ideal = simulate(jobs, fabric, policy, 1, until="exactly", ideal=True)
    assert ideal.iteration_times_s("needed") == (2,)
    # By thresholds, each lower queue has a hundredth of the link, which a few of them take until
    # the flow is far enough behind.
    (in_queues,) = simulate(jobs, fabric, policy, 1, until="exactly").iteration_times_s("needed")
    assert 2 <= in_queues < 2 + Fraction(7, 100)


def test_what_is_reported_of_stale_flows_keeps_their_slack() -> None:
    job = job_of(Fraction(1), Fraction(2), 2, 1, Fraction(1, 2))
    stale, fresh = job.echelonflows
    assert stale.slack_s == 2
    reported = with_offsets(job, {"stale": [Fraction(0)] * len(stale.flows)})
    assert reported == job
    later = with_offsets(job, {"allreduce": [Fraction(k) for k in range(len(fresh.flows))]})
    assert later.echelonflows[0] == stale


@given(st.integers(1, 50), st.integers(0, 3000), st.integers(2, 5), st.integers(5, 10**6))
@settings(max_examples=examples(40), deadline=None)
def test_local_steps_share_one_all_reduce(
    steps: int, compute_ms: int, n: int, gradient: int
) -> None:
    def alone_s(**keys: object) -> Fraction:
        section = {"compute": f"{compute_ms} ms", "gradient": f"{gradient} B", **keys}
        workers = [f"h{i + 1}" for i in range(n)]
        return alone_iteration_s(
            build_job(make_job_spec(job="d", parallelism="data", workers=workers, data=section)),
            build_star(n),
        )

    step_s = Fraction(compute_ms, 1000)
    sent_s = alone_s() - step_s
    assert alone_s(local_steps=steps) == steps * step_s + sent_s
    assert alone_s(local_steps=1) == alone_s()
    if gradient % n == 0:
        assert sent_s == 2 * (n - 1) * Fraction(gradient, n * RATE)


PASSES = {"forward": "1 s", "backward": "2 s", "buckets": 4, "gradient": "1 MB"}


@pytest.mark.parametrize(
    ("section", "recognition", "path", "code", "names"),
    [
        ({**PASSES, "stale_buckets": 5}, None, "data.stale_buckets", "too-large", ["4 buckets"]),
        ({**PASSES, "stale_buckets": 0}, None, "data.stale_buckets", "too-small", ["0", "1"]),
        (
            {"compute": "1 s", "gradient": "1 MB", "stale_buckets": 1},
            None,
            "data.stale_buckets",
            "conflicting-key",
            ["'compute'"],
        ),
        (
            {**PASSES, "local_steps": 2},
            None,
            "data.local_steps",
            "conflicting-key",
            ["'buckets'"],
        ),
        (
            {**PASSES, "stale_buckets": 1},
            {"by": "bytes", "source_port": 1, "destination_port": 2, "idle_gap": "50 ms"},
            "recognition.by",
            "not-allowed",
            ["'bytes'", "stale"],
        ),
    ],
)
def test_what_does_not_go_together_is_refused(
    section: dict[str, object],
    recognition: dict[str, object] | None,
    path: str,
    code: Code,
    names: list[str],
) -> None:
    document: dict[str, object] = {
        "job": "d",
        "parallelism": "data",
        "workers": ["h1", "h2"],
        "data": section,
    }
    if recognition is not None:
        document["recognition"] = recognition
    with pytest.raises(DocumentError, check=coded(code, *names, file="job d", path=path)):
        make_job_spec(**document)
