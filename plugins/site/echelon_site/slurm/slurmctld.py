"""Questions to Slurm, by its own commands."""

from __future__ import annotations

import json
import subprocess

from echelon_site.slurm.slurm_job import SlurmJob, allocated_jobs

_TIMEOUT_S = 60.0
_MOST_NOTE = 500
"""The most characters of a note, which Slurm keeps in memory with the job."""


class SlurmError(Exception):
    """Slurm did not answer, or not as it should. One line."""


def running_jobs() -> list[SlurmJob]:
    """Return the jobs for Echelon that have nodes now. Raises `SlurmError`."""
    # Text would let a line break in a comment pass for another job.
    text = _answer("squeue", "--json")
    try:
        listed = json.loads(text)
        # Without slurmctld, the list is empty and the status is 0.
        if listed["errors"]:
            description = listed["errors"][0]["description"]
            raise SlurmError(f"squeue: {description} (check that slurmctld runs)")
        return list(allocated_jobs(listed))
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise SlurmError(f"squeue --json is not understood ({reason})") from None


def node_names(nodes: str) -> list[str]:
    """Return the names of nodes in Slurm's notation, in its order. Raises `SlurmError`."""
    return _answer("scontrol", "show", "hostnames", nodes).split()


def write_note(job: SlurmJob, text: str) -> None:
    """Write a line into the job's AdminComment, which ``scontrol show job`` shows to the user.

    Raises `SlurmError`.
    """
    note = f"AdminComment={text[:_MOST_NOTE]}"
    _answer("scontrol", "update", f"JobId={job.number}", note)


def _answer(*command: str) -> str:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        raise SlurmError(f"{command[0]}: {error.strerror} (add Slurm's folder to PATH)") from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{command[0]} has no answer after {_TIMEOUT_S:g} s") from None
    if done.returncode:
        reason = " ".join(done.stderr.split()) or f"status {done.returncode}"
        raise SlurmError(f"{' '.join(command[:2])}: {reason}")
    return done.stdout
