"""Coflows under way: what policies know of them, and the rates that they give them.

A policy of coflows divides the network through a `CoflowSharing`, so that one text of it serves
flows on any fabric (`FlowSharing`) and whole traces on one big switch (`research.coflow_replay`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.planning.allocation import ActiveFlow, Capacities, Link, Number
from echelon.planning.paths import FlowPaths
from echelon.planning.plan import Plan
from echelon.planning.policies.base import NoParameters
from echelon.planning.policies.filling import (
    ZERO,
    Residual,
    fill_evenly,
    fill_in_order,
    residual_of,
)
from echelon.planning.policies.levels import JOB_QUEUES
from echelon.planning.policies.schedule import to_port
from echelon.planning.policies.spread import Spread

CoflowKey: TypeAlias = tuple[str, int, str]
"""Job, iteration and EchelonFlow."""
ROUNDING = 2**30
"""A link is full if at most its capacity over this is left: rates may have been rounded."""


class CoflowSharing(Protocol):
    """The coflows under way, what is left of links, and the rates of their flows so far.

    Links have keys, rates are in bytes per second.
    """

    @property
    def coflows(self) -> Sequence[CoflowKey]:
        """Return the coflows in the order of their arrival."""

    @property
    def residual_Bps(self) -> Residual:  # noqa: N802
        """Return what is left of each link: exactly 0 if it is full."""

    def load_bytes(self, coflow: CoflowKey) -> Mapping[Link, Number]:
        """Return what the flows of a coflow still have to send over each link."""

    def sent_bytes(self, coflow: CoflowKey) -> Number:
        """Return what a coflow has sent, with its flows that are finished."""

    def rate_Bps(self, coflow: CoflowKey) -> Number:  # noqa: N802
        """Return the sum of the rates that the flows of a coflow have been given."""

    def finish_in(self, coflow: CoflowKey, seconds: Number) -> None:
        """Give each flow of a coflow the rate to finish in that time, out of the residual."""

    def fill_evenly(
        self,
        coflows: Iterable[CoflowKey],
        residual_Bps: Residual,  # noqa: N803
    ) -> None:
        """Add max-min fair shares of a residual to the rates of these coflows' flows."""

    def fill_in_order(self) -> None:
        """Give each flow in order of arrival all that is left on its path."""


@runtime_checkable
class CoflowPolicy(Protocol):
    """A policy that can divide the network between coflows, whatever these are made of."""

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
    ) -> Plan:
        """Learn the capacities of the fabric, and return the plan for its switches."""

    def share(self, sharing: CoflowSharing) -> Number | None:
        """Give rates.

        Return the seconds for which they hold; None: until a flow starts or finishes.
        """


