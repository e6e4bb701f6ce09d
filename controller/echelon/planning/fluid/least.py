"""The least time that an iteration of a job can take on its hosts, whatever the policy and the
paths.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain, pairwise
from math import lcm
from typing import NamedTuple

from echelon.model.fabric.model import Fabric
from echelon.model.jobs import analysis
from echelon.model.jobs.graph import ComputeUnit, Ends, Flow, Job
from echelon.planning.plan import PlanError

_MOST_BITS = 256
"""The most bits of the number of ticks in a second; beyond, there are `_TICKS` and times are
rounded down.
"""
_TICKS = 10**24

_Cut = tuple[str, str]
"""A directed cut: the node or link that it is at, and which of its directions."""


class _Step(NamedTuple):
    """What a step needs at least, in ticks."""

    lasts: int
    work: Sequence[tuple[_Cut, int]]
    """The time at each cut that it crosses if it has all of its capacity."""


def least_iterations_s(jobs: Iterable[Job], fabric: Fabric) -> dict[str, Fraction]:
    """Return how many seconds an iteration of each job takes at least on this fabric, under any
    policy, by job.

    Raises `PlanError` if a worker cannot be reached, and `GraphError` for a job that cannot run.
    """
    cuts = _Cuts(fabric)
    return {job.name: _least_s(job, cuts) for job in jobs}


def _least_s(job: Job, cuts: _Cuts) -> Fraction:
    order = analysis.topological_order(job)
    crossed = {}
    for ends in {flow.ends for flow in job.flows if flow.size_bytes}:
        crossed[ends] = cuts.of(ends, job.name)
    rates = {rate for fastest, at in crossed.values() for rate in (fastest, *at.values()) if rate}
    per_s = lcm(
        *{unit.duration_s.denominator for unit in job.computes}, *(rate.numerator for rate in rates)
    )
    if per_s.bit_length() > _MOST_BITS:
        per_s = _TICKS

    def needs(step: ComputeUnit | Flow) -> _Step:
        if isinstance(step, ComputeUnit):
            return _Step(int(step.duration_s * per_s), ())
        if not step.size_bytes or not (fastest := crossed[step.ends][0]):
            return _Step(0, ())

        def ticks(rate_Bps: Fraction) -> int:  # noqa: N803
            return step.size_bytes * per_s * rate_Bps.denominator // rate_Bps.numerator

        return _Step(
            ticks(fastest), [(cut, ticks(rate)) for cut, rate in crossed[step.ends][1].items()]
        )

    steps = {step.name: needs(step) for step in chain[ComputeUnit | Flow](job.computes, job.flows)}
    before = {step.name: step.after for step in chain[ComputeUnit | Flow](job.computes, job.flows)}
    behind: dict[str, list[str]] = {name: [] for name in order}
    for name, after in before.items():
        for other in after:
            behind[other].append(name)
    return Fraction(
        sum(_least(part, before, behind, steps) for part in parts(order, before, behind)), per_s
    )


def parts(
    order: Sequence[str], before: Mapping[str, Sequence[str]], behind: Mapping[str, Sequence[str]]
) -> Iterator[Sequence[str]]:
    """Yield the steps in parts, each of which begins when the one before has ended: behind a step
    that waits for all others before it in the order, and for which all others wait."""
    last = {name for name, width in zip(order, _open(order, before), strict=True) if width == 1}
    last &= {
        name
        for name, width in zip(order[::-1], _open(order[::-1], behind), strict=True)
        if width == 1
    }
    part: list[str] = []
    for name in order:
        part.append(name)
        if name in last:
            yield part
            part = []
    if part:
        yield part


def _open(order: Sequence[str], before: Mapping[str, Sequence[str]]) -> Iterator[int]:
    """Yield for each step how many of those so far nothing waits for."""
    seen: set[str] = set()
    waiting = 0
    for name in order:
        fresh = {*before[name]} - seen
        seen |= fresh
        waiting += 1 - len(fresh)
        yield waiting


def _least(
    order: Sequence[str],
    before: Mapping[str, Sequence[str]],
    behind: Mapping[str, Sequence[str]],
    steps: Mapping[str, _Step],
) -> int:
    """Return the least time of the steps of a part."""
    heads = _heads(order, before, steps)
    tails = _heads(order[::-1], behind, steps)
    at: dict[_Cut, list[tuple[int, int, int]]] = {}
    for name in order:
        for cut, work in steps[name].work:
            at.setdefault(cut, []).append((heads[name], work, tails[name]))
    longest = max(heads[name] + steps[name].lasts + tails[name] for name in order)
    if at:
        return max(longest, *map(jackson, at.values()))
    return longest


def _heads(
    order: Sequence[str], before: Mapping[str, Sequence[str]], steps: Mapping[str, _Step]
) -> dict[str, int]:
    """Return the earliest start of each step, if all in `before` it must have finished."""
    out: dict[str, int] = {}
    for name in order:
        head = 0
        at: dict[_Cut, list[tuple[int, int]]] = {}
        for other in before[name]:
            if other not in out:  # in an earlier part
                continue
            head = max(head, out[other] + steps[other].lasts)
            for cut, work in steps[other].work:
                at.setdefault(cut, []).append((out[other], work))
        for shared in at.values():
            if len(shared) > 1:
                shared.sort()
                end = 0
                for start, work in shared:
                    end = max(end, start) + work
                head = max(head, end)
        out[name] = head
    return out


def jackson(tasks: Iterable[tuple[int, int, int]]) -> int:
    """Return when all tasks (head, work, tail) of one machine have ended with their tails, in
    Jackson's preemptive schedule: at each time, of those whose head has passed, the one of the
    longest tail."""
    coming = sorted(tasks)
    there: list[tuple[int, int]] = []
    now = ends = index = 0
    while index < len(coming) or there:
        if not there:
            now = max(now, coming[index][0])
        while index < len(coming) and coming[index][0] <= now:
            heapq.heappush(there, (-coming[index][2], coming[index][1]))
            index += 1
        tail, work = heapq.heappop(there)
        if index < len(coming):
            until = coming[index][0]
        else:
            until = now + work
        done = min(work, until - now)
        now += done
        if done < work:
            heapq.heappush(there, (tail, work - done))
        else:
            ends = max(ends, now - tail)
    return ends


class _Cuts:
    """The cuts of a fabric, with what is not drained."""

    def __init__(self, fabric: Fabric) -> None:
        self._capacity = fabric.capacity_Bps
        self._hosts = fabric.hosts
        links = [
            (c.a.node, c.b.node)
            for c in fabric.cables
            if frozenset((c.a.node, c.b.node)) not in fabric.drained
        ]
        self._leaving: dict[str, Fraction] = {}
        """What each host, and each switch with its hosts, can send to other nodes, and receive of
        them.
        """
        self._home: dict[str, set[str]] = {host: set() for host in fabric.hosts}
        """The neighbours of each host."""
        self._up, self._depth, self._single = _spanning(links, self._capacity)
        for one, other in links:
            for node, neighbour in ((one, other), (other, one)):
                if node in self._home:
                    self._home[node].add(neighbour)
                if neighbour not in self._home:
                    self._leaving[node] = (
                        self._leaving.get(node, Fraction(0)) + self._capacity[node, neighbour]
                    )
        for homes in self._home.values():
            if len(homes) > 1:
                for switch in homes:
                    self._leaving.pop(switch, None)

    def of(self, ends: Ends, job: str) -> tuple[Fraction, dict[_Cut, Fraction]]:
        """Return the rate of the widest path of a connection (0: it has no links), and the rate of
        each cut that it crosses. Raises `PlanError`."""
        if len(ends) > 2 and ends[0] == ends[-1]:
            senders = ends[:-1]
        else:
            senders = ends[:1]
        rates: list[Fraction] = []
        at: dict[_Cut, Fraction] = {}
        for src, dst in ((src, dst) for src in senders for dst in ends[1:] if src != dst):
            for link in self._way(src, dst, job):
                rates.append(self._capacity[link])
                if frozenset(link) in self._single:
                    at[link] = rates[-1]
            at[src, "out"], at[dst, "in"] = self._leaving[src], self._leaving[dst]
            out, into = (next(iter(self._home[host])) for host in (src, dst))
            if out != into:
                at |= {
                    (node, side): self._leaving[node]
                    for node, side in ((out, "out"), (into, "in"))
                    if node in self._leaving
                }
        return min(rates, default=Fraction(0)), at

    def _way(self, src: str, dst: str, job: str) -> Iterable[tuple[str, str]]:
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
            if self._depth[first[-1]] >= self._depth[last[-1]]:
                side = first
            else:
                side = last
            if (above := self._up[side[-1]]) is None:
                raise PlanError(
                    f"job {job}: there is no path from '{src}' to '{dst}'", job, code="no-route"
                )
            side.append(above)
        nodes = first + last[-2::-1]
        return pairwise(nodes)


def _spanning(
    links: Iterable[tuple[str, str]], capacity: Mapping[tuple[str, str], Fraction]
) -> tuple[dict[str, str | None], dict[str, int], set[frozenset[str]]]:
    """Return a maximum spanning forest, as the node above each and its depth, and the links that
    are the only way.
    """
    # on first use, because it takes longer to import than most commands take to run
    import networkx

    graph: networkx.Graph[str] = networkx.Graph()
    graph.add_edges_from((a, b, {"weight": capacity[a, b]}) for a, b in links)
    forest = networkx.maximum_spanning_tree(graph)
    up: dict[str, str | None] = {}
    depth: dict[str, int] = {}
    for root in forest:
        if root not in depth:
            up[root] = None
            depth[root] = 0
            for above, below in networkx.bfs_edges(forest, root):
                up[below], depth[below] = above, depth[above] + 1
    return up, depth, {frozenset(link) for link in networkx.bridges(graph)}
