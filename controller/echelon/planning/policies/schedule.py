"""Rates and ranks as queues: queue assignments, weights and levels that switches can hold, for an
allocation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache

from echelon.model.jobs.graph import FlowKey
from echelon.planning.allocation import ActiveFlow, Link, Number
from echelon.planning.plan import CONTROL_QUEUE, LEVELS, PortSchedule, QueuePlan
from echelon.planning.policies.filling import ZERO
from echelon.planning.policies.levels import BEST_EFFORT_QUEUE, JOB_QUEUES

HIGHEST_WEIGHT = 1023
"""The largest DWRR weight that switches take (Tofino's range is 0..1023)."""


def to_schedule(
    flows: Sequence[ActiveFlow],
    rates_Bps: Sequence[Number],  # noqa: N803
    previous: Mapping[FlowKey, int] | None = None,
) -> tuple[dict[FlowKey, int], dict[Link, PortSchedule]]:
    """Return the queue of each flow, and the queues of each port on their paths, that come nearest
    to `rates_Bps`.

    - Best effort has queue 0, level 0. Control has the last queue, above all.
    - Every other flow has a queue of its own, weighted by its rate at level 1, or at level 0 while
      its rate is zero: the queue's level and weight change rather than the flow's queue, so that
      packets which already wait follow. If more flows meet at a port than there are queues, the
      flows of a coflow share one; if that is still too many, coflows share the queue that the
      fewest flows have. A shared queue's weight is the sum.
    - A flow keeps its queue of `previous` if possible: a change of queue may reorder its packets.
    """
    claimed = [i for i, flow in enumerate(flows) if flow.echelonflow is not None]
    of_flow = {_key(flow): BEST_EFFORT_QUEUE for flow in flows}
    before = previous or {}
    crowd: dict[Link, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    load: dict[Link, dict[int, Number]] = defaultdict(dict)

    def assign(unit: Sequence[int], queue: int) -> None:
        for i in unit:
            of_flow[_key(flows[i])] = queue
            for link in flows[i].links:
                crowd[link][queue] += 1
                load[link][queue] = load[link].get(queue, ZERO) + rates_Bps[i]

    # A unit keeps its former queue, if free, before any other unit chooses.
    choosing = []
    for unit in _units(flows, claimed):
        links = {link for i in unit for link in flows[i].links}
        wanted = {before.get(_key(flows[i])) for i in unit}
        free = next(
            (q for q in JOB_QUEUES if q in wanted and not any(crowd[link][q] for link in links)),
            None,
        )
        if free is None:
            choosing.append((unit, links, wanted))
        else:
            assign(unit, free)
    for unit, links, wanted in choosing:
        assign(unit, _choose(links, crowd, wanted))
    ports = dict.fromkeys(link for flow in flows for link in flow.links)
    return of_flow, {link: to_port(load.get(link, {})) for link in ports}


def to_levels(
    flows: Sequence[ActiveFlow], ranks: Sequence[int], previous: Mapping[FlowKey, int] | None = None
) -> tuple[dict[FlowKey, int], dict[Link, PortSchedule]]:
    """Return the queue of each flow, and the queues of each port on their paths, that serve flows
    by rank.

    - Best effort has queue 0, level 0. Control has the last queue, above all.
    - The flows of one rank have a queue together. At each port, queues have levels in the order of
      their ranks: the queue's level changes rather than the flow's queue, so that packets which
      already wait follow.
    - If more ranks meet at a port than there are queues, the most urgent have a queue of their own,
      and the others share that of the least urgent.
    - A flow keeps its queue of `previous` if possible: a change of queue may reorder its packets.
    """
    of_flow = {_key(flow): BEST_EFFORT_QUEUE for flow in flows}
    before = previous or {}
    members: dict[int, list[int]] = defaultdict(list)
    for i, flow in enumerate(flows):
        if flow.echelonflow is not None:
            members[ranks[i]].append(i)
    first: dict[Link, dict[int, int]] = defaultdict(dict)
    """The lowest rank in each queue of each port."""
    wanted_at: dict[Link, set[int | None]] = defaultdict(set)
    for unit in members.values():
        for i in unit:
            for link in flows[i].links:
                wanted_at[link].add(before.get(_key(flows[i])))
    free = max(ranks, default=0) + 1
    for rank in sorted(members):
        unit = members[rank]
        links = {link for i in unit for link in flows[i].links}
        wanted = {before.get(_key(flows[i])) for i in unit}

        def cost(
            queue: int, links: set[Link] = links, wanted: set[int | None] = wanted
        ) -> tuple[int, bool, bool, int]:
            # The less urgent the flows that are there already, the better; best of all are none.
            urgency = max(free - first[link].get(queue, free) for link in links)
            return (
                urgency,
                queue not in wanted,
                any(queue in wanted_at[link] for link in links),
                queue,
            )

        queue = min(JOB_QUEUES, key=cost)
        for i in unit:
            of_flow[_key(flows[i])] = queue
        for link in links:
            first[link].setdefault(queue, rank)
    ports = dict.fromkeys(link for flow in flows for link in flow.links)
    return of_flow, {link: _by_rank(first.get(link, {})) for link in ports}


def _by_rank(first: Mapping[int, int]) -> PortSchedule:
    """Return the queues of a port, given the lowest rank in each queue that some flow has."""
    order = sorted(first, key=lambda queue: first[queue])
    # A queue that no flow has may still hold the last packets of a flow that has just finished.
    levels = dict.fromkeys(JOB_QUEUES, JOB_QUEUES[-1]) | {
        queue: JOB_QUEUES[-1] - turn for turn, queue in enumerate(order)
    }
    return _port(((0, 1), *((levels[queue], 1) for queue in JOB_QUEUES), (LEVELS - 1, 1)))


@lru_cache(maxsize=4096)
def _port(queues: tuple[tuple[int, int], ...]) -> PortSchedule:
    """Return the queues of a port by their levels and weights: the same object for the same
    ones.
    """
    return tuple(QueuePlan(level, weight) for level, weight in queues)


def _key(flow: ActiveFlow) -> FlowKey:
    return flow.job, flow.flow


def _units(flows: Sequence[ActiveFlow], claimed: Sequence[int]) -> list[list[int]]:
    """Return the units that get a queue together, oldest first: one flow, or the flows of one
    coflow if one of them meets a crowd."""
    at_link: dict[Link, int] = defaultdict(int)
    for i in claimed:
        for link in flows[i].links:
            at_link[link] += 1
    coflow = {i: (flows[i].job, flows[i].iteration, flows[i].echelonflow) for i in claimed}
    crowded = {
        coflow[i]
        for i in claimed
        if any(at_link[link] > len(JOB_QUEUES) for link in flows[i].links)
    }
    units: dict[object, list[int]] = defaultdict(list)
    for i in sorted(claimed, key=lambda i: flows[i].sequence):
        units[coflow[i] if coflow[i] in crowded else i].append(i)
    return list(units.values())


def _choose(
    links: set[Link], crowd: Mapping[Link, Mapping[int, int]], wanted: set[int | None]
) -> int:
    """Return the queue that the fewest flows have at these ports; of equals one that the flows had
    before, then the lowest."""

    def cost(queue: int) -> tuple[int, bool, int]:
        return max(crowd[link][queue] for link in links), queue not in wanted, queue

    return min(JOB_QUEUES, key=cost)


def to_port(load: Mapping[int, Number]) -> PortSchedule:
    """Return the queues of a port, given the rate of each queue that some flow has."""
    most = max(load.values(), default=ZERO)
    # A queue that no flow has may still hold the last packets of a flow that has just finished.
    queues = [(1, 1)] * LEVELS
    queues[BEST_EFFORT_QUEUE] = 0, 1
    for queue, rate in load.items():
        if rate == most:
            weight = HIGHEST_WEIGHT
        else:
            weight = max(1, round(HIGHEST_WEIGHT * rate / most))
        queues[queue] = (1, weight) if rate else (0, 1)
    queues[CONTROL_QUEUE] = 2, 1
    return _port(tuple(queues))
