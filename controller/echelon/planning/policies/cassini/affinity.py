"""The affinity graph: one shift for each job, from those of all links (CASSINI, section 4).

Jobs and links are the vertices of a bipartite graph. Its edges say by how much a link wants a job
shifted. From one job of each connected component, a search follows the edges: a link that one of
its jobs is placed on places the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Wish:
    """The wish of one link about the jobs on it."""

    shifts_s: Mapping[str, Fraction]
    """Seconds by which each job starts later than the link's time 0."""
    gain: float
    """The gain of the link: links of more gain place their jobs first."""
    tolerance_s: Fraction
    """The shift of a job that makes no difference to the link."""


@dataclass(frozen=True, slots=True)
class AgreedShifts:
    """One shift for each job."""

    shifts_s: Mapping[str, Fraction]
    """The start of an iteration of each job that any link has a wish for: less than its period."""
    ignored: tuple[int, ...]
    """The indices of wishes that close a loop in which the shifts do not agree."""


def agree(
    wishes: Sequence[Wish],
    periods_s: Mapping[str, Fraction],
    starts_s: Mapping[str, Fraction],
) -> AgreedShifts:
    """Return a shift for each job such that all links but the ignored ones have their wish.

    In each component the first job of `periods_s` keeps its time of `starts_s`. CASSINI discards a
    placement of jobs whose affinity graph has a loop, and takes another one. Here workers are
    given, so a loop costs the wish that gains least, unless its shifts agree anyway.
    """
    by_job = defaultdict(list)
    for index, wish in enumerate(wishes):
        for job in wish.shifts_s:
            by_job[job].append(index)
    placed = {}
    ignored = []
    done = set()
    for root in periods_s:
        if root in placed or root not in by_job:
            continue
        placed[root] = starts_s[root] % periods_s[root]
        open_wishes = set(by_job[root])
        while open_wishes:
            index = max(open_wishes, key=lambda index: (wishes[index].gain, -index))
            open_wishes.remove(index)
            done.add(index)
            wish = wishes[index]
            if not _follow(wish, placed, periods_s):
                ignored.append(index)
            for job in wish.shifts_s:
                if job in placed:
                    open_wishes |= set(by_job[job]) - done
    return AgreedShifts(placed, tuple(sorted(ignored)))


def _follow(
    wish: Wish,
    placed: dict[str, Fraction],
    periods_s: Mapping[str, Fraction],
) -> bool:
    """Place the jobs of a link that have no place, as it wants.

    Return whether those that have one agree.
    """
    anchor = next(job for job in wish.shifts_s if job in placed)
    origin_s = placed[anchor] - wish.shifts_s[anchor]
    for job, shift_s in wish.shifts_s.items():
        if job in placed:
            # Of two jobs, only the difference of their phases matters.
            common_s = _common_divisor(periods_s[anchor], periods_s[job])
            apart_s = (placed[job] - origin_s - shift_s) % common_s
            if min(apart_s, common_s - apart_s) > wish.tolerance_s:
                return False
    for job, shift_s in wish.shifts_s.items():
        placed.setdefault(job, (origin_s + shift_s) % periods_s[job])
    return True


def _common_divisor(a: Fraction, b: Fraction) -> Fraction:
    while b:
        a, b = b, a % b
    return a
