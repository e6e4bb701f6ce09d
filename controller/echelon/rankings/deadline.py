"""Ranking by ideal finish time (EchelonFlow, HotNets '22)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from echelon.allocation import ActiveFlow, Link, Number
from echelon.rankings.base import Rank


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

    @staticmethod
    def execution(number: Callable[[Fraction], Number]) -> DeadlineExecution:
        return DeadlineExecution(number)


class DeadlineExecution:
    """The execution of `Deadline`: reference times, which all switches share, and the times when flows change queue.

    As on a switch, the reference time of an EchelonFlow in an iteration is the start of the first flow that is seen,
    less that flow's offset.
    """

    def __init__(self, number: Callable[[Fraction], Number]) -> None:
        self._number = number
        self._references: dict[tuple[str, str], tuple[int, Number, Number]] = {}
        """The iteration, the start of the first flow and its offset, by job and EchelonFlow."""
        self._changes_s: dict[ActiveFlow, list[Number]] = {}
        """When each flow goes one queue up."""

    def started(self, now_s: Number, flow: ActiveFlow, ranking: Deadline) -> None:
        key = flow.job, ranking.echelonflow
        offset_s = self._number(ranking.offset_s)
        known = self._references.get(key)
        if known is None or (known[0], -known[1], -known[2]) < (flow.iteration, -flow.start_s, -offset_s):
            # Of flows that start at the same time, the one of the least offset counts.
            self._references[key] = flow.iteration, flow.start_s, offset_s

    def finished(self, now_s: Number, flow: ActiveFlow, ranking: Deadline) -> None:
        self._changes_s.pop(flow, None)

    def ranks(self, now_s: Number, port: Link, flows: Sequence[tuple[ActiveFlow, Deadline]]) -> list[Rank]:
        out = []
        for flow, ranking in flows:
            changes_s = self._changes_s.get(flow)
            if changes_s is None:
                _, start_s, offset_s = self._references[flow.job, ranking.echelonflow]
                due_s = start_s - offset_s + self._number(ranking.offset_s)
                changes_s = self._changes_s[flow] = [due_s + self._number(t) for t in ranking.thresholds_s]
            reached = bisect_right(changes_s, now_s)
            until_s = changes_s[reached] if reached < len(changes_s) else None
            out.append(Rank(ranking.lowest + reached, until_s))
        return out

    def neighbourhood(self, flow: ActiveFlow, ranking: Deadline) -> None:
        return None
