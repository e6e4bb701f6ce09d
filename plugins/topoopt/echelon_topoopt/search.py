"""The alternating search: a topology for the parallelisation, a parallelisation for the topology,
and so on.

TopoOpt (NSDI '23, section 4.1) alternates between the plane of computing and communication, where
it searches parallelisations on a fixed topology, and that of communication and topology, where
TopologyFinder makes one for the traffic of a fixed parallelisation. Our judge of both is a run of
one iteration on the fluid engine. Each step keeps the best it has seen, so times fall until neither
step changes anything: the fixed point. Searches from several parallelisations, the given one and
those with the least possible times, end in one of them; the best is the result. A seed puts those
in order of which nothing tells the times.

Besides the paper's share of ports for all-reduces, `find_topology` is given all other shares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from echelon.model.fabric.load import build_fabric
from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Job
from echelon.model.jobs.spec import JobSpec
from echelon.model.progress import UNSEEN, CommandProgress
from echelon.planning.execution import IterationRecord
from echelon.planning.fluid import simulate
from echelon.planning.plan import Plan
from echelon_topoopt.direct import direct_fabric
from echelon_topoopt.parallelisations import Parallelisation, job_of, parallelisations
from echelon_topoopt.policy import Forwarded, TopoOpt
from echelon_topoopt.rings import over_rings
from echelon_topoopt.topology_finder import Topology, find_topology
from echelon_topoopt.traffic import traffic_of

MOST_STEPS = 30_000
"""The most steps of an iteration that is tried.

More take a minute, mostly for tensor parallelism of many layers.
"""


@dataclass(frozen=True)
class Candidate:
    """A parallelisation on a topology, and how long its iteration takes."""

    parallelisation: Parallelisation
    topology: Topology
    iteration_s: float


@dataclass(frozen=True)
class Found:
    """The result of a search."""

    best: Candidate
    as_published: Candidate
    """The given parallelisation on the topology with the paper's share of ports: where the search
    begins.
    """
    judged: int
    """The number of iterations run."""
    turns: int
    """How often the topology was changed, over all starts."""


class _Planner:
    """The judge's planner: fair sharing, and the least congested paths also where hosts do not
    forward.
    """

    def plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan:
        return TopoOpt().plan(jobs, fabric, Forwarded())


def run_on(
    parallelisation: Parallelisation,
    spec: JobSpec,
    fabric: Fabric,
    topology: Topology | None = None,
) -> tuple[IterationRecord[float], Job]:
    """Return a run of an iteration, and its job, on the first hosts of a fabric; rings are those of
    the topology.
    """
    if topology is None:
        steps = parallelisation.steps
    else:
        steps = over_rings(parallelisation.steps, topology)
    job = job_of(steps, spec, list(fabric.hosts)[: parallelisation.hosts])
    return run(job, fabric), job


def lasts_s(record: IterationRecord[float]) -> float:
    """Return the seconds of an iteration."""
    return (record.finish or 0.0) - record.start


def run(job: Job, fabric: Fabric) -> IterationRecord[float]:
    """Return one iteration of a job alone, as a fluid. Raises `PlanError` and `FluidError`."""
    return simulate([job], fabric, _Planner(), 1).jobs[job.name].iterations[0]


class Judge:
    """The fluid engine, which remembers what it was asked."""

    def __init__(
        self, spec: JobSpec, rate_bps: int, said: Callable[[str], None] = lambda _: None
    ) -> None:
        self._spec = spec
        self._rate_bps = rate_bps
        self._said = said
        self._known: dict[tuple[str, tuple[tuple[tuple[int, int], int], ...]], Candidate] = {}

    @property
    def judged(self) -> int:
        """Return the number of iterations run."""
        return len(self._known)

    def candidate(self, parallelisation: Parallelisation, topology: Topology) -> Candidate:
        """Return how a parallelisation does on a topology."""
        key = parallelisation.label, tuple(topology.cables.items())
        if key not in self._known:
            record, _ = self.record(parallelisation, topology)
            self._known[key] = Candidate(parallelisation, topology, lasts_s(record))
            self._said(
                f"{len(self._known)} tried, best"
                f" {min(of.iteration_s for of in self._known.values()):.4g} s"
            )
        return self._known[key]

    def record(
        self, parallelisation: Parallelisation, topology: Topology
    ) -> tuple[IterationRecord[float], Job]:
        """Return a run of the iteration, and its job."""
        fabric = build_fabric(direct_fabric([topology], self._rate_bps))
        return run_on(parallelisation, self._spec, fabric, topology)


def topologies(
    parallelisation: Parallelisation, degree: int, weights: Mapping[str, float] | None = None
) -> list[Topology]:
    """Return the topologies for its traffic: with the paper's share of ports for all-reduces, and
    with each other.
    """
    traffic = traffic_of(parallelisation.steps, parallelisation.hosts, weights)
    found = [find_topology(traffic, degree, ports) for ports in (None, *range(0, degree + 1, 2))]
    return list({tuple(one.cables.items()): one for one in found}.values())


def optimise(
    spec: JobSpec,
    degree: int,
    rate_bps: int,
    *,
    starts: int = 6,
    seed: int = 0,
    progress: CommandProgress = UNSEEN,
) -> Found:
    """Return the best parallelisation and topology found.

    `rate_bps` is that of a port. Raises `DocumentError` for a job that has not one rank on each
    host, and `ValueError` if hosts have too few ports to be connected.
    """
    judge = Judge(spec, rate_bps, lambda said: progress.doing(f"{spec.job}: {said}"))
    host_Bps = degree * rate_bps / 8  # noqa: N806
    every = parallelisations(spec)
    fits = [one for one in every[1:] if one.paradigm.step_count(one.hosts) <= MOST_STEPS]
    Random(seed).shuffle(fits)
    others = sorted(fits, key=lambda one: one.least_s(host_Bps))
    begins = [every[0], *others[: starts - 1]]
    progress.stage(f"searching for {spec.job}", len(begins), "starts")
    published = judge.candidate(every[0], topologies(every[0], degree)[0])
    best = published
    turns = 0
    for begin in begins:
        if begin.least_s(host_Bps) < best.iteration_s:
            found, taken = _alternate(judge, begin, [every[0], *others], degree, host_Bps)
            best = min(best, found, key=lambda of: of.iteration_s)
            turns = turns + taken
        progress.done()
    return Found(best, published, judge.judged, turns)


def _alternate(
    judge: Judge,
    begin: Parallelisation,
    every: Sequence[Parallelisation],
    degree: int,
    host_Bps: float,  # noqa: N803
) -> tuple[Candidate, int]:
    """Return the fixed point from a parallelisation, and after how many topologies it was
    reached.
    """
    chosen = begin
    turns = 0
    best: Candidate | None = None
    while True:
        turns += 1
        here = [judge.candidate(chosen, topology) for topology in topologies(chosen, degree)]
        on = min(here, key=lambda of: of.iteration_s)
        if best is not None and on.iteration_s >= best.iteration_s:
            return best, turns
        best = on
        for other in every:
            if other.least_s(host_Bps) < best.iteration_s:
                best = min(best, judge.candidate(other, on.topology), key=lambda of: of.iteration_s)
        if best.parallelisation.label == chosen.label:
            return best, turns
        chosen = best.parallelisation
