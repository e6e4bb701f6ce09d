"""Arrangement functions that follow from a graph: which flows are consumed when, by the computing
between them.

**Ideal finish times.** An EchelonFlow's ideal finish times assume an infinitely fast network
(EchelonFlow, Pan et al., HotNets '22, section 3). A send or collective is *consumed* when a rank
starts to compute on what it has brought. The head flow's ideal finish time is its start, so that of
a later flow is as long after it as there is computing between the two: the longest path through the
graph, counting compute times only, from the head to the first that consumes the later flow. What
nobody computes on is consumed when the iteration ends.

**EchelonFlows.** Sends from one rank to another, and collectives of one kind in one group of ranks,
form a family. In the order in which they are consumed, a family is cut into EchelonFlows

* before each operation that starts only after the one before it has been consumed: the two are
  never under way together, and there is nothing to arrange;
* before each that is not consumed on a path from the head.

The published functions are special cases. The activations of a pipeline's boundary are sends from
one rank to another; the consumer's own work is all that lies between them, whatever else computes
meanwhile (eq. 6). All-reduces of gradients are consumed when the iteration ends: a coflow (eq. 5).
The all-gathers of FSDP are one family, with a layer's forward or backward pass between them (eq.
7). The all-reduces of tensor parallelism are coflows of their own, since each waits for computing
on the one before. For 1F1B with equal stages the longest path goes through the stages that follow,
and is the pace that `echelon.model.jobs.pipelines` derives from the schedule, except where a
consumer has done all its forward passes before the first gradient: then only backward passes lie
between gradients.

One difference to equation 7 as printed: between the last all-gather of the forward pass and the
first of the backward pass it counts a backward time. What is computed between them is the forward
pass of the last layer, which we count.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from fractions import Fraction

from echelon.model.jobs.graph import CollectiveStep, ComputeUnit, EchelonFlow, Flow, spend

Node = ComputeUnit | Flow | CollectiveStep
_Begin = tuple[Mapping[int, int], int]
"""The begin of a node, counted from each head that precedes it: a time by head, and a delay to add
to all of them.
"""


def arrange(
    nodes: Sequence[Node], flows_of: Mapping[str, Sequence[str]]
) -> tuple[EchelonFlow, ...]:
    """Return the EchelonFlows of a graph, each with the name of its first operation.

    `nodes` are in an order in which each follows what it waits for. `flows_of` gives the flows of
    each send and collective, none if it stays on one host.
    """
    graph = _Graph(nodes)
    families: dict[Hashable, list[int]] = {}
    for at, node in enumerate(nodes):
        if not isinstance(node, ComputeUnit) and flows_of[node.name]:
            families.setdefault(_family(node), []).append(at)
    runs: list[list[int]] = []
    for family in families.values():
        family.sort(key=lambda at: (graph.consumed[at], at))
        runs += graph.overlapping(family)
    found = sorted(graph.chains(runs), key=lambda chain: chain[0][0])
    return tuple(_echelonflow(nodes, flows_of, *chain) for chain in found)


def _family(node: Flow | CollectiveStep) -> Hashable:
    if isinstance(node, Flow):
        return node.src, node.dst
    return node.operation, node.group


def _echelonflow(
    nodes: Sequence[Node],
    flows_of: Mapping[str, Sequence[str]],
    chain: list[int],
    offsets_s: list[Fraction],
) -> EchelonFlow:
    names = [
        (flow, offset_s)
        for at, offset_s in zip(chain, offsets_s, strict=True)
        for flow in flows_of[nodes[at].name]
    ]
    return EchelonFlow(
        nodes[chain[0]].name, tuple(name for name, _ in names), tuple(offset for _, offset in names)
    )


class _Graph:
    """The nodes by their place in the order, with times in whole units that divide all compute
    times.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        computes = [node.duration_s if isinstance(node, ComputeUnit) else None for node in nodes]
        self._units = math.lcm(*(s.denominator for s in computes if s is not None))
        self._lasts = [
            0 if s is None else s.numerator * (self._units // s.denominator) for s in computes
        ]
        self._computes = [s is not None for s in computes]
        place = {node.name: at for at, node in enumerate(nodes)}
        self._before = [[place[name] for name in node.after] for node in nodes]
        self._after: list[list[int]] = [[] for _ in nodes]
        start = [0] * len(nodes)
        for at, before in enumerate(self._before):
            for other in before:
                self._after[other].append(at)
                start[at] = max(start[at], start[other] + self._lasts[other])
        self.consumed = [math.inf] * len(nodes)
        """The time at which the first rank uses each node's result, on an infinitely fast network;
        infinity if none does.
        """
        self._consumers_end = [0] * len(nodes)
        """The last place of those that consume it, or the end."""
        for at in reversed(range(len(nodes))):
            for follower in self._after[at]:
                own = self._computes[follower]
                when, where = (start[follower], follower) if own else self._of(follower)
                self.consumed[at] = min(self.consumed[at], when)
                self._consumers_end[at] = max(self._consumers_end[at], where)
            if not self._after[at]:
                self._consumers_end[at] = len(nodes)

    def _of(self, at: int) -> tuple[float, int]:
        return self.consumed[at], self._consumers_end[at]

    def overlapping(self, family: Sequence[int]) -> list[list[int]]:
        """Return the operations in runs. Each operation of a run may start before the one before it
        has been consumed."""
        runs: list[list[int]] = []
        for at in family:
            if runs and not self._waits_for_consumer(at, runs[-1][-1]):
                runs[-1].append(at)
            else:
                runs.append([at])
        return runs

    def _waits_for_consumer(self, late: int, early: int) -> bool:
        """Return whether there is a path from `early` to `late` that computes."""
        stack = [(late, False)]
        seen = {(late, False)}
        while stack:
            at, computed = stack.pop()
            spend(len(self._before[at]))
            if at == early and computed:
                return True
            for other in self._before[at]:
                step = other, computed or self._computes[other]
                if other >= early and step not in seen:
                    seen.add(step)
                    stack.append(step)
        return False

    def chains(self, runs: list[list[int]]) -> Iterator[tuple[list[int], list[Fraction]]]:
        """Yield the operations of each run divided by the head on whose way they are consumed.

        Each comes with its offset from the head, in seconds.
        """
        while runs:
            left = []
            for run, offsets in zip(runs, self._offsets(runs), strict=True):
                chain = sorted(offsets, key=lambda at: (offsets[at], self.consumed[at], at))
                yield chain, [Fraction(offsets[at], self._units) for at in chain]
                if len(offsets) < len(run):
                    left.append([at for at in run if at not in offsets])
            runs = left

    def _offsets(self, runs: Sequence[Sequence[int]]) -> Iterator[dict[int, int]]:
        """Yield how much is computed between the consumption of a run's first and that of each that
        follows from it.
        """
        heads = {
            run[0]: max(self._consumers_end[at] for at in run)
            for run in runs
            if self.consumed[run[0]] != math.inf
        }
        begins, ends = self._longest_from(heads)
        for run in runs:
            head = run[0]
            if head not in heads:
                yield dict.fromkeys(run, 0)
                continue
            known: dict[int, int | None] = {}
            offsets = {at: self._consumed_after(at, head, begins, ends[head], known) for at in run}
            yield {at: offset for at, offset in offsets.items() if offset is not None}

    def _longest_from(self, heads: Mapping[int, int]) -> tuple[list[_Begin], dict[int, int]]:
        """Return when each node begins if a head begins at 0, and when the last node ends, for each
        head.

        `heads` gives the last place up to which each head matters. Ends are for those that matter
        to the end.
        """
        begins: list[_Begin] = []
        ends = dict.fromkeys(heads, 0)
        for at, before in enumerate(self._before):
            # Many nodes follow what the same heads precede: these share one mapping, and differ by
            # how late they are.
            spend(len(before))
            parts: dict[int, _Begin] = {}
            for other in before:
                of, late = begins[other]
                late += self._lasts[other]
                if of and late >= parts.get(id(of), (of, 0))[1]:
                    parts[id(of)] = of, late
            if len(parts) == 1 and at not in heads:
                (begin,) = parts.values()
            else:
                joined: dict[int, int] = {}
                for of, late in parts.values():
                    spend(len(of))
                    for head, begins_at in of.items():
                        if heads[head] >= at and begins_at + late >= joined.get(head, 0):
                            joined[head] = begins_at + late
                if at in heads:
                    joined[at] = 0
                begin = joined, 0
            begins.append(begin)
            if not self._after[at]:
                for head, begins_at in begin[0].items():
                    ends[head] = max(ends[head], begins_at + begin[1] + self._lasts[at])
        return begins, ends

    def _consumed_after(
        self, at: int, head: int, begins: Sequence[_Begin], end: int, known: dict[int, int | None]
    ) -> int | None:
        """Return when the first consumer of `at` begins that follows from `head`; `end` if none
        computes on it.
        """
        stack = [at]
        while stack:
            top = stack[-1]
            spend(2 * len(self._after[top]))
            unknown = [
                other
                for other in self._after[top]
                if not self._computes[other] and other not in known
            ]
            if unknown:
                stack += unknown
                continue
            stack.pop()
            times = [
                _begin_of(head, begins[other]) if self._computes[other] else known[other]
                for other in self._after[top]
            ]
            known[top] = min(
                (time for time in times if time is not None), default=None if times else end
            )
        return known[at]


def _begin_of(head: int, begin: _Begin) -> int | None:
    of, late = begin
    return of[head] + late if head in of else None
