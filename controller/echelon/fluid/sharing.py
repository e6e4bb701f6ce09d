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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from echelon.allocation import Number
from echelon.plan import PortSchedule, QueuePlan

_ZERO = Fraction(0)
_ONE_FIFO = (QueuePlan(level=0),)


class SharedPort:
    """A link and the queues in front of it; `schedule` is None for a host's interface, which is one FIFO."""

    __slots__ = ("capacity_Bps", "is_fifo", "minimum", "schedule")

    def __init__(self, capacity_Bps: Number, schedule: PortSchedule | None) -> None:  # noqa: N803
        self.capacity_Bps = capacity_Bps
        self.is_fifo = schedule is None
        self.schedule: Sequence[QueuePlan] = _ONE_FIFO if schedule is None else schedule
        self.minimum: Sequence[SharedPort | None] = [
            SharedPort(capacity_Bps * queue.min_share, None) if queue.min_share else None for queue in self.schedule
        ]
        """The minimum share of each queue as a link of its own; None for a queue that has none."""


Place = tuple[SharedPort, int]
"""A port, and the index of one of its queues."""


@dataclass(slots=True, eq=False)
class Sharer:
    """A flow during a time in which nothing changes."""

    places: tuple[Place, ...]
    """The queues on its path."""
    window: int
    """Its window in flight, in any unit that is the same for all flows."""
    sent_Bps: Number | None = None  # noqa: N815
    """Constant rate at which it sends, in bytes per second; None: as fast as its window lets it."""
    rate_Bps: Number = _ZERO  # noqa: N815
    """The result."""
    narrow: tuple[Place, ...] = ()
    """The members of `places` that may delay it because of other flows."""
    fastest_Bps: Number = _ZERO  # noqa: N815
    """Its rate if it were alone."""


def share(flows: Sequence[Sharer], taken_Bps: Mapping[SharedPort, Number]) -> None:  # noqa: N803
    """Set the rate of each flow. Every flow ends with a full link or a full queue on its path, or at its own rate.

    `taken_Bps` is the rate of other traffic at a port, which goes before all flows.
    """
    flows = _held_up(flows, taken_Bps)
    least: dict[Sharer, Sharer] = {}
    for flow in flows:
        places = [(port if port.is_fifo else port.minimum[queue], 0) for port, queue in flow.narrow]
        promised = tuple((port, queue) for port, queue in places if port is not None)
        if len(promised) == len(places) and not all(port.is_fifo for port, _ in flow.narrow):
            least[flow] = replace(flow, narrow=promised)
    _fill_up(list(least.values()), taken_Bps)
    for flow, minimum in least.items():
        flow.rate_Bps = minimum.rate_Bps
    _fill_up(flows, taken_Bps)


def _held_up(flows: Sequence[Sharer], taken_Bps: Mapping[SharedPort, Number]) -> list[Sharer]:  # noqa: N803
    """Set the narrow places of each flow, and return the flows that have any. The others get their rate.

    A port is wide, and can be ignored, if it has room for all its flows in any case, or if a narrower port has the same
    flows in the same queues.
    """
    at: dict[SharedPort, list[tuple[Sharer, int]]] = {}
    for flow in flows:
        narrowest_Bps = min(port.capacity_Bps - taken_Bps.get(port, _ZERO) for port, _ in flow.places)  # noqa: N806
        flow.fastest_Bps = narrowest_Bps if flow.sent_Bps is None else min(narrowest_Bps, flow.sent_Bps)
        for port, queue in flow.places:
            at.setdefault(port, []).append((flow, queue))
    kept: dict[object, SharedPort] = {}
    for port, present in at.items():
        limited = any(port.schedule[queue].max_share is not None for _, queue in present)
        taken = taken_Bps.get(port, _ZERO)
        if limited or sum(flow.fastest_Bps for flow, _ in present) > port.capacity_Bps - taken:
            same = tuple(present), tuple(port.schedule), taken
            if same not in kept or port.capacity_Bps < kept[same].capacity_Bps:
                kept[same] = port
    narrow = set(kept.values())
    for flow in flows:
        flow.narrow = tuple(place for place in flow.places if place[0] in narrow)
        flow.rate_Bps = _ZERO if flow.narrow else flow.fastest_Bps
    return [flow for flow in flows if flow.narrow]


def _fill_up(flows: Sequence[Sharer], taken_Bps: Mapping[SharedPort, Number]) -> None:  # noqa: N803
    """Give away what is left until no flow can have more.

    One pass is enough unless a flow could not use what a FIFO kept for it, because of a higher level further on.
    """
    gained = True
    while gained:
        gained = _Filling(flows, taken_Bps).run()


