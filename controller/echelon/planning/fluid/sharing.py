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

Where each flow has the same level at all ports, levels are filled one after the other. Offers of
queues of one level are made in the order of rates per packet of window, and what a queue leaves
after another one was served is lost to that one.

`engine/spreading.c` computes the same for plans in which flows keep their queues, but from one
event to the next only as far as rates change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush

from echelon.planning.plan import PortSchedule, QueuePlan

TOLERANCE = 1e-9
"""The relative error of a rate. A link of which no more than this part is left is full."""
ACKNOWLEDGED = 3e-4
"""The part of a link by which what acknowledgements take of it may differ from what is reckoned."""
_ONE_FIFO = (QueuePlan(level=0),)


class SharedPort:
    """A link and the queues in front of it.

    `schedule` is None for a host's interface, which is one FIFO. `taken_Bps` is what
    acknowledgements, which go before all flows, are reckoned to take of the link.
    """

    def __init__(self, capacity_Bps: float, schedule: PortSchedule | None) -> None:  # noqa: N803
        queues = schedule or _ONE_FIFO
        self.capacity_Bps = capacity_Bps
        self.is_fifo = schedule is None
        self.limited = any(queue.max_share is not None for queue in queues)
        """Whether some queue has a maximum share."""
        self.queues = [SharedQueue(self, queue) for queue in queues]
        self.taken_Bps: float = 0

    @property
    def room_Bps(self) -> float:  # noqa: N802
        """What is left of the link for flows."""
        return self.capacity_Bps - self.taken_Bps

    def reckon(self, taken_Bps: float) -> bool:  # noqa: N803
        """Reckon with what acknowledgements take now, if that has changed by enough.

        Return whether it has.
        """
        if abs(taken_Bps - self.taken_Bps) <= ACKNOWLEDGED * self.capacity_Bps:
            return False
        self.taken_Bps = taken_Bps
        return True

    def queue(self, number: int) -> SharedQueue:
        """Return a queue; a FIFO has one only."""
        if self.is_fifo:
            return self.queues[0]
        return self.queues[number]


class SharedQueue:
    """A queue of a port."""

    __slots__ = ("least_Bps", "level", "most_Bps", "port", "weight")

    def __init__(self, port: SharedPort, setting: QueuePlan) -> None:
        max_share = min_share = 1.0
        if setting.max_share is not None:
            max_share = float(setting.max_share)
        if not port.is_fifo:
            min_share = float(setting.min_share)
        self.port = port
        self.level = setting.level
        self.weight = setting.weight
        self.most_Bps = port.capacity_Bps * max_share
        self.least_Bps = port.capacity_Bps * min_share


class Sharer:
    """A flow, or several equal ones, as far as its share depends on it.

    These are the queues on its path, its window in flight, in any unit that is the same for all
    flows, and the constant rate at which it sends (None: as fast as its window lets it).
    """

    __slots__ = ("count", "queues", "sent_Bps", "window")

    def __init__(
        self,
        queues: Sequence[SharedQueue],
        window: int,
        sent_Bps: float | None = None,  # noqa: N803
        count: int = 1,
    ) -> None:
        self.queues = queues
        self.window = window
        self.sent_Bps = sent_Bps
        self.count = count


def shared_rates(sharers: Sequence[Sharer]) -> tuple[list[float], list[bool]]:
    """Return the rate of each flow, and whether it waits at a port with others.

    Every flow ends with a full link or a full queue on its path, or at its own rate.
    """
    rates, narrow = _share(sharers)

    crowd: Counter[SharedPort] = Counter()
    for sharer in sharers:
        for queue in sharer.queues:
            crowd[queue.port] += sharer.count

    def waits(sharer: Sharer) -> bool:
        ports = [queue.port for queue in sharer.queues]
        return any(crowd[port] > 1 and port in narrow for port in ports)

    return rates, [waits(sharer) for sharer in sharers]


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
        """The number of times that its offers were renewed."""


_NOBODY, _WINDOWS, _CONSTANTS = range(3)
"""The senders to whom a queue makes an offer: nobody, as flows wait in a queue of a higher level of
the port; those that keep a window; those of constant rate, which go first."""


