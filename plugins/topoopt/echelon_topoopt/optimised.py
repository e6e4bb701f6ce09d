"""Jobs on parts of one panel: a search for each, and the fabric and the jobs of all.

Jobs have hosts of their own, so that none waits for another (TopoOpt, NSDI '23, section 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path

from echelon.model.documents import DocumentError
from echelon.model.fabric.load import FabricSpec, build_fabric
from echelon.model.jobs.graph import Job
from echelon.model.jobs.spec import JobSpec, load_job_spec
from echelon.model.progress import UNSEEN, CommandProgress
from echelon_topoopt.direct import direct_fabric
from echelon_topoopt.files import StepsOnHosts
from echelon_topoopt.parallelisations import as_in_file, job_of
from echelon_topoopt.rings import over_rings
from echelon_topoopt.rivals import best_on, rivals
from echelon_topoopt.search import Candidate, Judge, optimise
from echelon_topoopt.tardiness import by_tardiness
from echelon_topoopt.topology_finder import Topology


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the panel and of the search."""

    degree: int
    rate_bps: int
    by_tardiness: bool = False
    starts: int = 6
    seed: int = 0
    panel_price: Fraction = Fraction(1)


@dataclass(frozen=True, slots=True)
class NetworkRow:
    """The iteration time of a job on a network."""

    job: str
    network: str
    host_bps: int
    parallelisation: str
    iteration_s: float
    relative: float
    """The iteration time over that on the topology of the search."""


@dataclass(frozen=True, slots=True)
class SearchRow:
    """The record of a search."""

    job: str
    judged: int
    turns: int
    as_published_s: float
    """The iteration as given, on the topology with the paper's share of ports."""
    by_bytes_s: float
    best_s: float


@dataclass(frozen=True)
class Result:
    """Topologies and jobs for a panel."""

    fabric: FabricSpec
    jobs: Sequence[StepsOnHosts]
    parts: Sequence[tuple[Topology, Job]]
    rows: Sequence[NetworkRow]
    searches: Sequence[SearchRow]
    about: str


def optimise_jobs(
    files: Sequence[Path],
    settings: Settings,
    hosts: int | None = None,
    progress: CommandProgress = UNSEEN,
) -> Result:
    """Return the best topology and parallelisation of each job.

    Raises `DocumentError`, and `ValueError` as `optimise`.
    """
    specs = [load_job_spec(file) for file in files]
    needed = sum(len(spec.workers) for spec in specs)
    if hosts is not None and hosts != needed:
        raise DocumentError(
            "--hosts", "", f"is {hosts}, but the jobs have {needed} workers (give {needed})"
        )
    names = {spec.job for spec in specs}
    if len(names) < len(specs):
        raise DocumentError(
            "JOB", "", "two jobs have one name (give each its own)", code="duplicate"
        )
    for spec in specs:
        as_in_file(spec, len(spec.workers))
    chosen = []
    rows: list[NetworkRow] = []
    searches = []
    for spec in specs:
        panel = (settings.degree, settings.rate_bps)
        first = optimise(
            spec,
            *panel,
            starts=settings.starts,
            seed=settings.seed,
            progress=progress,
        )
        best = first.best
        if settings.by_tardiness:
            progress.stage(f"giving ports to what is late of {spec.job}")
            best = by_tardiness(Judge(spec, settings.rate_bps), best)
        chosen.append(best)
        search = SearchRow(
            spec.job,
            first.judged,
            first.turns,
            first.as_published.iteration_s,
            first.best.iteration_s,
            best.iteration_s,
        )
        searches.append(search)
        rows += _compared(spec, best, settings, progress)

    topologies = [best.topology for best in chosen]
    fabric = direct_fabric(topologies, settings.rate_bps)
    free_hosts = iter(build_fabric(fabric).hosts)
    jobs = []
    parts = []
    labels = []
    for spec, best in zip(specs, chosen, strict=True):
        job_hosts = list(islice(free_hosts, len(spec.workers)))
        steps = over_rings(best.parallelisation.steps, best.topology)
        job = job_of(steps, spec, job_hosts)
        jobs.append((spec.job, job_hosts, steps))
        parts.append((best.topology, job))
        labels.append(f"{spec.job}: {best.parallelisation.label}")
    ports = f"{settings.degree} ports of {settings.rate_bps / 1e9:g} Gbit/s"
    about = f"{needed} hosts with {ports}, {', '.join(labels)}"
    return Result(fabric, jobs, parts, rows, searches, about)


def _compared(
    spec: JobSpec,
    best: Candidate,
    settings: Settings,
    progress: CommandProgress,
) -> list[NetworkRow]:
    """Return a row for the topology of a job, and one for each other network."""
    host_bps = settings.degree * settings.rate_bps
    label = best.parallelisation.label
    rows = [NetworkRow(spec.job, "topology", host_bps, label, best.iteration_s, 1.0)]
    networks = rivals(
        len(spec.workers),
        settings.degree,
        settings.rate_bps,
        settings.panel_price,
        settings.seed,
    )
    progress.stage(f"comparing {spec.job}", len(networks), "networks")
    for rival in networks:
        label, lasts_s = best_on(rival, spec, progress)
        relative = lasts_s / best.iteration_s
        rows.append(NetworkRow(spec.job, rival.name, rival.host_bps, label, lasts_s, relative))
        progress.done()
    return rows
