"""The division of links between flows by the queues of their ports, at one moment.

Packets decide this port by port. Here it is computed as a whole, with every sender as fast as its
path allows:

- A queue first gets its minimum share of the port. The rest serves queues of a higher level before
  those of a lower one, and queues of one level in proportion to their weights (DWRR), none above
  its maximum share.
- A queue is a FIFO, which serves flows in proportion to the packets that they have in it. A sender
  that keeps a window in flight has that window in the queue where it waits, so flows that wait in
  one queue share it in proportion to their windows. A sender of constant rate gets its full rate
  through, before the others share the rest, as long as the queue carries it; beyond that, such
  senders share the queue in proportion to their rates.
- A flow that waits elsewhere takes less than its share here, and the others share what it leaves:
  max-min fairness, found by fixing the flows of the tightest queue first.

If every flow waits in a single queue, this is what packets do. A flow that waits in several FIFO
queues of its path splits its window between them, and such a network shares in proportional
fairness (Massoulié and Roberts, Bandwidth sharing: objectives and algorithms, INFOCOM '99); max-min
fairness gives such a flow somewhat more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from echelon.planning.plan import PortSchedule, QueuePlan

TOLERANCE = 1e-9
"""The relative error of a rate. A link of which no more than this part is left is full."""
_ONE_FIFO = (QueuePlan(level=0),)


class SharedPort:
    """A link and the queues in front of it.

    `schedule` is None for a host's interface, which is one FIFO. `reverse` is the port of the
    opposite direction, if acknowledgements take part of its link.
    """

    def __init__(self, capacity_Bps: float, schedule: PortSchedule | None) -> None:  # noqa: N803
        self.capacity_Bps = capacity_Bps
        self.is_fifo = schedule is None
        self.limited = any(plan.max_share is not None for plan in schedule or ())
        """Whether some queue has a maximum share."""
        self.queues = [SharedQueue(self, plan) for plan in schedule or _ONE_FIFO]
        self.reverse: SharedPort | None = None

    def queue(self, number: int) -> SharedQueue:
        """Return a queue; a FIFO has one only."""
        return self.queues[0 if self.is_fifo else number]


class SharedQueue:
    """A queue of a port."""

    __slots__ = ("least_Bps", "level", "most_Bps", "port", "weight")

    def __init__(self, port: SharedPort, plan: QueuePlan) -> None:
        capacity_Bps = port.capacity_Bps  # noqa: N806
        self.port = port
        self.level = plan.level
        self.weight = plan.weight
        if plan.max_share is None:
            self.most_Bps = capacity_Bps
        else:
            self.most_Bps = capacity_Bps * float(plan.max_share)
        if port.is_fifo:
            self.least_Bps = capacity_Bps
        else:
            self.least_Bps = capacity_Bps * float(plan.min_share)


class Sharer:
    """Everything on which the share of a flow depends: the queues on its path, its window in
    flight, in any unit that is the same for all flows, and the constant rate at which it sends
    (None: as fast as its window lets it)."""

    __slots__ = ("queues", "sent_Bps", "window")

    def __init__(
        self,
        queues: Sequence[SharedQueue],
        window: int,
        sent_Bps: float | None = None,  # noqa: N803
    ) -> None:
        self.queues = queues
        self.window = window
        self.sent_Bps = sent_Bps


def shared_rates(
    sharers: Sequence[Sharer], acknowledging: float = 0
) -> tuple[list[float], list[bool]]:
    """Return the rate of each flow, and whether it waits in a queue with others.

    Every flow ends with a full link or a full queue on its path, or at its own rate.
    `acknowledging` is the bytes of acknowledgements for each byte of a flow. They return on the
    same path, before all flows.
    """
    taken: dict[SharedPort, float] = {}
    rates, narrow = _share(sharers, taken)
    if acknowledging:
        for sharer, rate in zip(sharers, rates, strict=True):
            for queue in sharer.queues if sharer.sent_Bps is None else ():
                if (reverse := queue.port.reverse) is not None:
                    taken[reverse] = taken.get(reverse, 0) + rate * acknowledging
        # Their rates change those of the data, which changes theirs a little; one step is close
        # enough.
        rates, narrow = _share(sharers, taken)
    crowd = Counter([queue for sharer in sharers for queue in sharer.queues])
    return rates, [
        any(crowd[q] > 1 and q.port in narrow for q in sharer.queues) for sharer in sharers
    ]


class _Link:
    """A port that a filling fills."""

    __slots__ = ("capacity", "queues", "taken", "used", "version")

    def __init__(self, capacity: float, taken: float) -> None:
        self.capacity = capacity
        self.taken = taken
        """The rate of other traffic."""
        self.queues: list[_Queue] = []
        self.used = taken
        self.version = 0
        """How often its offers were renewed."""


_NOBODY, _WINDOWS, _CONSTANTS = 0, 1, 2
"""The senders to whom a queue makes an offer: nobody, as flows wait in a queue of a higher level of
the port; those that keep a window; those of constant rate, which go first."""


class _Queue:
    """A queue that a filling fills."""

    __slots__ = (
        "constants",
        "has",
        "level",
        "limit",
        "link",
        "members",
        "offer",
        "queued",
        "ready",
        "room",
        "serves",
        "weight",
        "windows",
    )

    def __init__(self, link: _Link, level: int, weight: int, limit: float) -> None:
        self.link = link
        self.level = level
        self.weight = weight
        self.limit = limit
        link.queues.append(self)

    def begin(self) -> None:
        """Forget the last pass."""
        self.has = 0.0
        """The rate of all flows of the queue."""
        self.room = 0.0
        """How much more it can have."""
        self.offer = 0.0
        """Bytes per second for each unit of a flow's window, or the part that a sender of constant
        rate gets of what it lacks."""
        self.serves = _NOBODY
        self.members: list[_Filler] = []
        """The flows that waited when the pass began."""
        self.queued = 0
        """The flows that still wait; of these, the number of those of constant rate, the windows of
        the others, and the number of those to whom all queues on their path make an offer."""
        self.constants = self.windows = self.ready = 0


class _Filler:
    """A flow that fills links: the narrow queues on its path, where other flows may delay it."""

    __slots__ = ("constant", "fastest", "number", "queues", "rate", "refused", "sharer", "waiting")

    def __init__(self, number: int, sharer: Sharer, fastest: float) -> None:
        self.number = number
        self.sharer = sharer
        self.fastest = fastest
        """Its rate if it were alone."""
        self.constant = sharer.sent_Bps is not None
        self.rate = 0.0
        self.queues: list[_Queue] = []
        self.waiting = False
        """Whether it has not got its rate in this pass."""
        self.refused = 0
        """How many queues on its path make it no offer yet."""

    @property
    def units(self) -> float:
        """What an offer is multiplied by."""
        sent_Bps = self.sharer.sent_Bps  # noqa: N806
        if sent_Bps is None:
            return self.sharer.window
        return sent_Bps - self.rate


def _share(
    sharers: Sequence[Sharer], taken: dict[SharedPort, float]
) -> tuple[list[float], set[SharedPort]]:
    """Return the rate of each flow, and the ports that are narrow. `taken` is the rate of other
    traffic at a port.

    A port is wide, and can be ignored, if it has room for all its flows in any case.
    """
    demand: dict[SharedPort, float] = {}
    fillers = []
    for number, sharer in enumerate(sharers):
        rooms = [queue.port.capacity_Bps - taken.get(queue.port, 0) for queue in sharer.queues]
        if sharer.sent_Bps is None:
            fastest = min(rooms)
        else:
            fastest = min(sharer.sent_Bps, *rooms)
        fillers.append(_Filler(number, sharer, fastest))
        for queue in sharer.queues:
            demand[queue.port] = demand.get(queue.port, 0) + fastest
    narrow = {
        port
        for port, wanted in demand.items()
        if port.limited or wanted > (port.capacity_Bps - taken.get(port, 0)) * (1 + TOLERANCE)
    }
    held_up = []
    promised = []
    for filler in fillers:
        queues = [queue for queue in filler.sharer.queues if queue.port in narrow]
        if not queues:
            filler.rate = filler.fastest
            continue
        held_up.append((filler, queues))
        if all(queue.least_Bps > 0 for queue in queues) and not all(
            queue.port.is_fifo for queue in queues
        ):
            promised.append((filler, queues))
    # Flows of which all narrow queues have a minimum share get that first, as if each were a link
    # of its own.
    apart: dict[SharedQueue, _Queue] = {}
    for filler, queues in promised:
        for queue in queues:
            if queue not in apart:
                link = _Link(queue.least_Bps, taken.get(queue.port, 0) if queue.port.is_fifo else 0)
                apart[queue] = _Queue(link, 0, queue.weight, queue.least_Bps)
        filler.queues = [apart[queue] for queue in queues]
    _fill([filler for filler, _ in promised], apart.values())
    links = {
        port: _Link(port.capacity_Bps, taken.get(port, 0)) for port in demand if port in narrow
    }
    together: dict[SharedQueue, _Queue] = {}
    for filler, queues in held_up:
        for queue in queues:
            if queue not in together:
                together[queue] = _Queue(
                    links[queue.port], queue.level, queue.weight, queue.most_Bps
                )
        filler.queues = [together[queue] for queue in queues]
    _fill([filler for filler, _ in held_up], together.values())
    return [filler.rate for filler in fillers], narrow


def _fill(fillers: Sequence[_Filler], queues: Iterable[_Queue]) -> None:
    """Give flows what they can have, in passes until none of them gains."""
    while fillers and _pass(fillers, queues):
        pass


def _pass(fillers: Sequence[_Filler], queues: Iterable[_Queue]) -> bool:
    """Give each flow that can have more its rate, the tightest first. Return whether another pass
    may give more.

    It may if a flow could not use what a queue kept for it, because of a higher level further on.
    """
    for queue in queues:
        queue.begin()
        queue.link.used = queue.link.taken
    for filler in fillers:
        if filler.rate:
            for queue in filler.queues:
                queue.has += filler.rate
                queue.link.used += filler.rate
    waiting = [filler for filler in fillers if _able(filler)]
    if not waiting:
        return False
    once = True
    changed: dict[_Link, None] = {}
    for filler in waiting:
        once = once and not filler.rate
        filler.waiting = True
        filler.refused = len(filler.queues)
        for queue in filler.queues:
            queue.members.append(filler)
            queue.queued += 1
            if filler.constant:
                queue.constants += 1
            else:
                queue.windows += filler.sharer.window
            changed[queue.link] = None
    # Offers by urgency: those of queues, and the rates of which flows can make use. Of equal
    # offers, the one of the oldest flow goes first, and of its queues the first on its path.
    due: list[tuple[int, float, int, int, float, _Queue | _Filler, int]] = []
    oldest = 0
    left = len(waiting)
    gained = False
    while left:
        for filler in _serve(changed):
            kind = _CONSTANTS if filler.constant else _WINDOWS
            if filler.constant or filler.fastest < min(
                [q.link.capacity - q.link.taken for q in filler.queues]
            ):
                size = (filler.fastest - filler.rate) / filler.units
                heappush(due, (-kind, _rounded(size), filler.number, -1, size, filler, 0))
        if left == len(waiting):
            once = once and not any(filler.refused for filler in waiting)
        for link in changed:
            link.version += 1
            for queue in _offer(link):
                first = next(f for f in queue.members if f.waiting and not f.refused)
                entry = (
                    -queue.serves,
                    _rounded(queue.offer),
                    first.number,
                    first.queues.index(queue),
                )
                heappush(due, (*entry, queue.offer, queue, link.version))
        changed = {}
        chosen: Iterable[_Filler] = ()
        if due:
            *_, size, what, version = heappop(due)
            if isinstance(what, _Filler):
                chosen = [what] if what.waiting else ()
            elif version == what.link.version:
                chosen = [
                    filler for filler in what.members if filler.waiting and not filler.refused
                ]
        else:
            # The levels of the ports contradict each other. The oldest flow goes first.
            while not waiting[oldest].waiting:
                oldest += 1
            first = waiting[oldest]
            room = min([min(q.link.capacity - q.link.used, q.limit - q.has) for q in first.queues])
            chosen = [first]
            size = max(0, room) / first.units
        for filler in chosen:
            left -= 1
            filler.waiting = False
            more = min(size * filler.units, filler.fastest - filler.rate)
            gained = gained or more > TOLERANCE * filler.fastest
            filler.rate += more
            for queue in filler.queues:
                queue.has += more
                queue.link.used += more
                queue.queued -= 1
                if filler.constant:
                    queue.constants -= 1
                else:
                    queue.windows -= filler.sharer.window
                if not filler.refused:
                    queue.ready -= 1
                changed[queue.link] = None
    return gained and not once


def _able(filler: _Filler) -> bool:
    """Return whether there is room for more of the flow on its path."""
    if filler.rate >= filler.fastest * (1 - TOLERANCE):
        return False
    for queue in filler.queues:
        link = queue.link
        if (
            link.used >= link.capacity * (1 - TOLERANCE)
            or queue.limit - queue.has <= TOLERANCE * link.capacity
        ):
            return False
    return True


def _serve(changed: dict[_Link, None]) -> list[_Filler]:
    """Find the queues of the highest level of each link at which flows wait. Return the flows to
    whom all queues on their path make an offer from now on, and add their links to `changed`."""
    out = []
    for link in [*changed]:
        highest = max([queue.level for queue in link.queues if queue.queued], default=-1)
        for queue in link.queues:
            kind = _CONSTANTS if queue.constants else _WINDOWS
            if not queue.queued or queue.level != highest or queue.serves == kind:
                continue
            queue.serves = kind
            for filler in queue.members:
                if not filler.waiting or filler.constant != (kind == _CONSTANTS):
                    continue
                filler.refused -= 1
                if not filler.refused:
                    out.append(filler)
                    for own in filler.queues:
                        own.ready += 1
                        changed[own.link] = None
    return out


def _rounded(offer: float) -> float:
    """Return the first 36 bits of an offer: offers that differ by the rounding of floats only are
    equal.
    """
    high = offer * 131073.0
    return high - (high - offer)


def _offer(link: _Link) -> list[_Queue]:
    """Renew the offers of a link, and return the queues that make one to flows that can take it."""
    highest = max([queue.level for queue in link.queues if queue.queued], default=-1)
    served = [queue for queue in link.queues if queue.queued and queue.level == highest]
    spare = max(0, link.capacity - link.used)
    if len(served) == 1:
        served[0].room = max(0, min(spare, served[0].limit - served[0].has))
    elif served:
        _set_rooms(served, spare)
    out = [queue for queue in served if queue.ready]
    for queue in out:
        if queue.serves == _WINDOWS:
            queue.offer = queue.room / queue.windows
        else:
            lacking = sum(
                [filler.units for filler in queue.members if filler.waiting and filler.constant]
            )
            queue.offer = min(queue.room / lacking, 1) if lacking else 0
    return out


def _set_rooms(queues: Sequence[_Queue], left: float) -> None:
    """Set how much more each of these queues, all of one level of a link, gets if all of them take
    what they can.

    Each gets the same for each unit of its weight, but no less than it has and no more than its
    maximum share.
    """
    if left <= 0:
        for queue in queues:
            queue.room = 0
        return
    # Most often, no queue has more than its part or as much as its maximum share.
    affordable = (left + sum([queue.has for queue in queues])) / sum(
        [queue.weight for queue in queues]
    )
    if not all(queue.has <= affordable * queue.weight <= queue.limit for queue in queues):
        # What they get together grows with the part per weight, with a bend where a queue begins or
        # stops to grow.
        bends = [end / queue.weight for queue in queues for end in (queue.has, queue.limit)]
        affordable = max([bend for bend in bends if _growth(queues, bend) <= left], default=0)
        growing = sum([q.weight for q in queues if q.has <= affordable * q.weight < q.limit])
        if growing:
            affordable += (left - _growth(queues, affordable)) / growing
    for queue in queues:
        queue.room = max(0, min(affordable * queue.weight, queue.limit) - queue.has)


def _growth(queues: Sequence[_Queue], per_weight: float) -> float:
    """Return how much more these queues get together if each has so much for each unit of its
    weight.
    """
    return sum(
        [max(0, min(per_weight * queue.weight, queue.limit) - queue.has) for queue in queues]
    )
