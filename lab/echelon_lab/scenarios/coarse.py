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

from echelon.model.jobs.analysis import once
from echelon.model.jobs.graph import Job
from echelon.planning.fluid import alone_iteration_s
from echelon.planning.policies.echelon.grain import coarse, grains, whole_rings
from echelon.planning.policies.echelon.layers import with_fewer_layers
from echelon_lab.scenarios.results import alone_iterations_s
from echelon_lab.scenarios.scenario import Scenario

MOST_FLOWS = 500_000
"""The flows of a run beyond which it is made coarse.

They take some 3 to 60 s of a processor for each policy: 5 us each under fixed orders, 25 us under
fair sharing, and 90 us where ranks change, of two jobs that send from all to all of 16 hosts.
"""
_ROUGH_FLOWS = 4000
"""The flows of a job beyond which its times are measured with fewer layers, of which each takes the
time of several: two jobs of 45,000 flows would take 3 s, and an exact iteration of one 4 s."""


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
    # Two decode jobs of 94 layers on 16 hosts, with 6 or 12 layers in one: mean slowdowns 1.4 to
    # 3.1 % off under fair, fifo and crux, and no nearer with 3 in one; 3.4 % under echelon, whose
    # search takes another plan.
    Grain(lives=20, has_rounds=True, flows=4000, error=0.04),
    Grain(lives=20, has_rounds=False, flows=4000, error=0.05),
    Grain(lives=8, has_rounds=False, flows=4000, error=0.08),
    Grain(lives=8, has_rounds=False, flows=2000, error=0.09),
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

    def sizes(self, lives: int) -> dict[str, int]:
        """Return the number of iterations that are simulated as one, by job."""
        names = [job.name for job in self.scenario.jobs]
        alone_s = [float(self.least_s[name]) for name in names]
        slowest = max(range(len(alone_s)), key=alone_s.__getitem__)
        alone_s[slowest] = float(self.period_s)
        return dict(zip(names, grains(alone_s, lives), strict=True))

    def flows(self, grain: Grain, iterations: int) -> int:
        """Return about the number of flows in so many iterations of the slowest job."""
        return self._flows_until(grain, iterations * self.period_s, from_start=False)

    def run_flows(self, grain: Grain) -> int:
        """Return about the number of flows until all jobs have done all their iterations."""
        end_s = run_end_s(self.scenario, self.least_s)
        return self._flows_until(grain, end_s, from_start=True)

    def _flows_until(self, grain: Grain, end_s: Fraction, *, from_start: bool) -> int:
        sizes = self.sizes(grain.lives)
        flows = 0
        for job in self.scenario.jobs:
            lasts_s = end_s
            if from_start:
                lasts_s -= job.start_s
            periods = float(lasts_s / self.least_s[job.name]) / sizes[job.name]
            each = len(job.flows)
            if not grain.has_rounds:
                each = _whole_flows(job)
            each = min(each, grain.flows or each)
            flows += ceil(periods) * each
        return flows


def setup(scenario: Scenario, least_s: Mapping[str, Fraction] | None = None) -> Setup:
    """Return the setup of a scenario, whose `least_s` is computed unless it is given.

    Raises `PlanError` for a job that cannot run.
    """
    least_s = least_s or alone_iterations_s(scenario)
    slowest = max(scenario.jobs, key=lambda job: least_s[job.name])
    period_s = alone_iteration_s(_of_fewer_layers(slowest), scenario.fabric)
    return Setup(scenario, least_s, period_s)


@once
def _whole_flows(job: Job) -> int:
    """Return the number of flows of a job with whole rings."""
    return len(whole_rings(job).flows)


@once
def _of_fewer_layers(job: Job) -> Job:
    """Return the job with so few layers that its times are measured soon."""
    return with_fewer_layers(job, _ROUGH_FLOWS)


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
        if grain.flows == _ROUGH_FLOWS:
            job = _of_fewer_layers(job)
        elif grain.flows is not None:
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
    rough = replace(scenario, jobs=tuple(map(_of_fewer_layers, scenario.jobs)))
    least_s = alone_iterations_s(rough)
    flows = expected_flows(scenario, least_s)
    if flows <= MOST_FLOWS:
        return None
    prepared = setup(scenario, least_s)
    grain = _finest(prepared)
    return Coarsened(with_grain(prepared, grain), grain, flows)


def expected_flows(scenario: Scenario, least_s: Mapping[str, Fraction]) -> int:
    """Return about the number of flows until the slowest job has done all its iterations."""
    end_s = run_end_s(scenario, least_s)
    flows = 0
    for job in scenario.jobs:
        # A job that starts early goes on while others start and end.
        flows += ceil((end_s - job.start_s) / least_s[job.name]) * len(job.flows)
    return flows


def run_end_s(scenario: Scenario, least_s: Mapping[str, Fraction]) -> Fraction:
    """Return when the last job has done all its iterations, at the earliest."""
    return max(job.start_s + scenario.iterations * least_s[job.name] for job in scenario.jobs)


def _finest(prepared: Setup) -> Grain:
    """Return the finest grain under which a run is not long, or the coarsest of all."""
    for grain in GRAINS:
        if prepared.run_flows(grain) <= MOST_FLOWS:
            return grain
    return GRAINS[-1]
