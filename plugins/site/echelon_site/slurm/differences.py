"""The changes that leave the service with exactly those jobs of Slurm that have nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from echelon_site.slurm.slurm_job import SlurmJob

REFUSED = "Echelon refuses the job: "
"""The beginning of the note of a job that is not tried again."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Registrations and removals that are missing."""

    removed: tuple[str, ...]
    registered: tuple[SlurmJob, ...]


def difference(
    registered: Mapping[str, Iterable[str]],
    running: Mapping[SlurmJob, Sequence[str]],
) -> Difference:
    """Return what has to change.

    `registered` has the hosts of each job that the service has from Slurm, `running` the hosts of
    each job that has nodes. To be safe against jobs that start meanwhile, `registered` must be
    older than `running`: every job in it had nodes when it was registered, so one that is not in
    `running` has ended.
    """
    names = {job.name for job in running}
    ended = [name for name in registered if name not in names]
    missing = []
    for job, hosts in running.items():
        # A job that was requeued has the same number and other nodes.
        has_its_hosts = job.name in registered and set(hosts) <= set(registered[job.name])
        if not has_its_hosts and not job.note.startswith(REFUSED):
            missing.append(job)
    return Difference(tuple(ended), tuple(missing))
