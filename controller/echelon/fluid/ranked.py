"""Flows that go first by rank: each in turn takes all that earlier ones leave on its path.

This is `echelon.policies.filling.fill_in_order`, kept up to date: when flows begin or end, it only looks at flows whose
rate may change.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Sequence

from echelon.fluid.ticks import Exact

Rank = tuple[Exact, int]
"""A rank: the smaller goes first, and no two flows have the same."""


class RankedLink:
    """A link and the flows that are under way over it."""

    __slots__ = ("capacity", "change", "served", "under_way")

    def __init__(self, capacity: Exact) -> None:
        self.capacity = capacity
        self.under_way: list[tuple[Rank, RankedFlow]] = []
        """The flows in order of rank."""
        self.served: list[tuple[Rank, RankedFlow]] = []
        """The flows among them that have a rate."""
        self.change: Exact = 0
        """The rate that the flows looked at so far have gained on this link since a flow began or ended."""

    def left_for(self, rank: Rank) -> Exact:
        """Return the rate that flows of higher rank leave."""
        left = self.capacity
        for other, flow in self.served:
            if other >= rank:
                break
            left -= flow.rate
        return left

    def next_concerned(self, rank: Rank) -> tuple[Rank, RankedFlow] | None:
        """Return the first flow after `rank` to which the change may matter.

        If less is left, that is a flow that has a rate to lose; if more is left, any flow.
        """
        if not self.change:
            return None
        flows = self.under_way if self.change < 0 else self.served
        at = bisect_left(flows, (rank,))
        if at < len(flows) and flows[at][0] == rank:
            at += 1
        return flows[at] if at < len(flows) else None


class RankedFlow:
    """A flow under way."""

    __slots__ = ("links", "name", "rank", "rate", "remaining", "since", "version")

    def __init__(self, name: str, rank: Rank, links: Sequence[RankedLink], size: Exact) -> None:
        self.name = name
        self.rank = rank
        self.links = links
        self.rate: Exact = 0
        self.remaining = size
        """The value at `since`, when the flow got its present rate."""
        self.since: Exact = 0
        self.version = 0
        """Number of rates that the flow has had: events expected of an earlier one are outdated."""


class RankedNetwork:
    """A network in which flows begin and end; `set_rates` then gives every flow the rate of its rank."""

    def __init__(self) -> None:
        self._begun: list[RankedFlow] = []
        self._ended: list[RankedFlow] = []

    def begin(self, flow: RankedFlow) -> None:
        self._begun.append(flow)

    def end(self, flow: RankedFlow) -> None:
        self._ended.append(flow)

    def set_rates(self) -> list[tuple[RankedFlow, Exact]]:
        """Return the flows whose rate changed, each with its former rate, in order of rank."""
        touched: set[RankedLink] = set()
        for flow in self._ended:
            for link in flow.links:
                touched.add(link)
                _remove(link.under_way, flow)
                if flow.rate:
                    _remove(link.served, flow)
                    link.change -= flow.rate
        for flow in self._begun:
            for link in flow.links:
                insort(link.under_way, (flow.rank, flow))
        concerned = [(flow.rank, flow) for flow in self._begun]
        for flow in self._ended:
            concerned += [found for link in flow.links if (found := link.next_concerned(flow.rank))]
        self._begun, self._ended = [], []
        heapq.heapify(concerned)
        out: list[tuple[RankedFlow, Exact]] = []
        last: Rank | None = None
        while concerned:
            rank, flow = heapq.heappop(concerned)
            if rank == last:
                continue
            last = rank
            before = flow.rate
            rate = min(link.left_for(rank) for link in flow.links)
            if rate != before:
                out.append((flow, before))
                flow.rate = rate
                for link in flow.links:
                    touched.add(link)
                    link.change += rate - before
                    if not before:
                        insort(link.served, (rank, flow))
                    elif not rate:
                        _remove(link.served, flow)
            for link in flow.links:
                found = link.next_concerned(rank)
                if found:
                    heapq.heappush(concerned, found)
        for link in touched:
            link.change = 0
        return out


def _remove(flows: list[tuple[Rank, RankedFlow]], flow: RankedFlow) -> None:
    at = bisect_left(flows, (flow.rank,))
    assert flows[at][1] is flow
    del flows[at]
