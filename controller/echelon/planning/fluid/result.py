"""The inputs of a fluid simulation besides jobs, and its results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from echelon.planning.allocation import Link
from echelon.planning.execution import JobRecord, Span, duration_s
from echelon.planning.plan import Plan

ENDLESS_BYTES = 1 << 80
"""The size of a background flow that lasts as long as the run."""


@dataclass(frozen=True, slots=True)
class BackgroundFlow:
    """Traffic that no job claims: best effort for every policy."""

    name: str
    src: str
    dst: str
    start_s: Fraction = Fraction(0)
    size_bytes: int | None = None
    """The bytes to send; None: it lasts as long as the run."""
    max_rate_Bps: Fraction | None = None  # noqa: N815
    """Bytes per second that the sender does not exceed; None: no limit."""


RoutedFlow: TypeAlias = tuple[BackgroundFlow, tuple[Link, ...]]
"""A background flow with its links."""


@dataclass(frozen=True, slots=True)
class FluidResult:
    """A run of jobs under one policy. All times are seconds from the beginning of the run."""

    plan: Plan
    jobs: Mapping[str, JobRecord[float]]
    background: Mapping[str, Span[float]]
    end_s: float
    allocations: int
    """The number of times that rates were set."""
    work: int
    """The work of the run: the sum, over these times, of the links on the paths concerned."""

    def iteration_times_s(self, job: str) -> tuple[float, ...]:
        """Return the durations of the job's finished iterations."""
        return tuple(float(duration_s(record)) for record in self.jobs[job].finished)
