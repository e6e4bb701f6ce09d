"""How the queues of ports divide their links between flows, at one moment.

Packets decide this port by port. Here it is computed as a whole, with every sender as fast as its path allows:

- A queue first gets its minimum share of the port. The rest serves queues of a higher level before those of a lower
  one, and queues of one level in proportion to their weights (DWRR), none above its maximum share.
- A queue is a FIFO, which serves flows in proportion to the packets that they have in it. A sender that keeps a window
  in flight has that window in the queue where it waits, so flows that wait in one queue share it in proportion to their
  windows. A sender of constant rate gets its full rate through, before the others share the rest, as long as the queue
  carries it; beyond that, such senders share the queue in proportion to their rates.
- A flow that waits elsewhere takes less than its share here, and the others share what it leaves: max-min fairness,
  found by fixing the flows of the tightest queue first.

If every flow waits in a single queue, this is what packets do. A flow that waits in several FIFO queues of its path
splits its window between them, and such a network shares in proportional fairness (Massoulié and Roberts, Bandwidth
sharing: objectives and algorithms, INFOCOM '99); max-min fairness gives such a flow somewhat more.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from echelon.allocation import Number
from echelon.plan import PortSchedule, QueuePlan

_ONE_FIFO = (QueuePlan(level=0),)


class SharedPort:
    """A link and the queues in front of it; `schedule` is None for a host's interface, which is one FIFO."""

    __slots__ = ("capacity_Bps", "is_fifo", "limited", "minimum", "reverse", "schedule")

    def __init__(self, capacity_Bps: Number, schedule: PortSchedule | None) -> None:  # noqa: N803
        self.capacity_Bps = capacity_Bps
        self.is_fifo = schedule is None
        self.schedule: Sequence[QueuePlan] = _ONE_FIFO if schedule is None else schedule
        self.minimum: Sequence[SharedPort | None] = [
            SharedPort(capacity_Bps * queue.min_share, None) if queue.min_share else None for queue in self.schedule
        ]
        """The minimum share of each queue as a link of its own; None for a queue that has none."""
        self.limited = any(queue.max_share is not None for queue in self.schedule)
        """Whether some queue has a maximum share."""
        self.reverse: SharedPort | None = None
        """The port of the opposite direction, if acknowledgements take part of its link."""


Place = tuple[SharedPort, int]
"""A port, and the index of one of its queues."""


@dataclass(slots=True, eq=False)
class Sharer:
    """A flow during a time in which nothing changes."""

    places: Sequence[Place]
    """The queues on its path."""
    window: int
    """Its window in flight, in any unit that is the same for all flows."""
    sent_Bps: Number | None = None  # noqa: N815
    """Constant rate at which it sends, in bytes per second; None: as fast as its window lets it."""
    rate_Bps: Number = 0  # noqa: N815
    """The result."""
    narrow: Sequence[Place] = ()
    """The members of `places` that may delay it because of other flows."""
    fastest_Bps: Number = 0  # noqa: N815
    """Its rate if it were alone."""
    narrowest_Bps: Number = 0  # noqa: N815
    """The least capacity of the ports in `narrow`."""
    queues: list[_Queue] = field(default_factory=list)
    """Its narrow queues in the present filling."""
    refused: int = 0
    """The number of them that do not make it an offer yet."""


def share(flows: Sequence[Sharer], taken_Bps: Mapping[SharedPort, Number], tolerance: Number = 0) -> None:  # noqa: N803
    """Set the rate of each flow. Every flow ends with a full link or a full queue on its path, or at its own rate.

    `taken_Bps` is the rate of other traffic at a port, which goes before all flows. A link or queue is full when no
    more than the part `tolerance` of the link is left; floats need one.
    """
    flows = _held_up(flows, taken_Bps, tolerance)
    if not flows:
        return
    least: list[tuple[Sharer, Sharer]] = []
    for flow in flows:
        promised: list[Place] = []
        has_queues = False
        for port, queue in flow.narrow:
            minimum = port if port.is_fifo else port.minimum[queue]
            if minimum is None:
                break
            promised.append((minimum, 0))
            has_queues = has_queues or not port.is_fifo
        else:
            if has_queues:
                least.append(
                    (flow, Sharer((), flow.window, flow.sent_Bps, fastest_Bps=flow.fastest_Bps, narrow=promised))
                )
    if least:
        _fill_up([minimum for _, minimum in least], taken_Bps, tolerance)
        for flow, minimum_flow in least:
            flow.rate_Bps = minimum_flow.rate_Bps
    _fill_up(flows, taken_Bps, tolerance)


