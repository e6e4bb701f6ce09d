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


def _held_up(flows: Sequence[Sharer], taken_Bps: Mapping[SharedPort, Number], tolerance: Number) -> list[Sharer]:  # noqa: N803
    """Set the narrow places of each flow, and return the flows that have any. The others get their rate.

    A port is wide, and can be ignored, if it has room for all its flows in any case, or if a narrower port has the same
    flows in the same queues.
    """
    at: dict[SharedPort, list[tuple[int, int]]] = {}
    demand: dict[SharedPort, Number] = {}
    for number, flow in enumerate(flows):
        fastest = None if flow.sent_Bps is None else flow.sent_Bps
        for port, _ in flow.places:
            room = port.capacity_Bps - taken_Bps[port] if port in taken_Bps else port.capacity_Bps
            if fastest is None or room < fastest:
                fastest = room
        assert fastest is not None
        flow.fastest_Bps = fastest
        for port, queue in flow.places:
            if port in at:
                at[port].append((number, queue))
                demand[port] += fastest
            else:
                at[port] = [(number, queue)]
                demand[port] = fastest
    kept: dict[object, SharedPort] = {}
    for port, present in at.items():
        taken = taken_Bps.get(port, 0)
        limited = port.limited and any(port.schedule[queue].max_share is not None for _, queue in present)
        if limited or (len(present) > 1 and demand[port] > (port.capacity_Bps - taken) * (1 + tolerance)):
            same = tuple(present), port.schedule, taken
            if same not in kept or port.capacity_Bps < kept[same].capacity_Bps:
                kept[same] = port
    narrow = set(kept.values())
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

    One pass is enough unless a flow could not use what a FIFO kept for it, because of a higher level further on.
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
        "serves_constants",
        "version",
        "waiting",
        "weight",
        "windows",
    )

    def __init__(self, port: _NarrowPort, plan: QueuePlan) -> None:
        self.port = port
        self.level = plan.level
        self.weight = plan.weight
        self.limit_Bps = None if plan.max_share is None else port.capacity_Bps * plan.max_share
        self.has_Bps: Number = port.capacity_Bps * 0
        """The rate of all its flows."""
        self.waiting: dict[Sharer, None] = {}
        """The flows that have not got their rate in this pass."""
        self.windows = 0
        """The sum of the windows of those of them that keep one."""
        self.constants = 0
        """The number of those of them that send at a constant rate."""
        self.serves_constants: bool | None = None
        """Whether the queue makes an offer to senders of constant rate or to the others; None: to nobody, since flows
        wait in a queue of a higher level of the port."""
        self.offer: Number = 0
        """Bytes per second for each unit of a flow's window, or the part that a sender of constant rate gets of what it
        lacks."""
        self.version = 0


class _NarrowPort:
    """A narrow port during a filling."""

    __slots__ = ("capacity_Bps", "full_Bps", "queues", "used_Bps")

    def __init__(self, port: SharedPort, taken_Bps: Number, tolerance: Number) -> None:  # noqa: N803
        self.capacity_Bps = port.capacity_Bps
        self.used_Bps = taken_Bps
        self.full_Bps = port.capacity_Bps * (1 - tolerance)
        self.queues: dict[int, _Queue] = {}

    def rooms(self, queues: Sequence[_Queue]) -> list[Number]:
        """Return how much more each of these queues, all of one level, gets if all of them take what they can.

        Each gets the same for each unit of its weight, but no less than it has and no more than its maximum share.
        """
        left = self.capacity_Bps - self.used_Bps
        if left <= 0:
            return [self.capacity_Bps * 0] * len(queues)
        if len(queues) == 1:
            limit = queues[0].limit_Bps
            return [left if limit is None else max(0, min(left, limit - queues[0].has_Bps))]
        if not any(queue.has_Bps or queue.limit_Bps is not None for queue in queues):
            weights = sum([queue.weight for queue in queues])
            return [left * queue.weight / weights for queue in queues]
        limits = [self.capacity_Bps if queue.limit_Bps is None else queue.limit_Bps for queue in queues]

        def growth(per_weight: Number) -> list[Number]:
            return [
                max(0, min(per_weight * queue.weight, limit) - queue.has_Bps)
                for queue, limit in zip(queues, limits, strict=True)
            ]

        # What they get together grows with `per_weight`, with these bends.
        bends = {queue.has_Bps / queue.weight for queue in queues}
        bends |= {limit / queue.weight for queue, limit in zip(queues, limits, strict=True)}
        affordable = max([bend for bend in bends if sum(growth(bend)) <= left], default=min(bends))
        at_bend = growth(affordable)
        growing = sum(
            [
                queue.weight
                for queue, limit in zip(queues, limits, strict=True)
                if queue.has_Bps <= affordable * queue.weight < limit
            ]
        )
        return growth(affordable + (left - sum(at_bend)) / growing) if growing else at_bend


