"""The rates that switches give flows under a plan, without packets.

They follow from rankings, queues, levels, weights and shares.

A flow is entirely in the queue of its ranking. In a switch, waiting packets keep their queue, and a
flow is promoted when its earlier packets have left; that takes a few packet times.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from echelon.model.fabric.model import Fabric
from echelon.planning.allocation import ActiveFlow, Allocation, Link, Number
from echelon.planning.fluid.network import GRAIN_BYTES, FlowUnderWay, FluidPort, Neighbourhood
from echelon.planning.fluid.sharing import SharedPort, Sharer, shared_rates
from echelon.planning.paths import is_tree
from echelon.planning.plan import Plan
from echelon.planning.rankings.base import Execution, Rank, Ranking, RatedExecution
from echelon.planning.rankings.deadline import Deadline, DeadlineExecution
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
    """Whether it waits in a queue with others."""


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
                self._ports[port].shared.reverse = self._ports[port.reverse].shared

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
        shares = self._windows.streams and shares_window(ranking)
        if shares and path is not None and not is_tree(path) and self._hosts_rank(path[0]):
            initial = min(windows.initial, windows.shared)
            stream = flow.job, path
            return _FlowState(ranking, execution, initial, windows.shared, stream)
        return _FlowState(ranking, execution, windows.initial, windows.single)

    def finished(self, now_s: float, flow: FlowUnderWay) -> None:
        former = self._states.pop(flow)
        former.execution.finished(now_s, flow, former.ranking)
        for port in flow.ports:
            state = self._ports[port]
            state.outdated = True
            state.present = None
            state.ranks.pop(flow, None)

    def allocate(self, now_s: float, neighbourhood: Neighbourhood) -> Allocation:
        """Return the rates until a flow gets another rank, or opens its window further."""
        flows = neighbourhood.flows
        changes_s = []
        counting = []
        for port in neighbourhood.ports:
            port_state = self._ports[port]
            until_s = port_state.until_s
            if port_state.outdated or (until_s is not None and until_s <= now_s):
                self._rank(now_s, port, port_state)
            if port_state.until_s is not None:
                changes_s.append(port_state.until_s)
            counting += port_state.counting

        opening = []
        for number, flow in enumerate(flows):
            state = self._states[flow]
            if state.open_bytes is not None:
                self._open(flow, state)
                if state.open_bytes is not None:
                    opening.append(number)
        rates_Bps = self._rates_Bps(now_s, neighbourhood)  # noqa: N806

        changes_s += self._rated_changes_s(now_s, neighbourhood, rates_Bps)
        for number in opening:
            flow = flows[number]
            state = self._states[flow]
            # A window matters only where others wait in the same queue.
            if state.held_up and rates_Bps[number]:
                open_bytes = state.open_bytes
                assert open_bytes is not None
                left_bytes = open_bytes - (flow.size_bytes - flow.remaining_bytes)
                changes_s.append(now_s + left_bytes / rates_Bps[number])
        if counting:
            by_flow: dict[ActiveFlow, float] = dict(zip(flows, rates_Bps, strict=True))
            for rank in counting:
                together_Bps = sum([by_flow[flow] for flow in rank.counted])  # noqa: N806
                if together_Bps and rank.until_bytes is not None:
                    changes_s.append(now_s + rank.until_bytes / together_Bps)
        return Allocation(rates_Bps, min(changes_s, default=None))

    def _rates_Bps(self, now_s: float, neighbourhood: Neighbourhood) -> list[float]:  # noqa: N802
        """Return the rates of flows: those of before, if all that they depend on is as before."""
        states = [self._states[flow] for flow in neighbourhood.flows]
        if not neighbourhood.moved and all(state.sharer for state in states):
            return [flow.rate_Bps for flow in neighbourhood.flows]
        sending = self._sending(now_s, neighbourhood.flows)
        sharers = []
        for flow, state in zip(neighbourhood.flows, states, strict=True):
            sharer = state.sharer or self._sharer(flow, state)
            if flow in sending:
                sharers.append(sharer)
        rates_Bps, held_up = shared_rates(  # noqa: N806
            sharers,
            self._acknowledging,
            self._acknowledgements_Bps(neighbourhood),
            [flow.rate_Bps for flow in sending],
        )
        by_flow = dict(zip(sending, rates_Bps, strict=True))
        held_up_flows = dict(zip(sending, held_up, strict=True))
        for flow, state in zip(neighbourhood.flows, states, strict=True):
            state.held_up = held_up_flows.get(flow, False)
        return [by_flow.get(flow, 0.0) for flow in neighbourhood.flows]

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
            assert isinstance(execution, DeadlineExecution)
            assert isinstance(state.ranking, Deadline)
            urgency = float(execution.urgency(now_s, flow, state.ranking))
            if state.stream not in first or urgency > first[state.stream][0]:
                first[state.stream] = urgency, flow
        sending: dict[FlowUnderWay, None] = {}
        for flow in flows:
            stream = self._states[flow].stream
            if stream is None or first[stream][1] is flow:
                sending[flow] = None
        return sending

    def _acknowledgements_Bps(self, neighbourhood: Neighbourhood) -> dict[SharedPort, float]:  # noqa: N802
        """Return what acknowledgements take of the ports of a neighbourhood.

        Flows have the rates that they have now. When those of flows outside change, the flows here
        keep theirs until something happens to themselves.
        """
        taken_Bps: dict[SharedPort, float] = {}  # noqa: N806
        if not self._acknowledging:
            return taken_Bps
        for flow in neighbourhood.flows:
            for port in flow.ports:
                shared = self._ports[port].shared
                if port.reverse is None or shared in taken_Bps:
                    continue
                rates_Bps = 0.0  # noqa: N806
                for other in port.reverse.flows:
                    if other.max_rate_Bps is None:
                        rates_Bps += other.rate_Bps  # noqa: N806
                taken_Bps[shared] = rates_Bps * self._acknowledging
        return taken_Bps

    def _rated_changes_s(
        self,
        now_s: float,
        neighbourhood: Neighbourhood,
        rates_Bps: Sequence[float],  # noqa: N803
    ) -> list[float]:
        """Return when ranks end that hold for as long as rates say, by port."""
        rated = [port for port in neighbourhood.ports if self._ports[port].rated]
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
        state.sharer = Sharer(queues, state.window, sent_Bps)
        return state.sharer
