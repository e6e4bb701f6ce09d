"""Two ways to fill links with flows, both work conserving: one after the other, and evenly.

Policies are built from them. Residual capacities (bytes per second, by link) are given as a mutable
mapping and reduced, so that fillings can follow each other: first some flows, then others on what
is left.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, MutableMapping, Sequence
from fractions import Fraction
from typing import TypeAlias

from echelon.planning.allocation import ActiveFlow, Capacities, Link, Number

ZERO: Number = 0
Residual: TypeAlias = MutableMapping[Link, Number]
"""The rate that is left of each link, in bytes per second."""


def residual_of(capacities: Capacities, flows: Sequence[ActiveFlow]) -> dict[Link, Number]:
    """Return the capacities of the links that `flows` use, as floats if flows have floats."""
    links = {link for flow in flows for link in flow.links}
    if flows and isinstance(flows[0].remaining_bytes, float):
        return {link: float(capacities[link]) for link in links}
    return {link: capacities[link] for link in links}


def nine_digits(number: Number) -> Number:
    """Return a key for sorting by which rounding of floats makes no difference."""
    if isinstance(number, Fraction):
        return number
    return float(f"{number:.9g}")


def fill_in_order(
    flows: Sequence[ActiveFlow],
    order: Iterable[int],
    residual: Residual,
    rates: list[Number],
) -> None:
    """Give each flow in turn all that is left on its path: add to `rates`, take from `residual`.

    `order` holds indices into `flows`. Afterwards every one of these flows has a full link or is at
    its own limit.
    """
    for index in order:
        flow = flows[index]
        rate = min(residual[link] for link in flow.links)
        if flow.max_rate_Bps is not None:
            rate = min(rate, flow.max_rate_Bps - rates[index])
        if rate > 0:
            rates[index] += rate
            for link in flow.links:
                residual[link] -= rate


def fill_evenly(
    flows: Sequence[ActiveFlow],
    chosen: Iterable[int],
    residual: Residual,
    rates: list[Number],
) -> None:
    """Add max-min fair shares to `rates` by progressive filling, and take them from `residual`.

    All rates grow together until a link is full; its flows stop there and the others go on. A
    sender's own limit counts as a link of its own. Source: Bertsekas and Gallager, Data Networks
    (1992), section 6.5.2. Time O(sum of path lengths x log of links).
    """
    on_link: dict[Link | int, set[int]] = {}
    room: dict[Link | int, Number] = {}
    links_of: dict[int, tuple[Link | int, ...]] = {}
    for index in chosen:
        flow = flows[index]
        links: tuple[Link | int, ...] = flow.links
        if flow.max_rate_Bps is not None:
            links = (*flow.links, index)
            room[index] = flow.max_rate_Bps - rates[index]
        links_of[index] = links
        for link in links:
            on_link.setdefault(link, set()).add(index)
    for flow_link in on_link:
        if not isinstance(flow_link, int):
            room[flow_link] = residual[flow_link]
    # The share of a link only grows as other links stop its flows, so an outdated heap entry is
    # never too large.
    heap = [
        (room[link] / len(members), position, link)
        for position, (link, members) in enumerate(on_link.items())
    ]
    heapq.heapify(heap)
    while heap:
        share, position, tightest = heapq.heappop(heap)
        if not on_link[tightest]:
            continue
        current = room[tightest] / len(on_link[tightest])
        if current > share:
            heapq.heappush(heap, (current, position, tightest))
            continue
        # Rounding may leave a full link a little less than nothing.
        share = max(share, ZERO)
        for index in sorted(on_link[tightest]):
            for link in links_of[index]:
                on_link[link].discard(index)
            if share:
                rates[index] += share
                for link in links_of[index]:
                    room[link] -= share
    for link, left in room.items():
        if not isinstance(link, int):
            residual[link] = left
