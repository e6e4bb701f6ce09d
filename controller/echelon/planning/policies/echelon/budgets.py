"""How much work searches may take."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from echelon.planning.policies.base import Group
from echelon.planning.policies.echelon.brief import BRIEF_WORK
from echelon.planning.policies.echelon.search import MOST_WORK

JOB_WORK = 30_000_000
"""The work of a search for each job of a group, at most: a few seconds of a processor.

Two jobs meet in few ways, so that a search for them has nothing to gain by more.
"""
GROWTH = 4
"""The factor by which a search takes more work than the preliminary one before it. Its result comes
after a few times as long, and all that is done again is a third of the last search."""


def budgets(groups: Collection[Group]) -> Mapping[Group, int]:
    """Return the work for each of these groups. All searches take `MOST_WORK` together.

    A group gets its part by the number of its jobs: a plan is measured by their mean slowdown, and
    so is what a search can gain.
    """
    jobs = sum(map(len, groups))
    works = {}
    for group in groups:
        # Both bounds grow with the jobs of a group, so that no group leaves work for another.
        part = MOST_WORK * len(group) // jobs
        works[group] = min(part, JOB_WORK * len(group))
    return works


def preliminary_work(before: int, most_work: int) -> int | None:
    """Return the work of the next search if that has to be preliminary, too.

    `before` is the work of the preliminary search before it; 0: there was none. A search that has
    half of `most_work` has all of it.
    """
    work = BRIEF_WORK
    if before:
        work = GROWTH * before
    # A preliminary search of more than half would come hardly sooner than the last one.
    if 2 * work > most_work:
        return None
    return work
