"""The parameter server's iteration in closed form, and what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.jobs.analysis import connections, earliest_start_s
from echelon.model.jobs.graph import Job
from echelon.model.jobs.paradigms.parameter_server import parameter_server
from echelon.planning.fluid import simulate
from echelon.planning.policies import make_policy
from tests.drawing import examples

TIMES = st.fractions(0, 10, max_denominator=100)


def star(rates_Bps: Sequence[int]) -> Fabric:  # noqa: N803
    """Host h0 at the first rate, h1 at the second, ..., around one switch."""
    return Fabric(
        name="star",
        hosts={
            f"h{i}": Host(f"h{i}", f"10.0.1.{i}", f"02:00:00:00:01:{i:02x}")
            for i in range(len(rates_Bps))
        },
        switches={"s1": Switch("s1", 1)},
        cables=tuple(
            CableLink(LinkEnd(f"h{i}", 0), LinkEnd("s1", i + 1), 8 * rate, Fraction(0))
            for i, rate in enumerate(rates_Bps)
        ),
    )


def job_of(workers: int, compute_s: Fraction, gradient_bytes: int, aggregate_s: Fraction) -> Job:
    names = [f"h{i}" for i in range(1, workers + 1)]
    return Job("ps", *parameter_server(names, "h0", compute_s, gradient_bytes, aggregate_s))


@given(
    workers=st.integers(1, 6),
    compute_s=TIMES,
    aggregate_s=TIMES,
    gradient_bytes=st.integers(1, 10_000),
    rates=st.tuples(st.integers(100, 2000), st.integers(100, 2000)),
    policy=st.sampled_from(["fair", "fifo", "varys", "echelon"]),
)
@settings(max_examples=examples(60), deadline=None)
def test_an_iteration_carries_everything_twice_over_the_server_or_over_each_worker(
    workers: int,
    compute_s: Fraction,
    aggregate_s: Fraction,
    gradient_bytes: int,
    rates: tuple[int, int],
    policy: str,
) -> None:
    """The narrower link decides where flows share evenly.

    Where they go one after the other, a server's link that is wider than a worker's is not always
    full.
    """
    server, worker = rates
    job = job_of(workers, compute_s, gradient_bytes, aggregate_s)
    result = simulate(
        [job],
        star([server] + [worker] * workers),
        make_policy(policy),
        1,
        until="exactly",
        ideal=True,
    )
    (took,) = result.iteration_times_s("ps")
    one_way = max(Fraction(workers * gradient_bytes, server), Fraction(gradient_bytes, worker))
    ideal = compute_s + one_way + aggregate_s + one_way
    exactly = server <= worker or policy in ("fair", "varys")
    assert took == pytest.approx(ideal, rel=1e-9) if exactly else took >= ideal * (1 - 1e-9)


@given(workers=st.integers(1, 6), compute_s=TIMES, aggregate_s=TIMES, late_s=TIMES)
@settings(max_examples=examples(40), deadline=None)
def test_the_server_and_everybody_waits_for_the_last(
    workers: int, compute_s: Fraction, aggregate_s: Fraction, late_s: Fraction
) -> None:
    job = job_of(workers, compute_s, 1, aggregate_s)
    start_s = earliest_start_s(
        job, lambda flow: late_s if flow.name == f"push-w{workers}" else Fraction(0)
    )
    assert start_s["aggregate"] == compute_s + late_s
    pulls = [start_s[f"pull-w{i}"] for i in range(1, workers + 1)]
    assert pulls == [compute_s + late_s + aggregate_s] * workers


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_two_coflows_of_one_flow_a_worker(workers: int) -> None:
    job = job_of(workers, Fraction(1), 7, Fraction(0))
    assert [(h.name, h.is_coflow, len(h.flows)) for h in job.echelonflows] == [
        ("push", True, workers),
        ("pull", True, workers),
    ]
    carried = {
        ends: [(flow.name, flow.size_bytes) for flow in flows]
        for ends, flows in connections(job).items()
    }
    expected = {}
    for i in range(1, workers + 1):
        expected[f"h{i}", "h0"] = [(f"push-w{i}", 7)]
        expected["h0", f"h{i}"] = [(f"pull-w{i}", 7)]
    assert carried == expected
    assert job.workers == (*(f"h{i}" for i in range(1, workers + 1)), "h0")
