"""Orders between EchelonFlows: a rank for simulators, and levels for switches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from math import isqrt
from statistics import median
from typing import Any, Protocol

from echelon.model.kept import Kept
from echelon.planning.allocation import ActiveFlow, Link, Number
from echelon.planning.plan import LEVELS
from echelon.planning.rankings.deadline import Relative, deadline_rank

LOWEST = 1
"""The lowest level of jobs; best effort has the levels below it."""
JOB_LEVELS = LEVELS - LOWEST
THRESHOLDS = tuple(Fraction(percent, 100) for percent in (2, 7, 14, 22, 31, 40))
"""Fixed thresholds, at which a tardy packet goes one level up.

They are parts of the job's iteration time alone.

The first steps are fine, to tell apart jobs that begin almost together. The others are about as
wide as the flows of one EchelonFlow are apart.
"""
STEPS = tuple(Fraction(part, 1000) for part in (1, 30, 80, 150, 300, 600))
"""Relative levels: a packet goes one level down for each step behind the most urgent."""
IDLE = 16
"""A flow that has not sent for this part of its job's iteration alone is no longer at the port.
This is longer than a round trip through the queue of the most urgent, and short against the
iteration."""


@dataclass(frozen=True)
class JobFacts:
    """The facts about a job that orders use."""

    alone_s: Fraction
    """Its iteration time alone on the fabric."""
    weight: Fraction
    tardiness_s: Mapping[str, Fraction]
    """Tardiness of each of its EchelonFlows alone on the fabric."""
    busy_s: Fraction = Fraction(0)
    """Seconds for which the busiest link of its paths carries an iteration of the job."""
    occupied_s: Fraction = Fraction(0)
    """Sum of these seconds over all links of its paths."""
    latest_alone_s: Fraction = Fraction(0)
    """The largest e - d of its flows in an iteration alone, with d from the reference in use."""
    handicap: Fraction = Fraction(0)
    """The part of its relative rank that is taken off to tell it from copies, in its units.

    Copies are equal jobs that start together.
    """
    has_copies: bool = False
    """Whether an iteration of another job takes as long alone."""

    @cached_property
    def period_s(self) -> Fraction:
        """Iteration time alone over weight: the unit in which the job's tardiness is measured."""
        return self.alone_s / self.weight

    def unit_s(self, blend: Blend) -> Fraction:
        """Return U: the unit of the job's tardiness under a blend, in seconds.

        Powers have four or more decimals, and the one of q is at least 1/100 of that of P, so that
        ranks fit into the numbers of a switch.
        """
        # P^alone q^occupied = P^(alone + occupied) (q / P)^occupied.
        exponent = blend.alone + blend.occupied
        period_s = self.alone_s
        if exponent != 1:
            period_s = _power(self.alone_s, exponent, 10**9)
        occupied = _power(self.occupied_s / self.alone_s, blend.occupied, 10**4)
        return period_s * max(occupied, _LEAST) / self.weight

    def in_units(self, factor: Fraction | None) -> JobFacts:
        """Return the facts of the job in units that are so many times as large; None: the same."""
        if factor is None or factor == 1:
            return self
        # A unit is in inverse proportion to the weight (`unit_s`).
        return replace(self, weight=self.weight / factor)

    def head_start(self, blend: Blend) -> Fraction:
        """Return what is taken off the job's rank, in its units.

        That is the part of the time for which its busiest link is busy, and what tells the job from
        copies.
        """
        if not blend.head:
            return self.handicap
        return self.handicap + blend.head * self.busy_s / 2 / self.unit_s(blend)


_LEAST = Fraction(1, 100)


def _power(
    base: Fraction,
    exponent: Fraction,
    digits: int,
) -> Fraction:
    """Return a power of a number that is not negative, rounded down to 1 / `digits`."""
    if exponent == Fraction(1, 2):
        return Fraction(isqrt(int(base * digits**2)), digits)
    if exponent:
        return Fraction(int(float(base) ** float(exponent) * digits), digits)
    return Fraction(1)


@dataclass(frozen=True, slots=True)
class Urgency:
    """The urgency of a flow: `value` now, growing by `slope` per second."""

    value: Number
    slope: Number
    due_s: Number
    deadline_s: Number
    """Decides between flows that are due at the same time."""
    sequence: int

    @property
    def rank(self) -> tuple[Number, Number, Number, Number, int]:
        """A sort key that puts the most urgent first.

        Ties go to the flow that gets ahead from now on, then to the one that is due first, then
        to the earlier deadline, then to the earlier arrival.
        """
        return -self.value, -self.slope, self.due_s, self.deadline_s, self.sequence


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of a job's packets in a switch.

    A packet is one level above `lowest` for each threshold that its tardiness has reached.
    """

    thresholds_s: tuple[Fraction, ...]
    lowest: int = LOWEST
    highest: int = LEVELS - 1
    relative: Relative | None = None
    """Levels relative to the most urgent flow at the port, instead of the thresholds."""
    latest: bool = False
    """Whether packets are due at the latest finish of their flow on the critical path."""
    left: int = 0
    """The factor of the seconds of a flow's bytes left by which they lower its relative rank."""
    together: bool = False
    """Whether these are the seconds of all flows that are due together."""


