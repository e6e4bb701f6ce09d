"""The rates that switches give flows under a plan, without packets.

They follow from rankings, queues, levels, weights and shares.

A flow is entirely in the queue of its ranking. In a switch, waiting packets keep their queue, and a
flow is promoted when its earlier packets have left; that takes a few packet times.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose
from typing import Any

from echelon.model.fabric.model import Fabric
from echelon.planning.allocation import ActiveFlow, Allocation, Link, Number
from echelon.planning.fluid.network import GRAIN_BYTES, FlowUnderWay, FluidPort, Neighbourhood
from echelon.planning.fluid.sharing import TOLERANCE, SharedPort, Sharer, shared_rates
from echelon.planning.paths import is_tree
from echelon.planning.plan import Plan
from echelon.planning.rankings.base import (
    Execution,
    Rank,
    Ranking,
    RatedExecution,
    StatelessExecution,
)
from echelon.planning.rankings.deadline import DeadlineExecution
from echelon.planning.rankings.fixed import Fixed
from echelon.planning.windows import FlowWindows, Windows, opened, shares_window


@dataclass(slots=True)
class _PortState:
    """The ranks of the flows at a port."""

    shared: SharedPort
    ranks: dict[FlowUnderWay, Rank] = field(default_factory=dict)
    present: Mapping[Execution[Any], Sequence[tuple[FlowUnderWay, Ranking]]] | None = None
    """The flows; None: to be found anew, since one has started or finished."""
    outdated: bool = False
    """Whether a flow has started or finished here since ranking, or bytes decide on a rank."""
    until_s: float | None = None
    """The time when the first rank ends."""
    counting: list[Rank] = field(default_factory=list)
    """The ranks that end after some bytes."""
    rated: list[RatedExecution[Any]] = field(default_factory=list)
    """The executions of ranks that hold for as long as rates say."""


@dataclass(slots=True)
class _FlowState:
    """The part of a flow's state that switches and senders keep."""

    ranking: Ranking
    execution: Execution[Any]
    initial: int
    """The packets in flight at first."""
    full: int
    """The packets in flight when the window is open."""
    stream: Hashable = None
    """What shares the flow's window; None: the flow has one of its own."""
    window: int = 0
    open_bytes: float | None = 0
    """The sent bytes from which on the window is larger; None: it stays as it is."""
    sharer: Sharer | None = None
    """None: its queues or its window have changed."""
    held_up: bool = False
    """Whether it waits at a port with others."""
    is_new: bool = True
    """Whether it has not been looked at yet."""


@dataclass(slots=True)
class _PlannedRates:
    """The rates that the flows of a neighbourhood are to have."""

    flows: Sequence[FlowUnderWay]
    sharers: Mapping[FlowUnderWay, Sharer]
    """Those of the flows that send; none if rates are as before."""
    rates_Bps: list[float]  # noqa: N815
    changes_s: list[float]
    """When ranks change."""


