"""Aalo: coflows in queues by the bytes that they have sent, without knowing how many they will
send.

Source: Chowdhury, Stoica, Efficient Coflow Scheduling Without Prior Knowledge, SIGCOMM '15: D-CLAS
(discretized coflow-aware least-attained service), section 4. A coflow begins in the first of K
queues and goes to the next when it has sent Q0 bytes, then E × Q0, E² × Q0 and so on. In a queue
the coflow that arrived first goes first.

The paper's defaults are K = 10, E = 10 and Q0 = 10 MB at 1 Gbit/s. Q0 is given here as the time
that the slowest link of the fabric needs for it, so that it means the same at all rates. The paper
shares links between queues by weight; here they have strict priority by default (`share`), as in
the authors' simulator. Flows of one coflow share what it gets in max-min fairness.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field

from echelon.model.documents import Section
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.model.kept import Kept
from echelon.planning.allocation import ActiveFlow, Allocation, Link, Number
from echelon.planning.paths import FlowPaths, Paths
from echelon.planning.plan import FlowPlan, Plan, QueuePlan
from echelon.planning.policies.coflows import CoflowKey, CoflowSharing, FlowSharing
from echelon.planning.policies.levels import BEST_EFFORT_QUEUE, JOB_QUEUES
from echelon.planning.rankings.attained import Attained
from echelon.planning.rankings.fixed import Fixed

ROUNDING_BYTES = 1
"""A threshold is reached if less than this is missing, since times may have been rounded."""


def thresholds_bytes(first: int, growth: int, queues: int) -> tuple[int, ...]:
    """Return the bytes at which a coflow leaves each of `queues` queues but the last."""
    return tuple(first * growth**k for k in range(queues - 1))


@dataclass(slots=True)
class _History:
    """The history of a coflow: all that its active flows do not tell."""

    iteration: int
    arrival: int
    """The sequence number of its first flow."""
    finished_bytes: int = 0
    active: dict[str, ActiveFlow] = field(default_factory=dict)
    """The flows that were active at the last decision, by name."""

    def update(self, flows: Sequence[ActiveFlow]) -> None:
        """Take the flows that are active now; all others have sent all their bytes."""
        now = {flow.flow: flow for flow in flows}
        self.finished_bytes += sum(
            flow.size_bytes for name, flow in self.active.items() if name not in now
        )
        self.active = now


class _WholeCoflows(FlowSharing):
    """The sharing of coflows of which the finished flows are remembered."""

    def __init__(
        self,
        flows: Sequence[ActiveFlow],
        capacities_Bps: Mapping[Link, Fraction],  # noqa: N803
        histories: dict[tuple[str, str], _History],
    ) -> None:
        super().__init__(flows, capacities_Bps)
        self._history: dict[CoflowKey, _History] = {}
        for coflow, indices in self.members.items():
            job, iteration, echelonflow = coflow
            active = [flows[i] for i in indices]
            known = histories.get((job, echelonflow))
            if known is None or known.iteration != iteration:
                known = histories[job, echelonflow] = _History(
                    iteration, min(flow.sequence for flow in active)
                )
            known.update(active)
            self._history[coflow] = known

    @property
    def coflows(self) -> Sequence[CoflowKey]:
        return sorted(self._history, key=lambda coflow: self._history[coflow].arrival)

    def sent_bytes(self, coflow: CoflowKey) -> Number:
        return super().sent_bytes(coflow) + self._history[coflow].finished_bytes


class Aalo:
    """D-CLAS: queues by bytes sent between coflows, first come first served in a queue.

    A coflow is the flows of one EchelonFlow in one iteration. Switches count its bytes themselves
    (`Attained`), so there is no central scheduler. They know only the bytes that cross them, and
    serve a queue packet by packet: the coflows in it share the link. `allocate` counts all bytes,
    and serves the coflows in a queue one after the other.
    """

    name = "aalo"
    needs = "which flows are a coflow"
    source = "SIGCOMM '15"

    class Parameters(Section):
        """The queues of D-CLAS."""

        queues: Annotated[int, Field(ge=2, le=10)] = 10
        """K. Switches have six of them; the sixth and those after it are one."""
        first_ms: Annotated[int, Field(ge=1, le=1_000_000)] = 84
        """Q0: what the slowest link carries in this many milliseconds."""
        growth: Annotated[int, Field(ge=2, le=100)] = 10
        """E."""
        share: Literal["strict", "weighted"] = "strict"
        """The sharing of a link between queues: strictly by priority, or by weights K, K - 1, and
        so on to 1.
        """

    def __init__(self, parameters: Parameters | None = None) -> None:
        if parameters is None:
            self._parameters = self.Parameters()
        else:
            self._parameters = parameters
        self._capacities: Mapping[Link, Fraction] = {}
        self._thresholds: tuple[int, ...] = ()
        self._paths = FlowPaths()
        self._flows = Kept(_ranked)
        self._histories: dict[tuple[str, str], _History] = {}
        """The histories of coflows, by job and EchelonFlow."""

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None = None) -> Plan:
        """Return a plan of a queue for each of the first six queues of D-CLAS.

        Raises `PlanError` if a worker cannot be reached.
        """
        chosen = self._parameters
        of_jobs = self._paths.update(jobs, fabric, paths)
        self._capacities = fabric.capacity_Bps
        first = max(
            1, int(min(self._capacities.values(), default=Fraction(1)) * chosen.first_ms / 1000)
        )
        self._thresholds = thresholds_bytes(first, chosen.growth, chosen.queues)
        names = {job.name for job in jobs}
        self._histories = {key: of for key, of in self._histories.items() if key[0] in names}
        on_switch = self._thresholds[: len(JOB_QUEUES) - 1]
        return Plan.of_jobs(
            self.name,
            self._flows.update({job.name: (job, of_jobs[job.name], on_switch) for job in jobs}),
            default_schedule=_schedule(chosen.share, chosen.queues),
            hosts_rank=chosen.share == "strict",
            best_effort_queue=BEST_EFFORT_QUEUE,
        )

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates of D-CLAS until a coflow changes its queue.

        Best effort gets what no coflow can use.
        """
        sharing = _WholeCoflows(flows, self._capacities, self._histories)
        change_s = self.share(sharing)
        return Allocation(sharing.rates_Bps(), None if change_s is None else now_s + change_s)

    def share(self, sharing: CoflowSharing) -> Number | None:
        """Give rates.

        Return the seconds after which a coflow changes its queue; None: not before a flow finishes.
        """
        sent = {coflow: sharing.sent_bytes(coflow) for coflow in sharing.coflows}
        queue_of = {
            coflow: bisect_right(self._thresholds, of + ROUNDING_BYTES)
            for coflow, of in sent.items()
        }
        order = sorted(sent, key=lambda coflow: queue_of[coflow])  # of equals, the first to arrive
        if self._parameters.share == "weighted":
            self._share_by_weight(sharing, queue_of, order)
        for coflow in order:
            sharing.fill_evenly([coflow], sharing.residual_Bps)
        return min(
            (
                (self._thresholds[queue_of[coflow]] - sent[coflow]) / rate
                for coflow in order
                if queue_of[coflow] < len(self._thresholds)
                and (rate := sharing.rate_Bps(coflow)) > 0
            ),
            default=None,
        )

    def _share_by_weight(
        self, sharing: CoflowSharing, queue_of: Mapping[CoflowKey, int], order: Sequence[CoflowKey]
    ) -> None:
        """Give each queue its part of each link, and the coflows in it that part in their order."""
        queues_at: dict[Link, set[int]] = {}
        for coflow in order:
            for link in sharing.load_bytes(coflow):
                queues_at.setdefault(link, set()).add(queue_of[coflow])
        left: dict[int, dict[Link, Number]] = {}
        for link, at in queues_at.items():
            weights = {queue: self._parameters.queues - queue for queue in at}
            for queue, weight in weights.items():
                left.setdefault(queue, {})[link] = (
                    sharing.residual_Bps[link] * weight / sum(weights.values())
                )
        for coflow in order:
            sharing.fill_evenly([coflow], left[queue_of[coflow]])
        for link, at in queues_at.items():
            sharing.residual_Bps[link] = sum(left[queue][link] for queue in at)


