"""Changes that clients ask for, and dry runs of changes.

Changes are checked, built if they are jobs, saved, then applied and answered. Dry runs are checked
and built in the same way, then planned and compared. What each kind of change does at these steps
is in `echelon.controller.changes`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from echelon.controller.machine import effects, events
from echelon.controller.machine.change import OWN, ChangeRequest, ControllerState, WaitingChange
from echelon.controller.machine.effects import Effects
from echelon.controller.machine.errors import RefusedError, ServiceError, UnavailableError
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.jobs import RegisteredJob
from echelon.controller.machine.jobstore import JobStore
from echelon.controller.machine.lines import Progress
from echelon.controller.machine.planning import Planned, Planner, PlanRequest
from echelon.controller.machine.rehearsal import Situation
from echelon.model.documents import DocumentError

MOST_DRY_RUNS = 16
"""Dry runs that may wait. Each holds up the plans of real changes for the time of one plan."""


class Requests:
    """The changes that clients ask for.

    Those of one job follow one another; those of other jobs proceed concurrently.
    """

    def __init__(
        self,
        jobs: JobStore,
        progress: Progress,
        flows_per_job: int,
        is_switching: Callable[[], bool],
    ) -> None:
        """`is_switching` says whether the optical switch moves links now."""
        self._queues: dict[str, deque[ChangeRequest]] = {}
        """The change whose turn it is and those that wait for it, by job."""
        self._turns: dict[int, WaitingChange] = {}
        """The changes whose turn it is, by request."""
        self.state = ControllerState(jobs, progress, flows_per_job, is_switching, self._turns)

    def queue(self, asked: ChangeRequest, now: Instant) -> Effects:
        """Take a request; begin with it at once if no change of the same job is under way."""
        queue = self._queues.setdefault(asked.queue, deque())
        queue.append(asked)
        if len(queue) > 1:
            return []
        return self._begin(asked, now)

    def built(
        self,
        request: int,
        built: RegisteredJob | DocumentError | ServiceError,
        now: Instant,
    ) -> Effects:
        """Go on with a change whose job is built."""
        turn = self._turns.get(request)
        if turn is None:
            return []
        if not isinstance(built, RegisteredJob):
            return self._refuse(turn.asked, built, now)
        try:
            turn.asked.check_graph(built, self.state)
        except RefusedError as error:
            return self._refuse(turn.asked, error, now)
        turn.target = built
        return self._save(turn)

    def saved(self, request: int, now: Instant) -> Effects:
        """Apply and answer a change that is saved."""
        turn = self._turns.get(request)
        if turn is None:
            return []
        applied = turn.asked.apply(turn.target, self.state, now)
        out: Effects = [*applied.facts]
        if request != OWN:
            out.append(effects.Answer(request, applied.answer, applied.created))
        return out + self._next(turn.asked, now)

    def failed(
        self,
        request: int,
        error: ServiceError,
        now: Instant,
    ) -> Effects:
        """Refuse a change that is not saved."""
        turn = self._turns.get(request)
        if turn is None:
            return []
        return self._refuse(turn.asked, error, now)

    def close(self, error: ServiceError) -> Effects:
        """Refuse all changes but those on their way to the store.

        These are answered when it has answered.
        """
        refused: Effects = []
        for name, queue in list(self._queues.items()):
            first = queue[0]
            turn = self._turns.get(first.request)
            is_saving = turn is not None and turn.saving
            if is_saving:
                queue.popleft()
            for asked in queue:
                self._turns.pop(asked.request, None)
                if asked.request != OWN:
                    refused.append(effects.Refuse(asked.request, error))
            queue.clear()
            if is_saving:
                queue.append(first)
            else:
                del self._queues[name]
        return refused

    def _begin(self, asked: ChangeRequest, now: Instant) -> Effects:
        """Begin with a change whose turn it is."""
        try:
            target = asked.check(self.state, now)
        except (ServiceError, DocumentError) as error:
            return self._refuse(asked, error, now)
        turn = WaitingChange(asked, target)
        self._turns[asked.request] = turn
        # Only here, and not in `check`: a dry run must not use up the number of a new job.
        asked.reserve(target, self.state)

        if asked.is_done(target, self.state.jobs):
            return [effects.Answer(asked.request, target), *self._next(asked, now)]
        if asked.builds_graph:
            return [effects.BuildJob(asked.request, target)]
        return self._save(turn)

    def _save(self, turn: WaitingChange) -> Effects:
        turn.saving = True
        changes = turn.asked.to_save(turn.target, self.state.jobs)
        return [effects.Save(turn.asked.request, changes)]

    def _refuse(
        self,
        asked: ChangeRequest,
        error: ServiceError | DocumentError,
        now: Instant,
    ) -> Effects:
        out: Effects = []
        if asked.request != OWN:
            out.append(effects.Refuse(asked.request, error))
        return out + self._next(asked, now)

    def _next(self, done: ChangeRequest, now: Instant) -> Effects:
        """Begin with the next change of the same job."""
        self._turns.pop(done.request, None)
        queue = self._queues[done.queue]
        queue.popleft()
        if queue:
            return self._begin(queue[0], now)
        del self._queues[done.queue]
        return []


class DryRuns:
    """The changes that clients only ask about.

    They are planned one after the other, while there is nothing else to plan. They are checked and
    planned like any other, but on a copy of the planner, and nothing is saved or written.
    """

    def __init__(self, jobs: JobStore, requests: Requests) -> None:
        self._jobs = jobs
        self._state = requests.state
        self._asked: dict[int, WaitingChange] = {}
        """The dry runs that are not answered yet, by request."""
        self._due: deque[int] = deque()
        """Those that can be planned."""

    def __contains__(self, request: int) -> bool:
        return request in self._asked

    @property
    def are_due(self) -> bool:
        """Whether one waits for the planner."""
        return bool(self._due)

    def check(self, asked: events.DryRun, now: Instant) -> Effects:
        """Check a change. Its job, if it brings one, has to be built before it can be planned."""
        request = asked.request
        if len(self._asked) >= MOST_DRY_RUNS:
            reason = f"{MOST_DRY_RUNS} dry runs are under way (ask again in a moment)"
            return [effects.Refuse(request, UnavailableError(reason))]
        try:
            target = asked.change.check(self._state, now)
        except (ServiceError, DocumentError) as error:
            return [effects.Refuse(request, error)]
        self._asked[request] = WaitingChange(asked.change, target)
        # Also a job whose change builds no graph: after a start it has none yet.
        if isinstance(target, RegisteredJob):
            return [effects.BuildJob(request, target)]
        self._due.append(request)
        return []

    def built(self, request: int, built: RegisteredJob | DocumentError | ServiceError) -> Effects:
        """Go on with a change whose job is built."""
        if not isinstance(built, RegisteredJob):
            return self._refuse(request, built)
        turn = self._asked[request]
        try:
            turn.asked.check_graph(built, self._state)
        except RefusedError as error:
            return self._refuse(request, error)
        turn.target = built
        self._due.append(request)
        return []

    def next_work(self, planner: Planner, in_force: Planned) -> effects.Rehearse:
        """Return the work of planning the next one.

        `in_force` is the plan of all that was accepted.
        """
        request = self._due.popleft()
        turn = self._asked[request]
        jobs = self._jobs
        # Without `down`, which only orders the steps by which switches get a plan. This one is not
        # sent to them.
        accepted = PlanRequest(tuple(jobs.jobs.values()), jobs.fabric, jobs.policy)
        wanted = turn.asked.planned(turn.target, accepted, jobs)
        before = Situation(in_force, jobs.fabric, jobs.policy)
        return effects.Rehearse(request, planner, before, wanted)

    def compare(self, event: events.Rehearsed, planner: Planner) -> Effects:
        """Compare a plan with the one in force."""
        if event.request not in self._asked:
            return []
        if isinstance(event.after, str):
            return self._refuse(event.request, RefusedError(event.after, code="plan-impossible"))
        all_links = self._jobs.whole_fabric
        compare = effects.Compare(
            event.request, event.before, event.after, all_links, planner.make_policy
        )
        return [compare]

    def answer(self, event: events.ChangeCompared) -> Effects:
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

    def close(self, error: ServiceError) -> Effects:
        """Refuse all."""
        asked = self._asked
        self._asked = {}
        self._due.clear()
        return [effects.Refuse(request, error) for request in asked]

    def _refuse(self, request: int, error: DocumentError | ServiceError) -> Effects:
        del self._asked[request]
        return [effects.Refuse(request, error)]
