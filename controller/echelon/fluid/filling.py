"""The rates at which queues serve flows that meet, over flat lists of numbers.

`echelon.fluid.sharing` says what is computed and holds the tables. This module works on floats and fractions alike. Its
functions refer to flows, queues and ports by index, as those of `engine/sharing.c` do, which compute the same.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple, TypeAlias, TypeVar

from echelon.allocation import Number

T = TypeVar("T", int, Number)

Integers: TypeAlias = list[int]
Numbers: TypeAlias = list[Number]

NO_RATE = -1
"""The constant rate of a sender that keeps a window instead."""

_NOBODY, _WINDOWS, _CONSTANTS = 0, 1, 2
"""The senders to whom a queue makes an offer: nobody, as flows wait in a queue of a higher level of the port; those
that keep a window; those of constant rate, which go first."""


class SharedPorts(NamedTuple):
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
    sent: MutableSequence[Any]
    """The constant rate at which it sends, or `NO_RATE`: as fast as its window lets it."""


class _Meeting(NamedTuple):
    """The flows whose rates are wanted, with the queues and ports on their paths."""

    starts: Integers
    """The queues of flow f are ``queues[starts[f]:starts[f + 1]]``."""
    queues: Integers
    window: Integers
    sent: Numbers
    fastest: Numbers
    """The rate of each flow if it were alone."""
    rate: Numbers
    """The result."""
    port_of: Integers
    level: Integers
    weight: Integers
    limit: Numbers
    minimum: Numbers
    capacity: Numbers
    is_fifo: Integers
    limited: Integers
    reverse: Integers


class _Filling(NamedTuple):
    """The flows that share, and the queues and ports that they fill."""

    flows: Integers
    starts: Integers
    """The narrow queues of flow f, where other flows may delay it, are ``queues[starts[f]:starts[f + 1]]``."""
    queues: Integers
    port_of: Integers
    level: Integers
    limit: Numbers
    capacity: Numbers
    taken: Numbers
    """The rate of other traffic at each port."""


def shared_rates(
    flows: Sequence[int],
    standings: Standings,
    ports: SharedPorts,
    zero: Number,
    acknowledging: Number,
    tolerance: Number,
) -> tuple[Numbers, list[bool]]:
    """Return the rate of each flow, given by its standing, and whether it waits in a queue with others.

    Every flow ends with a full link or a full queue on its path, or at its own rate. A link or queue is full when no
    more than the part `tolerance` of the link is left; floats need one. `acknowledging` is the bytes of
    acknowledgements for each byte of a flow, which go before all flows.
    """
    meeting = _meet(flows, standings, ports, zero)
    queue_count, port_count = len(meeting.port_of), len(meeting.capacity)
    taken = table(zero, 1, port_count)[0]
    narrow = _share(meeting, taken, zero, tolerance)
    if acknowledging and _acknowledge(meeting, taken, acknowledging):
        # Their rates change those of the data, which changes theirs a little; one step is close enough.
        narrow = _share(meeting, taken, zero, tolerance)
    crowd = table(0, 1, queue_count)[0]
    for queue in meeting.queues:
        crowd[queue] += 1
    rates, held_up = [zero] * len(flows), [False] * len(flows)
    for flow in range(len(flows)):
        rates[flow] = meeting.rate[flow]
        for at in range(meeting.starts[flow], meeting.starts[flow + 1]):
            queue = meeting.queues[at]
            if crowd[queue] > 1 and narrow[meeting.port_of[queue]]:
                held_up[flow] = True
    return rates, held_up


def table(value: T, rows: int, columns: int) -> list[list[T]]:
    """Return rows of this value."""
    return [[value] * columns for _ in range(rows)]


def _meet(flows: Sequence[int], standings: Standings, ports: SharedPorts, zero: Number) -> _Meeting:
    """Number the flows, and the queues and ports on their paths, from 0 in order of appearance."""
    flow_count, place_count, queue_count, port_count = len(flows), 0, 0, 0
    for standing in flows:
        place_count += standings.starts[standing + 1] - standings.starts[standing]
    of_places = table(0, 4, place_count)
    queues, queue_of, port_of, ports_used = of_places[0], of_places[1], of_places[2], of_places[3]
    of_flows, numbers = table(0, 2, flow_count + 1), table(zero, 3, flow_count)
    starts, window, sent, fastest, rate = of_flows[0], of_flows[1], numbers[0], numbers[1], numbers[2]
    place = 0
    for flow in range(flow_count):
        standing = flows[flow]
        window[flow], sent[flow] = standings.window[standing], standings.sent[standing]
        for at in range(standings.starts[standing], standings.starts[standing + 1]):
            queue = standings.places[at]
            if ports.queue_number[queue] < 0:
                ports.queue_number[queue] = queue_count
                port = ports.port_of[queue]
                if ports.port_number[port] < 0:
                    ports.port_number[port] = port_count
                    ports_used[port_count] = port
                    port_count += 1
                queue_of[queue_count], port_of[queue_count] = queue, ports.port_number[port]
                queue_count += 1
            queues[place] = ports.queue_number[queue]
            place += 1
        starts[flow + 1] = place
    of_queues, numbers_of_queues = table(0, 2, queue_count), table(zero, 2, queue_count)
    level, weight, limit, minimum = of_queues[0], of_queues[1], numbers_of_queues[0], numbers_of_queues[1]
    of_ports, capacity = table(0, 3, port_count), table(zero, 1, port_count)[0]
    is_fifo, limited, reverse = of_ports[0], of_ports[1], of_ports[2]
    for number in range(queue_count):
        queue = queue_of[number]
        level[number], weight[number] = ports.level[queue], ports.weight[queue]
        limit[number], minimum[number] = ports.limit[queue], ports.minimum[queue]
        ports.queue_number[queue] = -1
    for number in range(port_count):
        port = ports_used[number]
        capacity[number], is_fifo[number], limited[number] = (
            ports.capacity[port],
            ports.is_fifo[port],
            ports.limited[port],
        )
        reverse[number] = -1 if ports.reverse[port] < 0 else ports.port_number[ports.reverse[port]]
    for number in range(port_count):
        ports.port_number[ports_used[number]] = -1
    return _Meeting(
        starts,
        queues,
        window,
        sent,
        fastest,
        rate,
        port_of[:queue_count],
        level,
        weight,
        limit,
        minimum,
        capacity,
        is_fifo,
        limited,
        reverse,
    )


def _acknowledge(meeting: _Meeting, taken: Numbers, acknowledging: Number) -> bool:
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


def _share(meeting: _Meeting, taken: Numbers, zero: Number, tolerance: Number) -> Integers:
    """Set the rate of each flow, and return which ports are narrow. `taken` is the rate of other traffic at a port.

    A port is wide, and can be ignored, if it has room for all its flows in any case.
    """
    capacity, port_of, rate = meeting.capacity, meeting.port_of, meeting.rate
    flow_count, queue_count, port_count = len(rate), len(port_of), len(capacity)
    demand, narrow = table(zero, 1, port_count)[0], table(0, 1, port_count)[0]
    for flow in range(flow_count):
        fastest = meeting.sent[flow]
        for at in range(meeting.starts[flow], meeting.starts[flow + 1]):
            port = port_of[meeting.queues[at]]
            room = capacity[port] - taken[port]
            if fastest < 0 or room < fastest:
                fastest = room
        meeting.fastest[flow] = fastest
        for at in range(meeting.starts[flow], meeting.starts[flow + 1]):
            demand[port_of[meeting.queues[at]]] += fastest
    for port in range(port_count):
        too_little = demand[port] > (capacity[port] - taken[port]) * (1 + tolerance)
        narrow[port] = too_little or meeting.limited[port] > 0
    # Flows of which all narrow queues have a minimum share get that first, as if each were a link of its own.
    of_flows, queues = table(0, 3, flow_count + 1), table(0, 1, len(meeting.queues))[0]
    starts, held_up, promised = of_flows[0], of_flows[1], of_flows[2]
    place, held_up_count, promised_count = 0, 0, 0
    for flow in range(flow_count):
        everywhere, has_queues = True, False
        for at in range(meeting.starts[flow], meeting.starts[flow + 1]):
            queue = meeting.queues[at]
            if narrow[port_of[queue]]:
                queues[place] = queue
                place += 1
                everywhere = everywhere and meeting.minimum[queue] > 0
                has_queues = has_queues or not meeting.is_fifo[port_of[queue]]
        starts[flow + 1] = place
        if starts[flow] == place:
            rate[flow] = meeting.fastest[flow]
            continue
        rate[flow] = zero
        held_up[held_up_count] = flow
        held_up_count += 1
        if everywhere and has_queues:
            promised[promised_count] = flow
            promised_count += 1
    if promised_count:
        apart, used = table(0, 2, queue_count), table(zero, 1, queue_count)[0]
        for queue in range(queue_count):
            apart[0][queue] = queue
            if meeting.is_fifo[port_of[queue]]:
                used[queue] = taken[port_of[queue]]
        minimum = meeting.minimum
        fill = _Filling(promised[:promised_count], starts, queues, apart[0], apart[1], minimum, minimum, used)
        while _pass(meeting, fill, zero, tolerance):
            pass
    if held_up_count:
        fill = _Filling(held_up[:held_up_count], starts, queues, port_of, meeting.level, meeting.limit, capacity, taken)
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

    # The rate of all flows of a queue, how much more it can have, and what it offers: bytes per second for each unit of
    # a flow's window, or the part that a sender of constant rate gets of what it lacks.
    numbers = table(zero, 3, queue_count)
    has, room, offer = numbers[0], numbers[1], numbers[2]
    used = taken.copy()
    for flow in flows:
        if rate[flow]:
            for at in range(starts[flow], starts[flow + 1]):
                has[queues[at]] += rate[flow]
                used[port_of[queues[at]]] += rate[flow]
    # Whether a flow has not got its rate in this pass, and how many queues on its path make it no offer yet.
    of_flows, left = table(0, 2, len(rate)), 0
    waiting, refused = of_flows[0], of_flows[1]
    for flow in flows:
        able = rate[flow] < fastest[flow] * (1 - tolerance)
        for at in range(starts[flow], starts[flow + 1]):
            queue = queues[at]
            port = port_of[queue]
            able = able and used[port] < capacity[port] * (1 - tolerance)
            able = able and limit[queue] - has[queue] > tolerance * capacity[port]
        if able:
            waiting[flow] = 1
            left += 1
    if not left:
        return False

    # Of each queue, the number of waiting flows, the sum of the windows of those that keep one, the number of those
    # that send at a constant rate, and the number of those to whom all queues on their path make an offer. To whom it
    # makes one, and whether it is of the highest level of its port at which flows wait.
    of_queues = table(0, 9, queue_count + 1)
    queued, windows, constants, ready = of_queues[0], of_queues[1], of_queues[2], of_queues[3]
    serves, serving = of_queues[4], of_queues[5]
    # Of each port, the number of serving queues in which flows still wait, whether they could offer more than they do
    # since a flow has got its rate, and how often its offers were renewed. Whether it has to find the highest level at
    # which flows wait, and whether to renew its offers.
    of_ports = table(0, 7, port_count + 1)
    busy, outdated, version, is_changed, is_renewed = of_ports[0], of_ports[1], of_ports[2], of_ports[3], of_ports[4]
    changed, renewed = [0] * 0, [0] * 0
    narrowest = fastest.copy()
    once = True
    for flow in flows:
        if not waiting[flow]:
            continue
        once = once and not rate[flow]
        refused[flow] = starts[flow + 1] - starts[flow]
        narrowest[flow] = capacity[port_of[queues[starts[flow]]]]
        for at in range(starts[flow], starts[flow + 1]):
            queue = queues[at]
            port = port_of[queue]
            narrowest[flow] = min(narrowest[flow], capacity[port])
            queued[queue] += 1
            if sent[flow] < 0:
                windows[queue] += window[flow]
            else:
                constants[queue] += 1
            if not is_changed[port]:
                is_changed[port] = 1
                changed.append(port)
    # The waiting flows of each queue, and the queues of each port, as slices of `members` and `within`.
    member_starts, member_ends, within = of_queues[6], of_queues[7], of_queues[8]
    within_starts, within_ends = of_ports[5], of_ports[6]
    for queue in range(queue_count):
        member_ends[queue] = member_starts[queue]
        member_starts[queue + 1] = member_starts[queue] + queued[queue]
        within_starts[port_of[queue] + 1] += 1
    members = table(0, 1, member_starts[queue_count])[0]
    for flow in flows:
        if waiting[flow]:
            for at in range(starts[flow], starts[flow + 1]):
                members[member_ends[queues[at]]] = flow
                member_ends[queues[at]] += 1
    for port in range(port_count):
        within_starts[port + 1] += within_starts[port]
        within_ends[port] = within_starts[port]
    for queue in range(queue_count):
        within[within_ends[port_of[queue]]] = queue
        within_ends[port_of[queue]] += 1

    # Offers by urgency. Those of a port only grow as long as the same levels are served, so an outdated offer is never
    # too large.
    due = [(0, zero, 0, 0, 0, 0)]
    due.clear()
    announced = 0
    first, gained, oldest = True, False, 0
    served, chosen = [0] * 0, [0] * 0
    while left:
        for port in changed:
            if not is_renewed[port]:
                is_renewed[port] = 1
                renewed.append(port)
        for port in changed:
            is_changed[port] = 0
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
                            is_renewed[port_too] = 1
                            renewed.append(port_too)
        changed.clear()
        if first:
            first = False
            for flow in flows:
                once = once and not (waiting[flow] and refused[flow])

        for port in renewed:
            is_renewed[port] = 0
            version[port] += 1
            outdated[port] = 0
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
                    is_renewed[port] = 1
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
            waiting[flow] = 0
            more = size * (window[flow] if sent[flow] < 0 else sent[flow] - rate[flow])
            more = min(more, fastest[flow] - rate[flow])
            gained = gained or more > tolerance * fastest[flow]
            rate[flow] += more
            for at in range(starts[flow], starts[flow + 1]):
                queue = queues[at]
                port = port_of[queue]
                has[queue] += more
                used[port] += more
                outdated[port] = 1
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
                    is_changed[port] = 1
                    changed.append(port)
    return gained and not once


def _set_rooms(
    queues: Integers,
    left: Number,
    has: Numbers,
    weight: Integers,
    limit: Numbers,
    room: Numbers,
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
    queues: Integers,
    per_weight: Number,
    has: Numbers,
    weight: Integers,
    limit: Numbers,
    zero: Number,
) -> Number:
    """Return how much more these queues get together if each has so much for each unit of its weight."""
    growth = zero
    for queue in queues:
        growth += max(zero, min(per_weight * weight[queue], limit[queue]) - has[queue])
    return growth
