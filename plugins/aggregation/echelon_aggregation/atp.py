"""Memory for who comes first: a packet that finds its aggregator taken is added up by an end host.

Source: Lao et al., ATP: In-network Aggregation for Multi-tenant Learning, NSDI '21, section 3:
aggregators are given packet by packet to jobs that hash to them, and what meets another job's goes
on to a parameter server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from echelon_aggregation.memory import Claim, Room


def came_first(claims: Sequence[Claim], room: Room) -> list[float]:
    """Return the part of each tree that is added up: where trees ask for more than there is, all
    get the same part.

    A place that becomes free goes to the next packet, and each tree under way sends as many as it
    has places.
    """
    asked: Counter[str] = Counter()
    for claim in claims:
        for switch in claim.tree.switches:
            asked[switch] += claim.places
    served = {switch: room[switch] / places for switch, places in asked.items()}
    parts = []
    for claim in claims:
        least = min(served[switch] for switch in claim.tree.switches)
        parts.append(min(1.0, least))
    return parts
