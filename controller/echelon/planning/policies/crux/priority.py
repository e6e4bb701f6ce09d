"""The priority of a job: its intensity, corrected for its place (Crux, section 4.2).

A job whose communication overlaps with its computing, or that communicates seldom, loses less by
waiting than its intensity says. So each job is compared with a reference job, the one with the most
traffic, under both strict orders of the two on one link: with x the seconds for which a job
transmits in the same time,

    k = (x of the job, first - x of the job, second) / (x of the reference, first - x of the
    reference, second)

and its priority is k times its intensity. Crux measures x over a window. Here both jobs are
periodic, so the pattern repeats itself, and x is counted in one repetition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

MOST_ITERATIONS = 400
"""Number of iterations after which a pair that has not repeated itself is taken as it is."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A job that computes and communicates in turn: an iteration lasts until both are done."""

    compute_s: float
    communicate_s: float
    communicate_after_s: float
    """The time in an iteration when it begins to communicate."""

    @property
    def period_s(self) -> float:
        """Return the iteration time alone."""
        return max(self.compute_s, self.communicate_after_s + self.communicate_s)


def transmitting(first: Loop, second: Loop) -> tuple[float, float]:
    """Return the parts of the time in which two jobs transmit, `first` before `second`."""
    period_s = first.period_s
    ahead = 0.0
    if period_s:
        ahead = first.communicate_s / period_s
    if ahead >= 1 or not second.communicate_s:
        return ahead, 0.0
    now_s = 0.0
    seen = {}
    """The time in a period of the first job at which an iteration of the second began, and which.
    """
    for iteration in range(MOST_ITERATIONS):
        # Times that differ by rounding only are the same phase.
        phase = round(now_s / period_s % 1, 9) % 1 if period_s else 0.0
        if phase in seen:
            break
        seen[phase] = iteration, now_s
        now_s = _finish_s(now_s, first, second)
    else:
        return ahead, MOST_ITERATIONS * second.communicate_s / now_s
    began, began_s = seen[phase]
    return ahead, (iteration - began) * second.communicate_s / (now_s - began_s)


def _finish_s(
    start_s: float,
    first: Loop,
    second: Loop,
) -> float:
    """Return when an iteration of the second job ends, in seconds since the first job began."""
    # What differs by this only is the same time: sums of floats are off by far less.
    tiny_s = 1e-9 * (first.period_s + second.period_s)
    at_s = start_s + second.communicate_after_s
    left_s = second.communicate_s
    period_s = first.period_s
    while left_s > tiny_s and period_s:
        begin_s = (at_s + tiny_s) // period_s * period_s
        taken_from_s = begin_s + first.communicate_after_s
        taken_to_s = taken_from_s + first.communicate_s
        if taken_from_s - tiny_s <= at_s < taken_to_s - tiny_s:
            at_s = taken_to_s
            continue
        free_to_s = taken_from_s if at_s < taken_from_s else taken_from_s + period_s
        used_s = min(left_s, free_to_s - at_s)
        left_s -= used_s
        at_s += used_s
    return max(at_s + left_s, start_s + second.compute_s)


def factor(job: Loop, reference: Loop) -> float:
    """Return k, the factor of a job's intensity; 1 if the order makes no difference."""
    job_first, reference_second = transmitting(job, reference)
    reference_first, job_second = transmitting(reference, job)
    gain = job_first - job_second
    cost = reference_first - reference_second
    if cost <= 0:
        return 1.0
    return gain / cost


def factors(loops: Mapping[str, Loop], traffic_bytes: Mapping[str, int]) -> dict[str, float]:
    """Return k for each job; that of the job with the most traffic is 1."""
    if not loops:
        return {}
    reference = max(loops, key=lambda name: traffic_bytes[name])

    @cache  # jobs of one model are often equal
    def factor_of(loop: Loop) -> float:
        return factor(loop, loops[reference])

    by_name = {}
    for name, loop in loops.items():
        by_name[name] = 1.0
        if name != reference:
            by_name[name] = factor_of(loop)
    return by_name
