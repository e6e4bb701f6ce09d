"""Jobs in closed loop on one link, against an independent packet-by-packet model that may lie beside the repository."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest

from echelon.fabric.model import Fabric
from echelon.fluid import alone_iteration_s, simulate
from echelon.jobs.graph import Job
from echelon.policies import make_policy

MODEL = Path(__file__).parents[4] / "shared" / "oracles" / "policy_mix_sim.py"
BYTES = 1_000_000
"""What a slot of the model's link carries; a slot is a second here."""
HORIZON = 6_000
"""Several iterations of every job. In closed loop small differences grow: over ten times as long, the model's figures
for fair sharing move by percents when its packets are made smaller."""
PACKET = 0.1
"""Slots: as the model's packets get smaller it approaches a fluid."""
MIXES = [("dp", 4, 1.0), ("pp", 6, 1.2), ("mix", 4, 1.0), ("mix", 6, 1.2)]


@pytest.fixture(scope="module")
def model() -> ModuleType:
    if not MODEL.exists():
        pytest.skip("the independent model of job mixes is not here")
    spec = importlib.util.spec_from_file_location("mix_model", MODEL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def slowdowns(
    star: Callable[..., Fabric], pipeline: Callable[..., Job], bulk: Callable[..., Job]
) -> Callable[..., tuple[float, float]]:
    """Mean and worst slowdown of the jobs that the model makes, as it counts them."""
    fabric = star(2, 8 * BYTES)

    def exact(number: float) -> Fraction:
        return Fraction(number).limit_denominator(1000)

    def build(number: int, made: dict[str, float]) -> Job:
        compute, size = exact(made["comp"]), round(made["V"] * BYTES)
        if made["type"] == "dp":
            return bulk(f"j{number}", compute, size, exact(made["t0"]))
        return replace(pipeline(2, made["M"], compute, size, f"j{number}"), start_s=exact(made["t0"]))

    def measure(
        made: list[dict[str, float]],
        policy: str,
        weight: Callable[[Job, Fraction], Fraction] = lambda job, _: job.weight,
        **parameters: str,
    ) -> tuple[float, float]:
        jobs = [build(number, each) for number, each in enumerate(made)]
        jobs = [replace(job, weight=weight(job, alone_iteration_s(job, fabric))) for job in jobs]
        result = simulate(jobs, fabric, make_policy(policy, **parameters), None, until=Fraction(HORIZON), ideal=True)
        out = []
        for job in jobs:
            times = result.iteration_times_s(job.name)
            steady = times[len(times) // 3 :]
            out.append(float(sum(steady) / len(steady) / alone_iteration_s(job, fabric)))
        return sum(out) / len(out), max(out)

    return measure


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("kind", "jobs", "load"), MIXES)
def test_normalised_tardiness_as_in_the_model(
    model: ModuleType, slowdowns: Callable[..., tuple[float, float]], kind: str, jobs: int, load: float, seed: int
) -> None:
    made = model.make(seed, kind, jobs, load)
    mean, worst, _ = model.run(made, "ntard", Q=PACKET, horizon=HORIZON)
    # The model measures a pipeline's tardiness in units of its compute time, without the last transfer.
    ours = slowdowns(made, "echelon", lambda job, alone_s: alone_s / _unit_s(job))
    assert ours == (pytest.approx(mean, rel=0.001), pytest.approx(worst, rel=0.001))


def _unit_s(job: Job) -> Fraction:
    if job.echelonflows[0].is_coflow:
        return job.computes[0].duration_s + Fraction(job.flows[0].size_bytes, BYTES)
    return job.computes[0].duration_s * (len(job.flows) + 1)


@pytest.mark.parametrize(
    ("policy", "parameters", "theirs", "tolerance"),
    [
        ("fair", {}, "fair", 0.005),
        ("echelon", {"order": "setf"}, "setf", 0.001),
        ("echelon", {"order": "deadline"}, "edf", 0.001),
    ],
)
@pytest.mark.parametrize(("kind", "jobs", "load"), MIXES)
def test_other_policies_as_in_the_model(
    model: ModuleType,
    slowdowns: Callable[..., tuple[float, float]],
    kind: str,
    jobs: int,
    load: float,
    policy: str,
    parameters: dict[str, str],
    theirs: str,
    tolerance: float,
) -> None:
    made = model.make(0, kind, jobs, load)
    mean, worst, _ = model.run(made, theirs, Q=PACKET, horizon=HORIZON)
    ours = slowdowns(made, policy, **parameters)
    assert ours == (pytest.approx(mean, rel=tolerance), pytest.approx(worst, rel=tolerance))