def _held_up(
    flows: Sequence[Sharer],
    taken_Bps: Mapping[SharedPort, Number],  # noqa: N803
    tolerance: Number,
) -> list[Sharer]:
    """Set the narrow places of each flow, and return the flows that have any. The others get their rate.

    A port is wide, and can be ignored, if it has room for all its flows in any case.
    """
    demand: dict[SharedPort, Number] = {}
    for flow in flows:
        rooms = [port.capacity_Bps for port, _ in flow.places]
        if taken_Bps:
            rooms = [port.capacity_Bps - taken_Bps.get(port, 0) for port, _ in flow.places]
        fastest = min(rooms)
        if flow.sent_Bps is not None and flow.sent_Bps < fastest:
            fastest = flow.sent_Bps
        flow.fastest_Bps = fastest
        for port, _ in flow.places:
            demand[port] = demand[port] + fastest if port in demand else fastest
    narrow = {
        port
        for port, demand_Bps in demand.items()
        if port.limited or demand_Bps > (port.capacity_Bps - taken_Bps.get(port, 0)) * (1 + tolerance)
    }
    out = []
    for flow in flows:
        flow.narrow = [place for place in flow.places if place[0] in narrow]
        if flow.narrow:
            flow.rate_Bps = 0
            out.append(flow)
        else:
            flow.rate_Bps = flow.fastest_Bps
    return out


def _fill_up(flows: Sequence[Sharer], taken_Bps: Mapping[SharedPort, Number], tolerance: Number) -> None:  # noqa: N803
    """Give away what is left until no flow can have more.

    One pass is enough unless a flow could not use what a queue kept for it, because of a higher level further on.
    """
    filling = _Filling(flows, taken_Bps, tolerance)
    while filling.run():
        pass


class _Queue:
    """A queue of a narrow port during a filling."""

    __slots__ = (
        "constants",
        "has_Bps",
        "level",
        "limit_Bps",
        "offer",
        "port",
        "ready",
        "serves_constants",
        "waiting",
        "weight",
        "windows",
    )

    def __init__(self, port: _NarrowPort, plan: QueuePlan) -> None:
        self.port = port
        self.level = plan.level
        self.weight = plan.weight
        self.limit_Bps = None if plan.max_share is None else port.capacity_Bps * plan.max_share
        self.has_Bps = port.zero
        """The rate of all its flows."""
        self.waiting: dict[Sharer, None] = {}
        """The flows that have not got their rate in this pass."""
        self.windows = 0
        """The sum of the windows of those of them that keep one."""
        self.constants = 0
        """The number of those of them that send at a constant rate."""
        self.ready = 0
        """The number of those of them that all queues on their path make an offer to."""
        self.serves_constants: bool | None = None
        """Whether the queue makes an offer to senders of constant rate or to the others; None: to nobody, since flows
        wait in a queue of a higher level of the port."""
        self.offer = port.zero
        """Bytes per second for each unit of a flow's window, or the part that a sender of constant rate gets of what it
        lacks."""


