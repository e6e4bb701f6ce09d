"""The rates that switches give flows under a plan, without packets: from rankings, queues, levels, weights and shares.

A flow is entirely in the queue of its ranking. In a switch, waiting packets keep their queue, and a flow is promoted
when its earlier packets have left; that takes a few packet times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from echelon.allocation import ActiveFlow, Allocation, Link
from echelon.fabric.model import Fabric
from echelon.fluid.sharing import SharedPort, Sharer, share
from echelon.jobs.graph import FlowKey
from echelon.plan import Plan
from echelon.rankings.deadline import Deadline
from echelon.rankings.fixed import Fixed

_Standing = tuple[tuple[Link, ...], int, int, Fraction | None]
"""Everything on which the share of a flow depends: its path, its queue, its window, and its maximum rate."""

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

    def at(self, sent_bytes: Fraction) -> tuple[int, int | None]:
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
        self._known: dict[tuple[_Standing, ...], tuple[tuple[Fraction, bool], ...]] = {}
        """The results of `_shares`."""
        self._references: dict[tuple[str, str], tuple[int, Fraction]] = {}
        """The iteration and its reference time, by job and EchelonFlow."""
        self._ports: dict[Link, SharedPort] = {
            link: SharedPort(
                capacity_Bps,
                None if link[0] in fabric.hosts else plan.schedules.get(link, plan.default_schedule),
            )
            for link, capacity_Bps in fabric.capacity_Bps.items()
        }

    def allocate(self, now_s: Fraction, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates until a flow reaches a threshold of its ranking, or opens its window further."""
        self._take_references(flows)
        at_port = Counter(link for flow in flows for link in flow.links)
        changes_s: list[Fraction] = []
        standings: list[_Standing] = []
        openings: list[Fraction | None] = []
        for flow in flows:
            queue, until_s = self._queue(now_s, flow)
            if until_s is not None and any(at_port[link] > 1 for link in flow.links):
                changes_s.append(until_s)
            sent_bytes = flow.size_bytes - flow.remaining_bytes
            window, open_bytes = self._windows.at(sent_bytes)
            openings.append(None if open_bytes is None else open_bytes - sent_bytes)
            standings.append((flow.links, queue, window, flow.max_rate_Bps))
        shares = self._shares(tuple(standings))
        for (rate_Bps, is_held_up), left_bytes in zip(shares, openings, strict=True):  # noqa: N806
            # A window matters only where others wait in the same queue.
            if left_bytes is not None and rate_Bps and is_held_up:
                changes_s.append(now_s + left_bytes / rate_Bps)
        return Allocation(tuple(rate_Bps for rate_Bps, _ in shares), min(changes_s, default=None))

    def _shares(self, standings: tuple[_Standing, ...]) -> tuple[tuple[Fraction, bool], ...]:
        """Return the rate of each flow, and whether it waits in a queue with others.

        Training jobs repeat themselves, so most standings have been seen before.
        """
        known = self._known.get(standings)
        if known is not None:
            return known
        sharers: list[Sharer] = []
        for links, queue, window, max_rate_Bps in standings:  # noqa: N806
            ports = (self._ports[link] for link in links)
            places = tuple((port, 0 if port.is_fifo else queue) for port in ports)
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

    def _queue(self, now_s: Fraction, flow: ActiveFlow) -> tuple[int, Fraction | None]:
        """Return the queue of a flow, and until when it stays there (None: for ever)."""
        ranking = self._rankings.get(_key(flow), self._best_effort)
        if isinstance(ranking, Fixed):
            return ranking.queue, None
        assert isinstance(ranking, Deadline)
        due_s = self._references[flow.job, ranking.echelonflow][1] + ranking.offset_s
        reached = bisect_right(ranking.thresholds_s, now_s - due_s)
        until_s = due_s + ranking.thresholds_s[reached] if reached < len(ranking.thresholds_s) else None
        return ranking.lowest + reached, until_s

    def _acknowledgements(
        self, standings: Sequence[_Standing], sharers: Sequence[Sharer]
    ) -> dict[SharedPort, Fraction]:
        """Return what acknowledgements take of the ports that the flows use, in bytes per second."""
        part = self._windows.acknowledging
        if not part:
            return {}
        used = {link for links, *_ in standings for link in links}
        taken: dict[SharedPort, Fraction] = {}
        for (links, *_), sharer in zip(standings, sharers, strict=True):
            if sharer.sent_Bps is None:
                rate_Bps = sharer.rate_Bps * part  # noqa: N806
                for node, following in links:
                    if (following, node) in used:
                        port = self._ports[following, node]
                        taken[port] = taken.get(port, Fraction(0)) + rate_Bps
        return taken

    def _take_references(self, flows: Sequence[ActiveFlow]) -> None:
        """Note the reference times of new iterations as a switch does: the start of the first flow that it sees, less
        that flow's offset."""
        new: dict[tuple[str, str], list[tuple[Fraction, Fraction, int]]] = {}
        for flow in flows:
            ranking = self._rankings.get(_key(flow))
            if isinstance(ranking, Deadline):
                key = flow.job, ranking.echelonflow
                if key not in self._references or self._references[key][0] < flow.iteration:
                    new.setdefault(key, []).append((flow.start_s, ranking.offset_s, flow.iteration))
        for key, seen in new.items():
            start_s, offset_s, iteration = min(seen)
            self._references[key] = iteration, start_s - offset_s


def _key(flow: ActiveFlow) -> FlowKey:
    return flow.job, flow.flow
