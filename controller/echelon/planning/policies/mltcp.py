"""MLTCP: the further a connection is in its iteration, the larger its share.

Source: Rajasekaran, Narang, Zabreyko and Ghobadi, MLTCP: A Distributed Technique to Approximate
Centralized Flow Scheduling For Machine Learning, HotNets '24 (arXiv 2402.09589): congestion control
scales how fast it grows by ``F(bytes_ratio) = slope * bytes_ratio + intercept``, where the ratio is
the part of the iteration's bytes that the connection has sent. Two identical jobs that collide
slide apart, multiplying their distance by up to 1 + slope/intercept in each iteration.

Three forms of it:

- `allocate`: ideal rates, max-min fair with weight F for each flow.
- The plan, for unmodified senders: switches count the bytes of each connection in the iteration,
  and move it up one queue with every eighth of them. In strict order this is the limit of an
  infinite slope. With ``share: weights`` queues have weights in proportion to F at the middle of
  their part instead. The paper changes end hosts only.
- ``congestion: mltcp`` in a scenario's transport: the rule itself, in our TCP
  (`echelon_lab.endhosts.tcp.newreno`).

The paper's senders learn an iteration's bytes and pauses; here a job file gives the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field

from echelon.model.documents import Section
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import Job
from echelon.model.kept import Kept
from echelon.planning.allocation import ActiveFlow, Allocation, Capacities, Number
from echelon.planning.paths import FlowPaths, Paths
from echelon.planning.plan import CONTROL_QUEUE, LEVELS, FlowPlans, Plan, PortSchedule, QueuePlan
from echelon.planning.policies.base import LinksOnly
from echelon.planning.policies.filling import ZERO, fill_evenly, residual_of
from echelon.planning.policies.levels import (
    MIN_SHARE,
    ranked_flows,
    strict,
)
from echelon.planning.policies.schedule import HIGHEST_WEIGHT
from echelon.planning.policies.weighted import fill_by_weight
from echelon.planning.rankings.attained import Attained

REFRESHES = 32
"""The number of parts of an iteration's bytes in which `allocate` follows F as it grows.

For jobs with the same bytes the ratio of their weights does not change while they share a link, so
that their rates are exact.
"""


class Mltcp(LinksOnly):
    """Connections by their progress in the iteration."""

    name = "mltcp"
    needs = "bytes of an iteration"
    source = "HotNets '24"
    ranks_by_bytes = True

    class Parameters(Section):
        """The aggressiveness function, and how switches follow it."""

        slope: Annotated[float, Field(ge=0, le=100)] = 1.75
        """The growth of the weight over an iteration (the paper's default)."""
        intercept: Annotated[float, Field(gt=0, le=100)] = 0.25
        """The weight at the beginning of an iteration (the paper's default)."""
        share: Literal["strict", "weights"] = "strict"
        """Whether the most advanced connection goes first in a switch, or has the largest
        weight.
        """

    def __init__(self, parameters: Parameters | None = None) -> None:
        self._chosen = parameters or self.Parameters()
        self._slope = Fraction(self._chosen.slope).limit_denominator(10**6)
        self._intercept = Fraction(self._chosen.intercept).limit_denominator(10**6)
        self._capacities: Capacities = {}
        self._progress: Mapping[str, Mapping[str, tuple[int, int]]] = {}
        self._paths = FlowPaths()
        self._places = Kept(_places)
        self._flows = Kept(_ranked)

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
    ) -> Plan:
        """Return a plan in which a connection rises through the queues as its bytes pass.

        Raises `PlanError` if a worker cannot be reached.
        """
        paths_by_job = self._paths.update(jobs, fabric, paths)
        self._capacities = fabric.capacity_Bps
        self._progress = self._places.update({job.name: (job,) for job in jobs})
        if self._chosen.share == "weights":
            queues = CONTROL_QUEUE
            schedule = self._weighted()
        else:
            queues = LEVELS
            schedule = strict(MIN_SHARE)
        rows = {}
        for job in jobs:
            rows[job.name] = job, paths_by_job[job.name], queues
        flows = self._flows.update(rows)
        return Plan.of_jobs(self.name, flows, default_schedule=schedule)

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return shares weighted by F, for a `REFRESHES`-th of an iteration of the fastest flow.

        Best effort shares what is left.
        """
        weights = {}
        totals = {}
        best_effort = []
        for i, flow in enumerate(flows):
            if flow.job not in self._progress:
                best_effort.append(i)
                continue
            before, total = self._progress[flow.job][flow.flow]
            sent = before + flow.size_bytes - flow.remaining_bytes
            weights[i] = self._slope * min(1, sent / total) + self._intercept
            totals[i] = total
        residual = residual_of(self._capacities, flows)
        rates = [ZERO] * len(flows)
        fill_by_weight(flows, weights, residual, rates)
        fill_evenly(flows, best_effort, residual, rates)

        # A flow without others has the same rate whatever its weight.
        fastest = ZERO
        if len(weights) > 1:
            fastest = max(rates[i] / totals[i] for i in weights)
        if not fastest:
            return Allocation(tuple(rates))
        return Allocation(tuple(rates), now_s + 1 / (REFRESHES * fastest))

    def _weighted(self) -> PortSchedule:
        weights = bucket_weights(self._slope, self._intercept, CONTROL_QUEUE)
        return (*(QueuePlan(0, weight) for weight in weights), QueuePlan(1))


def bucket_weights(
    slope: Fraction,
    intercept: Fraction,
    buckets: int,
) -> tuple[int, ...]:
    """Return DWRR weights by F at the middle of each of `buckets` parts of an iteration."""
    values = []
    for bucket in range(buckets):
        middle = Fraction(2 * bucket + 1, 2 * buckets)
        values.append(slope * middle + intercept)
    weights = []
    for value in values:
        weight = round(HIGHEST_WEIGHT * value / values[-1])
        weights.append(max(1, weight))
    return tuple(weights)


def _places(job: Job) -> Mapping[str, tuple[int, int]]:
    """Return, by flow, the bytes of its connection before it and in a whole iteration."""
    out = {}
    for flows in connections(job).values():
        total = max(1, sum(flow.size_bytes for flow in flows))
        before = 0
        for flow in flows:
            out[flow.name] = before, total
            before += flow.size_bytes
    return out


def _ranked(
    job: Job,
    paths: Paths,
    queues: int,
) -> FlowPlans:
    rankings = {}
    for ends, flows in connections(job).items():
        total = sum(flow.size_bytes for flow in flows)
        thresholds = {queue * total // queues for queue in range(1, queues)} - {0}
        order = tuple(range(queues - 1 - len(thresholds), queues))
        ranking = Attained(">".join(ends), tuple(sorted(thresholds)), order)
        for flow in flows:
            rankings[flow.name] = ranking
    return ranked_flows(job.name, paths, rankings)
