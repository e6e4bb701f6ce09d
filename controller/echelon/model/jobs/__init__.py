"""Training jobs: from a job file to the iteration graph and its EchelonFlows.

In comes a job file, with a paradigm, a model and workers. Out comes a `Job`: computations, flows,
and the ideal finish time of each flow. Begin with `graph`; a paradigm is one module, a collective
one class.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from echelon.model.jobs.graph import Job

if TYPE_CHECKING:
    from echelon.model.jobs.spec import JobSpec

__all__ = ["build_job", "load_job"]


def build_job(spec: JobSpec) -> Job:
    """Return the job that a checked specification describes."""
    graph = spec.paradigm.iteration(spec.workers)
    in_turn = spec.paradigm.sends_in_turn
    return Job(
        spec.job,
        *graph,
        start_s=spec.start,
        weight=spec.weight,
        in_turn=in_turn,
    )


def load_job(path: str | Path) -> Job:
    """Return the job in the YAML file `path`. Raises `echelon.model.documents.DocumentError`."""
    # pydantic and YAML take longer to import than the graph; modules that only handle jobs do not
    # need them.
    from echelon.model.jobs.spec import load_job_spec

    return build_job(load_job_spec(path))
