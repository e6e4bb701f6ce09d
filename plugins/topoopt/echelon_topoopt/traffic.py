"""The traffic of a job's hosts in an iteration: all-reduces by group, the rest by pair of hosts.

TopoOpt's topology has rings for the former and cables for the latter (NSDI '23, section 4.3). The
members of an all-reduce may pass data in any order, which is why its traffic is not one of pairs
(mutability, section 4.2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from echelon.model.jobs.combinators import Step
from echelon.model.jobs.free import FreeGraph
from echelon.model.jobs.graph import CollectiveStep, ComputeUnit
from echelon_topoopt.matching import Pair, in_order

Group = tuple[int, ...]
"""Hosts by number, from 0, in the order in which ring 1 passes them."""

_RING = ("ring", None)
_RINGS = {"all-reduce": 2, "reduce-scatter": 1, "all-gather": 1}
"""The number of times that a ring passes the whole tensor on, by operation."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The bytes of one iteration, or what they weigh."""

    hosts: int
    reduced: Mapping[Group, float] = field(default_factory=dict)
    """The bytes that all members together send over the rings of each group."""
    sent: Mapping[Pair, float] = field(default_factory=dict)
    """The bytes from one host (first) to another (second)."""

    @property
    def total_reduced(self) -> float:
        """Return the bytes of all all-reduces."""
        return sum(self.reduced.values())

    @property
    def total_sent(self) -> float:
        """Return the bytes of all other transfers."""
        return sum(self.sent.values())

    @property
    def exchanged(self) -> dict[Pair, float]:
        """Return the traffic of pairs outside of all-reduces, with the smaller number first."""
        exchanged: defaultdict[Pair, float] = defaultdict(float)
        for ends, amount in self.sent.items():
            pair = in_order(ends)
            exchanged[pair] += amount
        return dict(exchanged)


def passes(step: Step) -> bool:
    """Return whether a step is a collective whose data goes round a ring of two hosts or more."""
    if not isinstance(step, CollectiveStep) or step.rounds:
        return False
    goes_round = step.operation in _RINGS and step.algorithm in _RING
    return goes_round and len(step.group) > 1


def traffic_of(
    steps: Sequence[Step],
    hosts: int,
    weights: Mapping[str, float] | None = None,
) -> Traffic:
    """Return the traffic of the steps of an iteration, rank r on host r.

    `weights` multiplies the bytes of steps by name; a step that it lacks counts as 0. None: all
    count as they are.
    """
    reduced: defaultdict[Group, float] = defaultdict(float)
    sent: defaultdict[Pair, float] = defaultdict(float)
    workers = [str(rank) for rank in range(hosts)]
    for step in steps:
        if weights is None:
            weight = 1.0
        else:
            weight = weights.get(step.name, 0.0)
        if isinstance(step, ComputeUnit) or not weight:
            continue
        if isinstance(step, CollectiveStep) and passes(step):
            group = tuple(map(int, step.group))
            passes_on = _RINGS[step.operation] * (len(group) - 1)
            amount = passes_on * step.size_bytes
            reduced[group] += weight * amount
            continue
        alone = replace(step, after=())
        graph = FreeGraph((alone,))
        for flow in graph.iteration(workers).flows:
            pair = (int(flow.src), int(flow.dst))
            sent[pair] += weight * flow.size_bytes
    return Traffic(hosts, dict(reduced), dict(sent))
