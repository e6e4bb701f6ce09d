"""Two identical jobs that collide at one link, as MLTCP and the paper on unfairness draw them."""

from __future__ import annotations

from fractions import Fraction

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.fluid import simulate
from echelon.planning.policies.base import Policy

RATE = 1000
"""Bytes per second of the link."""
APART_S = Fraction(1, 50)


def two_jobs(communication: Fraction, apart_s: Fraction = APART_S) -> list[Job]:
    """Return two jobs with iterations of 1 s alone, `communication` of it sending; the second
    starts `apart_s` later.
    """

    def job(name: str, start_s: Fraction) -> Job:
        computes = (ComputeUnit("c", "h1", 1 - communication),)
        flows = (Flow("f", "h1", "h2", round(communication * RATE), ("c",)),)
        return Job(name, computes, flows, (EchelonFlow("H", ("f",), (Fraction(0),)),), start_s)

    return [job("first", Fraction(0)), job("second", apart_s)]


def iteration_times_s(
    policy: Policy, jobs: list[Job], fabric: Fabric, iterations: int
) -> dict[str, list[float]]:
    """Return the iteration times under the rates that the policy itself gives."""
    result = simulate(jobs, fabric, policy, iterations, ideal=True)
    return {
        job.name: [float(time_s) for time_s in result.iteration_times_s(job.name)][:iterations]
        for job in jobs
    }
