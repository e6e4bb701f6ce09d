"""A job's iteration when it has the whole network to itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from echelon.execution import IterationRecord, duration_s
from echelon.fabric.model import Fabric
from echelon.fluid.simulator import simulate
from echelon.jobs.graph import Job
from echelon.plan import LEVELS, Fixed, FlowPlan, Plan, QueuePlan
from echelon.policies.base import ActiveFlow, Allocation, Link
from echelon.policies.filling import ZERO, fill_in_order, residual_of
from echelon.policies.network import capacities_Bps, shortest_paths


class EarliestDeadlineFirst:
    """Flows by ideal finish time: what the `echelon` policy does with one job, without asking for its time alone."""

    name = "edf"

    def __init__(self) -> None:
        self._capacities: dict[Link, Fraction] = {}

    def plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan:
        self._capacities = capacities_Bps(fabric)
        flows = tuple(FlowPlan(*key, Fixed(0), path) for key, path in shortest_paths(jobs, fabric).items())
        return Plan(self.name, flows, (QueuePlan(level=0),) * LEVELS)

    def allocate(self, now_s: Fraction, flows: Sequence[ActiveFlow]) -> Allocation:
        rates = [ZERO] * len(flows)
        order = sorted(range(len(flows)), key=lambda i: (flows[i].ideal_finish_s, flows[i].sequence))
        fill_in_order(flows, order, residual_of(self._capacities, flows), rates)
        return Allocation(tuple(rates))


def run_alone(job: Job, fabric: Fabric) -> IterationRecord[Fraction]:
    """One iteration of `job` on an otherwise empty fabric, its flows in order of deadline; seconds from its beginning.

    Raises `PlanError` if a worker cannot be reached.
    """
    result = simulate([replace(job, start_s=Fraction(0))], fabric, EarliestDeadlineFirst(), 1, until="exactly")
    return result.jobs[job.name].iterations[0]


def alone_iteration_s(job: Job, fabric: Fabric) -> Fraction:
    """Seconds that one iteration of `job` takes on an otherwise empty fabric. Raises as `run_alone`."""
    return duration_s(run_alone(job, fabric))
