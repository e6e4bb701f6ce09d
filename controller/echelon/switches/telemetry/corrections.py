"""The check of a job's profile against what switches see, and the arrangement functions that it
should have.

An arrangement function is made of profiled compute times of the *consumer*; what a switch can see
are the starts of flows, which are the *producer's* pace. What both have in common is a profile that
is wrong as a whole: taken on another kind of processor, with another batch size or clock. So one
factor is looked for, observed over profiled time, and all offsets of the job are multiplied by it.

Starts tell of computing only where nothing else decides when a flow starts. Two rules keep
contention out:

* Only EchelonFlows count whose flows, from the head on, wait for nothing but computing
  (`computed_distances_s`): in a pipeline the activations of the first stage and the gradients of
  the last, not those between.
* A flow that starts as the one before it on its connection ends may have waited for it. Such an
  iteration tells nothing.

And so that plans do not flap: a factor must be agreed upon by `AGREEING` iterations in a row, and
differ from the one in force by more than `TOLERANCE`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Job

TOLERANCE = Fraction(1, 10)
"""A right profile is within a few percent, and plans tolerate 20 % (docs/policies-measured.md)."""
AGREEING = 8
"""The number of iterations in a row whose factors must be within TOLERANCE of each other."""
MAX_FACTOR = 16
"""The largest credible factor, and one over it the smallest.

Beyond them, the flows belong to a different job.
"""
_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class FlowStart:
    """The start of a flow, and the end of the one before it on its connection, by the clock of one
    switch.
    """

    time_s: Fraction
    before_s: Fraction | None = None
    """None: there was none, or its end is unknown."""


def computed_distances_s(
    computes: Mapping[str, ComputeUnit],
    after: Mapping[str, Sequence[str]],
    echelonflow: EchelonFlow,
) -> tuple[Fraction, ...] | None:
    """Return how many seconds after the head flow each flow starts, if only computing decides that,
    else None.

    Only computing decides if all that the flows wait for are compute units that depend on the one
    of the head flow. `computes` has the job's compute units by name, `after` what each of its flows
    waits for.
    """
    head_needs = after[echelonflow.flows[0]]
    if len(head_needs) != 1 or head_needs[0] not in computes:
        return None
    # When compute units end, counted from the end of that one: then the head flow starts.
    end_s = {head_needs[0]: Fraction(0)}
    for flow in echelonflow.flows:
        if not after[flow]:
            return None
        stack = list(after[flow])
        while stack:
            name = stack[-1]
            if name not in end_s:
                if name not in computes or not computes[name].after:
                    return None
                missing = [need for need in computes[name].after if need not in end_s]
                if missing:
                    stack += missing
                    continue
                end_s[name] = (
                    max(end_s[need] for need in computes[name].after) + computes[name].duration_s
                )
            stack.pop()
    return tuple(max(end_s[need] for need in after[flow]) for flow in echelonflow.flows)


@dataclass(slots=True)
class Evidence:
    """Factors (observed over profiled) of the latest iterations of one EchelonFlow whose starts
    computing decides.
    """

    flows: tuple[str, ...]
    distances_s: tuple[Fraction, ...]
    factors: deque[Fraction] = field(default_factory=lambda: deque(maxlen=AGREEING))

    def observe(self, starts: Mapping[str, FlowStart]) -> None:
        """Take the starts of all flows in one iteration."""
        factor = self._factor([starts[flow] for flow in self.flows])
        if factor is None:
            self.factors.clear()
        else:
            self.factors.append(factor)

    @property
    def agreed(self) -> Fraction | None:
        """Return the factor on which the latest AGREEING iterations agree."""
        if len(self.factors) == AGREEING:
            return agreed(self.factors, TOLERANCE)
        return None

    def _factor(self, starts: Sequence[FlowStart]) -> Fraction | None:
        observed_s = [one.time_s - starts[0].time_s for one in starts]
        factor = sum(observed_s, Fraction(0)) / sum(self.distances_s, Fraction(0))
        if not Fraction(1, MAX_FACTOR) <= factor <= MAX_FACTOR:
            return None
        for index in range(1, len(starts)):
            profiled_s = self.distances_s[index] - self.distances_s[index - 1]
            if (
                abs(observed_s[index] - factor * self.distances_s[index])
                > TOLERANCE * factor * self.distances_s[-1]
            ):
                return None  # not the profile's shape
            before_s = starts[index].before_s
            if (
                before_s is not None
                and starts[index].time_s - before_s <= TOLERANCE * factor * profiled_s
            ):
                return None
        return factor


def agreed(factors: Collection[Fraction], tolerance: Fraction) -> Fraction | None:
    """Return the median of the factors if all are within `tolerance` of it."""
    middle = _middle(factors)
    if all(abs(one - middle) <= tolerance * middle for one in factors):
        return middle
    return None


def _middle(values: Iterable[Fraction]) -> Fraction:
    """Return the median; of an even number of values the upper of the two in the middle."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


class Corrections:
    """The factor in force for one job, and what follows from it."""

    def __init__(self, job: Job) -> None:
        self._echelonflows = [one for one in job.echelonflows if not one.is_coflow]
        self.evidence: dict[str, Evidence] = {}
        computes = {unit.name: unit for unit in job.computes}
        after = {flow.name: flow.after for flow in job.flows}
        for one in self._echelonflows:
            distances_s = computed_distances_s(computes, after, one)
            if distances_s is not None and any(distances_s):
                self.evidence[one.name] = Evidence(one.flows, distances_s)
        self.factor = Fraction(1)
        self.offsets_s: Mapping[str, tuple[Fraction, ...]] = {}
        """The corrected offsets by EchelonFlow, if they differ from the profile's; in whole
        microseconds.
        """

    def observe(self, echelonflow: str, starts: Mapping[str, FlowStart]) -> bool:
        """Take the starts of all its flows in one iteration. Return whether `offsets_s` changed."""
        evidence = self.evidence.get(echelonflow)
        if evidence is None:
            return False
        evidence.observe(starts)
        return self._decide()

    def _decide(self) -> bool:
        agreed = [one.agreed for one in self.evidence.values()]
        factors = [one for one in agreed if one is not None]
        if len(factors) < len(agreed) or max(factors) - min(factors) > TOLERANCE * min(factors):
            return False
        factor = _middle(factors)
        if abs(factor - self.factor) <= TOLERANCE * self.factor:
            return False
        # A profile that is right after all is not to be made a little wrong.
        if abs(factor - 1) <= TOLERANCE:
            self.factor = Fraction(1)
        else:
            self.factor = factor
        if self.factor == 1:
            self.offsets_s = {}
        else:
            self.offsets_s = {
                one.name: tuple(
                    Fraction(round(offset * self.factor * _MICROSECONDS), _MICROSECONDS)
                    for offset in one.offsets_s
                )
                for one in self._echelonflows
            }
        return True
