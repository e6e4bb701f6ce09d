"""Coflows under way, their load on links, and plans for switches that a central scheduler of coflows directs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

from echelon.allocation import ActiveFlow, Link, Number
from echelon.fabric.model import Fabric
from echelon.fabric.routing import PathChooser
from echelon.jobs.graph import Job
from echelon.paths import FlowPaths
from echelon.plan import Plan
from echelon.policies.schedule import BEST_EFFORT_QUEUE, QUEUES, to_port
from echelon.policies.spread import Spread

CoflowKey: TypeAlias = tuple[str, int, str]
"""Job, iteration and EchelonFlow."""


def coflow_of(flow: ActiveFlow) -> CoflowKey | None:
    """Return the coflow of a flow; None for a flow in no EchelonFlow, which is best effort."""
    return None if flow.echelonflow is None else (flow.job, flow.iteration, flow.echelonflow)


def by_coflow(flows: Sequence[ActiveFlow]) -> tuple[dict[CoflowKey, list[int]], list[int]]:
    """Return the indices into `flows` of each coflow, and those of best effort.

    Coflows are in the order of their first flow in `flows`.
    """
    coflows: dict[CoflowKey, list[int]] = {}
    best_effort: list[int] = []
    for index, flow in enumerate(flows):
        key = coflow_of(flow)
        (best_effort if key is None else coflows.setdefault(key, [])).append(index)
    return coflows, best_effort


def load_of(flows: Iterable[ActiveFlow]) -> dict[Link, Number]:
    """Return the bytes that `flows` still have to send over each link."""
    load: dict[Link, Number] = {}
    for flow in flows:
        for link in flow.links:
            load[link] = load.get(link, 0) + flow.remaining_bytes
    return load


def bottleneck_s(load: Mapping[Link, Number], capacities_Bps: Mapping[Link, Number]) -> Number | None:  # noqa: N803
    """Return gamma, the seconds in which a coflow of that load can finish at best; None if it needs a full link."""
    if any(capacities_Bps[link] <= 0 for link in load):
        return None
    return max((load[link] / capacities_Bps[link] for link in load), default=0)


class CentralPlans:
    """The plans of a policy whose central scheduler hears of the start and finish of every flow."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._paths = FlowPaths()
        self._spread = Spread(QUEUES)
        self.capacities_Bps: Mapping[Link, Fraction] = {}
        """The capacity of each link of the fabric of the last plan, in bytes per second."""

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None) -> Plan:
        """Return a plan of equal queues, which holds until the scheduler has heard of flows.

        Raises `PlanError` if a worker cannot be reached.
        """
        of_jobs = self._paths.update(jobs, fabric, paths)
        self.capacities_Bps = fabric.capacity_Bps
        return Plan.of_jobs(
            self._policy,
            self._spread.update(jobs, of_jobs),
            default_schedule=to_port({}),
            best_effort_queue=BEST_EFFORT_QUEUE,
            reactive=True,
        )
