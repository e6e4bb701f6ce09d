"""Orders between EchelonFlows: which flow goes first, as a rank for simulators and as levels for
switches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from math import isqrt
from statistics import median
from typing import Any, Protocol

from echelon.model.kept import Kept
from echelon.planning.allocation import ActiveFlow, Link, Number
from echelon.planning.plan import LEVELS
from echelon.planning.rankings.deadline import Relative

LOWEST = 1
"""The lowest level of jobs; best effort has the levels below it."""
JOB_LEVELS = LEVELS - LOWEST
THRESHOLDS = tuple(Fraction(percent, 100) for percent in (2, 7, 14, 22, 31, 40))
"""Fixed thresholds: the parts of the job's iteration time alone at which a tardy packet goes one
level up.

The first steps are fine, to tell apart jobs that begin almost together. The others are about as
wide as the flows of one EchelonFlow are apart.
"""
STEPS = tuple(Fraction(part, 1000) for part in (1, 30, 80, 150, 300, 600))
"""Relative levels: a packet goes one level down for each of these by which it is behind the most
urgent at the port.
"""
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
    """The largest e - d of its flows in an iteration alone on the fabric, with d from the reference
    in use.
    """
    behind: Fraction = Fraction(0)
    """What is taken off its relative rank, in its units, to tell it from copies that start
    together.
    """
    has_copies: bool = False
    """Whether an iteration of another job takes as long alone."""

    @cached_property
    def period_s(self) -> Fraction:
        """Iteration time alone over weight: the unit in which the job's tardiness is measured."""
        return self.alone_s / self.weight

    def unit_s(self, rule: Rule) -> Fraction:
        """Return U: the unit of the job's tardiness under a rule, in seconds.

        Powers have four or more decimals, and the one of q is at least 1/100 of that of P, so that
        ranks fit into the numbers of a switch.
        """
        together = rule.alone + rule.occupied
        if together == 1:
            period_s = self.alone_s
        else:
            period_s = _power(self.alone_s, together, 10**9)
        return (
            period_s
            * max(_power(self.occupied_s / self.alone_s, rule.occupied, 10**4), _LEAST)
            / self.weight
        )

    def head_start(self, rule: Rule) -> Fraction:
        """Return what is taken off the job's rank: the part of the time for which its busiest link
        is busy, and what tells it from copies, in its units."""
        return self.behind + (rule.head * self.busy_s / 2 / self.unit_s(rule) if rule.head else 0)


_LEAST = Fraction(1, 100)


def _power(base: Fraction, exponent: Fraction, digits: int) -> Fraction:
    """Return a power of a positive number, or of zero, rounded down to a multiple of 1 /
    `digits`.
    """
    if exponent == Fraction(1, 2):
        return Fraction(isqrt(int(base * digits**2)), digits)
    if exponent:
        return Fraction(int(float(base) ** float(exponent) * digits), digits)
    return Fraction(1)


@dataclass(frozen=True, slots=True)
class Urgency:
    """The urgency of a flow as a linear function of time: `value` now, growing by `slope` per
    second.
    """

    value: Number
    slope: Number
    deadline_s: Number
    ideal_finish_s: Number
    """Decides between equal deadlines."""
    sequence: int

    @property
    def rank(self) -> tuple[Number, Number, Number, Number, int]:
        """A sort key that puts the most urgent first.

        Ties go to the flow that gets ahead from now on, then to the earlier deadline, then to the
        earlier arrival.
        """
        return -self.value, -self.slope, self.deadline_s, self.ideal_finish_s, self.sequence


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
    """How many times the seconds that the bytes left of a flow take on its path lower its relative
    rank.
    """
    together: bool = False
    """Whether these are the seconds of all flows that are due together."""


class Order(Protocol):
    """An order between EchelonFlows; inside one, every order is by ideal finish time."""

    def urgency(
        self,
        facts: JobFacts,
        now_s: Number,
        flow: ActiveFlow,
        deadline_s: Number,
        memory_s: Number = 0,
    ) -> Urgency:
        """Return the urgency of a flow of an EchelonFlow that is due at `deadline_s`.

        `memory_s` is what its job remembers of past delays
        (`echelon.planning.rankings.deadline.Memory`).
        """

    def levels(self, jobs: Mapping[str, JobFacts]) -> Mapping[str, Levels]:
        """Return the levels for switches, by job.

        A further call for other jobs changes a job's levels only if it must.
        """