class _Queue:
    """A queue that a filling fills."""

    __slots__ = (
        "constants",
        "level",
        "limit",
        "link",
        "members",
        "offer",
        "queued",
        "rate",
        "ready",
        "room",
        "serves",
        "weight",
        "windows",
    )

    def __init__(
        self,
        link: _Link,
        level: int,
        weight: int,
        limit: float,
    ) -> None:
        self.link = link
        self.level = level
        self.weight = weight
        self.limit = limit
        link.queues.append(self)

    def begin(self) -> None:
        """Forget the last pass."""
        self.rate = 0.0
        """The rate of all flows of the queue."""
        self.room = 0.0
        """The rate that it can have besides."""
        self.offer = 0.0
        """Bytes per second for each unit of a flow's window.

        For a sender of constant rate, it is the part that it gets of what it lacks.
        """
        self.serves = _NOBODY
        self.members: list[_Filler] = []
        """The flows that waited when the pass began."""
        self.queued = 0
        """The flows that still wait; of these, the number of those of constant rate, the windows of
        the others, and the number of those to whom all queues on their path make an offer."""
        self.constants = self.windows = self.ready = 0


class _Filler:
    """A flow that fills links: the narrow queues on its path, where other flows may delay it."""

    __slots__ = (
        "constant",
        "count",
        "fastest",
        "number",
        "queues",
        "rate",
        "refused",
        "sharer",
        "waiting",
    )

    def __init__(
        self,
        number: int,
        sharer: Sharer,
        fastest: float,
    ) -> None:
        self.number = number
        self.sharer = sharer
        self.fastest = fastest
        """Its rate if it were alone."""
        self.constant = sharer.sent_Bps is not None
        self.count = sharer.count
        self.rate = 0.0
        self.queues: list[_Queue] = []
        self.waiting = False
        """Whether it has not got its rate in this pass."""
        self.refused = 0
        """The number of queues on its path that make it no offer yet."""

    @property
    def units(self) -> float:
        """The factor by which an offer is multiplied."""
        sent_Bps = self.sharer.sent_Bps  # noqa: N806
        if sent_Bps is None:
            return self.sharer.window
        return sent_Bps - self.rate


def _share(sharers: Sequence[Sharer]) -> tuple[list[float], set[SharedPort]]:
    """Return the rate of each flow, and the ports that are narrow.

    A port is wide, and can be ignored, if it has room for all its flows in any case.
    """
    demand: dict[SharedPort, float] = {}
    fillers = []
    for number, sharer in enumerate(sharers):
        rooms = [queue.port.room_Bps for queue in sharer.queues]
        fastest = min(rooms)
        if sharer.sent_Bps is not None:
            fastest = min(fastest, sharer.sent_Bps)
        fillers.append(_Filler(number, sharer, fastest))
        for queue in sharer.queues:
            demand[queue.port] = demand.get(queue.port, 0) + fastest * sharer.count

    narrow = set()
    for port, wanted in demand.items():
        if port.limited or wanted > port.room_Bps * (1 + TOLERANCE):
            narrow.add(port)

    held_up = []
    for filler in fillers:
        queues = [queue for queue in filler.sharer.queues if queue.port in narrow]
        if queues:
            held_up.append((filler, queues))
        else:
            filler.rate = filler.fastest
    has_minimum = _fill_minimum_shares(held_up)
    taken = {port: port.taken_Bps for port in demand}
    parts: Sequence[_HeldUp] = [held_up]
    if not has_minimum:
        parts = _by_level(held_up)
    for part in parts:
        _fill_ports(part, taken)
        for filler, queues in part:
            for queue in queues:
                taken[queue.port] += filler.rate * filler.count
    return [filler.rate for filler in fillers], narrow


_HeldUp = Sequence[tuple[_Filler, list[SharedQueue]]]
"""Flows, each with the narrow queues on its path."""


def _by_level(held_up: _HeldUp) -> Sequence[_HeldUp]:
    """Return flows by level, the highest first, if each has the same at all ports.

    Higher ones then need not know of lower ones.
    """
    parts: dict[int, list[tuple[_Filler, list[SharedQueue]]]] = {}
    for filler, queues in held_up:
        level = queues[0].level
        if any(queue.level != level for queue in queues):
            return [held_up]
        parts.setdefault(level, []).append((filler, queues))
    return [parts[level] for level in sorted(parts, reverse=True)]


def _fill_minimum_shares(held_up: _HeldUp) -> bool:
    """Give flows of which all narrow queues have a minimum share that, as if each were a link.

    Return whether there are any.
    """
    fillers = []
    filled = {}
    for filler, queues in held_up:
        if all(queue.port.is_fifo for queue in queues):
            continue
        if not all(queue.least_Bps > 0 for queue in queues):
            continue
        fillers.append(filler)
        for queue in queues:
            if queue not in filled:
                # Where there are queues, acknowledgements have one of their own.
                other: float = 0
                if queue.port.is_fifo:
                    other = queue.port.taken_Bps
                link = _Link(queue.least_Bps, other)
                filled[queue] = _Queue(link, 0, queue.weight, queue.least_Bps)
        filler.queues = [filled[queue] for queue in queues]
    _fill(fillers, filled.values())
    return bool(fillers)


