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

Nodes store packets before they forward them. So a flow comes to a cut when its first packet has
passed all links before, and ends when its last packet has passed those behind; links have delays,
too. What counts is the least over all paths.

Other jobs, queues, windows and headers only take time. The bound need not be attained.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise, product
from math import lcm
from typing import NamedTuple

from echelon.model.fabric.model import Fabric, NodePair
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
_Cut = NodePair
"""A directed cut: the node or link that it is at, and which of its directions."""


class Passing(NamedTuple):
    """The time that packets are on their way, beside that on one link, in seconds."""

    path_s: Fraction
    """The time on the whole path, without that on the slowest link."""
    around_s: Mapping[_Cut, tuple[Fraction, Fraction]]
    """The times before and behind each cut."""


_AT_ONCE = Passing(Fraction(0), {})


class _Crossing(NamedTuple):
    """What a connection crosses."""

    fastest: Fraction
    """The rate of the widest path (0: it has no links)."""
    by_cut: Mapping[_Cut, Fraction]
    """The rate of each cut."""
    passing: Passing = _AT_ONCE
    """What a flow of at least a packet takes longer than on its slowest link, and at its cuts."""
    short: Passing = _AT_ONCE
    """The same for a packet of no length."""


class _Work(NamedTuple):
    """The work of a step at a cut, in ticks."""

    lasts: int
    """The time if it has all of the cut's capacity."""
    before: int
    """The time from the start of the step to the beginning of the work, at least."""
    after: int
    """The time from the end of the work to the end of the step, at least."""


class _Step(NamedTuple):
    """The least time and work of a step, in ticks."""

    lasts: int
    work: Sequence[tuple[_Cut, _Work]]


def least_iterations_s(
    jobs: Iterable[Job],
    fabric: Fabric,
    packet_bytes: int | None = None,
) -> dict[str, Fraction]:
    """Return the seconds that an iteration of each job takes at least, under any policy, by job.

    Flows are sent in packets of this length; None: they flow without delay. Raises `PlanError` if a
    worker cannot be reached, and `GraphError` for a job that cannot run.
    """
    cuts = _Cuts(fabric, packet_bytes)
    by_shape: dict[RunShape, Fraction] = {}
    by_job = {}
    for job in jobs:
        crossed = _crossed(job, cuts)
        shape = _shape(job, crossed)
        if shape not in by_shape:
            by_shape[shape] = _least_s(job, crossed, packet_bytes or 0)
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
    for ends, crossing in crossed.items():
        times: list[tuple[Hashable, Fraction]] = []
        for name, passing in (("passing", crossing.passing), ("short", crossing.short)):
            times.append((name, passing.path_s))
            for cut, (before_s, after_s) in passing.around_s.items():
                times.append(((name, cut, "before"), before_s))
                times.append(((name, cut, "after"), after_s))
        rates[ends] = (("fastest", crossing.fastest), *crossing.by_cut.items(), *times)
    return shape_of(job, ways, rates)


def _least_s(
    job: Job,
    crossed: Mapping[Ends, _Crossing],
    packet_bytes: int,
) -> Fraction:
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
            equal[key] = _flow_step(flow, crossed, per_s, packet_bytes)
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
    for crossing in crossed.values():
        for rate in (crossing.fastest, *crossing.by_cut.values()):
            if rate:
                factors.add(rate.numerator)
        for passing in (crossing.passing, crossing.short):
            factors.add(passing.path_s.denominator)
            for times_s in passing.around_s.values():
                factors.update(time_s.denominator for time_s in times_s)
    per_s = lcm(*factors)
    if per_s.bit_length() > _MOST_BITS:
        return _TICKS
    return per_s


def _flow_step(
    flow: Flow,
    crossed: Mapping[Ends, _Crossing],
    per_s: int,
    packet_bytes: int,
) -> _Step:
    if not flow.size_bytes:
        return _Step(0, ())
    crossing = crossed[flow.ends]
    if not crossing.fastest:
        return _Step(0, ())
    passing = crossing.passing
    if flow.size_bytes < packet_bytes:
        passing = crossing.short

    def ticks(rate_Bps: Fraction) -> int:  # noqa: N803
        return flow.size_bytes * per_s * rate_Bps.denominator // rate_Bps.numerator

    work = []
    for cut, rate in crossing.by_cut.items():
        before_s, after_s = passing.around_s.get(cut, (0, 0))
        before = int(before_s * per_s)
        after = int(after_s * per_s)
        work.append((cut, _Work(ticks(rate), before, after)))
    lasts = ticks(crossing.fastest) + int(passing.path_s * per_s)
    return _Step(lasts, work)


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
    tails = _heads(order[::-1], successors, steps, backwards=True)
    longest = 0
    tasks: dict[_Cut, list[tuple[int, int, int]]] = {}
    for name in order:
        step = steps[name]
        head = heads[name]
        tail = tails[name]
        longest = max(longest, head + step.lasts + tail)
        for cut, work in step.work:
            task = head + work.before, work.lasts, work.after + tail
            tasks.setdefault(cut, []).append(task)
    return max(longest, *map(jackson, tasks.values()), 0)


