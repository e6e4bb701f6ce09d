"""Random scenarios: the same seed gives the same scenario, on every machine.

A scenario has 2 to 8 jobs on one of `FABRICS`. In two of three scenarios all jobs have the same
shape of `SHAPES`; in the others each job has its own. Periods, which are the times of iterations
alone, are identical (in half of these scenarios that are not mixed, the jobs are copies of one),
harmonic (a power of two times the shortest), or free. Sizes are scaled until the busiest link that
several jobs share has the drawn load. A drawing that has no such link, or whose jobs cannot load it
that much, is thrown away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random
from typing import Any

import yaml

from echelon.model.documents import parse_document
from echelon.model.fabric.builders import LINK_BPS
from echelon.model.fabric.load import FabricSpec, build_fabric, fabric_text
from echelon.model.fabric.model import Fabric
from echelon.model.jobs import build_job
from echelon.model.jobs.graph import Job
from echelon.model.jobs.spec import JobSpec
from echelon.planning.paths import FlowPaths
from echelon_lab.evaluation.demand import Demand, demand, shared_load
from echelon_lab.evaluation.fabrics import FABRICS
from echelon_lab.evaluation.shapes import SHAPES, JobShape

LEAST_LOAD, GREATEST_LOAD = 0.6, 1.4
"""The range of loads of the busiest link that jobs share."""
MIXED = "mixed"
"""The kind of a scenario whose jobs have different shapes."""
PERIODS = ("identical", "harmonic", "free")

_JOBS = (2, 3, 4, 5, 6, 7, 8)
_SHORTEST_S = 0.25
_LONGEST_S = 1.0
_ATTEMPTS = 1000
_ONE_SHAPE = 2 / 3
"""The share of scenarios whose jobs all have the same shape."""
_DOUBLINGS = 8
"""The most by which sizes are scaled, up and down, in powers of two."""
_ACCURACY = 0.01
"""The relative error of the load at which scaling ends."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The groups that a scenario belongs to."""

    fabric: str
    """A key of `FABRICS`; of a file, the fabric's name."""
    shape: str
    """A key of `SHAPES`, or `MIXED`."""
    periods: str
    """One of `PERIODS`; of a file, "given"."""
    jobs: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """A drawn scenario."""

    seed: int
    kind: Kind
    load: float
    """The load of the busiest link that jobs share."""
    fabric: FabricSpec
    jobs: Sequence[dict[str, Any]]
    """Job files."""

    def document(self, policies: Sequence[object], iterations: int) -> dict[str, Any]:
        """Return the scenario as its file has it."""
        kind = self.kind
        return {
            "scenario": f"evaluation-{self.seed}",
            "description": (
                f"{kind.fabric}, {kind.jobs} jobs ({kind.shape}), {kind.periods} periods, "
                f"load {self.load:.2f}"
            ),
            "fabric": yaml.safe_load(fabric_text(self.fabric, "")),
            "jobs": list(self.jobs),
            "policies": list(policies),
            "iterations": iterations,
        }


def draw(seed: int) -> Drawn:
    """Return the scenario of a seed."""
    random = Random(f"evaluation {seed}")
    # Drawn once, so that kinds which are often thrown away do not become rare.
    fabric = random.choice([*FABRICS])
    periods = random.choice(PERIODS)
    copies = random.random() < 0.5
    if random.random() < _ONE_SHAPE:
        shape = random.choice([*SHAPES])
    else:
        shape = MIXED
    copies = copies and periods == "identical" and shape != MIXED
    for _ in range(_ATTEMPTS):
        kind = Kind(fabric, shape, periods, random.choice(_JOBS))
        drawn = _attempt(seed, random, kind, copies)
        if drawn is not None:
            return drawn
    raise AssertionError(f"seed {seed}: no scenario with contention in {_ATTEMPTS} drawings")