def _fill_ports(held_up: _HeldUp, taken: Mapping[SharedPort, float]) -> None:
    """Divide what is left of the narrow ports by the levels and weights of their queues.

    `taken` is the rate of other traffic at a port.
    """
    links = {}
    filled = {}
    for filler, queues in held_up:
        for queue in queues:
            port = queue.port
            if port not in links:
                links[port] = _Link(port.capacity_Bps, taken[port])
            if queue not in filled:
                filled[queue] = _Queue(links[port], queue.level, queue.weight, queue.most_Bps)
        filler.queues = [filled[queue] for queue in queues]
    _fill([filler for filler, _ in held_up], filled.values())


def _fill(fillers: Sequence[_Filler], queues: Iterable[_Queue]) -> None:
    """Give flows what they can have, in passes until none of them gains."""
    while fillers and _pass(fillers, queues):
        pass


def _pass(fillers: Sequence[_Filler], queues: Iterable[_Queue]) -> bool:
    """Give each flow that can have more its rate, the tightest first.

    Return whether another pass may give more.

    It may if a flow could not use what a queue kept for it, because of a higher level further on.
    """
    for queue in queues:
        queue.begin()
        queue.link.used = queue.link.taken
    for filler in fillers:
        if filler.rate:
            for queue in filler.queues:
                queue.rate += filler.rate * filler.count
                queue.link.used += filler.rate * filler.count
    waiting = [filler for filler in fillers if _able(filler)]
    if not waiting:
        return False
    changed: dict[_Link, None] = {}
    for filler in waiting:
        _enqueue(filler, changed)
    # Without rates of an earlier pass, and if every flow had an offer from all its queues, nothing
    # was kept in vain: another pass would change nothing.
    is_final = not any(filler.rate for filler in waiting)
    """Whether no queue has kept anything for a flow that could not use it."""
    due: list[_Offer] = []
    oldest = 0
    left = len(waiting)
    gained = False
    while left:
        for filler in _serve(changed):
            if filler.constant or filler.fastest < _widest(filler):
                heappush(due, _own_offer(filler))
        if left == len(waiting):
            is_final = is_final and not any(filler.refused for filler in waiting)
        for link in changed:
            link.version += 1
            for queue in _offer(link):
                heappush(due, _queue_offer(queue))
        changed = {}

        chosen: Iterable[_Filler] = ()
        if due:
            *_, size, subject, version = heappop(due)
            if isinstance(subject, _Filler):
                if subject.waiting:
                    chosen = [subject]
            elif version == subject.link.version:
                chosen = [f for f in subject.members if f.waiting and not f.refused]
        else:
            # The levels of the ports contradict each other. The oldest flow goes first.
            while not waiting[oldest].waiting:
                oldest += 1
            first = waiting[oldest]
            chosen = [first]
            size = max(0, _room(first)) / first.units / first.count
        for filler in chosen:
            left -= 1
            more = min(size * filler.units, filler.fastest - filler.rate)
            gained = gained or more > TOLERANCE * filler.fastest
            _dequeue(filler, more, changed)
    return gained and not is_final


_Offer = tuple[int, float, int, int, float, _Queue | _Filler, int]
"""An offer by urgency: that of a queue, or the rate of which a flow can make use.

Of equal offers, the one of the oldest flow goes first, and of its queues the first on its path:
(kind, rounded size, number of the flow, place of the queue, size, from whom, version of its link).
"""


def _own_offer(filler: _Filler) -> _Offer:
    kind = _WINDOWS
    if filler.constant:
        kind = _CONSTANTS
    size = (filler.fastest - filler.rate) / filler.units
    return -kind, _rounded(size), filler.number, -1, size, filler, 0


def _queue_offer(queue: _Queue) -> _Offer:
    oldest = next(f for f in queue.members if f.waiting and not f.refused)
    place = oldest.queues.index(queue)
    size = queue.offer
    return -queue.serves, _rounded(size), oldest.number, place, size, queue, queue.link.version


def _widest(filler: _Filler) -> float:
    """Return what the tightest link of the path carries besides other traffic."""
    return min([queue.link.capacity - queue.link.taken for queue in filler.queues])


def _room(filler: _Filler) -> float:
    """Return how much more of the flow its path has room for."""
    rooms = []
    for queue in filler.queues:
        rooms.append(queue.link.capacity - queue.link.used)
        rooms.append(queue.limit - queue.rate)
    return min(rooms)


