"""A policy for tests that are no matter of its own: a class for each axis of a mesh job.

It is a distribution of its own for whoever has this folder in PYTHONPATH, as services in processes
of their own need it.
"""

from __future__ import annotations

from collections.abc import Sequence

from echelon.model.documents import Section
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.planning.paths import FlowPaths
from echelon.planning.plan import Plan
from echelon.planning.policies.levels import ranked_flows, strict
from echelon.planning.rankings.fixed import Fixed

TENSOR, ACTIVATIONS, GRADIENTS, DATA = 5, 4, 3, 2
"""The queues."""


def queue_of(echelonflow: str) -> int:
    """Return the queue of an EchelonFlow of a mesh job, by its name."""
    kind, _, rest = echelonflow.partition("-")
    if kind in ("forward", "backward"):
        return TENSOR
    if kind == "activation":
        return ACTIVATIONS
    # Gradients of a micro-batch go back through the pipeline; the others are summed.
    return GRADIENTS if "-m" in rest else DATA


class ByParadigm:
    """A fixed queue for each EchelonFlow."""

    name = "by_paradigm"
    needs = "job files"
    source = ""

    class Parameters(Section):
        """Nothing."""

    def __init__(self, parameters: Parameters | None = None) -> None:
        self._paths = FlowPaths()

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None = None) -> Plan:
        of_jobs = self._paths.update(jobs, fabric, paths)
        plans = {}
        for job in jobs:
            rankings = {}
            for echelonflow in job.echelonflows:
                ranking = Fixed(queue_of(echelonflow.name))
                rankings |= dict.fromkeys(echelonflow.flows, ranking)
            plans[job.name] = ranked_flows(job.name, of_jobs[job.name], rankings)
        return Plan.of_jobs(self.name, plans, default_schedule=strict())
