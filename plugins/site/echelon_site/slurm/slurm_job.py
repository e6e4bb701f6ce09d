"""A job as Slurm describes it, to a hook or in the list of all jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

COMMENT_PREFIX = "echelon:"
_NAME = re.compile(r"slurm-[0-9]+")
_ALLOCATED = frozenset({"CONFIGURING", "RESIZING", "RUNNING", "SIGNALING", "STOPPED", "SUSPENDED"})
"""The states and flags of a job that has its nodes. Text names a flag instead of the state."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job that has nodes, or had them until now."""

    number: int
    user: int
    nodes: str
    """The nodes in Slurm's notation, such as ``gpu-[001-004]``."""
    comment: str
    """What the user gave with ``--comment``."""
    directory: str
    """The directory from which the job was submitted."""
    note: str = ""
    """The administrator's comment, where registering says how it went."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Return the job for which Slurm calls a hook. Raises `ValueError` outside of one."""
        try:
            return cls(
                number=int(environment["SLURM_JOB_ID"]),
                user=int(environment["SLURM_JOB_UID"]),
                # Hooks of nodes have none, and need none.
                nodes=environment.get("SLURM_JOB_NODELIST", ""),
                comment=environment.get("SLURM_JOB_COMMENT", ""),
                directory=environment.get("SLURM_JOB_WORK_DIR", "/"),
            )
        except KeyError as error:
            raise ValueError(
                f"{error.args[0]} is not set (name deploy/slurm/hook.sh in slurm.conf)"
            ) from None

    @property
    def name(self) -> str:
        """Return the name under which the service knows the job."""
        return f"slurm-{self.number}"

    @property
    def is_for_echelon(self) -> bool:
        """Return whether the user wants the job to be registered."""
        return self.comment.startswith(COMMENT_PREFIX)


def is_from_slurm(name: str) -> bool:
    """Return whether a job of the service was registered here, by its name."""
    return _NAME.fullmatch(name) is not None


def allocated_jobs(listed: Mapping[str, Any]) -> Iterator[SlurmJob]:
    """Yield the jobs for Echelon that have nodes, of what ``squeue --json`` prints.

    Slurm 22.05 gives a job's state as text, 23.11 and later as a list with flags.
    """
    for facts in listed["jobs"]:
        states = facts["job_state"]
        if isinstance(states, str):
            states = [states]
        if _ALLOCATED.isdisjoint(states) or "COMPLETING" in states:
            continue
        job = SlurmJob(
            number=facts["job_id"],
            user=facts["user_id"],
            nodes=facts["nodes"],
            comment=facts["comment"],
            directory=facts["current_working_directory"],
            note=facts["admin_comment"],
        )
        if job.is_for_echelon:
            yield job
