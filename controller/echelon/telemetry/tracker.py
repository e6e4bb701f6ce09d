"""Tardiness and iteration times as switches see them, and what profiled distances should be corrected to.

A flow is followed at the switch where its path ends: there its last packet has passed every queue but one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from echelon.jobs.graph import EchelonFlow, Job
from echelon.plan import Plan
from echelon.telemetry.events import FlowEvent

SMOOTHING = Fraction(1, 4)
"""Weight of the newest iteration in a corrected distance (exponentially weighted mean)."""


_REMEMBERED = 4
"""Iterations of an EchelonFlow whose events may be mixed: switches report up to a list's timeout apart."""


@dataclass
class _Seen:
    """What was seen of one EchelonFlow in one iteration."""

    starts_s: dict[str, Fraction] = field(default_factory=dict)
    tardiness_s: dict[str, Fraction] = field(default_factory=dict)


@dataclass
class Tracker:
    """Fed with every event of every switch; holds the latest iterations of each EchelonFlow and what they told.

    `tardiness_s` and `distances_s` are by (job, EchelonFlow): the tardiness of each finished iteration, and the
    smoothed observed start of each flow after the head flow's, where one clock has seen them all.
    """

    jobs: Sequence[Job]
    plan: Plan
    tardiness_s: dict[tuple[str, str], list[Fraction]] = field(default_factory=dict)
    distances_s: dict[tuple[str, str], tuple[Fraction, ...]] = field(default_factory=dict)
    _seen: dict[tuple[str, str], dict[int, _Seen]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._last_switch = {(f.job, f.flow): f.path[-2] for f in self.plan.flows}
        self._echelonflow: dict[tuple[str, str], tuple[str, EchelonFlow]] = {
            (job.name, flow): (job.name, h) for job in self.jobs for h in job.echelonflows for flow in h.flows
        }

    def observe(self, event: FlowEvent) -> None:
        """Events of one switch in its order; those of other switches in any."""
        key = (event.job, event.flow)
        if self._last_switch.get(key) != event.switch or key not in self._echelonflow:
            return
        job, echelonflow = self._echelonflow[key]
        name = (job, echelonflow.name)
        iterations = self._seen.setdefault(name, {})
        seen = iterations.get(event.epoch)
        if seen is None:
            seen = iterations[event.epoch] = _Seen()
            if len(iterations) > _REMEMBERED:
                del iterations[next(iter(iterations))]
        if event.started:
            seen.starts_s.setdefault(event.flow, event.time_s)
        if event.finished and event.flow not in seen.tardiness_s:
            seen.tardiness_s[event.flow] = event.tardiness_s
            if len(seen.tardiness_s) == len(echelonflow.flows):
                self._finish(name, echelonflow, seen)

    def _finish(self, name: tuple[str, str], echelonflow: EchelonFlow, seen: _Seen) -> None:
        self.tardiness_s.setdefault(name, []).append(max(seen.tardiness_s.values()))
        # A digest can be lost: without every start there is nothing to learn from this iteration. Nor is there from
        # the clocks of several switches.
        clocks = {self._last_switch[name[0], flow] for flow in echelonflow.flows}
        if len(seen.starts_s) < len(echelonflow.flows) or len(clocks) > 1:
            return
        head_s = seen.starts_s[echelonflow.flows[0]]
        observed = tuple(seen.starts_s[flow] - head_s for flow in echelonflow.flows)
        before = self.distances_s.get(name, observed)
        self.distances_s[name] = tuple(b + SMOOTHING * (o - b) for b, o in zip(before, observed, strict=True))
