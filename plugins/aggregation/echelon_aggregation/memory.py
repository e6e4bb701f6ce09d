"""The memory of switches for several jobs: requests of trees, shares, and parts added up.

A tree asks each of its switches for two places for each block under way
(`docs/aggregation-protocol.md`). `parts` and `together` say what is written into switches, `SERVED`
what part of the blocks of each tree under way finds a place, as a fluid: the blocks that find none
are added up by the fallback, over the same links (`Tree.without_memory`).

The fluid leaves out: that blocks of two jobs meet in some places and not in others, the time in
which a place that is taken over is empty, blocks of one tree that some switches keep and others
pass on, and retransmissions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from echelon.planning.allocation import Number
from echelon_aggregation.trees import Tree

By = Literal["deadline", "share", "first"]
"""deadline: who is due first. share: parts for as many trees as there is room for. first: who comes
first.
"""
TAKES: Mapping[By, int] = {"share": 0, "first": 1, "deadline": 2}
"""The parameter `take` of the action `aggregate`."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A tree of a job that asks for places."""

    job: str
    tree: Tree
    places: int
    """The number at each of its switches, a power of two: two for each block of a worker's window.
    """
    due_s: Number = 0
    """The time at which its blocks are due (`first` and `share` do not ask)."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The places of one tree at all of its switches, as the action `aggregate` has them."""

    first: int
    mask: int
    start: int
    """The offset that is added to a block's number.

    Trees that share places so begin at different ones (`bit_reversed`).
    """
    take: int


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory that a policy gives a tree (`echelon.planning.plan.Plan.memory`)."""

    grant: Grant | None
    """None: no places, so that the fallback adds up everything."""
    window: int
    """The blocks that a worker has under way."""


def bit_reversed(number: int, mask: int) -> int:
    """Return the number's lowest bits in reverse (van der Corput's sequence)."""
    bits = f"{number & mask:0{mask.bit_length()}b}"
    return int(bits[::-1], 2)


Room = Mapping[str, int]
"""The places of each switch."""
TreeKey = tuple[str, Tree]
"""A tree of a job."""


def parts(
    claims: Sequence[Claim],
    room: Room,
    before: Mapping[TreeKey, Grant] | None = None,
) -> list[Grant | None]:
    """Return an exclusive block of places for each tree, the same on all of its switches.

    Trees are served in the order of `claims`. A tree that does not fit on all of its switches gets
    None. The size of a block is a power of two, and its start is a multiple of its size. Trees keep
    their blocks of `before`.
    """
    earlier = before or {}
    kept = [earlier.get((claim.job, claim.tree)) for claim in claims]
    taken: defaultdict[str, list[Grant]] = defaultdict(list)
    for claim, grant in zip(claims, kept, strict=True):
        if grant is not None:
            _take(taken, claim, grant)
    grants: list[Grant | None] = []
    for claim, grant in zip(claims, kept, strict=True):
        if grant is None:
            grant = _first_fit(claim, room, taken)
            if grant is not None:
                _take(taken, claim, grant)
        grants.append(grant)
    return grants


def _take(
    taken: Mapping[str, list[Grant]],
    claim: Claim,
    grant: Grant,
) -> None:
    for switch in claim.tree.switches:
        taken[switch].append(grant)


def _first_fit(
    claim: Claim,
    room: Room,
    taken: Mapping[str, Sequence[Grant]],
) -> Grant | None:
    """Return the first part that is free at all switches of a tree."""
    places = claim.places
    switches = claim.tree.switches
    most = min(room[switch] for switch in switches)
    inside: list[Grant] = []
    for switch in switches:
        inside += taken[switch]
    for first in range(0, most - places + 1, places):
        part = Grant(first, places - 1, 0, TAKES["share"])
        if not any(_overlap(part, other) for other in inside):
            return part
    return None


def _overlap(part: Grant, other: Grant) -> bool:
    last = part.first + part.mask
    last_of_other = other.first + other.mask
    return part.first <= last_of_other and other.first <= last


def together(
    claims: Sequence[Claim],
    room: Room,
    criterion: By,
) -> list[Grant | None]:
    """Return for each tree all places that its switches have, up to a power of two.

    None: they have none.
    """
    grants: list[Grant | None] = []
    for claim in claims:
        places = min(room[switch] for switch in claim.tree.switches)
        grant = None
        if places:
            mask = (1 << places.bit_length() - 1) - 1
            grant = Grant(0, mask, 0, TAKES[criterion])
        grants.append(grant)
    return grants


def due_first(claims: Sequence[Claim], room: Room) -> list[float]:
    """Return the part of each tree that is added up if those due first get all they ask for.

    ESA (Wang et al., Efficient Data-Plane Memory Scheduling for In-Network Aggregation,
    arXiv:2201.06398) lets jobs of higher priority take over aggregators; here the priority is the
    deadline, which changes with every collective.
    """

    def due_s(number: int) -> Number:
        return claims[number].due_s

    left: dict[str, float] = dict(room)
    served = [0.0] * len(claims)
    numbers = range(len(claims))
    for number in sorted(numbers, key=due_s):
        claim = claims[number]
        switches = claim.tree.switches
        scarcest = min(left[switch] for switch in switches)
        part = min(1.0, scarcest / claim.places)
        for switch in switches:
            left[switch] -= part * claim.places
        served[number] = part
    return served


assert set(TAKES) == set(get_args(By))
