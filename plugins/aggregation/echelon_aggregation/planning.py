"""What each job of a scenario gains by aggregation in the network, against the same jobs with
rings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from echelon.model.fabric.model import Fabric
from echelon.model.jobs import build_job
from echelon.model.jobs.algorithms import OPERATIONS
from echelon.model.jobs.graph import Job
from echelon.model.jobs.spec import JobSpec
from echelon.planning.fluid import alone_iteration_s
from echelon.planning.fluid.slowdown import predicted_slowdowns
from echelon.planning.policies.fair import Fair
from echelon_aggregation.collectives import InNetwork
from echelon_aggregation.memory import Grant
from echelon_aggregation.policy import Aggregation


@dataclass(frozen=True, slots=True)
class Gain:
    """What a job with trees gets and gains."""

    job: str
    roots: tuple[str, ...]
    grants: tuple[Grant | None, ...]
    """What each tree gets; None: no places."""
    alone_s: float
    """An iteration, alone, with memory for all of it."""
    ring_alone_s: float
    """An iteration, alone, with rings instead."""
    shared_s: float
    """An iteration beside the other jobs."""
    ring_shared_s: float
    """The same if all jobs had rings."""

    @property
    def gain(self) -> float:
        """Return how many times as fast the job is as with rings, beside the others."""
        return self.ring_shared_s / self.shared_s


def with_rings(spec: JobSpec) -> JobSpec:
    """Return the job with the first algorithm of an operation instead of one in the network."""
    section = spec.paradigm
    changes: dict[str, object] = {}
    if _in_network("all-reduce", getattr(section, "collective", None)):
        changes["collective"] = "ring"
    if nodes := getattr(section, "nodes", ()):
        changes["nodes"] = tuple(
            node.model_copy(update={"algorithm": None})
            if _in_network(node.collective, node.algorithm)
            else node
            for node in nodes
        )
    return spec.model_copy(update={spec.parallelism: section.model_copy(update=changes)})


def _in_network(operation: str | None, algorithm: str | None) -> bool:
    return isinstance(OPERATIONS.get(operation or "", {}).get(algorithm or ""), InNetwork)


def gains(specs: Sequence[JobSpec], fabric: Fabric, policy: Aggregation) -> list[Gain]:
    """Return what each job with trees gains, in the order of the jobs.

    Raises `PlanError` and `FluidError`.
    """
    jobs, rings = (
        [build_job(spec) for spec in of] for of in (specs, [with_rings(spec) for spec in specs])
    )
    alone_s, ring_alone_s = (
        {job.name: alone_iteration_s(job, fabric) for job in of} for of in (jobs, rings)
    )
    policy.plan(jobs, fabric)
    granted: dict[str, list[tuple[str, Grant | None]]] = {}
    for claim, grant in policy.grants():
        granted.setdefault(claim.job, []).append((claim.tree.root, grant))
    shared_s = _shared_s(jobs, fabric, policy, alone_s)
    ring_shared_s = _shared_s(rings, fabric, Fair(), ring_alone_s)
    return [
        Gain(
            name,
            tuple(root for root, _ in trees),
            tuple(grant for _, grant in trees),
            float(alone_s[name]),
            float(ring_alone_s[name]),
            shared_s[name],
            ring_shared_s[name],
        )
        for name, trees in granted.items()
    ]


def _shared_s(
    jobs: Sequence[Job], fabric: Fabric, policy: Aggregation | Fair, alone_s: Mapping[str, Fraction]
) -> dict[str, float]:
    slowdowns = predicted_slowdowns(jobs, fabric, policy, alone_s)
    return {name: slowdown * float(alone_s[name]) for name, slowdown in slowdowns.items()}