class Order(Protocol):
    """An order between EchelonFlows; inside one, every order is by deadline."""

    def urgency(
        self,
        facts: JobFacts,
        now_s: Number,
        flow: ActiveFlow,
        due_s: Number,
        memory_s: Number = 0,
    ) -> Urgency:
        """Return the urgency of a flow of an EchelonFlow that is due at `due_s`.

        `memory_s` is what its job remembers of past delays
        (`echelon.planning.rankings.deadline.Memory`).
        """

    def levels(self, jobs: Mapping[str, JobFacts]) -> Mapping[str, Levels]:
        """Return the levels for switches, by job.

        A further call for other jobs changes a job's levels only if it must.
        """


class NormalisedTardiness:
    """The job first that is furthest behind in its own iterations: the largest (now - d) / P.

    P is the iteration time alone over the weight. The order is a greedy form of the weighted sum of
    tardiness (EchelonFlow, equation 4) with the weights 1/P.
    """

    def urgency(
        self,
        facts: JobFacts,
        now_s: Number,
        flow: ActiveFlow,
        due_s: Number,
        memory_s: Number = 0,
    ) -> Urgency:
        slope = 1 / facts.period_s
        value = (now_s - due_s) * slope
        return Urgency(value, slope, due_s, flow.deadline_s, flow.sequence)

    def levels(self, jobs: Mapping[str, JobFacts]) -> Mapping[str, Levels]:
        levels = {}
        for name, facts in jobs.items():
            levels[name] = Levels(_parts(facts.period_s))
        return levels


@dataclass(frozen=True, slots=True)
class Blend:
    """The weights of what `Blended` adds up.

    U = P^`alone` q^`occupied`, in seconds, over the job's weight.
    """

    alone: Fraction
    """The exponent of P, the job's iteration time alone."""
    occupied: Fraction
    """The exponent of q, the seconds for which an iteration occupies links, summed over them."""
    head: Fraction = Fraction(0)
    """The part of b / 2 that is taken off.

    b is the time for which the job's busiest link is busy in an iteration.
    """
    latest: bool = False
    """Whether flows are due at their latest finish on the critical path, not by arrangement."""
    left: int = 0
    """c, the factor of the seconds that the bytes left of the flow take on its path."""
    together: bool = False
    """Whether these are the seconds in which all flows that are due together can finish, if they
    have sent as large a part as the flow."""


MEMORY = Blend(Fraction(1, 2), Fraction(1, 2), Fraction(1))
"""The blend of `memory`.

b: a job that sends for long becomes tardy by its own transmission, while no other job is in its
way; half of that is taken off. q: with 1/x for the slowdown of a job, links carry all jobs if the
sum of x u is at most 1 on each, and the mean of 1/x is then least where 1/x grows with the square
root of the priced sum of the job's u. With one price for all links, that is the root of q: a job
that needs little of the network is kept fast, because this costs others little.
"""


class Blended:
    """An order by tardiness with memory and the bytes left (`deadline_rank`).

    The largest (now - d + E - c left / line - h b/2) / U goes first.

    Normalised tardiness starts at zero in each iteration. Two jobs whose iterations take equally
    long can then meet in the same way again and again, and the same one waits each time. E, the
    job's memory of past delays, lets the job go first that has waited. c left / line lets a flow go
    first that needs little of the link: by Smith's ratio, that delays the others least.
    """

    def __init__(self, blend: Blend = MEMORY) -> None:
        self._blend = blend
        self._levels = Kept(partial(_relative, blend))

    def urgency(
        self,
        facts: JobFacts,
        now_s: Number,
        flow: ActiveFlow,
        due_s: Number,
        memory_s: Number = 0,
    ) -> Urgency:
        slope = 1 / facts.unit_s(self._blend)
        # What the bytes left take is in `due_s` already.
        head_start = facts.head_start(self._blend)
        value = deadline_rank(now_s, due_s, memory_s, 0, slope, head_start)
        return Urgency(value, slope, due_s, flow.deadline_s, flow.sequence)

    def levels(self, jobs: Mapping[str, JobFacts]) -> Mapping[str, Levels]:
        return self._levels.update_columns(jobs)


def _relative(blend: Blend, facts: JobFacts) -> Levels:
    unit_s = facts.unit_s(blend)
    head_start = facts.head_start(blend)
    idle_s = facts.alone_s / IDLE
    apart = facts.handicap if facts.has_copies else Fraction(0)
    relative = Relative(unit_s, head_start, facts.latest_alone_s, idle_s, STEPS, apart)
    return Levels(
        (),
        relative=relative,
        latest=blend.latest,
        left=blend.left,
        together=blend.together,
    )


UNIT_TOLERANCE = Fraction(5, 4)
"""The factor by which the median iteration time may change before all jobs get new thresholds."""


