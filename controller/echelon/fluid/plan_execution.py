"""The rates that switches give flows under a plan, without packets: from rankings, queues, levels, weights and shares.

A flow is entirely in the queue of its ranking. In a switch, waiting packets keep their queue, and a flow is promoted
when its earlier packets have left; that takes a few packet times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from echelon.allocation import ActiveFlow, Allocation, Link, Number
from echelon.fabric.model import Fabric
from echelon.fluid.sharing import SharedPort, Sharer, share
from echelon.plan import Plan
from echelon.rankings.base import Execution, Rank, Ranking
from echelon.rankings.fixed import Fixed

_Standing = tuple[tuple[Link, ...], tuple[int, ...], int, Number | None]
"""Everything on which the share of a flow depends: its path, its queues, its window, and its maximum rate."""

_MOST_KNOWN = 1 << 16
"""Number of results kept, as a bound on memory."""


@dataclass(frozen=True, slots=True)
class Windows:
    """How senders open their windows, and the cost of acknowledgements.

    A window begins with `initial` packets and opens by one for each that is acknowledged. In a queue where packets
    wait, this doubles it with each round trip (slow start, RFC 5681). Each half window is acknowledged. (So is each
    packet until the window is open, but these are few.) Acknowledgements return on the same path, before all other
    traffic.
    """

    packet_bytes: int = 1
    full: int = 1
    """Packets in flight when the window is open."""
    initial: int = 1
    acknowledgement_bytes: int = 0

    def at(self, sent_bytes: Number) -> tuple[int, int | None]:
        """Return the packets in flight of a flow of which `sent_bytes` have passed, and the number of bytes up to which
        that holds (None: for ever)."""
        window = end = min(self.initial, self.full)
        while window < self.full and sent_bytes >= end * self.packet_bytes:
            window = min(2 * window, self.full)
            end += window
        return window, None if window == self.full else end * self.packet_bytes

    @property
    def acknowledging(self) -> Fraction:
        """Bytes of acknowledgements for each byte of a flow."""
        return Fraction(self.acknowledgement_bytes, max(1, self.full // 2) * self.packet_bytes)


class PlanExecution:
    """Executes a plan that does not change (an `echelon.allocation.Allocator`)."""

    def __init__(self, plan: Plan, fabric: Fabric, windows: Windows) -> None:
        self._rankings = {(flow.job, flow.flow): flow.ranking for flow in plan.flows}
        self._best_effort = Fixed(plan.best_effort_queue)
        self._windows = windows
        self._known: dict[tuple[_Standing, ...], tuple[tuple[Number, bool], ...]] = {}
        """The results of `_shares`."""
        self._executions: dict[type[Ranking], Execution[Any]] = {}
        self._under_way: dict[ActiveFlow, Ranking] = {}
        self._ports: dict[Link, SharedPort] = {
            link: SharedPort(
                capacity_Bps,
                None if link[0] in fabric.hosts else plan.schedules.get(link, plan.default_schedule),
            )
            for link, capacity_Bps in fabric.capacity_Bps.items()
        }

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates until a flow reaches a threshold of its ranking, or opens its window further."""
        self._announce(now_s, flows)
        at_port: dict[Link, list[ActiveFlow]] = {}
        for flow in flows:
            for link in flow.links:
                at_port.setdefault(link, []).append(flow)
        changes_s: list[Number] = []
        ranks: dict[tuple[Link, ActiveFlow], Rank] = {}
        for link, present in at_port.items():
            self._rank(now_s, link, present, ranks)
            if len(present) > 1:
                changes_s += [s for flow in present if (s := ranks[link, flow].until_s) is not None]
        standings: list[_Standing] = []
        openings: list[Number | None] = []
        for flow in flows:
            sent_bytes = flow.size_bytes - flow.remaining_bytes
            window, open_bytes = self._windows.at(sent_bytes)
            openings.append(None if open_bytes is None else open_bytes - sent_bytes)
            queues = tuple(ranks[link, flow].queue for link in flow.links)
            standings.append((flow.links, queues, window, flow.max_rate_Bps))
        shares = self._shares(tuple(standings))
        rates = dict(zip(flows, (rate_Bps for rate_Bps, _ in shares), strict=True))
        for (rate_Bps, is_held_up), left_bytes in zip(shares, openings, strict=True):  # noqa: N806
            # A window matters only where others wait in the same queue.
            if left_bytes is not None and rate_Bps and is_held_up:
                changes_s.append(now_s + left_bytes / rate_Bps)
        for rank in ranks.values():
            if rank.until_bytes is not None and (together_Bps := sum(rates[flow] for flow in rank.counted)):  # noqa: N806
                changes_s.append(now_s + rank.until_bytes / together_Bps)
        return Allocation(tuple(rates.values()), min(changes_s, default=None))

    def _announce(self, now_s: Number, flows: Sequence[ActiveFlow]) -> None:
        """Tell the executions of the rankings which flows have finished and started."""
        present = set(flows)
        for flow in [flow for flow in self._under_way if flow not in present]:
            ranking = self._under_way.pop(flow)
            self._execution(ranking).finished(now_s, flow, ranking)
        for flow in flows:
            if flow not in self._under_way:
                ranking = self._under_way[flow] = self._rankings.get((flow.job, flow.flow), self._best_effort)
                self._execution(ranking).started(now_s, flow, ranking)

    def _execution(self, ranking: Ranking) -> Execution[Any]:
        kind = type(ranking)
        if kind not in self._executions:
            self._executions[kind] = kind.execution(Fraction)
        return self._executions[kind]

    def _rank(
        self, now_s: Number, link: Link, present: Sequence[ActiveFlow], ranks: dict[tuple[Link, ActiveFlow], Rank]
    ) -> None:
        """Add the ranks of all flows at a port."""
        of_kind: dict[type[Ranking], list[tuple[ActiveFlow, Ranking]]] = {}
        for flow in present:
            ranking = self._under_way[flow]
            of_kind.setdefault(type(ranking), []).append((flow, ranking))
        for kind, flows in of_kind.items():
            for (flow, _), rank in zip(flows, self._executions[kind].ranks(now_s, link, flows), strict=True):
                ranks[link, flow] = rank

    def _shares(self, standings: tuple[_Standing, ...]) -> tuple[tuple[Number, bool], ...]:
        """Return the rate of each flow, and whether it waits in a queue with others.

        Training jobs repeat themselves, so most standings have been seen before.
        """
        known = self._known.get(standings)
        if known is not None:
            return known
        sharers: list[Sharer] = []
        for links, queues, window, max_rate_Bps in standings:  # noqa: N806
            ports = (self._ports[link] for link in links)
            places = tuple((port, 0 if port.is_fifo else queue) for port, queue in zip(ports, queues, strict=True))
            sharers.append(Sharer(places, window, max_rate_Bps))
        in_queue = Counter(place for sharer in sharers for place in sharer.places)
        share(sharers, {})
        if taken_Bps := self._acknowledgements(standings, sharers):  # noqa: N806
            # Their rates change those of the data, which changes theirs a little; one step is close enough.
            share(sharers, taken_Bps)
        found = tuple(
            (sharer.rate_Bps, any(in_queue[place] > 1 for place in sharer.narrow)) for sharer in sharers
        )  # fmt: skip
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[standings] = found
        return found

    def _acknowledgements(self, standings: Sequence[_Standing], sharers: Sequence[Sharer]) -> dict[SharedPort, Number]:
        """Return what acknowledgements take of the ports that the flows use, in bytes per second."""
        part = self._windows.acknowledging
        if not part:
            return {}
        used = {link for links, *_ in standings for link in links}
        taken: dict[SharedPort, Number] = {}
        for (links, *_), sharer in zip(standings, sharers, strict=True):
            if sharer.sent_Bps is None:
                rate_Bps = sharer.rate_Bps * part  # noqa: N806
                for node, following in links:
                    if (following, node) in used:
                        port = self._ports[following, node]
                        taken[port] = taken.get(port, Fraction(0)) + rate_Bps
        return taken