def _schedule(share: str, queues: int) -> tuple[QueuePlan, ...]:
    """Return the queues of a port: those of D-CLAS from the last of `JOB_QUEUES` down, below
    acknowledgements.
    """
    strict = share == "strict"
    first = JOB_QUEUES[-1]
    top = (JOB_QUEUES[-1] if strict else 1) + 1

    def plan(queue: int) -> QueuePlan:
        if queue == BEST_EFFORT_QUEUE:
            return QueuePlan(level=0)
        if strict:
            return QueuePlan(level=queue)
        return QueuePlan(level=1, weight=max(1, queues - (first - queue)))

    return (*(plan(queue) for queue in (BEST_EFFORT_QUEUE, *JOB_QUEUES)), QueuePlan(level=top))


def _ranked(job: Job, paths: Paths, thresholds: tuple[int, ...]) -> tuple[FlowPlan, ...]:
    order = tuple(reversed(JOB_QUEUES))[: len(thresholds) + 1]
    group_of = {
        flow: echelonflow.name for echelonflow in job.echelonflows for flow in echelonflow.flows
    }
    return tuple(
        FlowPlan(
            job.name,
            flow,
            Attained(group_of[flow], thresholds, order)
            if flow in group_of
            else Fixed(BEST_EFFORT_QUEUE),
            path,
        )
        for flow, path in paths.items()
    )
