"""The 95 % interval of mean slowdowns, from one run of jobs in closed loop.

Iterations of a closed loop depend on those before, so that their spread says too little about that
of their mean. The run is therefore cut into a few long batches, which hardly depend on each other:
the method of batch means (Schmeiser, Batch size effects in the analysis of simulation output,
Operations Research 30, 1982; Law, Simulation modeling and analysis, section 9.5). Batches are equal
times, the same for all jobs, since jobs that share links slow each other down. A job's mean is then
a ratio, time over iterations, and its spread that of a ratio estimator (Cochran, Sampling
techniques, section 6.4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import hypot, sqrt
from statistics import fmean
from typing import TypeAlias

from echelon.planning.fluid.slowdown import WARM_UP, mean_time_s

Spans: TypeAlias = Sequence[tuple[float, float | None]]
"""Start and finish of a job's iterations (`slowdown.spans_s`); None: it has not finished."""

PRECISE = 0.01
"""The half width, as a part of the mean, below which a mean is precise."""
BATCHES = (3, 4, 5, 8)
"""The numbers of batches. The widest of their intervals counts.

Few batches notice that a loop drifts slowly, more of them a loop that is irregular. Of 400 random
scenarios of 30 iterations under `fair` (`python -m bench intervals`), 5 batches alone cover the
mean of a ten times longer run in 85 %, 10 in 80 %, and these in 95 %. The rest find another rhythm
later.
"""
LEAST_ITERATIONS = 6
"""The iterations of the slowest job, after the warm-up, that an interval needs."""
RESOLUTION = 0.001
"""The least half width, as a part of the mean.

A loop that repeats itself has no spread, but its mean differs by this much with where it is cut.
"""

_GROWTH = 1.5
"""The factor between the lengths at which a run is looked at. More looks would find luck."""

_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""The 97.5 % quantiles of Student's t distribution, from 1 degree of freedom."""


@dataclass(frozen=True, slots=True)
class MeanInterval:
    """A mean slowdown, and how far that of a much longer run is from it in 95 of 100 runs."""

    mean: float
    """The mean after the warm-up."""
    half_width: float | None
    """None: the run has too few iterations to tell."""

    @property
    def is_precise(self) -> bool:
        """Return whether the half width is below 1 % of the mean."""
        return self.half_width is not None and self.half_width < PRECISE * self.mean


def mean_slowdown_interval(
    spans_by_job: Mapping[str, Spans],
    end_s: float,
    alone_s: Mapping[str, float],
) -> MeanInterval:
    """Return the mean slowdown over jobs in a run until `end_s`, with its 95 % interval.

    `alone_s` has the seconds of an iteration alone, by job. With one job, it is that job's own. The
    mean is that of `slowdown.slowdown`, in which the first third of the run does not count.
    """
    begin_s = WARM_UP * end_s
    loops = []
    for job, spans in spans_by_job.items():
        loops.append(_Loop(spans, begin_s, end_s, alone_s[job]))
    mean = fmean(loop.slowdown for loop in loops)
    if min(loop.iterations for loop in loops) < LEAST_ITERATIONS:
        return MeanInterval(mean, None)

    widths = [_batch_width(loops, batches) for batches in BATCHES]
    # The first and the last iteration are partly outside: the mean depends on whether they count.
    edges = fmean(loop.slowdown_of_time for loop in loops) - mean
    half_width = hypot(max(widths), edges)
    half_width = max(half_width, RESOLUTION * mean)
    return MeanInterval(mean, half_width)


class Precision:
    """Tells when the mean slowdown of a run is precise.

    Luck makes an interval narrow now and then: the mean must not have moved since the look before.
    """

    def __init__(self, alone_s: Mapping[str, Fraction], iterations: int) -> None:
        self._alone_s = {job: float(job_alone_s) for job, job_alone_s in alone_s.items()}
        self.pause_s = max(self._alone_s.values())
        """An iteration of the slowest job takes longer: no look is late by two."""
        self._look = float(iterations)
        self._mean: float | None = None

    def is_due(self, iterations: int) -> bool:
        """Return whether to look at a run whose slowest job has finished so many iterations."""
        return iterations >= self._look

    def reached(self, spans_by_job: Mapping[str, Spans]) -> bool:
        """Look at a run until now, and return whether it is precise."""
        end_s = max(_last_finish_s(spans) for spans in spans_by_job.values())
        interval = mean_slowdown_interval(spans_by_job, end_s, self._alone_s)
        former = self._mean
        self._mean = interval.mean
        self._look *= _GROWTH
        if former is None or not interval.is_precise:
            return False
        return abs(interval.mean - former) < PRECISE * interval.mean