def _enqueue(filler: _Filler, changed: dict[_Link, None]) -> None:
    """Let a flow wait in its queues, and add their links to `changed`."""
    filler.waiting = True
    filler.refused = len(filler.queues)
    for queue in filler.queues:
        queue.members.append(filler)
        queue.queued += 1
        if filler.constant:
            queue.constants += 1
        else:
            queue.windows += filler.sharer.window * filler.count
        changed[queue.link] = None


def _dequeue(
    filler: _Filler,
    more: float,
    changed: dict[_Link, None],
) -> None:
    """Give a flow so much more, and let it wait no longer; add its links to `changed`."""
    filler.waiting = False
    filler.rate += more
    for queue in filler.queues:
        queue.rate += more * filler.count
        queue.link.used += more * filler.count
        queue.queued -= 1
        if filler.constant:
            queue.constants -= 1
        else:
            queue.windows -= filler.sharer.window * filler.count
        if not filler.refused:
            queue.ready -= 1
        changed[queue.link] = None


def _able(filler: _Filler) -> bool:
    """Return whether there is room for more of the flow on its path."""
    if filler.rate >= filler.fastest * (1 - TOLERANCE):
        return False
    for queue in filler.queues:
        link = queue.link
        if link.used >= link.capacity * (1 - TOLERANCE):
            return False
        if queue.limit - queue.rate <= TOLERANCE * link.capacity:
            return False
    return True


def _serve(changed: dict[_Link, None]) -> list[_Filler]:
    """Find the queues of the highest level at which flows wait, and note whom they serve.

    Return the flows to whom all queues on their path make an offer from now on, and add their links
    to `changed`.
    """
    out = []
    for link in [*changed]:
        for queue in _highest(link):
            kind = _WINDOWS
            if queue.constants:
                kind = _CONSTANTS
            if queue.serves == kind:
                continue
            queue.serves = kind
            for filler in queue.members:
                if not filler.waiting or filler.constant != (kind == _CONSTANTS):
                    continue
                filler.refused -= 1
                if not filler.refused:
                    out.append(filler)
                    for hop in filler.queues:
                        hop.ready += 1
                        changed[hop.link] = None
    return out


def _highest(link: _Link) -> list[_Queue]:
    """Return the queues of the highest level of a link at which flows wait."""
    highest = max([queue.level for queue in link.queues if queue.queued], default=-1)
    return [queue for queue in link.queues if queue.queued and queue.level == highest]


def _rounded(offer: float) -> float:
    """Return the first 36 bits of an offer, so that rounding makes no difference."""
    # Dekker's splitting: 2^17 + 1 leaves 53 - 17 bits of a double.
    high = offer * 131073.0
    return high - (high - offer)


def _offer(link: _Link) -> list[_Queue]:
    """Renew the offers of a link, and return the queues that make one to flows that can take it."""
    served = _highest(link)
    spare = max(0, link.capacity - link.used)
    if len(served) == 1:
        queue = served[0]
        queue.room = max(0, min(spare, queue.limit - queue.rate))
    elif served:
        _set_rooms(served, spare)

    out = [queue for queue in served if queue.ready]
    for queue in out:
        if queue.serves == _WINDOWS:
            queue.offer = queue.room / queue.windows
        else:
            lacking = sum([f.units for f in queue.members if f.waiting and f.constant])
            queue.offer = 0
            if lacking:
                queue.offer = min(queue.room / lacking, 1)
    return out


def _set_rooms(queues: Sequence[_Queue], left: float) -> None:
    """Set how much more each of these queues of one level gets if all take what they can.

    Each gets the same for each unit of its weight, but no less than it has and no more than its
    maximum share.
    """
    if left <= 0:
        for queue in queues:
            queue.room = 0
        return
    # Most often, no queue has more than its part or as much as its maximum share.
    rates = sum([queue.rate for queue in queues])
    weights = sum([queue.weight for queue in queues])
    affordable = (left + rates) / weights
    if not all(queue.rate <= affordable * queue.weight <= queue.limit for queue in queues):
        # What they get together grows with the part per weight, with a bend where a queue begins or
        # stops to grow.
        bends = [end / queue.weight for queue in queues for end in (queue.rate, queue.limit)]
        affordable = max([bend for bend in bends if _growth(queues, bend) <= left], default=0)
        growing = sum([q.weight for q in queues if q.rate <= affordable * q.weight < q.limit])
        if growing:
            affordable += (left - _growth(queues, affordable)) / growing
    for queue in queues:
        queue.room = max(0, min(affordable * queue.weight, queue.limit) - queue.rate)


def _growth(queues: Sequence[_Queue], per_weight: float) -> float:
    """Return how much more these queues get together at so much for each unit of weight."""
    return sum(
        [max(0, min(per_weight * queue.weight, queue.limit) - queue.rate) for queue in queues]
    )
