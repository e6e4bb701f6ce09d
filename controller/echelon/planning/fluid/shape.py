"""The shape of a job: its iteration graph and its links, whatever its hosts and switches are."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from echelon.model.jobs.graph import Job

Rates = Sequence[tuple[Hashable, Fraction]]
"""What a flow crosses, each with its rate."""


@dataclass(frozen=True, slots=True)
class RunShape:
    """Everything on which an iteration alone depends."""

    digest: int
    """A hash of the sizes and of who shares links with whom. It tells nearly all shapes apart;
    hashing everything takes long."""
    ways: tuple[int, ...]
    """The number of the way of each flow."""
    rates: tuple[tuple[tuple[int, Fraction], ...], ...]
    """The number and the bytes per second of all that each way crosses."""
    computes: tuple[tuple[object, ...], ...]
    flows: tuple[tuple[object, ...], ...]
    echelonflows: tuple[tuple[object, ...], ...]

    def __hash__(self) -> int:
        return self.digest


def shape_of(
    job: Job,
    ways: Sequence[Hashable],
    rates: Mapping[Hashable, Rates],
) -> RunShape:
    """Return the shape of a job whose flows go these ways, of which `rates` says what they cross.

    What is crossed is numbered in the order in which flows come to it.
    """
    numbers: dict[Hashable, int] = {}
    ways_by_number: dict[Hashable, int] = {}
    crossed = []
    for way in dict.fromkeys(ways):
        ways_by_number[way] = len(ways_by_number)
        way_rates = []
        for link, rate in rates[way]:
            number = numbers.setdefault(link, len(numbers))
            way_rates.append((number, rate))
        crossed.append(tuple(way_rates))

    numbered_ways = tuple(map(ways_by_number.__getitem__, ways))
    link_numbers = tuple(number for way_rates in crossed for number, _ in way_rates)
    size_bytes = sum(flow.size_bytes for flow in job.flows)
    sizes = size_bytes, len(job.flows), len(job.computes)
    digest = hash((sizes, numbered_ways, link_numbers))
    computes = [(unit.name, unit.duration_s, unit.after) for unit in job.computes]
    flows = [(flow.name, flow.size_bytes, flow.after) for flow in job.flows]
    formations = [(h.name, h.flows, h.offsets_s) for h in job.echelonflows]
    return RunShape(
        digest, numbered_ways, tuple(crossed), tuple(computes), tuple(flows), tuple(formations)
    )
