"""The rates that switches give flows under a plan, without packets: from rankings, queues, levels,
weights and shares.

A flow is entirely in the queue of its ranking. In a switch, waiting packets keep their queue, and a
flow is promoted when its earlier packets have left; that takes a few packet times.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from echelon.model.fabric.model import Fabric
from echelon.planning.allocation import ActiveFlow, Allocation, Link
from echelon.planning.fluid.network import GRAIN_BYTES, FlowUnderWay, FluidPort, Neighbourhood
from echelon.planning.fluid.sharing import SharedPort, Sharer, shared_rates
from echelon.planning.paths import packets_held
from echelon.planning.plan import Plan
from echelon.planning.rankings.base import Execution, Rank, Ranking, RatedExecution
from echelon.planning.rankings.fixed import Fixed


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of senders, and the cost of acknowledgements.

    A window begins with `initial` packets and opens by one for each that is acknowledged. In a
    queue where packets wait, this doubles it with each round trip (slow start, RFC 5681). Each half
    window is acknowledged. (So is each packet until the window is open, but these are few.)
    Acknowledgements return on the same path, before all other traffic.
    """

    packet_bytes: int = 1
    full: int = 1
    """Packets in flight when the window is open."""
    initial: int | None = 1
    """Packets in flight at first; None: as many as the path holds
    (`echelon.planning.paths.packets_held`).
    """
    acknowledgement_bytes: int = 0

    def at_first(self, path: Sequence[str], fabric: Fabric) -> int:
        """Return the packets in flight at first on a path."""
        if self.initial is not None:
            return min(self.initial, self.full)
        return min(packets_held(path, fabric, self.packet_bytes), self.full)

    def at(self, sent_bytes: float, initial: int) -> tuple[int, int | None]:
        """Return the packets in flight of a flow of which `sent_bytes` have passed, and the number
        of bytes up to which that holds (None: for ever). `initial` are those at first."""
        window = end = initial
        while window < self.full and sent_bytes >= end * self.packet_bytes:
            window = min(2 * window, self.full)
            end += window
        return window, None if window == self.full else end * self.packet_bytes

    @property
    def acknowledging(self) -> Fraction:
        """Bytes of acknowledgements for each byte of a flow."""
        return Fraction(self.acknowledgement_bytes, max(1, self.full // 2) * self.packet_bytes)


@dataclass(slots=True)
class _AtPort:
    """The ranks of the flows at a port."""

    shared: SharedPort
    ranks: dict[FlowUnderWay, Rank] = field(default_factory=dict)
    present: Mapping[Execution[Any], Sequence[tuple[FlowUnderWay, Ranking]]] | None = None
    """The flows; None: to be found anew, since one has started or finished."""
    outdated: bool = False
    """Whether a flow has started or finished here since the flows were ranked, or bytes decide on a
    rank.
    """
    until_s: float | None = None
    """The time when the first rank ends."""
    counting: list[Rank] = field(default_factory=list)
    """The ranks that end after some bytes."""
    rated: list[RatedExecution[Any]] = field(default_factory=list)
    """The executions of ranks that hold for as long as rates say."""


@dataclass(slots=True)
class _Executed:
    """The part of a flow's state that switches and senders keep."""

    ranking: Ranking
    execution: Execution[Any]
    initial: int
    """The packets in flight at first."""
    window: int = 0
    open_bytes: float | None = 0
    """The sent bytes from which on the window is larger; None: it stays as it is."""
    sharer: Sharer | None = None
    """None: its queues or its window have changed."""


class PlanExecution:
    """The execution of a plan that does not change, neighbourhood by neighbourhood."""

    whole = False

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
        self._executions: dict[type[Ranking], Execution[Any]] = {}
        self._of: dict[ActiveFlow, _Executed] = {}
        self._at: dict[FluidPort, _AtPort] = {}
        for (node, following), port in ports.items():
            has_queues = node not in hosts or plan.ranks_at(node)
            if has_queues:
                schedule = plan.schedules.get((node, following), plan.default_schedule)
            else:
                schedule = None
            shared = SharedPort(port.capacity_Bps, schedule)
            self._at[port] = _AtPort(shared)
            port.has_queues = has_queues
            port.always_narrow = shared.limited
        self._acknowledging = float(windows.acknowledging)
        for (node, following), port in ports.items() if windows.acknowledging else ():
            port.reverse = ports[following, node]
            self._at[port].shared.reverse = self._at[port.reverse].shared

    def neighbourhood(self, flow: ActiveFlow) -> Hashable:
        """Return what the flow's ranking couples it to."""
        of = self._of[flow]
        coupled = of.execution.neighbourhood(flow, of.ranking)
        if coupled is None:
            return None
        return (type(of.ranking), coupled)

    def started(self, now_s: float, flow: FlowUnderWay) -> None:
        ranking = self._rankings.get((flow.job, flow.flow), self._best_effort)
        kind = type(ranking)
        if kind not in self._executions:
            self._executions[kind] = kind.execution(float)
        execution = self._executions[kind]
        path = self._paths.get(flow.job, {}).get(flow.flow)
        if path is None:
            initial = 1
        else:
            initial = self._windows.at_first(path, self._fabric)
        self._of[flow] = _Executed(ranking, execution, initial)
        execution.started(now_s, flow, ranking)
        for port in flow.ports:
            at = self._at[port]
            at.outdated = True
            at.present = None

    def finished(self, now_s: float, flow: FlowUnderWay) -> None:
        of = self._of.pop(flow)
        of.execution.finished(now_s, flow, of.ranking)
        for port in flow.ports:
            at = self._at[port]
            at.outdated = True
            at.present = None
            at.ranks.pop(flow, None)

    def allocate(self, now_s: float, neighbourhood: Neighbourhood) -> Allocation:
        """Return the rates until a flow gets another rank, or opens its window further."""
        flows = neighbourhood.flows
        changes_s: list[float] = []
        counting: list[Rank] = []
        for port in neighbourhood.ports:
            at = self._at[port]
            if at.outdated or (at.until_s is not None and at.until_s <= now_s):
                self._rank(now_s, port, at)
            if at.until_s is not None:
                changes_s.append(at.until_s)
            counting += at.counting
        sharers = []
        opening: list[int] = []
        for number, flow in enumerate(flows):
            of = self._of[flow]
            if of.open_bytes is not None:
                self._open(flow, of)
                if of.open_bytes is not None:
                    opening.append(number)
            sharers.append(of.sharer or self._sharer(flow, of))
        rates, held_up = shared_rates(sharers, self._acknowledging)
        changes_s += self._rated_changes_s(now_s, neighbourhood, rates)
        for number in opening:
            # A window matters only where others wait in the same queue.
            if held_up[number] and rates[number]:
                flow = flows[number]
                open_bytes = self._of[flow].open_bytes
                assert open_bytes is not None
                left_bytes = open_bytes - (flow.size_bytes - flow.remaining_bytes)
                changes_s.append(now_s + left_bytes / rates[number])
        if counting:
            rate_of: dict[ActiveFlow, float] = dict(zip(flows, rates, strict=True))
            for rank in counting:
                together_Bps = sum([rate_of[flow] for flow in rank.counted])  # noqa: N806
                if together_Bps and rank.until_bytes is not None:
                    changes_s.append(now_s + rank.until_bytes / together_Bps)
        return Allocation(rates, min(changes_s, default=None))

    def _rated_changes_s(
        self,
        now_s: float,
        neighbourhood: Neighbourhood,
        rates_Bps: Sequence[float],  # noqa: N803
    ) -> list[float]:
        """Return when ranks end that hold for as long as rates say, by port."""
        rated = [at for port in neighbourhood.ports if (at := self._at[port]).rated]
        if not rated:
            return []
        rate_of = dict(zip(neighbourhood.flows, rates_Bps, strict=True))
        ends_s = []
        for at in rated:
            assert at.present is not None
            for execution in at.rated:
                present = at.present[execution]
                ends_s.append(
                    execution.until_s(now_s, present, [rate_of[flow] for flow, _ in present])
                )
        return [float(end_s) for end_s in ends_s if end_s is not None]

    def _rank(self, now_s: float, port: FluidPort, at: _AtPort) -> None:
        """Rank the flows at a port."""
        at.until_s = None
        at.counting = []
        at.rated = []
        if at.present is None:
            at.present = self._present(port)
        for execution, present in at.present.items():
            by_rates = False
            for (flow, _), rank in zip(
                present, execution.ranks(now_s, port.link, present), strict=True
            ):
                before = at.ranks.get(flow)
                if before is None or before.queue != rank.queue:
                    self._of[flow].sharer = None
                at.ranks[flow] = rank
                if rank.until_s is not None and (at.until_s is None or rank.until_s < at.until_s):
                    at.until_s = float(rank.until_s)
                if rank.until_bytes is not None:
                    at.counting.append(rank)
                by_rates = by_rates or rank.by_rates
            if by_rates and isinstance(execution, RatedExecution):
                at.rated.append(execution)
        at.outdated = bool(at.counting or at.rated)

    def _present(
        self, port: FluidPort
    ) -> Mapping[Execution[Any], Sequence[tuple[FlowUnderWay, Ranking]]]:
        out: dict[Execution[Any], list[tuple[FlowUnderWay, Ranking]]] = {}
        for flow in port.flows:
            of = self._of[flow]
            out.setdefault(of.execution, []).append((flow, of.ranking))
        return out

    def _open(self, flow: FlowUnderWay, of: _Executed) -> None:
        """Open the window of a flow as far as the bytes that have passed allow."""
        sent_bytes = flow.size_bytes - flow.remaining_bytes
        assert of.open_bytes is not None
        if sent_bytes + GRAIN_BYTES >= of.open_bytes:
            window, of.open_bytes = self._windows.at(sent_bytes + GRAIN_BYTES, of.initial)
            if window != of.window:
                of.window = window
                of.sharer = None

    def _sharer(self, flow: FlowUnderWay, of: _Executed) -> Sharer:
        queues = []
        for port in flow.ports:
            at = self._at[port]
            rank = at.ranks.get(flow)
            # A flow that was never ranked is alone at the port, where its queue makes no
            # difference.
            queues.append(at.shared.queue(0 if rank is None else rank.queue))
        most_Bps = flow.max_rate_Bps  # noqa: N806
        of.sharer = Sharer(queues, of.window, None if most_Bps is None else float(most_Bps))
        return of.sharer
