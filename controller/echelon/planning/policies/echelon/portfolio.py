"""The plans among which a search chooses: all that `echelon` knows, or those of another policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from echelon.model.jobs.graph import Job
from echelon.planning.policies.echelon.candidates import (
    ALONE,
    UNSEARCHED,
    PlanCandidate,
    candidates,
)
from echelon.planning.policies.echelon.mixed import candidate_of
from echelon.planning.policies.echelon.trials import WINDOWS
from echelon.planning.policies.echelon.units import neighbours


class Portfolio:
    """Orders of ours, in which jobs may have other units, and other policies.

    Another policy that searches says what differs. A portfolio can be pickled, and changes nothing.
    """

    unsearched: PlanCandidate = UNSEARCHED
    """The candidate of jobs that share links, before any simulation."""
    alone: PlanCandidate = ALONE
    """The candidate of a job that shares no links."""
    starts = 1
    """The number of candidates from which local searches begin."""
    windows = WINDOWS
    """The windows of senders in simulations."""
    has_orders = True
    """Whether jobs may be divided into neighbourhoods, each with an order of its own."""

    def candidates(self, jobs: Sequence[Job], several_paths: bool) -> Sequence[PlanCandidate]:
        """Return all candidates for these jobs, `unsearched` first.

        `several_paths` says whether some connection has a choice of paths.
        """
        return candidates(several_paths)

    def size(self) -> int:
        """Return about how many candidates there are for jobs that are not known yet."""
        return len(self.candidates((), several_paths=True))

    def chooses(self, candidate: PlanCandidate) -> bool:
        """Return whether it may be chosen; others are only what plans are compared with."""
        return True

    def local_work(self, spent: int, unspent: int) -> float:
        """Return the most work of local searches, if so much was spent before, and is left."""
        return min(spent, unspent) / 2

    def neighbours(
        self,
        candidate: PlanCandidate,
        jobs: Iterable[Job],
    ) -> Sequence[PlanCandidate]:
        """Return the neighbours of a candidate in a local search, which differ in these jobs."""
        names = [job.name for job in jobs]
        return neighbours(candidate, names)

    def candidate_of(self, document: Mapping[str, Any]) -> PlanCandidate:
        """Return the candidate of which this is the document. Raises `ValueError`."""
        return candidate_of(document)


EVERYTHING = Portfolio()
