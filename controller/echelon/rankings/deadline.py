"""Ranking by ideal finish time (EchelonFlow, HotNets '22)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Relative:
    """Levels relative to the most urgent flow at the port, by tardiness with memory.

    The rank of a packet is (now - d + E) / `period_s` - `head_start`, with d the ideal finish time of its flow and E
    the memory of its job. After each iteration, E becomes 3/4 (E + delay): the delay is the largest e - d of the job's
    flows in that iteration, less `alone_tardiness_s`. The most urgent flow at a port is in queue `highest`, and others
    are one queue lower for each of `steps` by which their rank is behind.
    """

    period_s: Fraction
    head_start: Fraction
    alone_tardiness_s: Fraction
    steps: tuple[Fraction, ...]


@dataclass(frozen=True, slots=True)
class Deadline:
    """The switch ranks each packet by its slack: reference time of `echelonflow` + `offset_s` - now.

    `thresholds_s` are `highest - lowest` ascending tardiness values in seconds: a packet whose tardiness has reached k
    of them goes to queue `lowest + k`. If `relative` is given, it decides instead of them.
    """

    echelonflow: str
    offset_s: Fraction
    thresholds_s: tuple[Fraction, ...]
    lowest: int = 0
    highest: int = 7
    relative: Relative | None = None

    @property
    def queues(self) -> range:
        return range(self.lowest, self.highest + 1)