class FlowSharing:
    """The `CoflowSharing` of flows under way on a fabric.

    A coflow is the flows of one EchelonFlow in one iteration that are active now. Best effort, in
    no EchelonFlow, gets what coflows leave, in max-min fair shares.
    """

    def __init__(
        self,
        flows: Sequence[ActiveFlow],
        capacities_Bps: Capacities,  # noqa: N803
    ) -> None:
        self.flows = flows
        self.members: dict[CoflowKey, list[int]] = {}
        """The indices into `flows` of each coflow."""
        self._best_effort: list[int] = []
        for index, flow in enumerate(flows):
            if flow.echelonflow is None:
                self._best_effort.append(index)
            else:
                coflow = flow.job, flow.iteration, flow.echelonflow
                self.members.setdefault(coflow, []).append(index)
        self._rates: list[Number] = [ZERO] * len(flows)
        self.residual_Bps: Residual = residual_of(capacities_Bps, flows)
        """The rate left on each link that `flows` use."""
        capacities = self.residual_Bps.items()
        self._least_Bps = {link: capacity / ROUNDING for link, capacity in capacities}

    @property
    def coflows(self) -> Sequence[CoflowKey]:
        """Return the coflows in the order of their first active flow."""
        arrival = {}
        for coflow, indices in self.members.items():
            arrival[coflow] = min(self.flows[i].sequence for i in indices)
        return sorted(arrival, key=lambda coflow: arrival[coflow])

    def load_bytes(self, coflow: CoflowKey) -> Mapping[Link, Number]:
        """Return what the flows of a coflow still have to send over each link."""
        load: dict[Link, Number] = {}
        for i in self.members[coflow]:
            for link in self.flows[i].links:
                load[link] = load.get(link, 0) + self.flows[i].remaining_bytes
        return load

    def sent_bytes(self, coflow: CoflowKey) -> Number:
        """Return what the active flows of a coflow have sent."""
        sent: Number = 0
        for i in self.members[coflow]:
            flow = self.flows[i]
            sent += flow.size_bytes - flow.remaining_bytes
        return sent

    def rate_Bps(self, coflow: CoflowKey) -> Number:  # noqa: N802
        """Return the sum of the rates that the flows of a coflow have been given."""
        return sum(self._rates[i] for i in self.members[coflow])

    def finish_in(self, coflow: CoflowKey, seconds: Number) -> None:
        """Give each flow of a coflow the rate to finish in that time, out of the residual."""
        members = self.members[coflow]
        for i in members:
            flow = self.flows[i]
            rate_Bps = flow.remaining_bytes / seconds  # noqa: N806
            self._rates[i] = rate_Bps
            for link in flow.links:
                self.residual_Bps[link] -= rate_Bps
        self._settle(members, self.residual_Bps)

    def fill_evenly(
        self,
        coflows: Iterable[CoflowKey],
        residual_Bps: Residual,  # noqa: N803
    ) -> None:
        """Add max-min fair shares of a residual to the rates of these coflows' flows."""
        chosen = [i for coflow in coflows for i in self.members[coflow]]
        fill_evenly(self.flows, chosen, residual_Bps, self._rates)
        self._settle(chosen, residual_Bps)

    def fill_in_order(self) -> None:
        """Give each flow in order of arrival all that is left on its path."""
        chosen = [i for indices in self.members.values() for i in indices]
        chosen.sort(key=lambda i: self.flows[i].sequence)
        fill_in_order(self.flows, chosen, self.residual_Bps, self._rates)
        self._settle(chosen, self.residual_Bps)

    def _settle(self, chosen: Iterable[int], residual_Bps: Residual) -> None:  # noqa: N803
        """Set links of these flows to 0 where only an error of rounding is left, above or below."""
        for i in chosen:
            for link in self.flows[i].links:
                left_Bps = residual_Bps[link]  # noqa: N806
                if left_Bps and left_Bps <= self._least_Bps[link]:
                    residual_Bps[link] = 0 * left_Bps  # of its type

    def rates_Bps(self) -> tuple[Number, ...]:  # noqa: N802
        """Give best effort what is left, and return the rates of all flows."""
        fill_evenly(self.flows, self._best_effort, self.residual_Bps, self._rates)
        return tuple(self._rates)


def bottleneck_s(
    load: Mapping[Link, Number],
    capacities_Bps: Mapping[Link, Number],  # noqa: N803
) -> Number | None:
    """Return gamma, the seconds that a coflow of that load takes at best; None: a link is full."""
    if any(capacities_Bps[link] <= 0 for link in load):
        return None
    times_s = [load[link] / capacities_Bps[link] for link in load]
    return max(times_s, default=0)


class CentralPolicy:
    """A policy whose central scheduler hears of the start and finish of every flow."""

    name: str
    reactive = True
    Parameters = NoParameters

    def __init__(self, parameters: NoParameters | None = None) -> None:
        self._paths = FlowPaths()
        self.carried = self._spread = Spread(JOB_QUEUES)
        self._capacities: Capacities = {}

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
    ) -> Plan:
        """Return equal queues, which hold until the scheduler has heard of the flows.

        Raises `PlanError` if a worker cannot be reached.
        """
        paths_by_job = self._paths.update(jobs, fabric, paths)
        self._capacities = fabric.capacity_Bps
        flows = self._spread.update(jobs, paths_by_job)
        return Plan.of_jobs(
            self.name,
            flows,
            default_schedule=to_port({}),
            reactive=True,
        )
