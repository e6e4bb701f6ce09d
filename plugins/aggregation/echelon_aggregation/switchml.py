"""Static memory: each job has a part of its own, or none.

Source: Sapio et al., Scaling Distributed Machine Learning with In-Network Aggregation, NSDI '21,
section 4: a pool of aggregators that belongs to one job, with two versions of each slot. Which job
has one is the controller's choice; here it is the order of the jobs.
"""

from __future__ import annotations

from collections.abc import Sequence

from echelon_aggregation.memory import Claim, Room, parts


def of_its_own(claims: Sequence[Claim], room: Room) -> list[float]:
    """Return 1 for each tree that has a part (`memory.parts`), and 0 for the others."""
    grants = parts(claims, room)
    return [float(grant is not None) for grant in grants]
