"""Jobs in closed loop on one link, against an independent packet-by-packet model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from statistics import mean

import pytest
from reference import job_mix
from reference.job_mix import MixedJob

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Job
from echelon.planning.fluid import alone_iteration_s, simulate
from echelon.planning.policies import make_policy

BYTES = 1_000_000
"""The bytes that a slot of the model's link carries; a slot is a second here."""
HORIZON = 6_000
"""Several iterations of every job.

In closed loop small differences grow: over ten times as long, the model's figures for fair sharing
move by percents when its packets are made smaller.
"""
PACKET = 0.1
"""Slots: as the model's packets get smaller it approaches a fluid."""
MIXES = [("dp", 4, 1.0), ("pp", 6, 1.2), ("mix", 4, 1.0), ("mix", 6, 1.2)]


@pytest.fixture
def slowdowns(
    star: Callable[..., Fabric], pipeline: Callable[..., Job], bulk: Callable[..., Job]
) -> Callable[..., tuple[float, float]]:
    """Return the mean and worst slowdown of the jobs that the model makes, as it counts them."""
    fabric = star(2, 8 * BYTES)

    def exact(number: float) -> Fraction:
        return Fraction(number).limit_denominator(1000)

    def build(number: int, made: MixedJob) -> Job:
        compute, size = exact(made.compute), round(made.size * BYTES)
        if made.paradigm == "dp":
            return bulk(f"j{number}", compute, size, exact(made.start))
        return replace(
            pipeline(2, made.micro_batches, compute, size, f"j{number}"), start_s=exact(made.start)
        )

    def measure(
        made: list[MixedJob],
        policy: str,
        weight: Callable[[Job, Fraction], Fraction] = lambda job, _: job.weight,
        **parameters: str,
    ) -> tuple[float, float]:
        jobs = [build(number, each) for number, each in enumerate(made)]
        jobs = [replace(job, weight=weight(job, alone_iteration_s(job, fabric))) for job in jobs]
        result = simulate(
            jobs,
            fabric,
            make_policy(policy, **parameters),
            None,
            until=Fraction(HORIZON),
            ideal=True,
        )
        out = []
        for job in jobs:
            times = result.iteration_times_s(job.name)
            steady = times[len(times) // 3 :]
            out.append(float(sum(steady) / len(steady) / alone_iteration_s(job, fabric)))
        return sum(out) / len(out), max(out)

    return measure


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]
)
@pytest.mark.parametrize(("kind", "jobs", "load"), MIXES)
def test_normalised_tardiness_as_in_the_model(
    slowdowns: Callable[..., tuple[float, float]], kind: str, jobs: int, load: float, seed: int
) -> None:
    made = job_mix.make(seed, kind, jobs, load)
    theirs = job_mix.slowdowns(made, "normalised", packet=PACKET, horizon=HORIZON)
    # The model measures a pipeline's tardiness in units of its compute time, without the last
    # transfer.
    ours = slowdowns(
        made, "echelon", lambda job, alone_s: alone_s / _unit_s(job), order="normalised"
    )
    assert ours == (pytest.approx(mean(theirs), rel=0.001), pytest.approx(max(theirs), rel=0.001))


def _unit_s(job: Job) -> Fraction:
    if job.echelonflows[0].is_coflow:
        return job.computes[0].duration_s + Fraction(job.flows[0].size_bytes, BYTES)
    return job.computes[0].duration_s * (len(job.flows) + 1)


@pytest.mark.parametrize(
    ("policy", "parameters", "theirs", "tolerance"),
    [
        ("fair", {}, "fair", 0.005),
        ("echelon", {"order": "setf"}, "setf", 0.001),
        ("echelon", {"order": "deadline"}, "deadline", 0.001),
    ],
)
@pytest.mark.parametrize(("kind", "jobs", "load"), MIXES)
def test_other_policies_as_in_the_model(
    slowdowns: Callable[..., tuple[float, float]],
    kind: job_mix.Kind,
    jobs: int,
    load: float,
    policy: str,
    parameters: dict[str, str],
    theirs: job_mix.Policy,
    tolerance: float,
) -> None:
    made = job_mix.make(0, kind, jobs, load)
    modelled = job_mix.slowdowns(made, theirs, packet=PACKET, horizon=HORIZON)
    ours = slowdowns(made, policy, **parameters)
    assert ours == (
        pytest.approx(mean(modelled), rel=tolerance),
        pytest.approx(max(modelled), rel=tolerance),
    )
