"""The rates at which queues serve flows that meet, over flat lists of numbers.

`echelon.fluid.sharing` says what is computed and holds the tables. This module is plain Python, which works on floats
and fractions alike. It is also what numba compiles: hence no classes with methods, no dictionaries, and no more than
one type of number at a time. Its functions refer to flows, queues and ports by index.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from echelon.allocation import Number

NO_RATE = -1
"""The constant rate of a sender that keeps a window instead."""

_NOBODY, _WINDOWS, _CONSTANTS = 0, 1, 2
"""The senders to whom a queue makes an offer: nobody, as flows wait in a queue of a higher level of the port; those
that keep a window; those of constant rate, which go first."""


class Ports(NamedTuple):
    """All ports, and their queues. Rates are in bytes per second."""

    capacity: Sequence[Number]
    is_fifo: Sequence[int]
    """1 for a port that has one queue and no schedule: the interface of a host."""
    limited: Sequence[int]
    """1 for a port of which some queue has a maximum share."""
    reverse: Sequence[int]
    """The port of the opposite direction if acknowledgements take part of its link, or -1."""
    port_of: Sequence[int]
    """The port of each queue; so are the next four."""
    level: Sequence[int]
    weight: Sequence[int]
    limit: Sequence[Number]
    """The maximum share, or the capacity of the port."""
    minimum: Sequence[Number]
    """The minimum share, which for a FIFO is the capacity of the port."""
    port_number: MutableSequence[int]
    """Scratch space: -1 for each port."""
    queue_number: MutableSequence[int]
    """Scratch space: -1 for each queue."""


class Standings(NamedTuple):
    """Everything on which the share of a flow depends."""

    starts: MutableSequence[int]
    """The places of standing s are ``places[starts[s]:starts[s + 1]]``."""
    places: MutableSequence[int]
    """The queues on its path."""
    window: MutableSequence[int]
    """Its window in flight, in any unit that is the same for all flows."""
    sent: MutableSequence[Number]
    """The constant rate at which it sends, or `NO_RATE`: as fast as its window lets it."""


class _Meeting(NamedTuple):
    """The flows whose rates are wanted, with the queues and ports on their paths."""

    starts: list[int]
    queues: list[int]
    window: list[int]
    sent: list[Number]
    fastest: list[Number]
    """The rate of each flow if it were alone."""
    rate: list[Number]
    """The result."""
    port_of: list[int]
    level: list[int]
    weight: list[int]
    limit: list[Number]
    minimum: list[Number]
    capacity: list[Number]
    is_fifo: list[bool]
    limited: list[bool]
    reverse: list[int]


class _Filling(NamedTuple):
    """What is filled with which of the flows."""

    flows: list[int]
    starts: list[int]
    """The narrow queues of flow f, where other flows may delay it, are ``queues[starts[f]:starts[f + 1]]``."""
    queues: list[int]
    port_of: list[int]
    level: list[int]
    limit: list[Number]
    capacity: list[Number]
    taken: list[Number]
    """The rate of other traffic at each port."""


def shared_rates(
    flows: Sequence[int], standings: Standings, ports: Ports, zero: Number, acknowledging: Number, tolerance: Number
) -> tuple[list[Number], list[bool]]:
    """Return the rate of each flow, given by its standing, and whether it waits in a queue with others.

    Every flow ends with a full link or a full queue on its path, or at its own rate. A link or queue is full when no
    more than the part `tolerance` of the link is left; floats need one. `acknowledging` is the bytes of
    acknowledgements for each byte of a flow, which go before all flows.
    """
    meeting = _meet(flows, standings, ports, zero)
    taken = [zero] * len(meeting.capacity)
    narrow = _share(meeting, taken, zero, tolerance)
    if acknowledging and _acknowledge(meeting, taken, acknowledging):
        # Their rates change those of the data, which changes theirs a little; one step is close enough.
        narrow = _share(meeting, taken, zero, tolerance)
    crowd = [0] * len(meeting.port_of)
    for queue in meeting.queues:
        crowd[queue] += 1
    held_up = [False] * len(flows)
    for flow in range(len(flows)):
        for at in range(meeting.starts[flow], meeting.starts[flow + 1]):
            queue = meeting.queues[at]
            if crowd[queue] > 1 and narrow[meeting.port_of[queue]]:
                held_up[flow] = True
    return meeting.rate, held_up


def _meet(flows: Sequence[int], standings: Standings, ports: Ports, zero: Number) -> _Meeting:
    """Number the flows, and the queues and ports on their paths, from 0 in order of appearance."""
    starts, queues = [0], [0] * 0
    queue_of, port_of, ports_used = [0] * 0, [0] * 0, [0] * 0
    for standing in flows:
        for at in range(standings.starts[standing], standings.starts[standing + 1]):
            queue = standings.places[at]
            if ports.queue_number[queue] < 0:
                ports.queue_number[queue] = len(queue_of)
                port = ports.port_of[queue]
                if ports.port_number[port] < 0:
                    ports.port_number[port] = len(ports_used)
                    ports_used.append(port)
                queue_of.append(queue)
                port_of.append(ports.port_number[port])
            queues.append(ports.queue_number[queue])
        starts.append(len(queues))
    reverse = [-1 if ports.reverse[port] < 0 else ports.port_number[ports.reverse[port]] for port in ports_used]
    for queue in queue_of:
        ports.queue_number[queue] = -1
    for port in ports_used:
        ports.port_number[port] = -1
    return _Meeting(
        starts,
        queues,
        [standings.window[standing] for standing in flows],
        [standings.sent[standing] for standing in flows],
        [zero] * len(flows),
        [zero] * len(flows),
        port_of,
        [ports.level[queue] for queue in queue_of],
        [ports.weight[queue] for queue in queue_of],
        [ports.limit[queue] for queue in queue_of],
        [ports.minimum[queue] for queue in queue_of],
        [ports.capacity[port] for port in ports_used],
        [ports.is_fifo[port] > 0 for port in ports_used],
        [ports.limited[port] > 0 for port in ports_used],
        reverse,
    )


def _acknowledge(meeting: _Meeting, taken: list[Number], acknowledging: Number) -> bool:
    """Set what acknowledgements take of each port, and return whether they take anything."""
    some = False
    for flow in range(len(meeting.rate)):
        if meeting.sent[flow] < 0:
            rate = meeting.rate[flow] * acknowledging
            for at in range(meeting.starts[flow], meeting.starts[flow + 1]):
                reverse = meeting.reverse[meeting.port_of[meeting.queues[at]]]
                if reverse >= 0:
                    taken[reverse] += rate
                    some = True
    return some


def _share(meeting: _Meeting, taken: list[Number], zero: Number, tolerance: Number) -> list[bool]:
    """Set the rate of each flow, and return which ports are narrow. `taken` is the rate of other traffic at a port.

    A port is wide, and can be ignored, if it has room for all its flows in any case.
    """
    capacity, port_of, rate = meeting.capacity, meeting.port_of, meeting.rate
    demand = [zero] * len(capacity)
    for flow in range(len(rate)):
        fastest = meeting.sent[flow]
        for at in range(meeting.starts[flow], meeting.starts[flow + 1]):
            port = port_of[meeting.queues[at]]
            room = capacity[port] - taken[port]
            if fastest < 0 or room < fastest:
                fastest = room
        meeting.fastest[flow] = fastest
        for at in range(meeting.starts[flow], meeting.starts[flow + 1]):
            demand[port_of[meeting.queues[at]]] += fastest
    narrow = [
        meeting.limited[port] or demand[port] > (capacity[port] - taken[port]) * (1 + tolerance)
        for port in range(len(capacity))
    ]
    # Flows of which all narrow queues have a minimum share get that first, as if each were a link of its own.
    starts, queues, held_up, promised = [0], [0] * 0, [0] * 0, [0] * 0
    for flow in range(len(rate)):
        everywhere, has_queues = True, False
        for at in range(meeting.starts[flow], meeting.starts[flow + 1]):
            queue = meeting.queues[at]
            if narrow[port_of[queue]]:
                queues.append(queue)
                everywhere = everywhere and meeting.minimum[queue] > 0
                has_queues = has_queues or not meeting.is_fifo[port_of[queue]]
        starts.append(len(queues))
        if starts[flow] == starts[flow + 1]:
            rate[flow] = meeting.fastest[flow]
            continue
        rate[flow] = zero
        held_up.append(flow)
        if everywhere and has_queues:
            promised.append(flow)
    if promised:
        alike = len(port_of)
        used = [taken[port] if meeting.is_fifo[port] else zero for port in port_of]
        minimum = meeting.minimum
        fill = _Filling(promised, starts, queues, [*range(alike)], [0] * alike, minimum, minimum, used)
        while _pass(meeting, fill, zero, tolerance):
            pass
    if held_up:
        fill = _Filling(held_up, starts, queues, port_of, meeting.level, meeting.limit, capacity, taken)
        while _pass(meeting, fill, zero, tolerance):
            pass
    return narrow


def _pass(meeting: _Meeting, filling: _Filling, zero: Number, tolerance: Number) -> bool:
    """Give each flow that can have more its rate, the tightest first. Return whether another pass may give more.

    It may if a flow could not use what a queue kept for it, because of a higher level further on.
    """
    window, sent, fastest, rate, weight = meeting.window, meeting.sent, meeting.fastest, meeting.rate, meeting.weight
    flows, starts, queues, port_of, level, limit, capacity, taken = filling
    queue_count, port_count = len(port_of), len(capacity)

    # Of queues: the rate of all their flows, and of ports. Their flows and queues, as slices of `members` and `within`.
    has, used = [zero] * queue_count, taken.copy()
    member_starts, within_starts = [0] * (queue_count + 1), [0] * (port_count + 1)
    narrowest = fastest.copy()
    for flow in flows:
        narrowest[flow] = capacity[port_of[queues[starts[flow]]]]
        for at in range(starts[flow], starts[flow + 1]):
            queue = queues[at]
            port = port_of[queue]
            member_starts[queue + 1] += 1
            has[queue] += rate[flow]
            used[port] += rate[flow]
            narrowest[flow] = min(narrowest[flow], capacity[port])
    for port in port_of:
        within_starts[port + 1] += 1
    for queue in range(queue_count):
        member_starts[queue + 1] += member_starts[queue]
    for port in range(port_count):
        within_starts[port + 1] += within_starts[port]
    members, ends = [0] * member_starts[queue_count], member_starts.copy()
    for flow in flows:
        for at in range(starts[flow], starts[flow + 1]):
            members[ends[queues[at]]] = flow
            ends[queues[at]] += 1
    within = [0] * queue_count
    ends = within_starts.copy()
    for queue in range(queue_count):
        within[ends[port_of[queue]]] = queue
        ends[port_of[queue]] += 1

    # The flows that have not got their rate in this pass, and how many queues on their path make them no offer yet.
    waiting, refused, left = [False] * len(rate), [0] * len(rate), 0
    # Of each queue, the number of waiting flows, the sum of the windows of those that keep one, the number of those
    # that send at a constant rate, and the number of those to whom all queues on their path make an offer.
    queued, windows, constants, ready = [0] * queue_count, [0] * queue_count, [0] * queue_count, [0] * queue_count
    # To whom it makes an offer, whether it is of the highest level of its port at which flows wait, how much more it
    # can have, and what it offers: bytes per second for each unit of a flow's window, or the part that a sender of
    # constant rate gets of what it lacks.
    serves, serving = [_NOBODY] * queue_count, [False] * queue_count
    room, offer = [zero] * queue_count, [zero] * queue_count
    # Of each port, the number of serving queues in which flows still wait, whether they could offer more than they do
    # since a flow has got its rate, and how often its offers were renewed.
    busy, outdated, version = [0] * port_count, [False] * port_count, [0] * port_count
    # Ports that have to find the highest level at which flows wait, and those that have to renew their offers.
    changed, renewed = [0] * 0, [0] * 0
    is_changed, is_renewed = [False] * port_count, [False] * port_count
    for flow in flows:
        able = rate[flow] < fastest[flow] * (1 - tolerance)
        for at in range(starts[flow], starts[flow + 1]):
            queue = queues[at]
            port = port_of[queue]
            able = able and used[port] < capacity[port] * (1 - tolerance)
            able = able and limit[queue] - has[queue] > tolerance * capacity[port]
        if able:
            left += 1
            waiting[flow] = True
            refused[flow] = starts[flow + 1] - starts[flow]
            for at in range(starts[flow], starts[flow + 1]):
                queue = queues[at]
                port = port_of[queue]
                queued[queue] += 1
                if sent[flow] < 0:
                    windows[queue] += window[flow]
                else:
                    constants[queue] += 1
                if not is_changed[port]:
                    is_changed[port] = True
                    changed.append(port)

    # Offers by urgency. Those of a port only grow as long as the same levels are served, so an outdated offer is never
    # too large.
    due = [(0, zero, 0, 0, 0, 0)]
    due.clear()
    announced = 0
    first, once, gained, oldest = True, True, False, 0
    served, chosen = [0] * 0, [0] * 0
    while left:
        for port in changed:
            if not is_renewed[port]:
                is_renewed[port] = True
                renewed.append(port)
        for port in changed:
            is_changed[port] = False
            highest = -1
            for at in range(within_starts[port], within_starts[port + 1]):
                if queued[within[at]]:
                    highest = max(highest, level[within[at]])
            busy[port] = 0
            for at in range(within_starts[port], within_starts[port + 1]):
                queue = within[at]
                serving[queue] = queued[queue] > 0 and level[queue] == highest
                busy[port] += serving[queue]
                kind = _CONSTANTS if constants[queue] else _WINDOWS
                if not serving[queue] or serves[queue] == kind:
                    continue
                serves[queue] = kind
                for member in range(member_starts[queue], member_starts[queue + 1]):
                    flow = members[member]
                    if not waiting[flow] or (sent[flow] >= 0) != (kind == _CONSTANTS):
                        continue
                    refused[flow] -= 1
                    if refused[flow]:
                        continue
                    if kind == _CONSTANTS or fastest[flow] < narrowest[flow]:
                        announced += 1
                        units = sent[flow] - rate[flow] if kind == _CONSTANTS else window[flow]
                        could_use = (fastest[flow] - rate[flow]) / units
                        heappush(due, (-kind, could_use, announced, -1, flow, 0))
                    for place in range(starts[flow], starts[flow + 1]):
                        ready[queues[place]] += 1
                        port_too = port_of[queues[place]]
                        if not is_renewed[port_too]:
                            is_renewed[port_too] = True
                            renewed.append(port_too)
        changed.clear()
        if first:
            first = False
            for flow in flows:
                if waiting[flow] and (refused[flow] or rate[flow]):
                    once = False

        for port in renewed:
            is_renewed[port] = False
            version[port] += 1
            outdated[port] = False
            served.clear()
            for at in range(within_starts[port], within_starts[port + 1]):
                if serving[within[at]] and queued[within[at]]:
                    served.append(within[at])
            spare = max(zero, capacity[port] - used[port])
            if len(served) == 1:
                room[served[0]] = max(zero, min(spare, limit[served[0]] - has[served[0]]))
            elif served:
                _set_rooms(served, spare, has, weight, limit, room, zero)
            for queue in served:
                if serves[queue] == _WINDOWS:
                    offer[queue] = room[queue] / windows[queue]
                else:
                    lacking = zero
                    for member in range(member_starts[queue], member_starts[queue + 1]):
                        flow = members[member]
                        if waiting[flow] and sent[flow] >= 0:
                            lacking += sent[flow] - rate[flow]
                    offer[queue] = min(room[queue] / lacking, zero + 1) if lacking else zero
            for kind in (_CONSTANTS, _WINDOWS):
                least, some = zero, False
                for queue in served:
                    if ready[queue] and serves[queue] == kind and not (some and offer[queue] >= least):
                        least, some = offer[queue], True
                if some:
                    announced += 1
                    heappush(due, (-kind, least, announced, port, -1, version[port]))
        renewed.clear()

        chosen.clear()
        size = zero
        if due:
            urgency, size, _, port, flow, number = heappop(due)
            if port < 0:
                if waiting[flow]:
                    chosen.append(flow)
            elif number == version[port]:
                if outdated[port]:
                    is_renewed[port] = True
                    renewed.append(port)
                    continue
                # The port's next offer has to be found anew, once these flows have their rates.
                announced += 1
                heappush(due, (urgency, size, announced, port, -1, number))
                for at in range(within_starts[port], within_starts[port + 1]):
                    queue = within[at]
                    if serving[queue] and ready[queue] and serves[queue] == -urgency and offer[queue] == size:
                        for member in range(member_starts[queue], member_starts[queue + 1]):
                            flow = members[member]
                            if waiting[flow] and not refused[flow] and (sent[flow] >= 0) == (urgency == -_CONSTANTS):
                                chosen.append(flow)
                        break
            if not chosen:
                continue
        else:
            # The levels of the ports contradict each other. The oldest flow goes first.
            while not waiting[flows[oldest]]:
                oldest += 1
            flow = flows[oldest]
            chosen.append(flow)
            size = capacity[port_of[queues[starts[flow]]]]
            for at in range(starts[flow], starts[flow + 1]):
                queue = queues[at]
                size = min(size, capacity[port_of[queue]] - used[port_of[queue]], limit[queue] - has[queue])
            size = max(zero, size) / (window[flow] if sent[flow] < 0 else sent[flow] - rate[flow])

        for flow in chosen:
            left -= 1
            waiting[flow] = False
            more = size * (window[flow] if sent[flow] < 0 else sent[flow] - rate[flow])
            more = min(more, fastest[flow] - rate[flow])
            gained = gained or more > tolerance * fastest[flow]
            rate[flow] += more
            for at in range(starts[flow], starts[flow + 1]):
                queue = queues[at]
                port = port_of[queue]
                has[queue] += more
                used[port] += more
                outdated[port] = True
                queued[queue] -= 1
                if not refused[flow]:
                    ready[queue] -= 1
                is_empty = False
                if sent[flow] >= 0:
                    constants[queue] -= 1
                    is_empty = constants[queue] == 0
                else:
                    windows[queue] -= window[flow]
                    if not queued[queue] and serves[queue] != _NOBODY:
                        busy[port] -= 1
                        is_empty = busy[port] == 0
                if is_empty and not is_changed[port]:
                    is_changed[port] = True
                    changed.append(port)
    return gained and not once


def _set_rooms(
    queues: list[int],
    left: Number,
    has: list[Number],
    weight: list[int],
    limit: list[Number],
    room: list[Number],
    zero: Number,
) -> None:
    """Set how much more each of these queues, all of one level of a port, gets if all of them take what they can.

    Each gets the same for each unit of its weight, but no less than it has and no more than its maximum share.
    """
    together, weights = zero, 0
    for queue in queues:
        room[queue] = zero
        together += has[queue]
        weights += weight[queue]
    if left <= 0:
        return
    # Most often, no queue has more than its part or as much as its maximum share.
    affordable = (left + together) / weights
    fits = True
    for queue in queues:
        fits = fits and has[queue] <= affordable * weight[queue] <= limit[queue]
    if not fits:
        # What they get together grows with the part per weight, with a bend where a queue begins or stops to grow.
        affordable = zero
        for queue in queues:
            for bend in (has[queue] / weight[queue], limit[queue] / weight[queue]):
                if bend > affordable and _growth(queues, bend, has, weight, limit, zero) <= left:
                    affordable = bend
        growing = 0
        for queue in queues:
            if has[queue] <= affordable * weight[queue] < limit[queue]:
                growing += weight[queue]
        if growing:
            affordable += (left - _growth(queues, affordable, has, weight, limit, zero)) / growing
    for queue in queues:
        room[queue] = max(zero, min(affordable * weight[queue], limit[queue]) - has[queue])


def _growth(
    queues: list[int],
    per_weight: Number,
    has: list[Number],
    weight: list[int],
    limit: list[Number],
    zero: Number,
) -> Number:
    """Return how much more these queues get together if each has so much for each unit of its weight."""
    growth = zero
    for queue in queues:
        growth += max(zero, min(per_weight * weight[queue], limit[queue]) - has[queue])
    return growth


PARTS = (_meet, _acknowledge, _share, _pass, _set_rooms, _growth)
"""The functions of which `shared_rates` consists."""
