"""Sharded data parallelism: what is sent, when, and the arrangement of equation 7."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.documents import DocumentError, parse_document
from echelon.model.errors import Code
from echelon.model.jobs import build_job
from echelon.model.jobs.analysis import earliest_start_s
from echelon.model.jobs.graph import Job
from echelon.model.jobs.spec import JobSpec
from echelon.planning.fluid.simulator import simulate
from echelon.planning.policies import make_policy
from tests.drawing import examples
from tests.echelon.fluid.conftest import build_star
from tests.shared import refused


def job_of(workers: int, **keys: object) -> Job:
    document = {
        "job": "j",
        "parallelism": "fsdp",
        "workers": [f"h{i + 1}" for i in range(workers)],
        "fsdp": keys,
    }
    return build_job(parse_document(JobSpec, document, "job"))


@given(
    st.integers(2, 6),
    st.integers(1, 6),
    st.sampled_from([1, 2, 3]),
    st.integers(1, 99),
    st.integers(1, 99),
)
@settings(max_examples=examples(40), deadline=None)
def test_bytes_and_computing(
    workers: int, layers: int, zero: int, forward: int, backward: int
) -> None:
    """Sharded parameters take 3/2 of the bytes of an all-reduce, other shards as many (ZeRO, SC
    '20, section 7).
    """
    size = 60
    job = job_of(
        workers,
        zero=zero,
        layers=layers,
        forward=f"{forward} ms",
        backward=f"{backward} ms",
        parameters=f"{size} B",
    )
    assert (
        sum(flow.size_bytes for flow in job.flows)
        == (3 if zero == 3 else 2) * layers * (workers - 1) * size
    )
    start_s = earliest_start_s(job, lambda _: Fraction(0))
    end_s = max(start_s[unit.name] + unit.duration_s for unit in job.computes)
    assert end_s == layers * Fraction(forward + backward, 1000)


@pytest.mark.parametrize(("zero", "gathers", "scatters"), [(1, 1, 1), (2, 1, 5), (3, 10, 5)])
def test_micro_batches_are_scattered_where_gradients_are_sharded(
    zero: int, gathers: int, scatters: int
) -> None:
    """Only sharded parameters are gathered for each micro-batch, twice."""
    sizes = {"parameters": "40 B", "gradients": "80 B"}
    job = job_of(
        4, zero=zero, layers=3, micro_batches=5, forward="10 ms", backward="20 ms", **sizes
    )
    assert sum(flow.size_bytes for flow in job.flows) == 3 * 3 * (gathers * 40 + scatters * 80)
    assert sum(unit.duration_s for unit in job.computes) == 4 * 5 * 3 * Fraction(30, 1000)


@pytest.mark.parametrize("zero", [1, 2, 3])
@pytest.mark.parametrize(("replicas", "shards"), [(2, 3), (3, 2), (4, 1), (1, 4)])
def test_replicas_shard_inside_and_all_reduce_across(zero: int, replicas: int, shards: int) -> None:
    """A group of m ranks gathers and scatters (m - 1) times the bytes of a layer, and R replicas
    all-reduce shards of 1/m: m (R - 1) 2/m times (Zhao et al., VLDB '23, section 3.2.2).
    """
    layers, batches, parameters, gradients = 3, 2, 60, 120
    job = job_of(
        replicas * shards,
        replicas=replicas,
        zero=zero,
        layers=layers,
        micro_batches=batches,
        forward="1 ms",
        backward="2 ms",
        optimizer="5 ms",
        parameters=f"{parameters} B",
        gradients=f"{gradients} B",
    )
    gathered = {1: 1, 2: 1, 3: 2 * batches}[zero] * layers
    summed = {1: 1, 2: batches, 3: batches}[zero] * layers
    inside = replicas * (shards - 1) * (gathered * parameters + summed * gradients)
    across = 2 * (replicas - 1) * summed * gradients
    assert sum(flow.size_bytes for flow in job.flows) == inside + across
    start_s = earliest_start_s(job, lambda flow: Fraction(flow.size_bytes))
    updates = [start_s[unit.name] for unit in job.computes if unit.kind == "optimizer"]
    # Ranks update behind all sums, which are no flows where nobody else has a part.
    sums = [flow for flow in job.flows if flow.name.startswith(("sum", "scatter"))]
    assert min(updates) >= max(start_s[flow.name] + flow.size_bytes for flow in sums)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 99), st.integers(1, 99))
@settings(max_examples=examples(40), deadline=None)
def test_all_gathers_that_are_prefetched_follow_equation_7(
    layers: int, prefetch: int, forward: int, backward: int
) -> None:
    job = job_of(
        3,
        layers=layers,
        forward=f"{forward} ms",
        backward=f"{backward} ms",
        parameters="9 B",
        prefetch=prefetch,
    )
    gathers, scatters = job.echelonflows
    gaps = [late - early for early, late in pairwise(sorted(set(gathers.offsets_s)))]
    # The last forward time is what `echelon.model.jobs.arrangement` counts instead of the backward
    # time that is printed.
    assert gaps == [Fraction(forward, 1000)] * layers + [Fraction(backward, 1000)] * (layers - 1)
    assert len(gathers.flows) == 2 * layers * 3
    assert scatters.is_coflow
    assert len(scatters.flows) == layers * 3


def test_without_prefetching_every_all_gather_is_a_coflow() -> None:
    job = job_of(3, layers=3, forward="1 ms", backward="1 ms", parameters="9 B", prefetch=0)
    assert sum(h.name.startswith("gather") for h in job.echelonflows) == 6
    assert all(h.is_coflow for h in job.echelonflows)


@pytest.mark.parametrize(
    ("prefetch", "expected"),
    [
        # Nothing overlaps: six gathers of 1 s, each with its pass of 2 s, and the last
        # reduce-scatter.
        (0, 6 * (1 + 2) + 1),
        # Gathers hide behind passes, except the first; gathers and scatters share the links from
        # the backward pass on.
        (1, 1 + 6 * 2 + 1),
    ],
)
def test_prefetching_hides_gathers(prefetch: int, expected: int) -> None:
    """Two ranks have a link of a million bytes a second; half of two million cross it in each
    collective.
    """
    job = job_of(2, layers=3, forward="2 s", backward="2 s", parameters="2 MB", prefetch=prefetch)
    result = simulate([job], build_star(2), make_policy("echelon"), 1, until="exactly", ideal=True)
    (took_s,) = result.iteration_times_s("j")
    if prefetch:
        assert took_s == expected
    else:
        # Without prefetching a scatter delays the next gather by the part of the link that it gets.
        assert expected <= took_s <= expected + 2


@pytest.mark.parametrize(
    ("changes", "path", "code"),
    [
        ({"forward": ["1 s", "1 s"]}, "fsdp.forward", "wrong-length"),
        ({"zero": 2, "prefetch": 1}, "fsdp.prefetch", "invalid-value"),
        ({"zero": 4}, "fsdp.zero", "not-allowed"),
        ({"replicas": 4}, "fsdp.replicas", "invalid-value"),
        ({"collective": "tree"}, "fsdp.collective", "not-allowed"),
        ({"parameters": None}, "fsdp.parameters", "missing-key"),
    ],
)
def test_what_is_refused(changes: dict[str, object], path: str, code: Code) -> None:
    good: dict[str, object] = {
        "layers": 3,
        "forward": "1 s",
        "backward": "1 s",
        "parameters": "9 B",
    }
    with refused(code, path, DocumentError):
        job_of(2, **{key: value for key, value in {**good, **changes}.items() if value is not None})
