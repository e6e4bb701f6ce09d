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
from echelon.model.jobs.combinators import Step
from echelon.model.jobs.graph import Job
from echelon.model.jobs.spec import load_job_spec
from echelon.model.progress import UNSEEN, CommandProgress
from echelon_topoopt.direct import direct_fabric
from echelon_topoopt.parallelisations import given, job_of
from echelon_topoopt.rings import over_rings
from echelon_topoopt.rivals import best_on, rivals
from echelon_topoopt.search import Judge, optimise
from echelon_topoopt.tardiness import by_tardiness
from echelon_topoopt.topology_finder import Topology


@dataclass(frozen=True, slots=True)
class Settings:
    """What a panel is, and how to search."""

    degree: int
    rate_bps: int
    by_tardiness: bool = False
    starts: int = 6
    seed: int = 0
    panel_price: Fraction = Fraction(1)


@dataclass(frozen=True, slots=True)
class NetworkRow:
    """How a job does on a network."""

    job: str
    network: str
    host_bps: int
    parallelisation: str
    iteration_s: float
    relative: float
    """To the topology found."""


@dataclass(frozen=True, slots=True)
class SearchRow:
    """What a search has done."""

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
    jobs: Sequence[tuple[str, Sequence[str], Sequence[Step]]]
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
    if len({spec.job for spec in specs}) < len(specs):
        raise DocumentError(
            "JOB", "", "two jobs have one name (give each its own)", code="duplicate"
        )
    for spec in specs:
        given(spec, len(spec.workers))
    found = []
    rows: list[NetworkRow] = []
    searches = []
    for spec in specs:
        panel = (settings.degree, settings.rate_bps)
        first = optimise(
            spec, *panel, starts=settings.starts, seed=settings.seed, progress=progress
        )
        best = first.best
        if settings.by_tardiness:
            progress.stage(f"giving ports to what is late of {spec.job}")
            best = by_tardiness(Judge(spec, settings.rate_bps), best)
        found.append(best)
        times = (first.as_published.iteration_s, first.best.iteration_s, best.iteration_s)
        searches.append(SearchRow(spec.job, first.judged, first.turns, *times))
        own = (
            spec.job,
            "topology",
            settings.degree * settings.rate_bps,
            best.parallelisation.label,
        )
        rows.append(NetworkRow(*own, best.iteration_s, 1.0))
        others = rivals(len(spec.workers), *panel, settings.panel_price, settings.seed)
        progress.stage(f"comparing {spec.job}", len(others), "networks")
        for rival in others:
            label, lasts_s = best_on(rival, spec, progress)
            rows.append(
                NetworkRow(
                    spec.job, rival.name, rival.host_bps, label, lasts_s, lasts_s / best.iteration_s
                )
            )
            progress.done()
    fabric = direct_fabric([best.topology for best in found], settings.rate_bps)
    names = iter(build_fabric(fabric).hosts)
    jobs = []
    parts = []
    for spec, best in zip(specs, found, strict=True):
        own_hosts = list(islice(names, len(spec.workers)))
        steps = over_rings(best.parallelisation.steps, best.topology)
        jobs.append((spec.job, own_hosts, steps))
        parts.append((best.topology, job_of(steps, spec, own_hosts)))
    about = (
        f"{needed} hosts with {settings.degree} ports of {settings.rate_bps / 1e9:g} Gbit/s, "
        + ", ".join(
            f"{spec.job}: {best.parallelisation.label}"
            for spec, best in zip(specs, found, strict=True)
        )
    )
    return Result(fabric, jobs, parts, rows, searches, about)