class _NarrowPort:
    """A narrow port during a filling."""

    __slots__ = ("busy", "capacity_Bps", "full_Bps", "outdated", "queues", "serving", "used_Bps", "version", "zero")

    def __init__(self, port: SharedPort, taken_Bps: Number | None, tolerance: Number) -> None:  # noqa: N803
        self.capacity_Bps = port.capacity_Bps
        self.zero = port.capacity_Bps * 0
        self.used_Bps = self.zero if taken_Bps is None else taken_Bps
        self.full_Bps = port.capacity_Bps * (1 - tolerance)
        self.queues: dict[int, _Queue] = {}
        self.serving: list[_Queue] = []
        """The queues that make an offer: those of the highest level in which flows wait."""
        self.busy = 0
        """The number of them in which flows still wait."""
        self.outdated = False
        """Whether the queues could offer more than they do, since a flow has got its rate."""
        self.version = 0
        """Number of times that offers were renewed."""

    def renew(self) -> None:
        """Make the queues that serve offer what they can."""
        self.version += 1
        self.outdated = False
        queues = self.serving
        if self.busy < len(queues):
            queues = self.serving = [queue for queue in queues if queue.waiting]
        if len(queues) == 1 and not queues[0].serves_constants:
            queues[0].offer = self.room(queues[0]) / queues[0].windows
            return
        rooms = [self.room(queues[0])] if len(queues) == 1 else self._rooms(queues)
        for queue, room in zip(queues, rooms, strict=True):
            if queue.serves_constants:
                lacking = sum([flow.sent_Bps - flow.rate_Bps for flow in queue.waiting if flow.sent_Bps is not None])
                queue.offer = min(room / lacking, self.zero + 1) if lacking else self.zero
            else:
                queue.offer = room / queue.windows

    def room(self, queue: _Queue) -> Number:
        """Return how much more the queue can have if no other queue takes anything."""
        left = self.capacity_Bps - self.used_Bps
        if queue.limit_Bps is not None:
            left = min(left, queue.limit_Bps - queue.has_Bps)
        return left if left > 0 else self.zero

    def _rooms(self, queues: Sequence[_Queue]) -> Sequence[Number]:
        """Return how much more each of these queues, all of one level, gets if all of them take what they can.

        Each gets the same for each unit of its weight, but no less than it has and no more than its maximum share.
        """
        left = self.capacity_Bps - self.used_Bps
        if left <= 0:
            return [self.zero] * len(queues)
        has = [queue.has_Bps for queue in queues]
        weights = [queue.weight for queue in queues]
        limits = [self.capacity_Bps if queue.limit_Bps is None else queue.limit_Bps for queue in queues]

        def growth(per_weight: Number) -> list[Number]:
            return [
                max(self.zero, min(per_weight * weight, limit) - had)
                for weight, limit, had in zip(weights, limits, has, strict=True)
            ]

        # Most often, no queue has more than its part or as much as its maximum share.
        even = (left + sum(has)) / sum(weights)
        rooms = [even * weight - had for weight, had in zip(weights, has, strict=True)]
        if min(rooms) >= 0 and all(map(_at_most, rooms, limits, has)):
            return rooms
        # What they get together grows with `per_weight`, with these bends.
        bends = {had / weight for weight, had in zip(weights, has, strict=True)}
        bends |= {limit / weight for weight, limit in zip(weights, limits, strict=True)}
        affordable = max([bend for bend in bends if sum(growth(bend)) <= left], default=min(bends))
        at_bend = growth(affordable)
        growing = sum(
            weight
            for weight, limit, had in zip(weights, limits, has, strict=True)
            if had <= affordable * weight < limit
        )
        return growth(affordable + (left - sum(at_bend)) / growing) if growing else at_bend


def _at_most(room: Number, limit: Number, had: Number) -> bool:
    return room + had <= limit