class PlanExecution:
    """The execution of a plan that does not change, neighbourhood by neighbourhood."""

    undivided = False

    def __init__(
        self,
        plan: Plan,
        ports: Mapping[Link, FluidPort],
        fabric: Fabric,
        windows: Windows,
    ) -> None:
        hosts = fabric.hosts
        self._fabric = fabric
        self._paths = plan.paths
        self._rankings = plan.ranking
        self._best_effort = Fixed(plan.best_effort_queue)
        self._windows = windows
        self._hosts_rank = plan.ranks_at
        self._on_path: dict[Sequence[str] | None, FlowWindows] = {}
        self._executions: dict[type[Ranking], Execution[Any]] = {}
        self._states: dict[ActiveFlow, _FlowState] = {}
        self._ports: dict[FluidPort, _PortState] = {}
        for link, port in ports.items():
            node, _ = link
            schedule = None
            if node not in hosts or plan.ranks_at(node):
                schedule = plan.schedules.get(link, plan.default_schedule)
            shared = SharedPort(port.capacity_Bps, schedule)
            self._ports[port] = _PortState(shared)
            port.has_queues = schedule is not None
            port.always_narrow = shared.limited
        self._acknowledging = float(windows.acknowledging)
        if self._acknowledging:
            for (node, following), port in ports.items():
                port.reverse = ports[following, node]
                reverse_Bps = port.reverse.capacity_Bps  # noqa: N806
                port.acknowledgements_Bps = self._acknowledging * reverse_Bps

    def neighbourhood(self, flow: ActiveFlow) -> Hashable:
        """Return what the flow's ranking couples it to."""
        state = self._states[flow]
        coupled = state.execution.neighbourhood(flow, state.ranking)
        if coupled is None:
            return None
        return (type(state.ranking), coupled)

    def started(self, now_s: float, flow: FlowUnderWay) -> None:
        ranking = self._rankings.get((flow.job, flow.flow), self._best_effort)
        kind = type(ranking)
        if kind not in self._executions:
            self._executions[kind] = kind.execution(float)
        execution = self._executions[kind]
        self._states[flow] = self._state(flow, ranking, execution)
        execution.started(now_s, flow, ranking)
        for port in flow.ports:
            state = self._ports[port]
            state.outdated = True
            state.present = None

    def _state(
        self,
        flow: FlowUnderWay,
        ranking: Ranking,
        execution: Execution[Any],
    ) -> _FlowState:
        path = self._paths.get(flow.job, {}).get(flow.flow)
        if path not in self._on_path:
            self._on_path[path] = self._windows.on_path(path, self._fabric)
        windows = self._on_path[path]
        initial = windows.initial
        shares = self._windows.streams and shares_window(ranking)
        if shares and path is not None and not is_tree(path) and self._hosts_rank(path[0]):
            initial = min(initial, windows.shared)
            stream = flow.job, path
            return _FlowState(ranking, execution, initial, windows.shared, stream)
        return _FlowState(ranking, execution, initial, windows.single)

    def finished(self, now_s: float, flow: FlowUnderWay) -> None:
        former = self._states.pop(flow)
        former.execution.finished(now_s, flow, former.ranking)
        for port in flow.ports:
            state = self._ports[port]
            state.outdated = True
            state.present = None
            state.ranks.pop(flow, None)

    def allocate(
        self, now_s: float, neighbourhoods: Sequence[Neighbourhood]
    ) -> Iterator[Allocation]:
        """Return the rates of each neighbourhood until a flow gets another rank, or opens its window
        further.
        """
        planned = [self._planned(now_s, neighbourhood) for neighbourhood in neighbourhoods]
        if self._acknowledging:
            self._acknowledge(planned)
        for neighbourhood, rates in zip(neighbourhoods, planned, strict=True):
            yield Allocation(rates.rates_Bps, self._until_s(now_s, neighbourhood, rates))

    def _planned(self, now_s: float, neighbourhood: Neighbourhood) -> _PlannedRates:
        changes_s = []
        for port in neighbourhood.ports:
            port_state = self._ports[port]
            until_s = port_state.until_s
            if port_state.outdated or (until_s is not None and until_s <= now_s):
                self._rank(now_s, port, port_state)
            if port_state.until_s is not None:
                changes_s.append(port_state.until_s)

        flows = neighbourhood.flows
        states = [self._states[flow] for flow in flows]
        for flow, state in zip(flows, states, strict=True):
            if state.open_bytes is not None:
                self._open(flow, state)
            if state.is_new:
                self._reckon(flow.ports, {})
                state.is_new = False

        # All that rates depend on may be as before.
        if not neighbourhood.moved and all(state.sharer for state in states):
            rates_Bps = [flow.rate_Bps for flow in flows]  # noqa: N806
            return _PlannedRates(flows, {}, rates_Bps, changes_s)
        sending = self._sending(now_s, flows)
        sharers = {}
        for flow, state in zip(flows, states, strict=True):
            sharer = state.sharer or self._sharer(flow, state)
            if flow in sending:
                sharers[flow] = sharer
        planned = _PlannedRates(flows, sharers, [], changes_s)
        self._share(planned)
        return planned

    def _sending(self, now_s: float, flows: Sequence[FlowUnderWay]) -> dict[FlowUnderWay, None]:
        """Return the flows that send, in order of start: of each stream, the most urgent one.

        It stays that until it ends, or a more urgent one starts: being sent makes it more urgent.
        """
        first: dict[Hashable, tuple[float, FlowUnderWay]] = {}
        for flow in flows:
            state = self._states[flow]
            if state.stream is None:
                continue
            execution = state.execution
            assert isinstance(execution, DeadlineExecution | StatelessExecution)
            ranking: Any = state.ranking
            urgency = float(execution.urgency(now_s, flow, ranking))
            if state.stream not in first or urgency > first[state.stream][0]:
                first[state.stream] = urgency, flow
        sending: dict[FlowUnderWay, None] = {}
        for flow in flows:
            stream = self._states[flow].stream
            if stream is None or first[stream][1] is flow:
                sending[flow] = None
        return sending

    def _share(self, planned: _PlannedRates) -> None:
        """Share links among the flows that send."""
        rates_Bps, held_up = shared_rates([*planned.sharers.values()])  # noqa: N806
        by_flow = dict(zip(planned.sharers, rates_Bps, strict=True))
        held_up_flows = dict(zip(planned.sharers, held_up, strict=True))
        planned.rates_Bps = [by_flow.get(flow, 0.0) for flow in planned.flows]
        for flow in planned.flows:
            self._states[flow].held_up = held_up_flows.get(flow, False)

    def _acknowledge(self, planned: Sequence[_PlannedRates]) -> None:
        """Reckon with the acknowledgements of the rates that flows are to have.

        These change the rates of the data, which changes theirs a little; one step is close enough.
        """
        rates_Bps: dict[FlowUnderWay, float] = {}  # noqa: N806
        for rates in planned:
            rates_Bps.update(zip(rates.flows, rates.rates_Bps, strict=True))

        outdated = []
        for rates in planned:
            if not rates.sharers:
                continue
            ports: dict[FluidPort, None] = {}
            for flow in rates.flows:
                if not isclose(rates_Bps[flow], flow.rate_Bps, rel_tol=TOLERANCE):
                    ports.update(dict.fromkeys(flow.ports))
            if self._reckon(ports, rates_Bps):
                outdated.append(rates)
        for rates in outdated:
            self._share(rates)

    def _reckon(
        self,
        ports: Iterable[FluidPort],
        rates_Bps: Mapping[FlowUnderWay, float],  # noqa: N803
    ) -> bool:
        """Reckon with what acknowledgements take of ports; return whether it has changed by enough.

        Flows have these rates, or those that they have now. This is done where flows begin, and
        where they get other rates; elsewhere, flows keep theirs.
        """
        has_changed = False
        for port in ports:
            if port.reverse is None:
                continue
            together_Bps = 0.0  # noqa: N806
            for flow in port.reverse.flows:
                if flow.max_rate_Bps is None:
                    together_Bps += rates_Bps.get(flow, flow.rate_Bps) * flow.count  # noqa: N806
            taken_Bps = together_Bps * self._acknowledging  # noqa: N806
            if self._ports[port].shared.reckon(taken_Bps):
                has_changed = True
        return has_changed

    def _until_s(
        self,
        now_s: float,
        neighbourhood: Neighbourhood,
        planned: _PlannedRates,
    ) -> float | None:
        """Return until when these rates hold."""
        changes_s = planned.changes_s
        rates_Bps = planned.rates_Bps  # noqa: N806
        changes_s += self._rated_changes_s(now_s, neighbourhood, rates_Bps)
        by_flow: dict[ActiveFlow, float] = dict(zip(planned.flows, rates_Bps, strict=True))
        for flow in planned.flows:
            state = self._states[flow]
            rate_Bps = by_flow[flow]  # noqa: N806
            # A window matters only where others wait at the same port: it also decides which of
            # its queues is filled first.
            if state.open_bytes is not None and state.held_up and rate_Bps:
                left_bytes = state.open_bytes - (flow.size_bytes - flow.remaining_bytes)
                changes_s.append(now_s + left_bytes / rate_Bps)
        for port in neighbourhood.ports:
            for rank in self._ports[port].counting:
                together_Bps = sum([by_flow[flow] for flow in rank.counted])  # noqa: N806
                if together_Bps and rank.until_bytes is not None:
                    changes_s.append(now_s + rank.until_bytes / together_Bps)
        return min(changes_s, default=None)

    def _rated_changes_s(
        self,
        now_s: float,
        neighbourhood: Neighbourhood,
        rates_Bps: Sequence[float],  # noqa: N803
    ) -> list[float]:
        """Return when ranks end that hold for as long as rates say, by port."""
        rated = []
        for port in neighbourhood.ports:
            if self._ports[port].rated:
                rated.append(port)
        if not rated:
            return []
        by_flow = dict(zip(neighbourhood.flows, rates_Bps, strict=True))
        ends_s = []
        for port in rated:
            state = self._ports[port]
            assert state.present is not None
            for execution in state.rated:
                present = state.present[execution]
                rates = [by_flow[flow] for flow, _ in present]
                end_s = execution.until_s(now_s, present, rates)
                if end_s is not None:
                    ends_s.append(float(end_s))
        return ends_s

    def _rank(
        self,
        now_s: float,
        port: FluidPort,
        state: _PortState,
    ) -> None:
        """Rank the flows at a port."""
        until_s: Number | None = None
        state.counting = []
        state.rated = []
        if state.present is None:
            state.present = self._present(port)
        for execution, present in state.present.items():
            by_rates = False
            ranks = execution.ranks(now_s, port.link, present)
            for (flow, _), rank in zip(present, ranks, strict=True):
                before = state.ranks.get(flow)
                if before is None or before.queue != rank.queue:
                    self._states[flow].sharer = None
                state.ranks[flow] = rank
                if rank.until_s is not None and (until_s is None or rank.until_s < until_s):
                    until_s = rank.until_s
                if rank.until_bytes is not None:
                    state.counting.append(rank)
                by_rates = by_rates or rank.by_rates
            if by_rates and isinstance(execution, RatedExecution):
                state.rated.append(execution)
        state.until_s = None
        if until_s is not None:
            state.until_s = float(until_s)
        state.outdated = bool(state.counting or state.rated)

    def _present(
        self, port: FluidPort
    ) -> Mapping[Execution[Any], Sequence[tuple[FlowUnderWay, Ranking]]]:
        out: dict[Execution[Any], list[tuple[FlowUnderWay, Ranking]]] = {}
        for flow in port.flows:
            state = self._states[flow]
            out.setdefault(state.execution, []).append((flow, state.ranking))
        return out

    def _open(self, flow: FlowUnderWay, state: _FlowState) -> None:
        """Open the window of a flow as far as the bytes that have passed allow."""
        # Remaining bytes are exact to a grain, so what lacks less than that has passed.
        sent_bytes = flow.size_bytes - flow.remaining_bytes + GRAIN_BYTES
        assert state.open_bytes is not None
        if sent_bytes >= state.open_bytes:
            packet_bytes = self._windows.packet_bytes
            window, state.open_bytes = opened(sent_bytes, state.initial, state.full, packet_bytes)
            if window != state.window:
                state.window = window
                state.sharer = None

    def _sharer(self, flow: FlowUnderWay, state: _FlowState) -> Sharer:
        queues = []
        for port in flow.ports:
            port_state = self._ports[port]
            rank = port_state.ranks.get(flow)
            # A flow that was never ranked is alone at the port, where its queue makes no
            # difference.
            queue = 0
            if rank is not None:
                queue = rank.queue
            queues.append(port_state.shared.queue(queue))
        sent_Bps = None  # noqa: N806
        if flow.max_rate_Bps is not None:
            sent_Bps = float(flow.max_rate_Bps)  # noqa: N806
        state.sharer = Sharer(queues, state.window, sent_Bps, flow.count)
        return state.sharer
