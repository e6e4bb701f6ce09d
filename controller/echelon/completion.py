"""The rule for the end of a run and for further iterations of jobs that are ahead. No I/O, no clock.

Virtual runs, runs on real hosts and the fluid simulator share this rule:

- A run is over when every job has finished the iterations that were asked for.
- Under ``all-done``, a job that is ahead begins further iterations until then, so that the load on the network stays.
- Under ``exactly``, it stops after its own.
- Background and cross traffic last as long as the run and never prolong it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

Until: TypeAlias = Literal["all-done", "exactly"]
"""The rule for a job that has finished its iterations before the others: it continues (``all-done``) or stops
(``exactly``).
"""


class Completion:
    """The progress of a run's jobs, and what follows from it.

    `iterations` is the number that every job has to finish; None means that the run never ends by itself.
    """

    def __init__(self, jobs: Iterable[str], iterations: int | None, until: Until = "all-done") -> None:
        self._finished = dict.fromkeys(jobs, 0)
        self._iterations = iterations
        self._load_stays = until == "all-done"

    def finish(self, job: str, iteration: int) -> None:
        """Note that `job` has finished `iteration` (counted from 1)."""
        self._finished[job] = iteration

    def begins(self, job: str, iteration: int) -> bool:
        """Return whether `job`, which has finished the iteration before, begins `iteration`.

        It makes no difference whether `finish` has been called for the iteration before.
        """
        if self._iterations is None or iteration <= self._iterations:
            return True
        others = (finished for name, finished in self._finished.items() if name != job)
        return self._load_stays and any(finished < self._iterations for finished in others)

    @property
    def reached(self) -> bool:
        """Whether the run is over. A run without jobs is over at once."""
        return self._iterations is not None and all(n >= self._iterations for n in self._finished.values())

    @property
    def common_iterations(self) -> int:
        """The number of iterations that every job has finished; 0 for a run without jobs."""
        return min(self._finished.values(), default=0)
