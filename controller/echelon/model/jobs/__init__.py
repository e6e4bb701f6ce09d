"""Training jobs: from a job file to the iteration graph and its EchelonFlows.

In comes a job file, with a paradigm, a model and workers. Out comes a `Job`: computations, flows,
and the ideal finish time of each flow. Begin with `graph`; a paradigm is one module, a collective
one class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.model.jobs.graph import IterationGraph, Job

if TYPE_CHECKING:
    from echelon.model.jobs.spec import JobSpec

__all__ = ["build_job", "build_jobs", "load_job"]


def build_job(spec: JobSpec) -> Job:
    """Return the job that a checked specification describes."""
    return _job(spec, spec.paradigm.iteration(spec.workers))


def build_jobs(specs: Iterable[JobSpec]) -> tuple[Job, ...]:
    """Return the jobs that these specifications describe.

    A graph is built once for all jobs that differ by nothing but their hosts.
    """
    graphs: dict[tuple[str, int, str], tuple[Sequence[str], IterationGraph]] = {}
    jobs = []
    for spec in specs:
        # Some sections hold mappings, which have no hash, but all say what is in them.
        key = spec.parallelism, len(spec.workers), repr(spec.paradigm)
        if key not in graphs:
            graphs[key] = spec.workers, spec.paradigm.iteration(spec.workers)
        workers, graph = graphs[key]
        if workers != spec.workers:
            graph = graph.on_hosts(dict(zip(workers, spec.workers, strict=True)))
        jobs.append(_job(spec, graph))
    return tuple(jobs)


def _job(spec: JobSpec, graph: IterationGraph) -> Job:
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