def _heads(
    order: Sequence[str],
    predecessors: _Adjacent,
    steps: Mapping[str, _Step],
    *,
    backwards: bool = False,
) -> dict[str, int]:
    """Return the earliest start of each step, if all its predecessors must have finished.

    Backwards in time, what is behind a cut comes before it.
    """
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
        least_after: dict[_Cut, int] = {}
        for other in before:
            if other not in out:  # in an earlier part
                continue
            start = out[other]
            step = steps[other]
            head = max(head, start + step.lasts)
            for cut, work in step.work:
                earlier, later = work.before, work.after
                if backwards:
                    earlier, later = later, earlier
                tasks.setdefault(cut, []).append((start + earlier, work.lasts))
                least_after[cut] = min(later, least_after.get(cut, later))
        for cut, shared in tasks.items():
            if len(shared) > 1:
                head = max(head, _end(shared) + least_after[cut])
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

    def __init__(self, fabric: Fabric, packet_bytes: int | None) -> None:
        self._passing: list[_PassingTimes] = []
        """Those of a packet, and of one of no length; none if flows have no packets."""
        if packet_bytes is not None:
            for length_bytes in (packet_bytes, 0):
                times = _PassingTimes(fabric, length_bytes)
                self._passing.append(times)
        self._capacity = fabric.capacity_Bps
        self._hosts = fabric.hosts
        links = tuple([nodes for nodes, _ in _in_use(fabric)])
        self._leaving: dict[str, Fraction] = {}
        """The rates at which each host, and each switch with its hosts, can send and receive."""
        self._home: dict[str, set[str]] = {}
        """The neighbours of each host."""
        for host in fabric.hosts:
            self._home[host] = set()
        widths = tuple([self._capacity[nodes] for nodes in links])
        self._up, self._depth, bridges = _spanning(links, widths)
        self._single = {*bridges}
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
        fastest = min(rates, default=Fraction(0))
        if len(ends) > 2 or not rates:
            return _Crossing(fastest, by_cut)
        src, dst = ends
        passing = [times.between(src, dst, by_cut) for times in self._passing]
        return _Crossing(fastest, by_cut, *passing)

    def _way(
        self,
        src: str,
        dst: str,
        job: str,
    ) -> Iterable[NodePair]:
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


class _LeastTimes(NamedTuple):
    """The least times from a node to all others, by node."""

    on_all: dict[str, int]
    """The times on all links of a path."""
    but_one: dict[str, int]
    """The times if the packet takes none on one link: it pays most to leave out the slowest."""