class NormalisedTardiness:
    """An order that puts the job first that is furthest behind, in its own iterations: the largest
    (now - d) / P.

    P is the iteration time alone over the weight. The order is a greedy form of the weighted sum of
    tardiness (EchelonFlow, equation 4) with the weights 1/P.
    """

    def urgency(
        self,
        facts: JobFacts,
        now_s: Number,
        flow: ActiveFlow,
        deadline_s: Number,
        memory_s: Number = 0,
    ) -> Urgency:
        slope = 1 / facts.period_s
        return Urgency(
            (now_s - deadline_s) * slope, slope, deadline_s, flow.ideal_finish_s, flow.sequence
        )

    def levels(self, jobs: Mapping[str, JobFacts]) -> Mapping[str, Levels]:
        return {name: Levels(_parts(facts.period_s)) for name, facts in jobs.items()}


@dataclass(frozen=True, slots=True)
class Rule:
    """The parameters of `Blended`.

    U = P^`alone` q^`occupied`, in seconds, over the job's weight.
    """

    alone: Fraction
    """The exponent of P, the job's iteration time alone."""
    occupied: Fraction
    """The exponent of q, the sum over all links of the seconds for which an iteration occupies
    them.
    """
    head: Fraction = Fraction(0)
    """The part of b / 2 that is taken off, b the time for which the job's busiest link is busy in
    an iteration.
    """
    latest: bool = False
    """Whether flows are due at their latest finish on the critical path, instead of when their
    arrangement says.
    """
    left: int = 0
    """c: how many times the seconds that the bytes left of the flow take on its path are taken
    off.
    """
    together: bool = False
    """Whether these are the seconds in which all flows that are due together can finish, if they
    have sent as large a part as the flow."""


MEMORY = Rule(Fraction(1, 2), Fraction(1, 2), Fraction(1))
"""The rule of `memory`.

b: a job that sends for long becomes tardy by its own transmission, while no other job is in its
way; half of that is taken off. q: with 1/x for the slowdown of a job, links carry all jobs if the
sum of x u is at most 1 on each, and the mean of 1/x is then least where 1/x grows with the square
root of the priced sum of the job's u. With one price for all links, that is the root of q: a job
that needs little of the network is kept fast, because this costs others little.
"""


class Blended:
    """An order by tardiness with memory and the bytes left: the largest (now - d + E - c left /
    line - h b/2) / U goes first.

    Normalised tardiness starts at zero in each iteration. Two jobs whose iterations take equally
    long can then meet in the same way again and again, and the same one waits each time. E, the
    job's memory of past delays, lets the job go first that has waited. c left / line lets a flow go
    first that needs little of the link: by Smith's ratio, that delays the others least.
    """

    def __init__(self, rule: Rule = MEMORY) -> None:
        self._rule = rule
        self._levels = Kept(partial(_relative, rule))

    def urgency(
        self,
        facts: JobFacts,
        now_s: Number,
        flow: ActiveFlow,
        deadline_s: Number,
        memory_s: Number = 0,
    ) -> Urgency:
        slope = 1 / facts.unit_s(self._rule)
        value = (now_s - deadline_s + memory_s) * slope - facts.head_start(self._rule)
        return Urgency(value, slope, deadline_s, flow.ideal_finish_s, flow.sequence)

    def levels(self, jobs: Mapping[str, JobFacts]) -> Mapping[str, Levels]:
        return self._levels.update(dict(zip(jobs, zip(jobs.values(), strict=True), strict=True)))


def _relative(rule: Rule, facts: JobFacts) -> Levels:
    head_start = facts.head_start(rule)
    apart = facts.behind if facts.has_copies else Fraction(0)
    relative = Relative(
        facts.unit_s(rule), head_start, facts.latest_alone_s, facts.alone_s / IDLE, STEPS, apart
    )
    return Levels((), relative=relative, latest=rule.latest, left=rule.left, together=rule.together)


