"""GPU intensity: the computing for each second of communication (Crux, equation 2)."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction

from echelon.model.fabric.model import Path
from echelon.model.jobs.graph import Job
from echelon.planning.allocation import Capacities, Link
from echelon.planning.execution import AloneRecord, duration_s
from echelon.planning.paths import Paths, links_of
from echelon.planning.policies.crux.priority import Loop


@dataclass(frozen=True, slots=True)
class Load:
    """One iteration of a job, as Crux sees it."""

    work: Fraction
    """W, the computing of an iteration. Crux counts FLOPs on all GPUs; we count GPU seconds, since
    job files give durations. The two agree if all GPUs are of one kind and equally busy while they
    compute."""
    compute_s: Fraction
    """The time when the last compute unit finishes, in the iteration alone."""
    communicate_after_s: Fraction
    """The time when the first flow starts, in the iteration alone."""
    busy_s: Capacities
    """Seconds for which the iteration's bytes keep each link busy."""

    @property
    def communicate_s(self) -> Fraction:
        """Return t, the seconds for which the iteration keeps its busiest link."""
        return max(self.busy_s.values(), default=Fraction(0))

    @property
    def loop(self) -> Loop:
        """Return the job as it is compared with others."""
        after_s = float(self.communicate_after_s)
        return Loop(float(self.compute_s), float(self.communicate_s), after_s)

    @property
    def intensity(self) -> Fraction:
        """Return W / t; 0 for a job that does not communicate, which needs no priority."""
        if self.communicate_s:
            return self.work / self.communicate_s
        return Fraction(0)


def load_of(
    job: Job,
    paths: Paths,
    capacities: Capacities,
    alone: AloneRecord,
) -> Load:
    """Return the load of an iteration on these paths. `capacities` are bytes per second."""
    finishes_s = (span.finish for span in alone.computes.values() if span.finish is not None)
    compute_s = max(finishes_s, default=alone.start) - alone.start
    communicate_after_s = duration_s(alone)
    if alone.flows:
        communicate_after_s = min(span.start for span in alone.flows.values()) - alone.start
    busy_s = link_seconds(job, paths, capacities)
    return Load(work_of(job), compute_s, communicate_after_s, busy_s)


def work_of(job: Job) -> Fraction:
    """Return the seconds of all compute units of an iteration."""
    # Many units last as long as each other, and fractions are added slowly.
    counts = Counter(unit.duration_s.as_integer_ratio() for unit in job.computes)
    work = Fraction(0)
    for ratio, count in counts.items():
        work += count * Fraction(*ratio)
    return work


def link_seconds(
    job: Job,
    paths: Paths,
    capacities: Capacities,
) -> dict[Link, Fraction]:
    """Return for how many seconds an iteration's bytes keep each link on these paths busy."""
    bytes_by_path: dict[Path, int] = defaultdict(int)
    for flow in job.flows:
        bytes_by_path[paths[flow.name]] += flow.size_bytes
    bytes_by_link: dict[Link, int] = defaultdict(int)
    for path, size_bytes in bytes_by_path.items():
        for link in links_of(path):
            bytes_by_link[link] += size_bytes
    return {link: Fraction(size) / capacities[link] for link, size in bytes_by_link.items()}
