"""The placements of a scenario's jobs, and the best of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from echelon.model.documents import DocumentError
from echelon.model.jobs import build_job
from echelon.model.progress import UNSEEN, CommandProgress
from echelon.planning.fluid.alone_runs import AloneRuns
from echelon_lab.placement.cost import PlacementCost, edge_switch, placement_cost
from echelon_lab.placement.strategies import STRATEGIES, Placement, Racks, drawn
from echelon_lab.scenarios.scenario import Scenario

GIVEN = "given"
BEST = "best"
CANDIDATES = 10
"""Drawn placements among which the best is sought besides the named ones.

They are as many as in CASSINI (NSDI '24, section 4).
"""


@dataclass(frozen=True, slots=True)
class PlacedScenario:
    """A scenario with its jobs somewhere else."""

    name: str
    """The strategy."""
    scenario: Scenario
    predicted: PlacementCost


def place_jobs(
    scenario: Scenario,
    candidates: int = CANDIDATES,
    progress: CommandProgress = UNSEEN,
) -> list[PlacedScenario]:
    """Return the scenario's jobs as they are, placed by each strategy, and in the best way found.

    The best has the highest predicted utilisation of all these and of `candidates` drawn
    placements. Hosts that a job names outside of `workers`, such as parameter servers, keep their
    roles and take no workers. Stragglers (`delays`) are left out, since they belong to hosts.
    `progress` is told of each placement that is predicted.

    Raises `DocumentError` if a job cannot be placed, and `PlanError` if a host cannot be reached.
    """
    racks = _racks(scenario)
    hosts = sum(len(rack) for rack in racks)
    ranks = {name: len(spec.workers) for name, spec in scenario.specs.items()}
    for name, count in ranks.items():
        if count > hosts:
            reason = f"has {count} workers, but {hosts} hosts are free (give a larger fabric)"
            raise DocumentError(str(scenario.file), f"job '{name}'", reason, code="does-not-fit")
    alone = AloneRuns()
    scenario = replace(scenario, delays=())
    progress.stage("predicting the placements", 1 + len(STRATEGIES) + candidates, "placements")
    unchanged = placement_cost(scenario.jobs, scenario.fabric, alone)
    placed = [PlacedScenario(GIVEN, scenario, unchanged)]
    progress.done()
    for name, strategy in STRATEGIES.items():
        placed.append(_placed(scenario, name, strategy(ranks, racks), alone))
        progress.done()
    considered = list(placed)
    for placement in drawn(ranks, racks, candidates, scenario.seed):
        considered.append(_placed(scenario, BEST, placement, alone))
        progress.done()
    best = max(considered, key=lambda candidate: candidate.predicted.utilisation)
    return [*placed, replace(best, name=BEST)]


def _placed(
    scenario: Scenario,
    name: str,
    placement: Placement,
    alone: AloneRuns,
) -> PlacedScenario:
    # Only names of hosts change, each job's to as many different ones, so nothing needs to be
    # checked again.
    specs = {}
    for job, spec in scenario.specs.items():
        specs[job] = spec.model_copy(update={"workers": placement[job]})
    jobs = tuple(build_job(specs[job.name]) for job in scenario.jobs)
    moved = replace(scenario, jobs=jobs, specs=specs)
    return PlacedScenario(name, moved, placement_cost(jobs, scenario.fabric, alone))


def _racks(scenario: Scenario) -> Racks:
    taken: set[str] = set()
    for spec in scenario.specs.values():
        taken.update(spec.paradigm.other_hosts())
    racks: dict[str, list[str]] = {}
    for host in scenario.fabric.hosts:
        if host not in taken:
            rack = edge_switch(scenario.fabric, host)
            racks.setdefault(rack, []).append(host)
    return list(racks.values())


def rows(
    placed: list[PlacedScenario],
) -> Iterator[tuple[str, str, int, float, float, float, float]]:
    """Yield a row for each placement and job.

    It has the strategy, the job, its racks, seconds alone, predicted slowdown and seconds, and the
    change of the predicted seconds against the scenario as it is, in percent.
    """
    unchanged = placed[0].predicted.jobs
    for candidate in placed:
        for job, cost in candidate.predicted.jobs.items():
            before_s = unchanged[job].iteration_s
            change = 0.0
            if before_s:
                change = (cost.iteration_s / before_s - 1) * 100
            costs = (cost.racks, cost.alone_s, cost.slowdown, cost.iteration_s)
            yield (candidate.name, job, *costs, change)