class _Filling:
    """Passes over the flows that give each a rate, the tightest first."""

    def __init__(self, flows: Sequence[Sharer], taken_Bps: Mapping[SharedPort, Number], tolerance: Number) -> None:  # noqa: N803
        self._flows = flows
        self._tolerance = tolerance
        self._due: tuple[list[_Offer], list[_Offer]] = [], []
        """Offers by size, to flows that keep a window and to senders of constant rate. The latter go first.

        The offers of a port only grow as long as the same levels are served, so an outdated offer is never too large.
        """
        self._announced = 0
        self._kinds = (True, False) if any(flow.sent_Bps is not None for flow in flows) else (False,)
        """The kinds of senders that there are: True stands for those of constant rate."""
        ports: dict[SharedPort, _NarrowPort] = {}
        for flow in flows:
            flow.queues = []
            for shared, index in flow.narrow:
                port = ports.get(shared)
                if port is None:
                    port = ports[shared] = _NarrowPort(shared, taken_Bps.get(shared), tolerance)
                queue = port.queues.get(index)
                if queue is None:
                    queue = port.queues[index] = _Queue(port, shared.schedule[index])
                if flow.rate_Bps:
                    port.used_Bps += flow.rate_Bps
                    queue.has_Bps += flow.rate_Bps
                flow.queues.append(queue)
            flow.narrowest_Bps = min([port.capacity_Bps for port, _ in flow.narrow])

    def run(self) -> bool:
        """Give each flow that can have more its rate. Return whether another pass may give some of them more."""
        for due in self._due:
            due.clear()
        waiting: dict[Sharer, None] = {}
        serve: dict[_NarrowPort, None] = {}
        for flow in self._flows:
            if flow.rate_Bps < flow.fastest_Bps * (1 - self._tolerance) and all(map(self._has_room, flow.queues)):
                waiting[flow] = None
                flow.refused = len(flow.queues)
                for queue in flow.queues:
                    queue.waiting[flow] = None
                    queue.serves_constants = None
                    if flow.sent_Bps is None:
                        queue.windows += flow.window
                    else:
                        queue.constants += 1
                    serve[queue.port] = None
        gained = False
        self._serve(serve)
        once = not any(flow.refused or flow.rate_Bps for flow in waiting)
        while waiting:
            size, ready = self._tightest(waiting)
            serve = {}
            for flow in ready:
                del waiting[flow]
                window = flow.sent_Bps is None
                more = size * (flow.window if flow.sent_Bps is None else flow.sent_Bps - flow.rate_Bps)
                more = min(more, flow.fastest_Bps - flow.rate_Bps)
                gained = gained or more > self._tolerance * flow.fastest_Bps
                flow.rate_Bps += more
                for queue in flow.queues:
                    queue.has_Bps += more
                    port = queue.port
                    port.used_Bps += more
                    port.outdated = True
                    del queue.waiting[flow]
                    if not flow.refused:
                        queue.ready -= 1
                    if window:
                        queue.windows -= flow.window
                        if not queue.waiting and queue.serves_constants is not None:
                            port.busy -= 1
                            if not port.busy:
                                serve[port] = None
                    else:
                        queue.constants -= 1
                        if not queue.constants:
                            serve[port] = None
            self._serve(serve)
        return gained and not once

    def _has_room(self, queue: _Queue) -> bool:
        port = queue.port
        if port.used_Bps >= port.full_Bps:
            return False
        return queue.limit_Bps is None or queue.limit_Bps - queue.has_Bps > self._tolerance * port.capacity_Bps

    def _serve(self, ports: Mapping[_NarrowPort, None]) -> None:
        """Have ports serve the highest level at which flows wait, and announce their offers."""
        if not ports:
            return
        renewed = dict.fromkeys(ports)
        for port in ports:
            waiting = [queue for queue in port.queues.values() if queue.waiting]
            if len(waiting) > 1:
                level = max([queue.level for queue in waiting])
                waiting = [queue for queue in waiting if queue.level == level]
            port.serving = waiting
            port.busy = len(waiting)
            for queue in waiting:
                constant = queue.constants > 0
                if queue.serves_constants is not constant:
                    queue.serves_constants = constant
                    for flow in queue.waiting:
                        if (flow.sent_Bps is not None) is constant:
                            flow.refused -= 1
                            if not flow.refused:
                                if constant or flow.fastest_Bps < flow.narrowest_Bps:
                                    self._announce_flow(flow, constant)
                                for other in flow.queues:
                                    other.ready += 1
                                    renewed[other.port] = None
        for port in renewed:
            self._renew(port)

    def _renew(self, port: _NarrowPort) -> None:
        """Renew the offers of a port, and announce the least of them for each kind of sender."""
        if not port.serving:
            port.version += 1
            return
        port.renew()
        for constant in self._kinds:
            offers = [q.offer for q in port.serving if q.ready and q.serves_constants is constant]
            if offers:
                self._announced += 1
                heapq.heappush(self._due[constant], (min(offers), self._announced, port, None, port.version))

    def _announce_flow(self, flow: Sharer, constant: bool) -> None:
        """Announce what the flow could use at most."""
        units = flow.window if flow.sent_Bps is None else flow.sent_Bps - flow.rate_Bps
        self._announced += 1
        size = (flow.fastest_Bps - flow.rate_Bps) / units
        heapq.heappush(self._due[constant], (size, self._announced, None, flow, 0))

    def _tightest(self, waiting: Mapping[Sharer, None]) -> tuple[Number, Sequence[Sharer]]:
        """Return the smallest offer, and the flows that must take it because nothing on their path offers less."""
        for constant in self._kinds:
            due = self._due[constant]
            while due:
                size, _, port, flow, version = heapq.heappop(due)
                if port is None:
                    assert flow is not None
                    if flow in waiting:
                        return size, [flow]
                elif version == port.version:
                    if port.outdated:
                        self._renew(port)
                        continue
                    # The port's next offer has to be found anew, once these flows have their rates.
                    self._announced += 1
                    heapq.heappush(due, (size, self._announced, port, None, version))
                    for queue in port.serving:
                        if queue.ready and queue.serves_constants is constant and queue.offer == size:
                            return size, [
                                flow
                                for flow in queue.waiting
                                if not flow.refused and (flow.sent_Bps is not None) is constant
                            ]
        # The levels of the ports contradict each other. The oldest flow goes first.
        oldest = next(iter(waiting))
        units = oldest.window if oldest.sent_Bps is None else oldest.sent_Bps - oldest.rate_Bps
        return min(queue.port.room(queue) for queue in oldest.queues) / units, [oldest]


_Offer = tuple[Number, int, _NarrowPort | None, Sharer | None, int]
"""The size of an offer, when it was announced, and its port with the version, or the flow that could use no more."""
