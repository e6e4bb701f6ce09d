"""The traffic of a job's hosts in an iteration: all-reduces by group, the rest by pair of hosts.

TopoOpt's topology has rings for the former and cables for the latter (NSDI '23, section 4.3). The
members of an all-reduce may pass data in any order, which is why its traffic is not one of pairs
(mutability, section 4.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from echelon.model.jobs.combinators import Step
from echelon.model.jobs.free import FreeGraph
from echelon.model.jobs.graph import CollectiveStep, ComputeUnit
from echelon_topoopt.matching import in_order

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
    sent: Mapping[tuple[int, int], float] = field(default_factory=dict)
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
    def exchanged(self) -> dict[tuple[int, int], float]:
        """Return the traffic of pairs outside of all-reduces, with the smaller number first."""
        out: dict[tuple[int, int], float] = {}
        for (src, dst), amount in self.sent.items():
            pair = in_order((src, dst))
            out[pair] = out.get(pair, 0.0) + amount
        return out


def passes(step: Step) -> bool:
    """Return whether a step is a collective whose data goes round a ring of two hosts or more."""
    return (
        isinstance(step, CollectiveStep)
        and step.operation in _RINGS
        and step.algorithm in _RING
        and len(step.group) > 1
        and not step.rounds
    )


def traffic_of(
    steps: Sequence[Step],
    hosts: int,
    weights: Mapping[str, float] | None = None,
) -> Traffic:
    """Return the traffic of the steps of an iteration, rank r on host r.

    `weights` multiplies the bytes of steps by name; a step that it lacks counts as 0. None: all
    count as they are.
    """
    reduced: dict[Group, float] = {}
    sent: dict[tuple[int, int], float] = {}
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
            amount = _RINGS[step.operation] * (len(group) - 1) * step.size_bytes
            reduced[group] = reduced.get(group, 0.0) + weight * amount
            continue
        for flow in FreeGraph((replace(step, after=()),)).iteration(workers).flows:
            pair = (int(flow.src), int(flow.dst))
            sent[pair] = sent.get(pair, 0.0) + weight * flow.size_bytes
    return Traffic(hosts, reduced, sent)