class _PassingTimes:
    """How much later a packet arrives than it has left its source, on the fastest path.

    Times are whole ticks.
    """

    def __init__(self, fabric: Fabric, packet_bytes: int) -> None:
        links = []
        denominators = set()
        for (a, b), delay_s in _in_use(fabric):
            for node, neighbour in ((a, b), (b, a)):
                packet_s = packet_bytes / fabric.capacity_Bps[node, neighbour]
                links.append((node, neighbour, delay_s, packet_s))
                denominators.add(delay_s.denominator)
                denominators.add(packet_s.denominator)
        self._per_s = lcm(*denominators)
        self._links: dict[str, list[tuple[str, int, int]]] = {}
        """The links of each node: the next node, the delay, and the time of a packet."""
        for node, neighbour, delay_s, packet_s in links:
            delay = int(delay_s * self._per_s)
            packet = int(packet_s * self._per_s)
            leaving = self._links.setdefault(node, [])
            leaving.append((neighbour, delay, packet))
        self._hosts = fabric.hosts
        self._by_source: dict[str, _LeastTimes] = {}
        self._to_host: dict[str, dict[str, int]] = {}

    def between(
        self,
        src: str,
        dst: str,
        cuts: Iterable[_Cut],
    ) -> Passing:
        """Return what a packet of a flow takes, in all and around the flow's cuts."""
        to_src = self._to(src)
        to_dst = self._to(dst)
        around_s = {}
        for cut in cuts:
            before = []
            after = []
            for a, b, delay in self._links_of(cut, src, dst):
                before.append(to_src[a])
                after.append(delay + to_dst[b])
            before_s = self._seconds(min(before))
            after_s = self._seconds(min(after))
            around_s[cut] = before_s, after_s
        path = self._all_but_slowest(src, dst)
        return Passing(self._seconds(path), around_s)

    def _links_of(
        self,
        cut: _Cut,
        src: str,
        dst: str,
    ) -> list[tuple[str, str, int]]:
        """Return the links of a cut, in the direction of a flow, and their delays."""
        node, side = cut
        links = []
        for neighbour, delay, _ in self._links[node]:
            if side == "in":
                if neighbour != dst:
                    links.append((neighbour, node, delay))
            elif side == "out":
                if neighbour != src:
                    links.append((node, neighbour, delay))
            elif neighbour == side:
                links.append((node, neighbour, delay))
        return links

    def _seconds(self, ticks: int) -> Fraction:
        return Fraction(ticks, self._per_s)

    def _all_but_slowest(self, src: str, dst: str) -> int:
        """Return the least time on all links but the slowest."""
        links = self._links[src]
        if len(links) > 1:
            return self._from(src).but_one[dst]
        # Hosts of one switch share what is behind it.
        [(switch, delay, packet)] = links
        times = self._from(switch)
        slowest_later = packet + times.but_one[dst]
        slowest_first = times.on_all[dst]
        return delay + min(slowest_later, slowest_first)

    def _to(self, host: str) -> Mapping[str, int]:
        """Return the least time from each node to a host."""
        if host not in self._to_host:
            self._to_host[host] = self._times_to(host)
        return self._to_host[host]

    def _times_to(self, host: str) -> dict[str, int]:
        # Links are as fast in both directions, so the way back takes as long.
        links = self._links[host]
        if len(links) > 1:
            return self._from(host).on_all
        [(switch, delay, packet)] = links
        times = {}
        for node, time in self._from(switch).on_all.items():
            times[node] = time + delay + packet
        times[host] = 0
        return times

    def _from(self, source: str) -> _LeastTimes:
        if source not in self._by_source:
            self._by_source[source] = self._least(source)
        return self._by_source[source]

    def _least(self, source: str) -> _LeastTimes:
        """Return the least times to all nodes, by E. W. Dijkstra's algorithm."""
        times = _LeastTimes({}, {})
        ways = [(0, source, 0), (0, source, 1)]
        """A heap: the time, the node, and the number of links that are left out."""
        while ways:
            time, node, left_out = heapq.heappop(ways)
            if node in times[left_out]:
                continue
            times[left_out][node] = time
            if node in self._hosts and node != source:
                continue
            for neighbour, delay, packet in self._links.get(node, ()):
                arrival = time + delay
                heapq.heappush(ways, (arrival + packet, neighbour, left_out))
                if packet and not left_out:
                    heapq.heappush(ways, (arrival, neighbour, 1))
        return times


def _in_use(fabric: Fabric) -> Iterator[tuple[NodePair, Fraction]]:
    """Yield the ends of each cable that is not drained, and its delay."""
    for cable in fabric.cables:
        nodes = cable.a.node, cable.b.node
        if frozenset(nodes) not in fabric.drained:
            yield nodes, Fraction(cable.delay_s)


# Each dry run needs it, and networkx's graphs are rings of objects that wait for the collector.
@lru_cache(maxsize=4)
def _spanning(
    links: tuple[NodePair, ...],
    widths: tuple[Fraction, ...],
) -> tuple[Mapping[str, str | None], Mapping[str, int], frozenset[frozenset[str]]]:
    """Return a maximum spanning forest, and the links that are the only way.

    The forest is the node above each node, and its depth. `widths` are the links' capacities.
    """
    # on first use, because it takes longer to import than most commands take to run
    import networkx

    graph: networkx.Graph[str] = networkx.Graph()
    for (a, b), width in zip(links, widths, strict=True):
        graph.add_edge(a, b, weight=width)
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
    bridges = frozenset(map(frozenset, networkx.bridges(graph)))
    return up, depth, bridges
