"""Dry runs: changes that clients ask about. They are checked and planned like any other, but on a copy of the planner,
and nothing is saved or written."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from echelon.control import effects, events
from echelon.control.effects import Effect
from echelon.control.errors import RefusedError, ServiceError, UnavailableError
from echelon.control.events import Instant
from echelon.control.jobs import RegisteredJob
from echelon.control.jobstore import JobStore
from echelon.control.planning import Planned, Planner, PlanRequest
from echelon.control.rehearsal import Situation
from echelon.control.requests import Change
from echelon.documents import DocumentError

MOST = 16
"""Dry runs that may wait. Each holds up the plans of real changes for the time of one plan."""

Check = Callable[[events.ChangeRequest, Instant], Change]


class DryRuns:
    """The dry runs that were asked for, planned one after the other while there is nothing else to plan."""

    def __init__(self, jobs: JobStore, check: Check) -> None:
        self._jobs = jobs
        self._check = check
        self._asked: dict[int, Change] = {}
        """The dry runs that are not answered yet, by request."""
        self._due: deque[int] = deque()
        """Those that can be planned."""

    def __contains__(self, request: int) -> bool:
        return request in self._asked

    @property
    def are_due(self) -> bool:
        """Whether one waits for the planner."""
        return bool(self._due)

    def ask(self, asked: events.DryRun, now: Instant) -> list[Effect]:
        """Check a change. Its job, if it brings one, has to be built before it can be planned."""
        request = asked.request
        if len(self._asked) >= MOST:
            reason = f"{MOST} dry runs are under way (ask again in a moment)"
            return [effects.Refuse(request, UnavailableError(reason))]
        try:
            change = self._check(asked.change, now)
        except (ServiceError, DocumentError) as error:
            return [effects.Refuse(request, error)]
        self._asked[request] = change
        if change.job is not None:
            return [effects.BuildJob(request, change.job)]
        self._due.append(request)
        return []

    def built(self, request: int, built: RegisteredJob | DocumentError | ServiceError) -> list[Effect]:
        """Go on with a change whose job is built."""
        if not isinstance(built, RegisteredJob):
            return self._refuse(request, built)
        self._asked[request].job = built
        self._due.append(request)
        return []

    def begin(self, planner: Planner, in_force: Planned) -> effects.Rehearse:
        """Return the work of planning the next one. `in_force` is the plan of all that was accepted."""
        request = self._due.popleft()
        before = Situation(in_force, self._jobs.fabric, self._jobs.policy)
        return effects.Rehearse(request, planner, before, self._wanted(self._asked[request]))

    def planned(self, event: events.Rehearsed, planner: Planner) -> list[Effect]:
        """Compare a plan with the one in force."""
        if event.request not in self._asked:
            return []
        if isinstance(event.after, str):
            return self._refuse(event.request, RefusedError(event.after, code="plan-impossible"))
        return [effects.Compare(event.request, event.before, event.after, self._jobs.whole_fabric, planner.make_policy)]

    def compared(self, event: events.ChangeCompared) -> list[Effect]:
        """Answer a dry run."""
        if self._asked.pop(event.request, None) is None:
            return []
        if isinstance(event.outcome, ServiceError):
            return [effects.Refuse(event.request, event.outcome)]
        return [effects.Answer(event.request, event.outcome)]

    def forget(self, request: int) -> None:
        """Forget a dry run whose client has gone."""
        if self._asked.pop(request, None) is not None and request in self._due:
            self._due.remove(request)

    def close(self, error: ServiceError) -> list[Effect]:
        """Refuse all."""
        asked, self._asked = self._asked, {}
        self._due.clear()
        return [effects.Refuse(request, error) for request in asked]

    def _refuse(self, request: int, error: DocumentError | ServiceError) -> list[Effect]:
        del self._asked[request]
        return [effects.Refuse(request, error)]

    def _wanted(self, change: Change) -> PlanRequest:
        """Return what would be planned after a change."""
        store, asked = self._jobs, change.asked
        jobs, fabric, policy = store.jobs, store.fabric, store.policy
        match asked:
            case events.RegisterJob() | events.ReportDistances() | events.ReportConnections():
                assert change.job is not None
                jobs = {**jobs, change.job.name: change.job}
            case events.RemoveJob(job=name):
                jobs = {known: job for known, job in jobs.items() if known != name}
            case events.ChoosePolicy(policy=chosen):
                policy = chosen
            case events.SetLink():
                fabric = store.whole_fabric.without(change.drained)
        return PlanRequest(tuple(jobs.values()), fabric, policy)
