"""The gain of each job by aggregation in the network, over the same jobs with rings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

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
    """The places that a job with trees gets, and its gain."""

    job: str
    roots: tuple[str, ...]
    grants: tuple[Grant | None, ...]
    """The places of each tree; None: none."""
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
    nodes = getattr(section, "nodes", ())
    if nodes:
        changes["nodes"] = tuple(map(_by_hosts, nodes))
    changed = section.model_copy(update=changes)
    return spec.model_copy(update={spec.parallelism: changed})


def _by_hosts(node: Any) -> Any:
    """Return the node of a graph, whose collective goes by the first algorithm of its operation."""
    if _in_network(node.collective, node.algorithm):
        return node.model_copy(update={"algorithm": None})
    return node


def _in_network(operation: str | None, algorithm: str | None) -> bool:
    algorithms = OPERATIONS.get(operation or "", {})
    chosen = algorithms.get(algorithm or "")
    return isinstance(chosen, InNetwork)


def gains(
    specs: Sequence[JobSpec],
    fabric: Fabric,
    policy: Aggregation,
) -> list[Gain]:
    """Return what each job with trees gains, in the order of the jobs.

    Raises `PlanError` and `FluidError`.
    """
    jobs = [build_job(spec) for spec in specs]
    rings = [build_job(with_rings(spec)) for spec in specs]
    alone_s = _alone_s(jobs, fabric)
    ring_alone_s = _alone_s(rings, fabric)

    policy.plan(jobs, fabric)
    roots: defaultdict[str, list[str]] = defaultdict(list)
    grants: defaultdict[str, list[Grant | None]] = defaultdict(list)
    for claim, grant in policy.grants():
        roots[claim.job].append(claim.tree.root)
        grants[claim.job].append(grant)

    shared_s = _shared_s(jobs, fabric, policy, alone_s)
    ring_shared_s = _shared_s(rings, fabric, Fair(), ring_alone_s)
    by_job = []
    for name in roots:
        gain = Gain(
            name,
            tuple(roots[name]),
            tuple(grants[name]),
            float(alone_s[name]),
            float(ring_alone_s[name]),
            shared_s[name],
            ring_shared_s[name],
        )
        by_job.append(gain)
    return by_job


def _alone_s(jobs: Sequence[Job], fabric: Fabric) -> dict[str, Fraction]:
    return {job.name: alone_iteration_s(job, fabric) for job in jobs}


def _shared_s(
    jobs: Sequence[Job],
    fabric: Fabric,
    policy: Aggregation | Fair,
    alone_s: Mapping[str, Fraction],
) -> dict[str, float]:
    slowdowns = predicted_slowdowns(jobs, fabric, policy, alone_s)
    shared_s = {}
    for name, slowdown in slowdowns.items():
        shared_s[name] = slowdown * float(alone_s[name])
    return shared_s
