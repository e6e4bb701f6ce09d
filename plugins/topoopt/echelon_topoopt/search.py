"""The alternating search for a topology and a parallelisation (TopoOpt, NSDI '23, section 4.1).

One step searches parallelisations on a fixed topology. The other lets TopologyFinder make a
topology for the traffic of a fixed parallelisation. Both judge a candidate by a run of one
iteration on the fluid engine. Each step keeps the best it has seen, so times fall until neither
step changes anything: the fixed point. The search starts from the given parallelisation and from
those with the least possible times, and returns the best of the fixed points. A seed draws the
order of parallelisations whose least possible times are equal.

Besides the paper's share of ports for all-reduces, `find_topology` is given all other shares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
from echelon_topoopt.matching import Pair
from echelon_topoopt.parallelisations import Parallelisation, job_of, parallelisations
from echelon_topoopt.policy import Forwarded, TopoOpt
from echelon_topoopt.rings import over_rings
from echelon_topoopt.topology_finder import Topology, find_topology
from echelon_topoopt.traffic import traffic_of

MOST_STEPS = 30_000
"""The most steps of an iteration that the search tries.

Longer iterations, mostly tensor parallelism of many layers, take a minute each.
"""


Cables = tuple[tuple[Pair, int], ...]
"""The pairs with cables, and how many each has."""


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
    """The given parallelisation with the paper's share of ports: the search begins there."""
    judged: int
    """The number of iterations run."""
    turns: int
    """The number of changes of the topology, over all starts."""


class _Planner:
    """The judge's planner: fair sharing, and the least congested paths on every fabric."""

    def plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan:
        return TopoOpt().plan(jobs, fabric, Forwarded())


def run_on(
    parallelisation: Parallelisation,
    spec: JobSpec,
    fabric: Fabric,
    topology: Topology | None = None,
) -> tuple[IterationRecord[float], Job]:
    """Return a run of one iteration on a fabric's first hosts, with the topology's rings."""
    if topology is None:
        steps = parallelisation.steps
    else:
        steps = over_rings(parallelisation.steps, topology)
    hosts = list(fabric.hosts)
    job = job_of(steps, spec, hosts[: parallelisation.hosts])
    return run(job, fabric), job


def lasts_s(record: IterationRecord[float]) -> float:
    """Return the seconds of an iteration."""
    return (record.finish or 0.0) - record.start


def run(job: Job, fabric: Fabric) -> IterationRecord[float]:
    """Return one iteration of a job alone, as a fluid. Raises `PlanError` and `FluidError`."""
    result = simulate([job], fabric, _Planner(), 1)
    return result.jobs[job.name].iterations[0]


class Judge:
    """The fluid engine as a judge of candidates, which runs each of them once."""

    def __init__(
        self,
        spec: JobSpec,
        rate_bps: int,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._spec = spec
        self._rate_bps = rate_bps
        self._progress = progress
        self._judged: dict[tuple[str, Cables], Candidate] = {}

    @property
    def judged(self) -> int:
        """Return the number of iterations run."""
        return len(self._judged)

    def candidate(self, parallelisation: Parallelisation, topology: Topology) -> Candidate:
        """Return how a parallelisation does on a topology."""
        cables = tuple(topology.cables.items())
        key = parallelisation.label, cables
        if key not in self._judged:
            record, _ = self.record(parallelisation, topology)
            self._judged[key] = Candidate(parallelisation, topology, lasts_s(record))
            best = fastest(self._judged.values())
            self._progress(f"{self.judged} tried, best {best.iteration_s:.4g} s")
        return self._judged[key]

    def record(
        self, parallelisation: Parallelisation, topology: Topology
    ) -> tuple[IterationRecord[float], Job]:
        """Return a run of the iteration, and its job."""
        cables = direct_fabric([topology], self._rate_bps)
        fabric = build_fabric(cables)
        return run_on(parallelisation, self._spec, fabric, topology)


def topologies(
    parallelisation: Parallelisation,
    degree: int,
    weights: Mapping[str, float] | None = None,
) -> list[Topology]:
    """Return the topologies for its traffic: with the paper's share of ports, then with others."""
    traffic = traffic_of(parallelisation.steps, parallelisation.hosts, weights)
    shares: list[int | None] = [None]
    shares += range(0, degree + 1, 2)
    by_cables = {}
    for ports in shares:
        topology = find_topology(traffic, degree, ports)
        cables = tuple(topology.cables.items())
        by_cables[cables] = topology
    return list(by_cables.values())


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

    def show(state: str) -> None:
        progress.doing(f"{spec.job}: {state}")

    judge = Judge(spec, rate_bps, show)
    host_Bps = degree * rate_bps / 8  # noqa: N806
    first, *alternatives = parallelisations(spec)
    rng = Random(seed)
    every = [first, *promising(alternatives, host_Bps, rng)]
    begins = every[:starts]
    progress.stage(f"searching for {spec.job}", len(begins), "starts")

    papers_share, *_ = topologies(first, degree)
    published = judge.candidate(first, papers_share)
    best = published
    turns = 0
    for begin in begins:
        if begin.least_s(host_Bps) < best.iteration_s:
            reached, changes = _alternate(judge, begin, every, degree, host_Bps)
            best = _faster(best, reached)
            turns += changes
        progress.done()
    return Found(best, published, judge.judged, turns)


def promising(
    parallelisations: Sequence[Parallelisation],
    host_Bps: float,  # noqa: N803
    rng: Random | None = None,
) -> list[Parallelisation]:
    """Return the parallelisations of at most `MOST_STEPS` steps, by their least possible time.

    `rng` draws the order of those with equal times; without it they keep their order.
    """

    def least_s(parallelisation: Parallelisation) -> float:
        return parallelisation.least_s(host_Bps)

    fitting = []
    for parallelisation in parallelisations:
        steps = parallelisation.paradigm.step_count(parallelisation.hosts)
        if steps <= MOST_STEPS:
            fitting.append(parallelisation)
    if rng is not None:
        rng.shuffle(fitting)
    return sorted(fitting, key=least_s)


def _faster(best: Candidate, other: Candidate) -> Candidate:
    """Return the candidate with the shorter iteration, `best` if they are equal."""
    return other if other.iteration_s < best.iteration_s else best


def fastest(candidates: Iterable[Candidate]) -> Candidate:
    return min(candidates, key=lambda candidate: candidate.iteration_s)


def _alternate(
    judge: Judge,
    begin: Parallelisation,
    every: Sequence[Parallelisation],
    degree: int,
    host_Bps: float,  # noqa: N803
) -> tuple[Candidate, int]:
    """Return the fixed point from a parallelisation, and how many topologies it took."""
    chosen = begin
    turns = 0
    best: Candidate | None = None
    while True:
        turns += 1
        tried = topologies(chosen, degree)
        changed = fastest(judge.candidate(chosen, topology) for topology in tried)
        if best is not None and changed.iteration_s >= best.iteration_s:
            return best, turns
        best = changed
        for other in every:
            # What cannot be faster need not be run.
            if other.least_s(host_Bps) < best.iteration_s:
                candidate = judge.candidate(other, changed.topology)
                best = _faster(best, candidate)
        if best.parallelisation.label == chosen.label:
            return best, turns
        chosen = best.parallelisation
