"""Scenarios whose runs would take hours, with jobs simulated less finely.

While a job of minutes does one iteration, a job of a second does hundreds, and nearly all flows of
a run are its own. Such a job does several iterations in one; rings of rounds become one flow for
each pair of neighbours, and layers are merged (`echelon.planning.policies.echelon.grain`). What a
run then says of slowdowns is off by the part that each grain names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

from echelon.model.jobs.graph import Job
from echelon.planning.fluid import alone_iteration_s
from echelon.planning.policies.echelon.grain import coarse, grains, whole_rings
from echelon.planning.policies.echelon.layers import with_fewer_layers
from echelon_lab.scenarios.results import alone_iterations_s
from echelon_lab.scenarios.scenario import Scenario

MOST_FLOWS = 1_000_000
"""The flows of a run beyond which it is made coarse.

They take some 5 to 60 s of a processor for each policy.
"""


@dataclass(frozen=True, slots=True)
class Grain:
    """How finely a run simulates its jobs."""

    lives: int
    """The iterations that faster jobs do in one of the slowest, at least (`grains`)."""
    has_rounds: bool
    """Whether rings are simulated round by round (`whole_rings`)."""
    flows: int | None
    """The most flows of an iteration, beyond which layers are merged (`with_fewer_layers`)."""
    error: float
    """The part by which mean slowdowns are off."""


GRAINS = (
    Grain(lives=40, has_rounds=True, flows=None, error=0.0),
    Grain(lives=20, has_rounds=True, flows=8000, error=0.02),
    Grain(lives=20, has_rounds=False, flows=4000, error=0.05),
    Grain(lives=8, has_rounds=False, flows=4000, error=0.08),
    Grain(lives=4, has_rounds=False, flows=2000, error=0.1),
)
"""The grains of long runs, the finest first."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A scenario to simulate, and how long its jobs take."""

    scenario: Scenario
    least_s: Mapping[str, Fraction]
    """The least time of an iteration of each job, of which slowdowns are multiples."""
    period_s: Fraction
    """The time of an iteration of the slowest job alone, over its usual paths."""
    whole_flows: Mapping[str, int]
    """The flows of each job with whole rings."""

    def sizes(self, lives: int) -> dict[str, int]:
        """Return the number of iterations that are simulated as one, by job."""
        names = [job.name for job in self.scenario.jobs]
        alone_s = [float(self.least_s[name]) for name in names]
        slowest = max(range(len(alone_s)), key=alone_s.__getitem__)
        alone_s[slowest] = float(self.period_s)
        return dict(zip(names, grains(alone_s, lives), strict=True))

    def flows(self, grain: Grain, iterations: int) -> int:
        """Return about the number of flows in so many iterations of the slowest job."""
        sizes = self.sizes(grain.lives)
        flows = 0
        for job in self.scenario.jobs:
            periods = float(self.period_s / self.least_s[job.name]) / sizes[job.name]
            if grain.has_rounds:
                each = len(job.flows)
            else:
                each = self.whole_flows[job.name]
            each = min(each, grain.flows or each)
            flows += ceil(iterations * periods) * each
        return flows


def setup(scenario: Scenario, least_s: Mapping[str, Fraction] | None = None) -> Setup:
    """Return the setup of a scenario, whose `least_s` is computed unless it is given.

    Raises `PlanError` for a job that cannot run.
    """
    least_s = least_s or alone_iterations_s(scenario)
    slowest = max(scenario.jobs, key=lambda job: least_s[job.name])
    period_s = alone_iteration_s(slowest, scenario.fabric)
    whole_flows = {job.name: len(whole_rings(job).flows) for job in scenario.jobs}
    return Setup(scenario, least_s, period_s, whole_flows)


def with_grain(prepared: Setup, grain: Grain) -> Scenario:
    """Return the scenario with jobs of this grain."""
    scenario = prepared.scenario
    sizes = prepared.sizes(grain.lives)
    misjudged = scenario.misjudged
    if misjudged is not None:
        misjudged = _with_grain(misjudged, grain, sizes)
    return replace(
        scenario,
        jobs=_with_grain(scenario.jobs, grain, sizes),
        misjudged=misjudged,
        together=sizes,
    )


def _with_grain(
    jobs: Sequence[Job],
    grain: Grain,
    sizes: Mapping[str, int],
) -> tuple[Job, ...]:
    changed = []
    for job in jobs:
        if not grain.has_rounds:
            job = whole_rings(job)
        if grain.flows is not None:
            job = with_fewer_layers(job, grain.flows)
        changed.append(coarse(job, sizes[job.name]))
    return tuple(changed)


@dataclass(frozen=True, slots=True)
class Coarsened:
    """A scenario whose run does not take hours, and what was left out for that."""

    scenario: Scenario
    grain: Grain
    flows: int
    """About how many flows would start under one policy if nothing were left out."""

    @property
    def changes(self) -> str:
        """Return a paragraph for people on what is simulated less finely."""
        several = []
        for name, together in self.scenario.together.items():
            if together > 1:
                several.append(f"{together} iterations of {name}")
        parts = []
        if several:
            parts.append(f"{', '.join(several)} are simulated as one")
        if not self.grain.has_rounds:
            parts.append("rings have one flow for each pair of neighbours")
        if self.grain.flows is not None:
            parts.append(f"layers are merged beyond {self.grain.flows} flows of an iteration")
        percent = max(1.0, 100 * self.grain.error)
        return (
            f"coarse: about {self.flows:,} flows would start under each policy, so that"
            f" {'; '.join(parts)}. Mean slowdowns are within some {percent:.0f} %"
            " (--exact simulates every flow)."
        )


def coarsened(scenario: Scenario) -> Coarsened | None:
    """Return the scenario with the finest grain whose run is short; None if it is short already.

    A scenario also stays as it is, however long it takes, if its run does not end with the slowest
    job or if it delays iterations by their numbers. Raises `PlanError` for a job that cannot run.
    """
    if scenario.until != "all-done" or scenario.delays:
        return None
    least_s = alone_iterations_s(scenario)
    flows = expected_flows(scenario, least_s)
    if flows <= MOST_FLOWS:
        return None
    prepared = setup(scenario, least_s)
    grain = _finest(prepared)
    return Coarsened(with_grain(prepared, grain), grain, flows)


def expected_flows(scenario: Scenario, least_s: Mapping[str, Fraction]) -> int:
    """Return about the number of flows until the slowest job has done all its iterations."""
    length_s = scenario.iterations * max(least_s.values())
    flows = 0
    for job in scenario.jobs:
        flows += ceil(length_s / least_s[job.name]) * len(job.flows)
    return flows


def _finest(prepared: Setup) -> Grain:
    """Return the finest grain under which a run is not long, or the coarsest of all."""
    for grain in GRAINS:
        if prepared.flows(grain, prepared.scenario.iterations) <= MOST_FLOWS:
            return grain
    return GRAINS[-1]