class EarliestDeadline:
    """An order that puts the earliest deadline first, whichever job it belongs to."""

    def __init__(self) -> None:
        self._unit_s: Fraction | None = None

    def to_document(self) -> dict[str, Any]:
        """Return the unit of the thresholds."""
        return {"unit_s": None if self._unit_s is None else str(self._unit_s)}

    def take(self, document: Mapping[str, Any]) -> None:
        """Continue with that unit. Raises `ValueError`."""
        unit_s = document["unit_s"]
        self._unit_s = None if unit_s is None else Fraction(unit_s)

    def urgency(
        self,
        facts: JobFacts,
        now_s: Number,
        flow: ActiveFlow,
        due_s: Number,
        memory_s: Number = 0,
    ) -> Urgency:
        return Urgency(-due_s, Fraction(0), due_s, flow.deadline_s, flow.sequence)

    def levels(self, jobs: Mapping[str, JobFacts]) -> Mapping[str, Levels]:
        """Return the same thresholds for all jobs: equal tardiness meets in one queue.

        They are parts of the median iteration time as it was when the thresholds were last set: a
        job that comes or goes changes them only if the median has moved by more than a quarter.
        """
        if not jobs:
            return {}
        typical_s = median(facts.alone_s for facts in jobs.values())
        unit_s = self._unit_s
        if unit_s is None or not _is_near(typical_s, unit_s):
            unit_s = self._unit_s = typical_s
        return dict.fromkeys(jobs, Levels(_parts(unit_s)))


def _is_near(time_s: Fraction, unit_s: Fraction) -> bool:
    return unit_s / UNIT_TOLERANCE <= time_s <= unit_s * UNIT_TOLERANCE


class SmallestTardiness:
    """SETF: the EchelonFlow first that would be least tardy alone, over its job's weight.

    If all EchelonFlows are coflows, it is Varys' smallest effective bottleneck first. Source:
    EchelonFlow (HotNets '22), section 4.
    """

    def urgency(
        self,
        facts: JobFacts,
        now_s: Number,
        flow: ActiveFlow,
        due_s: Number,
        memory_s: Number = 0,
    ) -> Urgency:
        assert flow.echelonflow is not None
        tardiness = facts.tardiness_s[flow.echelonflow] / facts.weight
        return Urgency(-tardiness, Fraction(0), due_s, flow.deadline_s, flow.sequence)

    def levels(self, jobs: Mapping[str, JobFacts]) -> Mapping[str, Levels]:
        """Divide the seven levels of jobs into a band for each job, the smallest tardiness on top.

        More than seven jobs share levels. Inside a band, flows are ranked by tardiness as far as
        there are levels.
        """
        tardiness = {}
        for name, facts in jobs.items():
            largest_s = max(facts.tardiness_s.values(), default=Fraction(0))
            tardiness[name] = largest_s / facts.weight
        out = {}
        order = sorted(jobs, key=lambda name: tardiness[name])
        for place, name in enumerate(order):
            highest = LEVELS - 1 - place * JOB_LEVELS // len(jobs)
            lowest = min(highest, LEVELS - (place + 1) * JOB_LEVELS // len(jobs))
            thresholds_s = _parts(jobs[name].period_s, highest - lowest + 1)
            out[name] = Levels(thresholds_s, lowest, highest)
        return out


def _parts(period_s: Fraction, levels: int = JOB_LEVELS) -> tuple[Fraction, ...]:
    """Return the thresholds between `levels` levels, taken evenly from those between all."""
    indices = [level * JOB_LEVELS // levels - 1 for level in range(1, levels)]
    return tuple(period_s * THRESHOLDS[index] for index in indices)


def overtaking_s(leader: Urgency, follower: Urgency) -> Number | None:
    """Return the seconds, always positive, until the follower is as urgent as the leader.

    None means never. The leader must sort before the follower.
    """
    if follower.slope <= leader.slope:
        return None
    return (leader.value - follower.value) / (follower.slope - leader.slope)


def next_overtaking_s(
    flows: Sequence[ActiveFlow],
    order: Sequence[int],
    urgencies: Mapping[int, Urgency],
) -> Number | None:
    """Return the seconds until the order of flows changes on some link; None if it never does.

    `order` has indices of `flows`, the most urgent first. The first change on a link is between
    neighbours of its order, so only neighbours need to be compared.
    """
    last: dict[Link, int] = {}
    neighbours: dict[tuple[int, int], None] = {}
    for index in order:
        for link in flows[index].links:
            if link in last:
                neighbours[last[link], index] = None
            last[link] = index
    soonest: Number | None = None
    for leader, follower in neighbours:
        time_s = overtaking_s(urgencies[leader], urgencies[follower])
        if time_s is not None and (soonest is None or time_s < soonest):
            soonest = time_s
    return soonest


ORDERS: Mapping[str, type[Order]] = {
    "memory": Blended,
    "normalised": NormalisedTardiness,
    "deadline": EarliestDeadline,
    "setf": SmallestTardiness,
}
