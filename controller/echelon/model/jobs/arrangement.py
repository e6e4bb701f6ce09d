"""Arrangement functions that follow from a graph: the times at which flows are consumed.

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
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from echelon.model.jobs.graph import CollectiveStep, ComputeUnit, EchelonFlow, Flow, spend

Node = ComputeUnit | Flow | CollectiveStep
_Begin = tuple[Mapping[int, int], int]
"""The begin of a node, counted from each head before it: times by head, and a delay to add."""
_Chain = tuple[list[int], list[Fraction]]
"""The operations of an EchelonFlow by their indexes, and the offset of each in seconds."""


def arrange(
    nodes: Sequence[Node], flows_by_name: Mapping[str, Sequence[str]]
) -> tuple[EchelonFlow, ...]:
    """Return the EchelonFlows of a graph, each with the name of its first operation.

    `nodes` are in an order in which each follows what it waits for. `flows_by_name` gives the flows
    of each send and collective, none if it stays on one host.
    """
    graph = _Graph(nodes)
    families: dict[Hashable, list[int]] = {}
    for index, node in enumerate(nodes):
        if not isinstance(node, ComputeUnit) and flows_by_name[node.name]:
            families.setdefault(_family(node), []).append(index)
    runs: list[list[int]] = []
    for family in families.values():
        family.sort(key=lambda index: (graph.consumed[index], index))
        runs += graph.overlapping(family)
    chains = sorted(graph.chains(runs), key=lambda chain: chain[0][0])
    return tuple(_echelonflow(nodes, flows_by_name, chain) for chain in chains)


def _family(node: Flow | CollectiveStep) -> Hashable:
    if isinstance(node, Flow):
        return node.src, node.dst
    return node.operation, node.group


def _echelonflow(
    nodes: Sequence[Node],
    flows_by_name: Mapping[str, Sequence[str]],
    chain: _Chain,
) -> EchelonFlow:
    indexes, operation_offsets_s = chain
    flows: list[str] = []
    offsets_s: list[Fraction] = []
    for index, offset_s in zip(indexes, operation_offsets_s, strict=True):
        operation_flows = flows_by_name[nodes[index].name]
        flows += operation_flows
        offsets_s += [offset_s] * len(operation_flows)
    return EchelonFlow(nodes[indexes[0]].name, tuple(flows), tuple(offsets_s))


def _duration_s(node: Node) -> Fraction | int:
    # The integer 0, because graphs have many flows, and it is multiplied faster than a fraction.
    if isinstance(node, ComputeUnit):
        return node.duration_s
    return 0


class _Graph:
    """The nodes by their index in the order.

    Times are in whole units that divide all compute times.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._computes = [isinstance(node, ComputeUnit) for node in nodes]
        durations_s = [_duration_s(node) for node in nodes]
        self._units = math.lcm(*(duration_s.denominator for duration_s in durations_s))
        self._durations = [int(duration_s * self._units) for duration_s in durations_s]
        indexes = {node.name: index for index, node in enumerate(nodes)}
        self._before = [[indexes[name] for name in node.after] for node in nodes]
        self._after: list[list[int]] = [[] for _ in nodes]
        for index, before in enumerate(self._before):
            for earlier in before:
                self._after[earlier].append(index)
        self.consumed = [math.inf] * len(nodes)
        """The time at which the first rank uses each node's result; infinity if none does.

        The network is infinitely fast.
        """
        self._consumers_end = [0] * len(nodes)
        """The last index of those that consume it, or the end."""
        self._set_consumers(self._starts())

    def _starts(self) -> list[int]:
        """Return when each node starts on an infinitely fast network."""
        starts: list[int] = []
        for before in self._before:
            ends = [starts[earlier] + self._durations[earlier] for earlier in before]
            starts.append(max(ends, default=0))
        return starts

    def _set_consumers(self, starts: Sequence[int]) -> None:
        count = len(starts)
        for index in reversed(range(count)):
            followers = self._after[index]
            if not followers:
                self._consumers_end[index] = count
            for follower in followers:
                if self._computes[follower]:
                    consumed = float(starts[follower])
                    consumers_end = follower
                else:
                    # Who consumes what a send passes on consumes this, too.
                    consumed = self.consumed[follower]
                    consumers_end = self._consumers_end[follower]
                self.consumed[index] = min(self.consumed[index], consumed)
                self._consumers_end[index] = max(self._consumers_end[index], consumers_end)

    def overlapping(self, family: Sequence[int]) -> list[list[int]]:
        """Return the operations in runs.

        Each operation of a run may start before the one before it has been consumed.
        """
        runs: list[list[int]] = []
        for index in family:
            if runs and not self._waits_for_consumer(index, runs[-1][-1]):
                runs[-1].append(index)
            else:
                runs.append([index])
        return runs

    def _waits_for_consumer(self, late: int, early: int) -> bool:
        """Return whether there is a path from `early` to `late` that computes."""
        stack = [(late, False)]
        seen = {(late, False)}
        while stack:
            index, computed = stack.pop()
            spend(len(self._before[index]))
            if index == early and computed:
                return True
            for earlier in self._before[index]:
                step = earlier, computed or self._computes[earlier]
                if earlier >= early and step not in seen:
                    seen.add(step)
                    stack.append(step)
        return False

    def chains(self, runs: list[list[int]]) -> Iterator[_Chain]:
        """Yield the operations of each run divided by the head on whose way they are consumed.

        Each comes with its offset from the head, in seconds.
        """
        while runs:
            left = []
            for run, offsets in zip(runs, self._offsets(runs), strict=True):
                ranks = []
                for index, offset in offsets.items():
                    ranks.append((offset, self.consumed[index], index))
                chain = [index for *_, index in sorted(ranks)]
                yield chain, [Fraction(offsets[index], self._units) for index in chain]
                if len(offsets) < len(run):
                    left.append([index for index in run if index not in offsets])
            runs = left

    def _offsets(self, runs: Sequence[Sequence[int]]) -> Iterator[dict[int, int]]:
        """Yield the offsets of each run's operations from its first, the head.

        An offset is how much is computed between the consumption of the head and that of an
        operation; operations that do not follow from the head have none.
        """
        heads = {}
        for run in runs:
            if self.consumed[run[0]] != math.inf:
                heads[run[0]] = max(self._consumers_end[index] for index in run)
        begins, ends = self._longest_from(heads)
        for run in runs:
            head = run[0]
            if head not in heads:
                yield dict.fromkeys(run, 0)
                continue
            consumed: dict[int, int | None] = {}
            offsets = {}
            for index in run:
                offset = self._consumed_after(index, head, begins, ends[head], consumed)
                if offset is not None:
                    offsets[index] = offset
            yield offsets

    def _longest_from(self, heads: Mapping[int, int]) -> tuple[list[_Begin], dict[int, int]]:
        """Return when each node begins if a head begins at 0, and when the last node ends.

        `heads` gives the last index up to which each head matters. Ends are by head, for those that
        matter to the end.
        """
        begins: list[_Begin] = []
        ends = dict.fromkeys(heads, 0)
        for index, before in enumerate(self._before):
            spend(len(before))
            parts = self._delays(before, begins)
            if len(parts) == 1 and index not in heads:
                (begin,) = parts
            else:
                begin = _joined(index, parts, heads), 0
            begins.append(begin)
            if not self._after[index]:
                times, delay = begin
                end = delay + self._durations[index]
                for head, time in times.items():
                    ends[head] = max(ends[head], time + end)
        return begins, ends

    def _delays(self, before: Sequence[int], begins: Sequence[_Begin]) -> Collection[_Begin]:
        """Return the mappings of the nodes before a node, each with the longest delay.

        Many nodes follow what the same heads precede: these share one mapping, and differ by how
        late they are.
        """
        parts: dict[int, _Begin] = {}
        for earlier in before:
            times, delay = begins[earlier]
            delay += self._durations[earlier]
            part = parts.get(id(times))
            if times and (part is None or delay >= part[1]):
                parts[id(times)] = times, delay
        return parts.values()

    def _consumed_after(
        self,
        index: int,
        head: int,
        begins: Sequence[_Begin],
        end: int,
        consumed: dict[int, int | None],
    ) -> int | None:
        """Return when the first consumer of a node begins that follows from `head`.

        It is `end` if none computes on it. `consumed` remembers the results for other nodes.
        """
        # A stack instead of recursion: chains of sends may be long.
        stack = [index]
        while stack:
            top = stack[-1]
            followers = self._after[top]
            spend(2 * len(followers))
            sends = [follower for follower in followers if not self._computes[follower]]
            unknown = [send for send in sends if send not in consumed]
            if unknown:
                stack += unknown
                continue
            stack.pop()
            times: list[int] = []
            for follower in followers:
                if self._computes[follower]:
                    time = _begin_after(head, begins[follower])
                else:
                    time = consumed[follower]
                if time is not None:
                    times.append(time)
            consumed[top] = min(times, default=None if followers else end)
        return consumed[index]


def _joined(
    index: int,
    parts: Iterable[_Begin],
    heads: Mapping[int, int],
) -> dict[int, int]:
    """Return when a node begins after each head that precedes it and still matters."""
    joined: dict[int, int] = {}
    for times, delay in parts:
        spend(len(times))
        for head, time in times.items():
            if heads[head] >= index and time + delay >= joined.get(head, 0):
                joined[head] = time + delay
    if index in heads:
        joined[index] = 0
    return joined


def _begin_after(head: int, begin: _Begin) -> int | None:
    times, delay = begin
    if head in times:
        return times[head] + delay
    return None
