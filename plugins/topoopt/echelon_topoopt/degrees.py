"""The split of a host's ports between all-reduces and other traffic (TopoOpt, NSDI '23, section
4.3, algorithm 1).

The paper splits them by traffic: ``d_A = max(1, ceil(d T_A / (T_A + T_M)))`` of d ports are for
all-reduces, in which hosts send T_A bytes, and the rest for other transfers, T_M bytes. The
released code gives all to all-reduces. Our cables carry as much in both directions, so a ring of
three or more takes two ports of each member, and d_A is rounded to pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor


def ring_ports(
    degree: int,
    reduced: float,
    sent: float,
) -> int:
    """Return the paper's share in whole pairs of ports, the nearest number of them but one at
    least, if there is.

    Hosts send `reduced` bytes in all-reduces.
    """
    total = reduced + sent
    share = reduced / total if total else 1.0
    nearest = floor(degree * share / 2 + 0.5)
    pairs = min(max(1, nearest), degree // 2)
    return 2 * pairs


def group_rings(rings: int, traffic: Sequence[float]) -> tuple[int, ...]:
    """Return how many of the rings each kind of group gets, kinds with most traffic first.

    Each takes ``ceil(rings x its part of the traffic)`` of those that are left (algorithm 1), so
    the last may get none. Without any traffic the first takes all.
    """
    counts = []
    left = rings
    total = sum(traffic)
    for amount in traffic:
        share = ceil(rings * amount / total) if total else left
        count = min(left, share)
        counts.append(count)
        left -= count
    return tuple(counts)
