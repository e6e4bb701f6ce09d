"""The flows under way, their ports, and the neighbourhoods in which they share links."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

from echelon.model.errors import Code, CodedError
from echelon.model.jobs.graph import FlowKey
from echelon.planning.allocation import ActiveFlow, Link
from echelon.planning.fluid.sharing import TOLERANCE

GRAIN_BYTES = 2.0**-20
"""The error of a flow's remaining bytes."""


class FluidError(CodedError, RuntimeError):
    """The policy's answer stops a run: no rates, the wrong number of them, or for no time."""

    code: Code = "run-failed"


class FluidPort:
    """A directed link and the flows under way over it."""

    __slots__ = (
        "acknowledgements_Bps",
        "always_narrow",
        "capacity_Bps",
        "fastest_Bps",
        "flows",
        "has_queues",
        "link",
        "narrow",
        "reverse",
        "seen",
    )

    def __init__(self, link: Link, capacity_Bps: float) -> None:  # noqa: N803
        self.link = link
        self.capacity_Bps = capacity_Bps
        self.flows: dict[FlowUnderWay, None] = {}
        self.fastest_Bps: float = 0
        """The rate of all flows if each were alone on its path."""
        self.always_narrow = False
        """Whether a queue has a maximum share.

        The port can then hold flows up even when it has room for all of them.
        """
        self.reverse: FluidPort | None = None
        """The port of the opposite direction, if acknowledgements take part of its link."""
        self.acknowledgements_Bps: float = 0
        """The most that acknowledgements of the flows of the opposite direction take."""
        self.has_queues = False
        """Whether flows are ranked at the port."""
        self.narrow = False
        """Whether flows may have to share the port."""
        self.seen = 0

    def add(self, flow: FlowUnderWay) -> None:
        self.flows[flow] = None
        self.fastest_Bps += flow.fastest_Bps * flow.count
        self._set_narrow()

    def remove(self, flow: FlowUnderWay) -> None:
        del self.flows[flow]
        if self.flows:
            self.fastest_Bps -= flow.fastest_Bps * flow.count
        else:
            self.fastest_Bps = 0  # without what rounding has left
        self._set_narrow()

    def _set_narrow(self) -> None:
        # Acknowledgements may take a part of a port, but join no flows: whether a port is narrow
        # depends on its own flows.
        left_Bps = self.capacity_Bps - self.acknowledgements_Bps  # noqa: N806
        several = len(self.flows) > 1 or any(flow.count > 1 for flow in self.flows)
        shared = several and self.fastest_Bps > left_Bps * (1 + TOLERANCE)
        self.narrow = self.always_narrow or shared


@dataclass(slots=True, eq=False, kw_only=True)
class FlowUnderWay(ActiveFlow):
    """A flow in the network.

    `remaining_bytes` is as of `since_s`, from when on the flow has had its rate or more.
    """

    count: int = 1
    """The number of equal flows for which it stands: sizes and rates are those of each."""
    ports: tuple[FluidPort, ...]
    fastest_Bps: float  # noqa: N815
    """The flow's rate if it were alone on its path."""
    coupled: Hashable = None
    """The coupling of the flow to others beside links (`LocalAllocator.neighbourhood`)."""
    since_s: float
    rate_Bps: float = 0  # noqa: N815
    version: int = 0
    """Number of rates that the flow has had: events expected of an earlier one are outdated."""
    neighbourhood: Neighbourhood | None = None
    removed: bool = False
    """Whether the flow has left the network."""
    seen: int = 0


@dataclass(slots=True, eq=False)
class Neighbourhood:
    """Flows whose rates were set together, in order of their start.

    It ends when one of their rates is set again.
    """

    flows: list[FlowUnderWay]
    ports: list[FluidPort]
    """The ports with queues at which some of them may delay each other."""
    moved: bool
    """Whether a flow has started or finished since the rates of before were set."""
    ended: bool = False


