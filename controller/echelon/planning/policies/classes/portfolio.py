"""The assignments among which a search chooses, and the steps from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from random import Random
from typing import Any

from echelon.model.jobs.graph import Job
from echelon.planning.policies.classes.assignment import (
    RATIOS,
    Assignment,
    Communicator,
    communicators_of,
)
from echelon.planning.policies.echelon.candidates import FAIR, PlanCandidate
from echelon.planning.policies.echelon.portfolio import Portfolio
from echelon.planning.windows import ACK_BYTES, Windows

DRAWN = 200
"""The assignments that are drawn at random, for a start.

On six even seeds of `echelon evaluate`, the best of 64 by orders of jobs had a score of 0.961 of
that of fair sharing, the best of these and of local searches 0.908. Flows of a connection did not
go in turn then.
"""
STARTS = 4
"""The assignments from which local searches begin."""
LOCAL_WORK = 4
"""The most work of local searches, as a multiple of that of the rounds before.

Without local searches the score was 0.927.
"""
SENDERS = Windows(
    packet_bytes=1250,
    full=None,
    initial=None,
    acknowledgement_bytes=ACK_BYTES,
    passes=True,
    streams=True,
)
"""The senders that are simulated, with packets as long as the laboratory's.

Acknowledgements take a hundredth of a link, which decides over many iterations which jobs meet.
"""


class Assignments(Portfolio):
    """Assignments to so many classes; fair sharing is what they are compared with."""

    starts = STARTS
    windows = SENDERS
    has_orders = False

    def __init__(
        self,
        classes: int,
        ratios: Sequence[int] = RATIOS,
        paths: Sequence[str] = ("kept",),
    ) -> None:
        self._classes = classes
        self._ratios = ratios
        self._paths = paths
        # No fixed order was better without a simulation than one class for all.
        self._together = Assignment(classes=classes)
        self.unsearched = self._together
        self.alone = self._together

    def candidates(
        self,
        jobs: Sequence[Job],
        several_paths: bool,
    ) -> Sequence[PlanCandidate]:
        """Return one class for all, and assignments that are drawn."""
        random = Random(0)
        choices = self._paths if several_paths else self._paths[:1]
        candidates: list[PlanCandidate] = [self._together, FAIR]
        candidates += [replace(self._together, paths=paths) for paths in choices]
        partitions = [_parts(jobs, in_common) for in_common in _IN_COMMON]
        for number in range(DRAWN):
            chosen: dict[Communicator, int] = {}
            for part in partitions[number % len(partitions)]:
                drawn = random.randrange(self._classes)
                chosen |= dict.fromkeys(part, drawn)
            ratio = random.choice(self._ratios)
            paths = choices[number // len(partitions) % len(choices)]
            assignment = replace(self._together, ratio=ratio, paths=paths)
            candidates.append(assignment.with_classes(chosen))
        return list(dict.fromkeys(candidates))

    def size(self) -> int:
        return DRAWN

    def chooses(self, candidate: PlanCandidate) -> bool:
        return isinstance(candidate, Assignment)

    def local_work(self, spent: int, unspent: int) -> float:
        return min(LOCAL_WORK * spent, unspent)

    def neighbours(
        self,
        candidate: PlanCandidate,
        jobs: Iterable[Job],
    ) -> Sequence[PlanCandidate]:
        """Return the same with another ratio, or with another class of some communicators.

        These are those of a job, those of a name, or a single one.
        """
        assert isinstance(candidate, Assignment)
        members = [*jobs]
        near = [replace(candidate, ratio=ratio) for ratio in self._ratios]
        for in_common in _IN_COMMON:
            for part in _parts(members, in_common):
                for number in range(self._classes):
                    near.append(candidate.with_classes(dict.fromkeys(part, number)))
        distinct = dict.fromkeys(near)
        distinct.pop(candidate, None)
        return list(distinct)

    def candidate_of(self, document: Mapping[str, Any]) -> PlanCandidate:
        return Assignment.of_document(document)


_IN_COMMON: Sequence[Callable[[Communicator], str]] = (
    itemgetter(0),
    itemgetter(1),
    "/".join,
)
"""What communicators that move together have in common: a job, a name, or both."""


def _parts(
    jobs: Sequence[Job],
    in_common: Callable[[Communicator], str],
) -> Collection[Sequence[Communicator]]:
    """Return the communicators of jobs by what they have in common."""
    parts: dict[str, list[Communicator]] = {}
    for communicator in communicators_of(jobs):
        key = in_common(communicator)
        part = parts.setdefault(key, [])
        part.append(communicator)
    return parts.values()