def interval_of_draws(draws: Sequence[MeanInterval]) -> MeanInterval:
    """Return the mean of runs with phases of their own, with its 95 % interval.

    Draws are independent: their squared half widths add. From three draws on, their own spread
    counts where it is wider, since phases may decide which of its rhythms a loop finds.
    """
    count = len(draws)
    mean = fmean(draw.mean for draw in draws)
    widths = []
    half_widths = [draw.half_width for draw in draws if draw.half_width is not None]
    if len(half_widths) == count:
        widths.append(hypot(*half_widths) / count)
    if count >= BATCHES[0]:
        deviations = [draw.mean - mean for draw in draws]
        widths.append(_width(deviations))
    return MeanInterval(mean, max(widths, default=None))


def _batch_width(loops: Sequence[_Loop], batches: int) -> float:
    """Return the half width for the mean over jobs, from so many batches."""
    deviations = [0.0] * batches
    for loop in loops:
        for index, deviation in enumerate(loop.deviations(batches)):
            deviations[index] += deviation / len(loops)
    return _width(deviations)


def _width(deviations: Sequence[float]) -> float:
    """Return the half width for a mean, from the deviations of its independent parts."""
    count = len(deviations)
    freedom = min(count - 1, len(_QUANTILES))
    standard_error = hypot(*deviations) / sqrt(count * (count - 1))
    return _QUANTILES[freedom - 1] * standard_error


def _last_finish_s(spans: Spans) -> float:
    return max((finish_s for _, finish_s in spans if finish_s is not None), default=0.0)


class _Loop:
    """The iterations of a job after the warm-up."""

    def __init__(
        self,
        spans: Spans,
        begin_s: float,
        end_s: float,
        alone_s: float,
    ) -> None:
        self._begin_s = begin_s
        self._length_s = end_s - begin_s
        self._alone_s = alone_s
        mean_s = mean_time_s(spans, end_s)
        self.slowdown = mean_s / alone_s
        self._spans_s = []
        """Start and end of the iterations; of an unfinished one, the end is expected."""
        for start_s, finish_s in spans:
            if finish_s is None:
                finish_s = max(end_s, start_s + mean_s)
            if finish_s > max(begin_s, start_s):
                self._spans_s.append((start_s, finish_s))
        (self.iterations,) = self._counts(1)

    @property
    def slowdown_of_time(self) -> float:
        """Return the slowdown by time over iterations, which counts parts of them, too."""
        return self._length_s / self.iterations / self._alone_s

    def deviations(self, batches: int) -> list[float]:
        """Return by how much each batch moves the slowdown, times the number of batches."""
        batch_s = self._length_s / batches
        mean_s = self._length_s / self.iterations
        per_batch = self.iterations / batches
        deviations = []
        for count in self._counts(batches):
            surplus_s = batch_s - mean_s * count
            deviations.append(surplus_s / per_batch / self._alone_s)
        return deviations

    def _counts(self, batches: int) -> list[float]:
        """Return how many iterations are in each batch, in parts where they are in several."""
        counts = [0.0] * batches
        batch_s = self._length_s / batches
        for start_s, finish_s in self._spans_s:
            first = max(0, int((start_s - self._begin_s) / batch_s))
            last = min(batches - 1, int((finish_s - self._begin_s) / batch_s))
            for index in range(first, last + 1):
                batch_begin_s = self._begin_s + index * batch_s
                begin_s = max(start_s, batch_begin_s)
                end_s = min(finish_s, batch_begin_s + batch_s)
                counts[index] += max(0.0, end_s - begin_s) / (finish_s - start_s)
        return counts