class _Filling:
    """One pass over the flows: each is given a rate once."""

    def __init__(self, flows: Sequence[Sharer], taken_Bps: Mapping[SharedPort, Number]) -> None:  # noqa: N803
        self._used = dict(taken_Bps)
        self._in_queue: dict[Place, Number] = {}
        self._flows = flows
        for flow in flows:
            for place in flow.narrow:
                self._used[place[0]] = self._used.get(place[0], _ZERO) + flow.rate_Bps
                self._in_queue[place] = self._in_queue.get(place, _ZERO) + flow.rate_Bps

    def run(self) -> bool:
        """Give each flow that can have more its rate, the tightest first. Return whether any of them gained."""
        gained = False
        waiting = {
            flow
            for flow in self._flows
            if flow.rate_Bps < flow.fastest_Bps and all(self._left(place) > 0 for place in flow.narrow)
        }
        while waiting:
            at: dict[SharedPort, list[tuple[int, Sharer]]] = {}
            for flow in self._flows:
                if flow in waiting:
                    for port, queue in flow.narrow:
                        at.setdefault(port, []).append((queue, flow))
            offers = {port: self._offers(port, flows) for port, flows in at.items()}
            per_unit = {
                flow: min(self._alone(flow), *(offers[port].get(flow, _ZERO) for port, _ in flow.narrow))
                for flow in waiting
            }
            # A flow below another one on some link gets no offer there before the other one has its rate.
            ready = [flow for flow in per_unit if all(flow in offers[port] for port, _ in flow.narrow)]
            if not ready:
                # The levels of the ports contradict each other. The oldest flow goes first.
                ready = [next(flow for flow in self._flows if flow in waiting)]
                left_Bps = min(self._left(place) for place in ready[0].narrow)  # noqa: N806
                per_unit[ready[0]] = min(self._alone(ready[0]), left_Bps / _units(ready[0]))
            constant = [flow for flow in ready if flow.sent_Bps is not None]
            tightest = min(per_unit[flow] for flow in constant or ready)
            for flow in constant or ready:
                if per_unit[flow] == tightest:
                    waiting.remove(flow)
                    more = tightest * _units(flow)
                    if more:
                        gained = True
                        self._give(flow, more)
        return gained

    def _alone(self, flow: Sharer) -> Number:
        """Return what the flow could still use, in the units of an offer."""
        return (flow.fastest_Bps - flow.rate_Bps) / _units(flow)

    def _left(self, place: Place) -> Number:
        """Return how much more the queue can have at most, in bytes per second."""
        port, queue = place
        left_Bps = port.capacity_Bps - self._used[port]  # noqa: N806
        most = port.schedule[queue].max_share
        return left_Bps if most is None else min(left_Bps, most * port.capacity_Bps - self._in_queue[place])

    def _give(self, flow: Sharer, more_Bps: Number) -> None:  # noqa: N803
        flow.rate_Bps += more_Bps
        for place in flow.narrow:
            self._used[place[0]] += more_Bps
            self._in_queue[place] += more_Bps

    def _offers(self, port: SharedPort, waiting: Iterable[tuple[int, Sharer]]) -> dict[Sharer, Number]:
        """Return what the port offers to those of the waiting flows whose turn it is, by flow.

        Bytes per second for each unit of the window, or the part of its constant rate.
        """
        queues: dict[int, list[Sharer]] = {}
        for queue, flow in waiting:
            queues.setdefault(queue, []).append(flow)
        level = max(port.schedule[queue].level for queue in queues)
        turn = {queue: flows for queue, flows in queues.items() if port.schedule[queue].level == level}
        out = {}
        for queue, room_Bps in self._room(port, turn).items():  # noqa: N806
            constant = [flow for flow in turn[queue] if flow.sent_Bps is not None]
            if constant:
                wanted_Bps = sum((flow.sent_Bps or _ZERO) - flow.rate_Bps for flow in constant)  # noqa: N806
                out.update(dict.fromkeys(constant, min(Fraction(1), room_Bps / wanted_Bps)))
            else:
                out.update(dict.fromkeys(turn[queue], room_Bps / sum(flow.window for flow in turn[queue])))
        return out

    def _room(self, port: SharedPort, queues: Iterable[int]) -> dict[int, Number]:
        """Return how much more each of these queues, all of one level, gets if all of them take what they can.

        Each gets the same for each unit of its weight, but no less than it has and no more than its maximum share.
        """
        has = {queue: self._in_queue[port, queue] for queue in queues}
        weights = {queue: port.schedule[queue].weight for queue in has}
        most = {queue: port.schedule[queue].max_share for queue in has}
        limits = {queue: port.capacity_Bps * (1 if part is None else part) for queue, part in most.items()}
        left_Bps = port.capacity_Bps - self._used[port]  # noqa: N806

        def growth(per_weight: Number) -> dict[int, Number]:
            return {
                queue: max(_ZERO, min(per_weight * weight, limits[queue]) - has[queue])
                for queue, weight in weights.items()
            }

        # What they get together grows with `per_weight`, with these bends.
        bends = {has[queue] / weight for queue, weight in weights.items()}
        bends |= {limits[queue] / weight for queue, weight in weights.items()}
        affordable = max(bend for bend in bends if sum(growth(bend).values()) <= left_Bps)
        growing = sum(weight for queue, weight in weights.items() if has[queue] <= affordable * weight < limits[queue])
        if not growing:
            return growth(affordable)
        return growth(affordable + (left_Bps - sum(growth(affordable).values())) / growing)


def _units(flow: Sharer) -> Number:
    """Return what an offer is multiplied by: the window, or what a sender of constant rate still lacks."""
    return Fraction(flow.window) if flow.sent_Bps is None else flow.sent_Bps - flow.rate_Bps
