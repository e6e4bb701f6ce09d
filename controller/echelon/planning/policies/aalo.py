"""Aalo: coflows in queues by the bytes that they have sent, without knowing their sizes.

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
from echelon.planning.allocation import ActiveFlow, Allocation, Capacities, Link, Number
from echelon.planning.paths import FlowPaths, Paths
from echelon.planning.plan import FlowPlans, Plan, QueuePlan
from echelon.planning.policies.coflows import CoflowKey, CoflowSharing, FlowSharing
from echelon.planning.policies.levels import JOB_QUEUES, ranked_flows
from echelon.planning.rankings.attained import Attained

ROUNDING_BYTES = 1
"""A threshold is reached if less than this is missing, since times may have been rounded."""


def thresholds_bytes(
    first: int,
    growth: int,
    queues: int,
) -> tuple[int, ...]:
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
        active = {flow.flow: flow for flow in flows}
        for name, flow in self.active.items():
            if name not in active:
                self.finished_bytes += flow.size_bytes
        self.active = active


class _WholeCoflows(FlowSharing):
    """The sharing of coflows of which the finished flows are remembered."""

    def __init__(
        self,
        flows: Sequence[ActiveFlow],
        capacities_Bps: Capacities,  # noqa: N803
        histories: dict[tuple[str, str], _History],
    ) -> None:
        super().__init__(flows, capacities_Bps)
        self._history: dict[CoflowKey, _History] = {}
        for coflow, indices in self.members.items():
            job, iteration, echelonflow = coflow
            active = [flows[i] for i in indices]
            history = histories.get((job, echelonflow))
            if history is None or history.iteration != iteration:
                arrival = min(flow.sequence for flow in active)
                history = histories[job, echelonflow] = _History(iteration, arrival)
            history.update(active)
            self._history[coflow] = history

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
    ranks_by_bytes = True

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
        self._parameters = parameters or self.Parameters()
        self._capacities: Capacities = {}
        self._thresholds: tuple[int, ...] = ()
        self._paths = FlowPaths()
        self._flows = Kept(_ranked)
        self._histories: dict[tuple[str, str], _History] = {}
        """The histories of coflows, by job and EchelonFlow."""

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
    ) -> Plan:
        """Return a plan of a queue for each of the first six queues of D-CLAS.

        Raises `PlanError` if a worker cannot be reached.
        """
        chosen = self._parameters
        paths_by_job = self._paths.update(jobs, fabric, paths)
        self._capacities = fabric.capacity_Bps
        slowest_Bps = min(self._capacities.values(), default=Fraction(1))  # noqa: N806
        first = max(1, int(slowest_Bps * chosen.first_ms / 1000))
        self._thresholds = thresholds_bytes(first, chosen.growth, chosen.queues)
        histories = self._histories.items()
        self._histories = {key: history for key, history in histories if key[0] in paths_by_job}
        on_switch = self._thresholds[: len(JOB_QUEUES) - 1]
        rows = {}
        for job in jobs:
            rows[job.name] = job, paths_by_job[job.name], on_switch
        flows = self._flows.update(rows)
        schedule = _schedule(chosen.share, chosen.queues)
        is_strict = chosen.share == "strict"
        return Plan.of_jobs(
            self.name,
            flows,
            default_schedule=schedule,
            hosts_rank=is_strict,
        )

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates of D-CLAS until a coflow changes its queue.

        Best effort gets what no coflow can use.
        """
        sharing = _WholeCoflows(flows, self._capacities, self._histories)
        change_s = self.share(sharing)
        rates_Bps = sharing.rates_Bps()  # noqa: N806
        if change_s is None:
            return Allocation(rates_Bps)
        return Allocation(rates_Bps, now_s + change_s)

    def share(self, sharing: CoflowSharing) -> Number | None:
        """Give rates.

        Return the seconds after which a coflow changes its queue; None: not before a flow finishes.
        """
        sent = {}
        queues = {}
        for coflow in sharing.coflows:
            sent[coflow] = sharing.sent_bytes(coflow)
            passed = sent[coflow] + ROUNDING_BYTES
            queues[coflow] = bisect_right(self._thresholds, passed)
        order = sorted(sent, key=lambda coflow: queues[coflow])  # of equals, the first to arrive
        if self._parameters.share == "weighted":
            self._share_by_weight(sharing, queues, order)
        for coflow in order:
            sharing.fill_evenly([coflow], sharing.residual_Bps)

        changes_s = []
        for coflow in order:
            if queues[coflow] == len(self._thresholds):
                continue
            rate_Bps = sharing.rate_Bps(coflow)  # noqa: N806
            if rate_Bps > 0:
                left_bytes = self._thresholds[queues[coflow]] - sent[coflow]
                changes_s.append(left_bytes / rate_Bps)
        return min(changes_s, default=None)

    def _share_by_weight(
        self,
        sharing: CoflowSharing,
        queues: Mapping[CoflowKey, int],
        order: Sequence[CoflowKey],
    ) -> None:
        """Give each queue its part of each link, and the coflows in it that part in their order."""
        queues_at: dict[Link, set[int]] = {}
        for coflow in order:
            for link in sharing.load_bytes(coflow):
                queues_at.setdefault(link, set()).add(queues[coflow])

        left_Bps: dict[int, dict[Link, Number]] = {}  # noqa: N806
        for link, used in queues_at.items():
            weights = {queue: self._parameters.queues - queue for queue in used}
            total = sum(weights.values())
            for queue, weight in weights.items():
                share_Bps = sharing.residual_Bps[link] * weight / total  # noqa: N806
                left_Bps.setdefault(queue, {})[link] = share_Bps

        for coflow in order:
            sharing.fill_evenly([coflow], left_Bps[queues[coflow]])
        for link, used in queues_at.items():
            sharing.residual_Bps[link] = sum(left_Bps[queue][link] for queue in used)


def _schedule(share: str, queues: int) -> tuple[QueuePlan, ...]:
    """Return the queues of a port: those of D-CLAS, downwards, below acknowledgements."""
    first = JOB_QUEUES[-1]
    schedule = [QueuePlan(level=0)]
    for queue in JOB_QUEUES:
        if share == "strict":
            schedule.append(QueuePlan(level=queue))
        else:
            weight = max(1, queues - (first - queue))
            schedule.append(QueuePlan(level=1, weight=weight))
    top = schedule[-1].level + 1
    return (*schedule, QueuePlan(level=top))


def _ranked(
    job: Job,
    paths: Paths,
    thresholds: tuple[int, ...],
) -> FlowPlans:
    order = tuple(reversed(JOB_QUEUES))[: len(thresholds) + 1]
    rankings = {}
    for echelonflow in job.echelonflows:
        ranking = Attained(echelonflow.name, thresholds, order)
        rankings.update(dict.fromkeys(echelonflow.flows, ranking))
    return ranked_flows(job.name, paths, rankings)