UNIT_TOLERANCE = Fraction(5, 4)
"""The factor by which the median iteration time may change before all jobs get new thresholds."""


class EarliestDeadline:
    """An order that puts the smallest ideal finish time first, whichever job it belongs to."""

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
        deadline_s: Number,
        memory_s: Number = 0,
    ) -> Urgency:
        return Urgency(-deadline_s, Fraction(0), deadline_s, flow.ideal_finish_s, flow.sequence)

    def levels(self, jobs: Mapping[str, JobFacts]) -> Mapping[str, Levels]:
        """Return the same thresholds for all jobs, so that packets of equal tardiness meet in one
        queue.

        They are parts of the median iteration time as it was when the thresholds were last set: a
        job that comes or goes changes them only if the median has moved by more than a quarter.
        """
        if not jobs:
            return {}
        typical_s = median(facts.alone_s for facts in jobs.values())
        unit_s = self._unit_s
        if unit_s is None or not unit_s / UNIT_TOLERANCE <= typical_s <= unit_s * UNIT_TOLERANCE:
            unit_s = self._unit_s = typical_s
        return dict.fromkeys(jobs, Levels(_parts(unit_s)))


class SmallestTardiness:
    """SETF: an order that puts the EchelonFlow first that would be least tardy alone, divided by
    its job's weight.

    If all EchelonFlows are coflows, it is Varys' smallest effective bottleneck first. Source:
    EchelonFlow (HotNets '22), section 4.
    """

    def urgency(
        self,
        facts: JobFacts,
        now_s: Number,
        flow: ActiveFlow,
        deadline_s: Number,
        memory_s: Number = 0,
    ) -> Urgency:
        assert flow.echelonflow is not None
        tardiness = facts.tardiness_s[flow.echelonflow] / facts.weight
        return Urgency(-tardiness, Fraction(0), deadline_s, flow.ideal_finish_s, flow.sequence)

    def levels(self, jobs: Mapping[str, JobFacts]) -> Mapping[str, Levels]:
        """Divide the seven levels of jobs into a band for each job, the smallest tardiness on top.

        More than seven jobs share levels. Inside a band, flows are ranked by tardiness as far as
        there are levels.
        """
        tardiness = {
            n: max(facts.tardiness_s.values(), default=Fraction(0)) / facts.weight
            for n, facts in jobs.items()
        }
        out = {}
        for place, name in enumerate(sorted(jobs, key=lambda n: tardiness[n])):
            highest = LEVELS - 1 - place * JOB_LEVELS // len(jobs)
            lowest = min(highest, LEVELS - (place + 1) * JOB_LEVELS // len(jobs))
            out[name] = Levels(_parts(jobs[name].period_s, highest - lowest + 1), lowest, highest)
        return out


def _parts(period_s: Fraction, levels: int = JOB_LEVELS) -> tuple[Fraction, ...]:
    """Return the thresholds between `levels` levels, taken evenly from those between all."""
    return tuple(period_s * THRESHOLDS[k * JOB_LEVELS // levels - 1] for k in range(1, levels))


def overtaking_s(ahead: Urgency, behind: Urgency) -> Number | None:
    """Return the seconds, always positive, until `behind` is as urgent as `ahead`; None if it never
    is.

    `ahead` must sort before `behind`.
    """
    if behind.slope <= ahead.slope:
        return None
    return (ahead.value - behind.value) / (behind.slope - ahead.slope)


def next_overtaking_s(
    flows: Sequence[ActiveFlow], order: Sequence[int], urgencies: Mapping[int, Urgency]
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
    times = (overtaking_s(urgencies[a], urgencies[b]) for a, b in neighbours)
    return min((time for time in times if time is not None), default=None)


ORDERS: Mapping[str, type[Order]] = {
    "memory": Blended,
    "normalised": NormalisedTardiness,
    "deadline": EarliestDeadline,
    "setf": SmallestTardiness,
}
