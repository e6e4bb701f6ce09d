"""Rates and ranks as queues, weights and levels that switches can hold."""

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
    """Return queues of flows, and of the ports on their paths, that come nearest to `rates_Bps`.

    - Best effort has queue 0, level 0. Control has the last queue, above all.
    - Every other flow has a queue of its own, weighted by its rate at level 1, or at level 0 while
      its rate is zero: the queue's level and weight change rather than the flow's queue, so that
      packets which already wait follow. If more flows meet at a port than there are queues, the
      flows of a coflow share one; if that is still too many, coflows share the queue that the
      fewest flows have. A shared queue's weight is the sum.
    - A flow keeps its queue of `previous` if possible: a change of queue may reorder its packets.
    """
    claimed = [i for i, flow in enumerate(flows) if flow.echelonflow is not None]
    queues = {_key(flow): BEST_EFFORT_QUEUE for flow in flows}
    before = previous or {}
    crowd: dict[Link, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    load: dict[Link, dict[int, Number]] = defaultdict(dict)

    def assign(unit: Sequence[int], queue: int) -> None:
        for i in unit:
            queues[_key(flows[i])] = queue
            for link in flows[i].links:
                crowd[link][queue] += 1
                load[link][queue] = load[link].get(queue, ZERO) + rates_Bps[i]

    # A unit keeps its former queue, if free, before any other unit chooses.
    choosing = []
    for unit in _units(flows, claimed):
        links = {link for i in unit for link in flows[i].links}
        former = {before.get(_key(flows[i])) for i in unit}
        for queue in JOB_QUEUES:
            if queue in former and not any(crowd[link][queue] for link in links):
                assign(unit, queue)
                break
        else:
            choosing.append((unit, links, former))
    for unit, links, former in choosing:
        assign(unit, _choose(links, crowd, former))
    ports = dict.fromkeys(link for flow in flows for link in flow.links)
    return queues, {link: to_port(load.get(link, {})) for link in ports}


def to_levels(
    flows: Sequence[ActiveFlow],
    ranks: Sequence[int],
    previous: Mapping[FlowKey, int] | None = None,
) -> tuple[dict[FlowKey, int], dict[Link, PortSchedule]]:
    """Return queues of flows, and of the ports on their paths, that serve flows by rank.

    - Best effort has queue 0, level 0. Control has the last queue, above all.
    - The flows of one rank have a queue together. At each port, queues have levels in the order of
      their ranks: the queue's level changes rather than the flow's queue, so that packets which
      already wait follow.
    - If more ranks meet at a port than there are queues, the most urgent have a queue of their own,
      and the others share that of the least urgent.
    - A flow keeps its queue of `previous` if possible: a change of queue may reorder its packets.
    """
    queues = {_key(flow): BEST_EFFORT_QUEUE for flow in flows}
    before = previous or {}
    members = defaultdict(list)
    former_at = defaultdict(set)
    """The former queues of the flows at each port."""
    for i, flow in enumerate(flows):
        if flow.echelonflow is None:
            continue
        members[ranks[i]].append(i)
        for link in flow.links:
            former_at[link].add(before.get(_key(flow)))
    first: dict[Link, dict[int, int]] = defaultdict(dict)
    """The lowest rank in each queue of each port."""
    free = max(ranks, default=0) + 1

    def cost(
        queue: int,
        links: set[Link],
        former: set[int | None],
    ) -> tuple[int, bool, bool]:
        # The less urgent the flows that are there already, the better; best of all are none.
        urgency = max(free - first[link].get(queue, free) for link in links)
        is_wanted = any(queue in former_at[link] for link in links)
        return urgency, queue not in former, is_wanted

    for rank in sorted(members):
        unit = members[rank]
        links = {link for i in unit for link in flows[i].links}
        former = {before.get(_key(flows[i])) for i in unit}
        costs = {queue: cost(queue, links, former) for queue in JOB_QUEUES}
        queue = min(costs, key=costs.__getitem__)
        for i in unit:
            queues[_key(flows[i])] = queue
        for link in links:
            first[link].setdefault(queue, rank)
    ports = dict.fromkeys(link for flow in flows for link in flow.links)
    return queues, {link: _by_rank(first.get(link, {})) for link in ports}


def _by_rank(first: Mapping[int, int]) -> PortSchedule:
    """Return the queues of a port, given the lowest rank in each queue that some flow has."""
    order = sorted(first, key=lambda queue: first[queue])
    # A queue that no flow has may still hold the last packets of a flow that has just finished.
    levels = dict.fromkeys(JOB_QUEUES, JOB_QUEUES[-1])
    for turn, queue in enumerate(order):
        levels[queue] = JOB_QUEUES[-1] - turn
    queues = [(0, 1)]
    for queue in JOB_QUEUES:
        queues.append((levels[queue], 1))
    queues.append((LEVELS - 1, 1))
    return _port(tuple(queues))


@lru_cache(maxsize=4096)
def _port(queues: tuple[tuple[int, int], ...]) -> PortSchedule:
    """Return the queues of a port by levels and weights: one object for the same ones."""
    return tuple(QueuePlan(level, weight) for level, weight in queues)


def _key(flow: ActiveFlow) -> FlowKey:
    return flow.job, flow.flow


def _units(flows: Sequence[ActiveFlow], claimed: Sequence[int]) -> list[list[int]]:
    """Return the units that get a queue together: a flow, or a coflow that meets a crowd.

    The oldest is first.
    """
    flows_on: dict[Link, int] = defaultdict(int)
    for i in claimed:
        for link in flows[i].links:
            flows_on[link] += 1
    coflows = {}
    crowded = set()
    for i in claimed:
        flow = flows[i]
        coflows[i] = flow.job, flow.iteration, flow.echelonflow
        if any(flows_on[link] > len(JOB_QUEUES) for link in flow.links):
            crowded.add(coflows[i])

    units = defaultdict(list)
    for i in sorted(claimed, key=lambda i: flows[i].sequence):
        unit: object = i
        if coflows[i] in crowded:
            unit = coflows[i]
        units[unit].append(i)
    return list(units.values())


def _choose(
    links: set[Link],
    crowd: Mapping[Link, Mapping[int, int]],
    former: set[int | None],
) -> int:
    """Return the queue that the fewest flows have; of equals a former one, then the lowest."""

    def cost(queue: int) -> tuple[int, bool]:
        used = max(crowd[link][queue] for link in links)
        return used, queue not in former

    return min(JOB_QUEUES, key=cost)


def to_port(load: Mapping[int, Number]) -> PortSchedule:
    """Return the queues of a port, given the rate of each queue that some flow has."""
    most = max(load.values(), default=ZERO)
    # A queue that no flow has may still hold the last packets of a flow that has just finished.
    queues = [(1, 1)] * LEVELS
    queues[BEST_EFFORT_QUEUE] = 0, 1
    for queue, rate in load.items():
        if not rate:
            queues[queue] = 0, 1
        elif rate == most:
            queues[queue] = 1, HIGHEST_WEIGHT
        else:
            weight = round(HIGHEST_WEIGHT * rate / most)
            queues[queue] = 1, max(1, weight)
    queues[CONTROL_QUEUE] = 2, 1
    return _port(tuple(queues))
