"""The least time that an iteration can take on its hosts, whatever the policy and the paths.

**What is forced.** A step starts when all that it waits for has finished, and a compute unit takes
its time. A flow has one path at a time, so its rate is at most that of the widest path between its
hosts, which is on any maximum spanning tree (T. C. Hu, The Maximum Capacity Route Problem,
Operations Research 9(6), 1961). And all that leaves a set of nodes crosses the links that leave it,
however it is routed. The sets, here called cuts, are each host, each switch with its hosts, and
both sides of each link that is the only way.

**Why no schedule beats it.** A step starts no earlier than the longest path before it (its head),
and the iteration lasts as long as the longest path behind it (its tail) after it. The flows of a
cut share one capacity, of which each gets all at most: a machine that may be interrupted as often
as one likes. No schedule of it ends before ``min head + sum work + min tail`` of any set of its
flows, and Jackson's, which always serves what is there with the longest tail, ends at the largest
of these (J. Carlier, The one-machine sequencing problem, European Journal of Operational Research
11(1), 1982, section 3.2). The largest over all cuts is a lower bound. The same without tails says
when the flows that a step waits for can all have crossed a cut, which makes heads, and by symmetry
tails, longer. Bounds of parts of the graph that begin only when those before have ended add up.

Other jobs, queues, windows and headers only take time. The bound need not be attained.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise, product
from math import lcm
from typing import NamedTuple

from echelon.model.fabric.model import Fabric
from echelon.model.jobs import analysis
from echelon.model.jobs.graph import Ends, Flow, Job
from echelon.planning.fluid.shape import Rates, RunShape, shape_of
from echelon.planning.plan import PlanError

_MOST_BITS = 256
"""The most bits of the number of ticks in a second.

