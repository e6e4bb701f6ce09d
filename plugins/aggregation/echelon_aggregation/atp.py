"""First come, first served memory: an end host adds up a packet whose aggregator is taken.

Source: Lao et al., ATP: In-network Aggregation for Multi-tenant Learning, NSDI '21, section 3. Each
packet hashes to an aggregator and takes it if it is free. If another job holds it, the packet goes
on to a parameter server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from echelon_aggregation.memory import Claim, Room


def came_first(claims: Sequence[Claim], room: Room) -> list[float]:
    """Return the part of each tree's packets that switches add up.

    Where trees ask for more places than a switch has, all get the same part of what they ask for.
    A place that becomes free goes to the next packet, and each tree under way sends as many as it
    has places.
    """
    asked: Counter[str] = Counter()
    for claim in claims:
        for switch in claim.tree.switches:
            asked[switch] += claim.places
    served = {}
    for switch, places in asked.items():
        served[switch] = room[switch] / places
    parts = []
    for claim in claims:
        least = min(served[switch] for switch in claim.tree.switches)
        parts.append(min(1.0, least))
    return parts