class _Filling:
    """Passes over the flows that give each a rate, the tightest first."""

    def __init__(self, flows: Sequence[Sharer], taken_Bps: Mapping[SharedPort, Number], tolerance: Number) -> None:  # noqa: N803
        self._flows = flows
        self._tolerance = tolerance
        self._due: tuple[list[_Offer], list[_Offer]] = [], []
        """Offers by size, to flows that keep a window and to senders of constant rate. The latter go first."""
        self._announced = 0
        ports: dict[SharedPort, _NarrowPort] = {}
        for flow in flows:
            flow.queues = []
            for shared, index in flow.narrow:
                port = ports.get(shared)
                if port is None:
                    taken = taken_Bps.get(shared)
                    port = ports[shared] = _NarrowPort(
                        shared, shared.capacity_Bps * 0 if taken is None else taken, tolerance
                    )
                queue = port.queues.get(index)
                if queue is None:
                    queue = port.queues[index] = _Queue(port, shared.schedule[index])
                if flow.rate_Bps:
                    port.used_Bps += flow.rate_Bps
                    queue.has_Bps += flow.rate_Bps
                flow.queues.append(queue)

    def run(self) -> bool:
        """Give each flow that can have more its rate. Return whether any of them gained."""
        waiting: dict[Sharer, None] = {}
        ports: dict[_NarrowPort, None] = {}
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
                    ports[queue.port] = None
        for due in self._due:
            due.clear()
        for port in ports:
            self._offer(port)
        gained = False
        while waiting:
            size, ready = self._tightest(waiting)
            touched: dict[_NarrowPort, None] = {}
            for flow in ready:
                del waiting[flow]
                lacking = flow.fastest_Bps - flow.rate_Bps
                more = min(lacking, size * (flow.window if flow.sent_Bps is None else flow.sent_Bps - flow.rate_Bps))
                gained = gained or more > self._tolerance * flow.fastest_Bps
                flow.rate_Bps += more
                for queue in flow.queues:
                    queue.has_Bps += more
                    queue.port.used_Bps += more
                    touched[queue.port] = None
                    del queue.waiting[flow]
                    if flow.sent_Bps is None:
                        queue.windows -= flow.window
                    else:
                        queue.constants -= 1
            for port in touched:
                self._offer(port)
        return gained

    def _has_room(self, queue: _Queue) -> bool:
        port = queue.port
        if port.used_Bps >= port.full_Bps:
            return False
        return queue.limit_Bps is None or queue.limit_Bps - queue.has_Bps > self._tolerance * port.capacity_Bps

    def _tightest(self, waiting: Mapping[Sharer, None]) -> tuple[Number, Sequence[Sharer]]:
        """Return the smallest offer, and the flows that must take it because nothing on their path offers less."""
        for constant in (True, False):
            due = self._due[constant]
            while due:
                size, _, queue, flow, version = heapq.heappop(due)
                if queue is None:
                    assert flow is not None
                    if flow in waiting:
                        return size, [flow]
                elif version == queue.version:
                    ready = [
                        flow for flow in queue.waiting if not flow.refused and (flow.sent_Bps is not None) is constant
                    ]
                    if ready:
                        return size, ready
        # The levels of the ports contradict each other. The oldest flow goes first.
        oldest = next(iter(waiting))
        units = oldest.window if oldest.sent_Bps is None else oldest.sent_Bps - oldest.rate_Bps
        return min(self._left(queue) for queue in oldest.queues) / units, [oldest]

    def _left(self, queue: _Queue) -> Number:
        """Return how much more the queue can have at most, in bytes per second."""
        left = max(queue.port.capacity_Bps - queue.port.used_Bps, queue.port.capacity_Bps * 0)
        return left if queue.limit_Bps is None else min(left, queue.limit_Bps - queue.has_Bps)

    def _offer(self, port: _NarrowPort) -> None:
        """Renew what the port offers to those of the waiting flows whose turn it is."""
        queues: list[_Queue] = []
        level = -1
        for queue in port.queues.values():
            if queue.waiting and queue.level >= level:
                if queue.level > level:
                    level = queue.level
                    queues = []
                queues.append(queue)
        if not queues:
            return
        for queue, room in zip(queues, port.rooms(queues), strict=True):
            queue.version += 1
            constant = queue.constants > 0
            if constant:
                lacking = sum([flow.sent_Bps - flow.rate_Bps for flow in queue.waiting if flow.sent_Bps is not None])
                queue.offer = min(room / lacking, 1) if lacking else room * 0
            else:
                queue.offer = room / queue.windows
            self._push(queue.offer, queue, None, constant)
            if queue.serves_constants is not constant:
                queue.serves_constants = constant
                for flow in queue.waiting:
                    if (flow.sent_Bps is not None) is constant:
                        flow.refused -= 1
                        if not flow.refused:
                            self._take_up(flow, constant)

    def _take_up(self, flow: Sharer, constant: bool) -> None:
        """Announce a flow that all queues on its path make an offer to."""
        for queue in flow.queues:
            self._push(queue.offer, queue, None, constant)
        if constant or any(flow.fastest_Bps < queue.port.capacity_Bps for queue in flow.queues):
            units = flow.window if flow.sent_Bps is None else flow.sent_Bps - flow.rate_Bps
            self._push((flow.fastest_Bps - flow.rate_Bps) / units, None, flow, constant)

    def _push(self, size: Number, queue: _Queue | None, flow: Sharer | None, constant: bool) -> None:
        self._announced += 1
        version = 0 if queue is None else queue.version
        heapq.heappush(self._due[constant], (size, self._announced, queue, flow, version))


_Offer = tuple[Number, int, _Queue | None, Sharer | None, int]
"""The size of an offer, when it was announced, and its queue and version, or the flow that could use no more."""