Beyond, there are `_TICKS`, and times are rounded down.
"""
_TICKS = 10**24

_Adjacent = Mapping[str, Sequence[str]]
"""The steps before or after each step."""
_Cut = tuple[str, str]
"""A directed cut: the node or link that it is at, and which of its directions."""


_Crossing = tuple[Fraction, Mapping[_Cut, Fraction]]
"""The rate of the widest path of a connection (0: it has no links), and that of each cut."""


class _Step(NamedTuple):
    """The least time and work of a step, in ticks."""

    lasts: int
    work: Sequence[tuple[_Cut, int]]
    """The time at each cut that it crosses if it has all of its capacity."""


def least_iterations_s(jobs: Iterable[Job], fabric: Fabric) -> dict[str, Fraction]:
    """Return the seconds that an iteration of each job takes at least, under any policy, by job.

    Raises `PlanError` if a worker cannot be reached, and `GraphError` for a job that cannot run.
    """
    cuts = _Cuts(fabric)
    by_shape: dict[RunShape, Fraction] = {}
    by_job = {}
    for job in jobs:
        crossed = _crossed(job, cuts)
        shape = _shape(job, crossed)
        if shape not in by_shape:
            by_shape[shape] = _least_s(job, crossed)
        by_job[job.name] = by_shape[shape]
    return by_job


def _crossed(job: Job, cuts: _Cuts) -> dict[Ends, _Crossing]:
    """Return what each connection of a job crosses. Raises `PlanError`."""
    crossed = {}
    for flow in job.flows:
        ends = flow.ends
        if flow.size_bytes and ends not in crossed:
            crossed[ends] = cuts.crossing(ends, job.name)
    return crossed


def _shape(job: Job, crossed: Mapping[Ends, _Crossing]) -> RunShape:
    ways = [flow.ends for flow in job.flows]
    rates: dict[Hashable, Rates] = dict.fromkeys(ways, ())
    for ends, (fastest, by_cut) in crossed.items():
        rates[ends] = (("fastest", fastest), *by_cut.items())
    return shape_of(job, ways, rates)


def _least_s(job: Job, crossed: Mapping[Ends, _Crossing]) -> Fraction:
    order = analysis.topological_order(job)
    per_s = _ticks_per_second(job, crossed)

    steps = {}
    predecessors = {}
    for unit in job.computes:
        steps[unit.name] = _Step(int(unit.duration_s * per_s), ())
        predecessors[unit.name] = unit.after
    equal: dict[tuple[Ends, int], _Step] = {}
    for flow in job.flows:
        key = flow.ends, flow.size_bytes
        if key not in equal:
            equal[key] = _flow_step(flow, crossed, per_s)
        steps[flow.name] = equal[key]
        predecessors[flow.name] = flow.after
    successors: dict[str, list[str]] = {name: [] for name in order}
    for name, before in predecessors.items():
        for other in before:
            successors[other].append(name)

    ticks = 0
    for part in parts(order, predecessors, successors):
        ticks += _least(part, predecessors, successors, steps)
    return Fraction(ticks, per_s)


def _ticks_per_second(job: Job, crossed: Mapping[Ends, _Crossing]) -> int:
    """Return a number of which each time of the job, at the rates of its cuts, is a multiple."""
    factors = {unit.duration_s.denominator for unit in job.computes}
    for fastest, by_cut in crossed.values():
        for rate in (fastest, *by_cut.values()):
            if rate:
                factors.add(rate.numerator)
    per_s = lcm(*factors)
    if per_s.bit_length() > _MOST_BITS:
        return _TICKS
    return per_s


def _flow_step(
    flow: Flow,
    crossed: Mapping[Ends, _Crossing],
    per_s: int,
) -> _Step:
    if not flow.size_bytes:
        return _Step(0, ())
    fastest, by_cut = crossed[flow.ends]
    if not fastest:
        return _Step(0, ())

    def ticks(rate_Bps: Fraction) -> int:  # noqa: N803
        return flow.size_bytes * per_s * rate_Bps.denominator // rate_Bps.numerator

    work = [(cut, ticks(rate)) for cut, rate in by_cut.items()]
    return _Step(ticks(fastest), work)


def parts(
    order: Sequence[str],
    predecessors: _Adjacent,
    successors: _Adjacent,
) -> Iterator[Sequence[str]]:
    """Yield the steps in parts, each of which begins when the one before has ended.

    A part ends with a step that waits for all others before it in the order, and for which all
    others wait.
    """
    last = _narrow(order, predecessors) & _narrow(order[::-1], successors)
    part = []
    for name in order:
        part.append(name)
        if name in last:
            yield part
            part = []
    if part:
        yield part


def _narrow(order: Sequence[str], predecessors: _Adjacent) -> set[str]:
    """Return the steps that alone are open in their turn: others wait for all before them."""
    narrow: set[str] = set()
    seen: set[str] = set()
    open_steps = 0
    """The number of steps so far for which nothing waits."""
    for name in order:
        fresh = {*predecessors[name]} - seen
        seen |= fresh
        open_steps += 1 - len(fresh)
        if open_steps == 1:
            narrow.add(name)
    return narrow


def _least(
    order: Sequence[str],
    predecessors: _Adjacent,
    successors: _Adjacent,
    steps: Mapping[str, _Step],
) -> int:
    """Return the least time of the steps of a part."""
    heads = _heads(order, predecessors, steps)
    tails = _heads(order[::-1], successors, steps)
    longest = 0
    tasks: dict[_Cut, list[tuple[int, int, int]]] = {}
    for name in order:
        step = steps[name]
        head = heads[name]
        tail = tails[name]
        longest = max(longest, head + step.lasts + tail)
        for cut, work in step.work:
            tasks.setdefault(cut, []).append((head, work, tail))
    return max(longest, *map(jackson, tasks.values()), 0)


def _heads(
    order: Sequence[str],
    predecessors: _Adjacent,
    steps: Mapping[str, _Step],
) -> dict[str, int]:
    """Return the earliest start of each step, if all its predecessors must have finished."""
    out: dict[str, int] = {}
    # After an all-to-all, each rank waits for the same many flows.
    heads: dict[tuple[str, ...], int] = {}
    for name in order:
        before = tuple(predecessors[name])
        if before in heads:
            out[name] = heads[before]
            continue
        head = 0
        tasks: dict[_Cut, list[tuple[int, int]]] = {}
        for other in before:
            if other not in out:  # in an earlier part
                continue
            start = out[other]
            step = steps[other]
            head = max(head, start + step.lasts)
            for cut, work in step.work:
                tasks.setdefault(cut, []).append((start, work))
        for shared in tasks.values():
            if len(shared) > 1:
                head = max(head, _end(shared))
        out[name] = head
        heads[before] = head
    return out


def _end(tasks: list[tuple[int, int]]) -> int:
    """Return when all tasks (start, work) of one machine have ended, by first come first served."""
    end = 0
    for start, work in sorted(tasks):
        end = max(end, start) + work
    return end


def jackson(tasks: Iterable[tuple[int, int, int]]) -> int:
    """Return when tasks (head, work, tail) of a machine end in Jackson's preemptive schedule.

    At each time, it serves the task of the longest tail among those whose head has passed.
    """
    coming = sorted(tasks)
    ready: list[tuple[int, int]] = []
    """A heap of the tasks whose head has passed: (tail, negative; work left)."""
    now = ends = index = 0
    while index < len(coming) or ready:
        if not ready:
            now = max(now, coming[index][0])
        while index < len(coming) and coming[index][0] <= now:
            _, work, tail = coming[index]
            heapq.heappush(ready, (-tail, work))
            index += 1

        tail, work = heapq.heappop(ready)
        until = now + work
        if index < len(coming):
            until = coming[index][0]
        done = min(work, until - now)
        now += done
        if done < work:
            heapq.heappush(ready, (tail, work - done))
        else:
            ends = max(ends, now - tail)
    return ends


class _Cuts:
    """The cuts of a fabric, with what is not drained."""

    def __init__(self, fabric: Fabric) -> None:
        self._capacity = fabric.capacity_Bps
        self._hosts = fabric.hosts
        links = []
        for cable in fabric.cables:
            nodes = cable.a.node, cable.b.node
            if frozenset(nodes) not in fabric.drained:
                links.append(nodes)
        self._leaving: dict[str, Fraction] = {}
        """The rates at which each host, and each switch with its hosts, can send and receive."""
        self._home: dict[str, set[str]] = {}
        """The neighbours of each host."""
        for host in fabric.hosts:
            self._home[host] = set()
        self._up, self._depth, self._single = _spanning(links, self._capacity)
        for a, b in links:
            self._add(a, b)
            self._add(b, a)
        # A host with several switches can leave by any of them, so none is a cut with its hosts.
        for host, homes in self._home.items():
            if len(homes) > 1:
                for switch in homes:
                    self._leaving.pop(switch, None)
            else:
                # The link and the host are the same cut.
                self._single.discard(frozenset((host, *homes)))

    def _add(self, node: str, neighbour: str) -> None:
        if node in self._home:
            self._home[node].add(neighbour)
        if neighbour not in self._home:
            leaving = self._leaving.get(node, Fraction(0))
            self._leaving[node] = leaving + self._capacity[node, neighbour]

    def crossing(self, ends: Ends, job: str) -> _Crossing:
        """Return what a connection crosses. Raises `PlanError`."""
        senders = ends[:1]
        is_ring = len(ends) > 2 and ends[0] == ends[-1]
        if is_ring:
            senders = ends[:-1]
        rates = []
        by_cut = {}
        for src, dst in product(senders, ends[1:]):
            if src == dst:
                continue
            for link in self._way(src, dst, job):
                rate = self._capacity[link]
                rates.append(rate)
                if frozenset(link) in self._single:
                    by_cut[link] = rate
            by_cut[src, "out"] = self._leaving[src]
            by_cut[dst, "in"] = self._leaving[dst]
            first = next(iter(self._home[src]))
            last = next(iter(self._home[dst]))
            if first == last:
                continue
            if first in self._leaving:
                by_cut[first, "out"] = self._leaving[first]
            if last in self._leaving:
                by_cut[last, "in"] = self._leaving[last]
        return min(rates, default=Fraction(0)), by_cut

    def _way(
        self,
        src: str,
        dst: str,
        job: str,
    ) -> Iterable[tuple[str, str]]:
        """Return the directed links between two hosts on the spanning tree."""
        for node in (src, dst):
            if node not in self._hosts:
                raise PlanError(
                    f"job {job}: '{node}' is not a host of the fabric", job, code="unknown-node"
                )
            if node not in self._depth:
                raise PlanError(f"job {job}: the link of '{node}' is drained", job, code="no-route")
        first = [src]
        last = [dst]
        while first[-1] != last[-1]:
            # The deeper end goes up, so that both arrive at the node where their ways meet.
            side = last
            if self._depth[first[-1]] >= self._depth[last[-1]]:
                side = first
            above = self._up[side[-1]]
            if above is None:
                raise PlanError(
                    f"job {job}: there is no path from '{src}' to '{dst}'", job, code="no-route"
                )
            side.append(above)
        return pairwise(first + last[-2::-1])


def _spanning(
    links: Iterable[tuple[str, str]], capacity: Mapping[tuple[str, str], Fraction]
) -> tuple[dict[str, str | None], dict[str, int], set[frozenset[str]]]:
    """Return a maximum spanning forest, and the links that are the only way.

    The forest is the node above each node, and its depth.
    """
    # on first use, because it takes longer to import than most commands take to run
    import networkx

    graph: networkx.Graph[str] = networkx.Graph()
    for a, b in links:
        graph.add_edge(a, b, weight=capacity[a, b])
    forest = networkx.maximum_spanning_tree(graph)
    up: dict[str, str | None] = {}
    depth: dict[str, int] = {}
    for root in forest:
        if root not in depth:
            up[root] = None
            depth[root] = 0
            for above, below in networkx.bfs_edges(forest, root):
                up[below] = above
                depth[below] = depth[above] + 1
    bridges = {frozenset(link) for link in networkx.bridges(graph)}
    return up, depth, bridges
