"""A search that has a plan after about a second, before the one that takes as long as it needs."""

from __future__ import annotations

from dataclasses import replace

from echelon.planning.policies.base import Choice
from echelon.planning.policies.echelon.candidates import PlanCandidate
from echelon.planning.policies.echelon.search import PlanSearch

BRIEF_WORK = 10_000_000
"""The work of a brief search (`search.MOST_WORK`): about a second of a processor."""
MOST_BRIEF_STEPS = 50_000
"""The most steps of a group's jobs for which a brief search has a result.

For more, planning two candidates takes all its work (`search` counts 100 for each flow of each).
"""


class BriefSearch(PlanSearch):
    """A search whose result is preliminary, unless it went through all rounds at full length."""

    def run(self) -> Choice[PlanCandidate]:
        """Return the best plan so far. Raises as `PlanSearch.run`."""
        choice = self._best_on_model()
        if not self.is_cut:
            return self._judged(choice)
        return replace(choice, preliminary=True, work=self._most_work)