class FluidNetwork:
    """The ports, the flows under way, and those whose rates may have to change.

    `couple` tells what couples a flow to flows beside links, and `undivided` whether all flows are
    one neighbourhood.
    """

    def __init__(
        self,
        ports: Mapping[Link, FluidPort],
        couple: Callable[[FlowUnderWay], Hashable],
        undivided: bool,
    ) -> None:
        self.flows: dict[FlowKey, FlowUnderWay] = {}
        self._ports = ports
        self._couple = couple
        self._undivided = undivided
        self._coupled: dict[Hashable, dict[FlowUnderWay, None]] = {}
        self._started = 0
        self._searches = 0
        self._touched: dict[FlowUnderWay, None] = {}
        """Flows whose rates must be set anew, beside those of `_expired`."""
        self._expired: list[Neighbourhood] = []
        self._moved = False
        """Whether a flow has started or finished since rates were set: neighbourhoods may differ.
        """
        self.changed = False
        """Whether a flow has started or finished, or rates must be set anew for another reason."""

    def new(
        self,
        key: FlowKey,
        iteration: int,
        echelonflow: str | None,
        links: tuple[Link, ...],
        size_bytes: int,
        now_s: float,
        deadline_s: float,
        max_rate_Bps: float | None = None,  # noqa: N803
        count: int = 1,
    ) -> FlowUnderWay:
        """Return a new flow, which is not in the network yet."""
        ports = tuple([self._ports[link] for link in links])
        limits = [port.capacity_Bps for port in ports]
        if max_rate_Bps is not None:
            limits.append(max_rate_Bps)
        flow = FlowUnderWay(
            job=key[0],
            flow=key[1],
            iteration=iteration,
            echelonflow=echelonflow,
            links=links,
            size_bytes=size_bytes,
            remaining_bytes=float(size_bytes),
            start_s=now_s,
            deadline_s=deadline_s,
            sequence=self._started,
            max_rate_Bps=max_rate_Bps,
            count=count,
            ports=ports,
            fastest_Bps=min(limits, default=0),
            since_s=now_s,
        )
        self._started += 1
        return flow

    def add(self, flow: FlowUnderWay) -> None:
        """Put a flow that has bytes and links into the network."""
        self.changed = True
        self._moved = True
        self.flows[flow.job, flow.flow] = flow
        for port in flow.ports:
            port.add(flow)
        flow.coupled = self._couple(flow)
        if flow.coupled is not None:
            self._coupled.setdefault(flow.coupled, {})[flow] = None
        self._touched[flow] = None

    def remove(self, flow: FlowUnderWay) -> None:
        """Take a flow that has finished out of the network."""
        flow.removed = True
        self._moved = True
        if flow.neighbourhood is not None:
            self.touch(flow.neighbourhood)
        del self.flows[flow.job, flow.flow]
        for port in flow.ports:
            port.remove(flow)
        if flow.coupled is not None:
            group = self._coupled[flow.coupled]
            del group[flow]
            if not group:
                del self._coupled[flow.coupled]
        self._touched.pop(flow, None)

    def touch(self, neighbourhood: Neighbourhood) -> None:
        """Mark the rates of these flows to be set again."""
        if not neighbourhood.ended:
            neighbourhood.ended = True
            self.changed = True
            self._expired.append(neighbourhood)

    def take_touched(self, now_s: float) -> Iterable[Neighbourhood]:
        """Return all neighbourhoods of flows whose rates must be set anew.

        Their remaining bytes are those of now.
        """
        self.changed = False
        moved = self._moved
        self._moved = False
        touched = self._touched
        self._touched = {}
        expired = self._expired
        self._expired = []
        if self._undivided:
            if self.flows:
                yield self._begin([*self.flows.values()], [], moved, now_s)
            return
        if not moved:
            for neighbourhood in expired:
                yield self._begin(neighbourhood.flows, neighbourhood.ports, moved, now_s)
            return
        self._searches += 1
        outdated = [neighbourhood.flows for neighbourhood in expired]
        for flow in chain(touched, *outdated):
            if flow.seen != self._searches and not flow.removed:
                flows, ports = self._around(flow)
                yield self._begin(flows, ports, moved, now_s)

    def _around(self, first: FlowUnderWay) -> tuple[list[FlowUnderWay], list[FluidPort]]:
        """Return the flows around a flow, in order of their start, and the ports with queues."""
        search = self._searches
        first.seen = search
        flows = [first]
        ports = []
        for flow in flows:  # the list grows
            for port in flow.ports:
                if port.seen == search:
                    continue
                port.seen = search
                if not port.narrow:
                    continue
                if port.has_queues:
                    ports.append(port)
                if len(port.flows) > 1:
                    _take(port.flows, search, flows)
            if flow.coupled is not None:
                _take(self._coupled[flow.coupled], search, flows)
        flows.sort(key=_BY_START)
        return flows, ports

    def _begin(
        self,
        flows: list[FlowUnderWay],
        ports: list[FluidPort],
        moved: bool,
        now_s: float,
    ) -> Neighbourhood:
        neighbourhood = Neighbourhood(flows, ports, moved)
        for flow in flows:
            if flow.neighbourhood is not None:
                flow.neighbourhood.ended = True
            flow.neighbourhood = neighbourhood
            self.advance(flow, now_s)
        return neighbourhood

    def advance(self, flow: FlowUnderWay, now_s: float) -> None:
        """Drain a flow until now."""
        if flow.since_s != now_s:
            if flow.rate_Bps:
                passed = flow.rate_Bps * (now_s - flow.since_s)
                flow.remaining_bytes = max(flow.remaining_bytes - passed, GRAIN_BYTES)
            flow.since_s = now_s


def _take(
    flows: Iterable[FlowUnderWay],
    search: int,
    neighbours: list[FlowUnderWay],
) -> None:
    """Add the flows that this search has not seen."""
    for flow in flows:
        if flow.seen != search:
            flow.seen = search
            neighbours.append(flow)


_BY_START = attrgetter("sequence")