@dataclass(frozen=True, slots=True)
class _Unscaled:
    """A job before its sizes and its period are set."""

    name: str
    shape: JobShape
    intensity: float
    """Bytes relative to those of other jobs of the same period."""

    def document(
        self,
        seconds: float,
        scale: float,
        start_s: float = 0.0,
    ) -> dict[str, Any]:
        """Return the job with `seconds` of computing, which sends `scale` times as much."""
        sent_bytes = seconds * scale * self.intensity * LINK_BPS / 8
        shape = self.shape
        return shape.document(self.name, Fraction(seconds), Fraction(sent_bytes), Fraction(start_s))


def _attempt(
    seed: int,
    random: Random,
    kind: Kind,
    copies: bool,
) -> Drawn | None:
    count = kind.jobs
    if kind.shape == MIXED:
        names = [random.choice([*SHAPES]) for _ in range(count)]
    else:
        names = [kind.shape] * count
    sizes = [random.choice(SHAPES[name].hosts) for name in names]
    if copies:
        sizes = sizes[:1] * count
    placed = FABRICS[kind.fabric](random, sizes)

    shape_seed = random.getrandbits(32)
    unscaled = []
    for index, (name, hosts) in enumerate(zip(names, placed.places, strict=True), start=1):
        if copies:
            shape = SHAPES[name].draw(Random(shape_seed), hosts)
            intensity = 1.0
        else:
            shape = SHAPES[name].draw(random, hosts)
            intensity = random.uniform(0.5, 1.5)
        unscaled.append(_Unscaled(f"job{index}", shape, intensity))

    periods_s = _periods_s(random, kind.periods, count)
    target = random.uniform(LEAST_LOAD, GREATEST_LOAD)
    starts = [random.random() for _ in range(count)]
    scaled = _scale(unscaled, build_fabric(placed.fabric), target)
    if scaled is None:
        return None

    scale, demands = scaled
    jobs = []
    for job, job_demand, period_s, start in zip(unscaled, demands, periods_s, starts, strict=True):
        compute_s = period_s / float(job_demand.alone_s)
        jobs.append(job.document(compute_s, scale, period_s * start))
    return Drawn(seed, kind, float(shared_load(demands)), placed.fabric, jobs)


def _periods_s(
    random: Random,
    periods: str,
    count: int,
) -> list[float]:
    if periods == "identical":
        return [random.uniform(_SHORTEST_S, _LONGEST_S)] * count
    if periods == "harmonic":
        shortest_s = random.uniform(_SHORTEST_S, _LONGEST_S / 2)
        times_s = []
        for _ in range(count):
            times_s.append(shortest_s * random.choice((1, 2, 4)))
        return times_s
    return [random.uniform(_SHORTEST_S, _LONGEST_S) for _ in range(count)]


def _scale(
    jobs: Sequence[_Unscaled],
    fabric: Fabric,
    target: float,
) -> tuple[float, list[Demand]] | None:
    """Return the scale at which the busiest shared link has the load `target`, with the demands.

    The load grows with the scale, since an iteration gets longer by no more than its flows do. None
    if it does not reach the target.
    """
    paths = FlowPaths().update([_built(job.document(1.0, 1.0)) for job in jobs], fabric)
    low = -float(_DOUBLINGS)
    high = float(_DOUBLINGS)
    while high - low > _ACCURACY / 10:
        middle = (low + high) / 2
        scale = 2**middle
        demands = []
        for job in jobs:
            built = _built(job.document(1.0, scale))
            demands.append(demand(built, fabric, paths[job.name]))

        load = shared_load(demands)
        if not load:
            return None
        is_close = abs(float(load) / target - 1) < _ACCURACY
        if is_close and LEAST_LOAD <= load <= GREATEST_LOAD:
            return scale, demands
        if load < target:
            low = middle
        else:
            high = middle
    return None


def _built(document: dict[str, Any]) -> Job:
    spec = parse_document(JobSpec, document, document["job"])
    return replace(build_job(spec), start_s=Fraction(0))
