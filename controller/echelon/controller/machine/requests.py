"""Changes that clients ask for: they are checked, built if they are jobs, saved, then applied and
answered. Dry runs are checked and built in the same way, then planned and compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from echelon.controller.machine import effects, events, facts, reports
from echelon.controller.machine.effects import Effect
from echelon.controller.machine.errors import (
    ConflictError,
    RefusedError,
    ServiceError,
    UnavailableError,
    UnknownError,
)
from echelon.controller.machine.events import OWN, ChangeRequest, Instant
from echelon.controller.machine.jobs import RegisteredJob, check_hosts, check_size
from echelon.controller.machine.jobstore import JobStore
from echelon.controller.machine.lines import Progress
from echelon.controller.machine.planning import Planned, Planner, PlanRequest
from echelon.controller.machine.rehearsal import Situation
from echelon.controller.machine.wiring import LinkEnds, Wiring, ends_of, moved_to
from echelon.model.documents import DocumentError
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import stranded
from echelon.model.jobs.graph import Job

if TYPE_CHECKING:
    from echelon.controller.machine.records import Changes

_SETTINGS = ""
"""The queue of changes of the settings. No job has an empty name."""
_NAMED = 5
"""The most jobs that an error names."""
MOST_DRY_RUNS = 16
"""Dry runs that may wait. Each holds up the plans of real changes for the time of one plan."""


@dataclass(slots=True)
class Change:
    """A change that can be carried out."""

    asked: ChangeRequest
    job: RegisteredJob | None = None
    """The job as it will be; None: the change is not about the contents of a job."""
    drained: frozenset[LinkEnds] = frozenset()
    """The drained links as they will be."""
    wiring: Wiring | None = None
    """The links as they will be, if the change is about moving them."""
    saving: bool = False


class Requests:
    """The changes of jobs that clients ask for. Those of one job follow one another; those of other
    jobs proceed concurrently.
    """

    def __init__(
        self,
        jobs: JobStore,
        progress: Progress,
        flows_per_job: int,
        is_switching: Callable[[], bool],
    ) -> None:
        """`is_switching` says whether the optical switch moves links now."""
        self._jobs = jobs
        self._progress = progress
        self._flows_per_job = flows_per_job
        self._is_switching = is_switching
        self._queues: dict[str, deque[ChangeRequest]] = {}
        """The change whose turn it is and those that wait for it, by job."""
        self._turns: dict[int, Change] = {}
        """The changes whose turn it is, by request."""

    def queue(self, asked: ChangeRequest, now: Instant) -> list[Effect]:
        """Take a request; begin with it at once if no change of the same job is under way."""
        queue = self._queues.setdefault(_queue_of(asked), deque())
        queue.append(asked)
        return self._begin(asked, now) if len(queue) == 1 else []

    def built(
        self, request: int, built: RegisteredJob | DocumentError | ServiceError, now: Instant
    ) -> list[Effect]:
        """Go on with a change whose job is built."""
        change = self._turns.get(request)
        if change is None or change.job is None:
            return []
        if not isinstance(built, RegisteredJob):
            return self._refuse(change.asked, built, now)
        try:
            self.check_built(change.asked, built)
        except RefusedError as error:
            return self._refuse(change.asked, error, now)
        change.job = built
        return self._save(change, self._jobs.change_job(built))

    def saved(self, request: int, now: Instant) -> list[Effect]:
        """Apply and answer a change that is saved."""
        change = self._turns.get(request)
        if change is None:
            return []
        return [*self._apply(change, now), *self._next(change.asked, now)]

    def failed(self, request: int, error: ServiceError, now: Instant) -> list[Effect]:
        """Refuse a change that is not saved."""
        change = self._turns.get(request)
        if change is None:
            return []
        return self._refuse(change.asked, error, now)

    def close(self, error: ServiceError) -> list[Effect]:
        """Refuse all changes but those on their way to the store, which are answered when it has
        answered.
        """
        refused: list[Effect] = []
        for queue in self._queues.values():
            turn = self._turns.get(queue[0].request)
            first = 1 if turn is not None and turn.saving else 0
            refused += [
                effects.Refuse(asked.request, error)
                for asked in list(queue)[first:]
                if asked.request != OWN
            ]
            while len(queue) > first:
                self._turns.pop(queue.pop().request, None)
        self._queues = {name: queue for name, queue in self._queues.items() if queue}
        return refused

    # -- stages ------------------------------------------------------------------------------------

    def check(self, asked: ChangeRequest, now: Instant) -> Change:
        """Return a change as it would be carried out now.

        Raises `ServiceError` and `DocumentError`.
        """
        match asked:
            case events.RegisterJob():
                return Change(asked, self._registered(asked, now))
            case events.RemoveJob(job=name):
                self._jobs.known(name)
                return Change(asked)
            case events.ReportDistances(job=name):
                return Change(
                    asked, self._jobs.known(name).with_reported(asked.echelonflow, asked.offsets_s)
                )
            case events.ReportConnections(job=name, host=host):
                job = self._jobs.known(name)
                # Of jobs whose change is on its way, both states count: the change may fail.
                changing = [turn.job for turn in self._turns.values() if turn.job is not None]
                seen = reports.checked_connections(
                    asked, job, [*self._jobs.jobs.values(), *changing], self._fabric
                )
                same = seen == job.connections.get(host, frozenset())
                return Change(asked, job if same else job.with_connections(host, seen))
            case events.ChoosePolicy():
                return Change(asked)
            case events.SetLink():
                return Change(asked, drained=self._links_with(asked))
            case events.MoveLinks() | events.TurnLinks():
                return Change(asked, wiring=self._wiring_with(asked))

    def _begin(self, asked: ChangeRequest, now: Instant) -> list[Effect]:
        try:
            change = self._turns[asked.request] = self.check(asked, now)
            if isinstance(asked, events.RegisterJob):
                assert change.job is not None
                self._jobs.reserve_number(change.job)
        except (ServiceError, DocumentError) as error:
            return self._refuse(asked, error, now)
        match asked:
            case events.RegisterJob() | events.ReportDistances():
                assert change.job is not None
                if change.job is self._jobs.jobs.get(change.job.name):
                    return [effects.Answer(asked.request, change.job), *self._next(asked, now)]
                return [effects.BuildJob(asked.request, change.job)]
            case events.ReportConnections():
                assert change.job is not None
                if change.job is self._jobs.jobs[change.job.name]:
                    return [effects.Answer(asked.request, change.job), *self._next(asked, now)]
                return self._save(change, self._jobs.change_job(change.job))
            case events.RemoveJob(job=name):
                return self._save(change, self._jobs.removal(name))
            case events.ChoosePolicy(policy=policy):
                return self._save(change, self._jobs.change_policy(policy))
            case events.SetLink():
                return self._save(change, self._jobs.change_links(change.drained))
            case events.MoveLinks() | events.TurnLinks():
                assert change.wiring is not None
                if change.wiring is self._jobs.wiring:
                    return [effects.Answer(asked.request, change.wiring), *self._next(asked, now)]
                return self._save(change, self._jobs.change_wiring(change.wiring))

    def _registered(self, asked: events.RegisterJob, now: Instant) -> RegisteredJob:
        """Return the job as it would be: the very same object if nothing changes."""
        name = asked.spec.job
        spec = asked.spec
        before = self._jobs.jobs.get(name)
        if before is not None:
            if before.spec == spec:
                return before
            if not asked.replace:
                raise ConflictError(
                    f"there is another job '{name}' (take another name, or replace it with PUT)",
                    "job",
                )
        check_hosts(spec, self._fabric)
        owner = asked.quota.owner if before is None else before.owner
        job = RegisteredJob(
            name=name,
            number=self._jobs.free_number(self._reserved()) if before is None else before.number,
            accepted_at=now.at if before is None else before.accepted_at,
            document=dict(asked.document),
            spec=spec,
            offsets_s={},
            built=asked.built,
            owner=owner,
            connections=reports.kept_connections(before, spec, self._fabric),
        )
        self._check_quota(asked, job)
        return job

    def check_built(self, asked: ChangeRequest, job: RegisteredJob) -> None:
        """Raise `RefusedError` for a job of too many flows, which are known once it is built."""
        if isinstance(asked, events.RegisterJob):
            check_size(job, self._flows_per_job)
            self._check_quota(asked, job)

    def _check_quota(self, asked: events.RegisterJob, job: RegisteredJob) -> None:
        if job.owner is not None and job.owner == asked.quota.owner:
            asked.quota.check(job, self._others_of(job.owner, job.name))

    def _reserved(self) -> list[int]:
        """Return the numbers of new jobs that are not saved yet."""
        return [
            turn.job.number
            for turn in self._turns.values()
            if turn.job and turn.job.name not in self._jobs.jobs
        ]

    def _others_of(self, owner: str, name: str) -> list[RegisteredJob]:
        """Return the jobs of a client besides one: those that it has, and those that are on their
        way.
        """
        jobs = dict(self._jobs.jobs)
        jobs |= {turn.job.name: turn.job for turn in self._turns.values() if turn.job is not None}
        return [job for job in jobs.values() if job.owner == owner and job.name != name]

    @property
    def _fabric(self) -> Fabric:
        return self._jobs.whole_fabric

    def _links_with(self, asked: events.SetLink) -> frozenset[LinkEnds]:
        fabric = self._fabric
        ends = ends_of(asked.a, asked.b)
        if all(ends_of(cable.a.node, cable.b.node) != ends for cable in fabric.cables):
            raise UnknownError(
                f"there is no link between '{asked.a}' and '{asked.b}' in fabric '{fabric.name}'",
                code="unknown-link",
            )
        if asked.a in fabric.hosts or asked.b in fabric.hosts:
            raise RefusedError(
                "the only link of a host cannot be drained (remove the jobs of that host instead)",
                code="unconnected",
            )
        if not asked.drained:
            return self._jobs.drained - {ends}
        if not asked.force and ends not in self._jobs.drained:
            self._check_paths(asked, ends)
        return self._jobs.drained | {ends}

    def _check_paths(self, asked: events.SetLink, ends: LinkEnds) -> None:
        """Raise `RefusedError` if jobs that have paths would have none without the link."""
        out = self._jobs.drained | self._jobs.down
        lost = self._lost(self._fabric.without(out | {ends}), self._fabric.without(out))
        if lost:
            raise RefusedError(
                f"without the link between '{asked.a}' and '{asked.b}', {lost} (remove them first,"
                " or force it)",
                code="no-route",
            )

    def _lost(self, after: Fabric, before: Fabric) -> str:
        """Return which jobs that have paths would have none, in words; empty: none of them."""
        jobs = [*self._graphs()]
        without = stranded(after, jobs)
        already = stranded(before, [job for job in jobs if job.name in without])
        lost = sorted(without.keys() - already.keys())
        if not lost:
            return ""
        named = ", ".join(lost[:_NAMED]) + (
            f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
        )
        return (
            f"{len(lost)} job{'s' * (len(lost) > 1)} would have no path and leave the plan: {named}"
        )

    def _wiring_with(self, asked: events.MoveLinks | events.TurnLinks) -> Wiring:
        """Return the links as they would be: the very same object if nothing changes."""
        wiring = self._jobs.wiring
        if isinstance(asked, events.MoveLinks):
            return self._moved(
                wiring, Wiring(wiring.now, moved_to(self._jobs.file_fabric, wiring.now, asked.spec))
            )
        if asked.before is not wiring or (asked.request != OWN and not wiring.begun):
            raise ConflictError(
                "no links are to move now (`echelon link move` says when)", code="refused"
            )
        if asked.request != OWN and self._is_switching():
            raise ConflictError(
                "the optical switch moves the links now (wait for it)", code="refused"
            )
        return asked.after

    def _moved(self, wiring: Wiring, wanted: Wiring) -> Wiring:
        if wiring.then is None:
            if not wanted.going and not wanted.coming:
                return wiring
            if lost := self._lost(self._jobs.fabric_after(wanted), self._jobs.fabric):
                raise RefusedError(
                    f"with these links, {lost} (remove them or restore links first)",
                    code="no-route",
                )
            return wanted
        if {*wanted.coming} == {*wiring.coming} and {*wanted.going} == {*wiring.going}:
            return wiring
        if wanted.going or wanted.coming:
            raise ConflictError(
                "links move already (wait until they stand, or end that move first)", code="refused"
            )
        if self._is_switching():
            raise ConflictError(
                "the optical switch moves the links now (wait for it)", code="refused"
            )
        return Wiring(wiring.now)

    def _graphs(self) -> Iterator[Job]:
        for job in self._jobs.jobs.values():
            if not job.is_judged:
                raise UnavailableError(
                    "the first plan since the start is being made (ask again in a moment)"
                )
            # A job that is too large is in no plan.
            with suppress(DocumentError):
                yield job.job

    def _save(self, change: Change, changes: Changes) -> list[Effect]:
        change.saving = True
        return [effects.Save(change.asked.request, changes)]

    def _apply(self, change: Change, now: Instant) -> list[Effect]:
        asked = change.asked
        job = change.job
        match asked:
            case events.RegisterJob(request):
                assert job is not None
                created = job.name not in self._jobs.jobs
                self._keep(job, now)
                return [
                    facts.JobAccepted(job.name, created, job.flow_count),
                    effects.Answer(request, job, created),
                ]
            case events.ReportDistances(request, name, echelonflow):
                assert job is not None
                self._keep(job, now)
                return [facts.DistancesReported(name, echelonflow), effects.Answer(request, job)]
            case events.ReportConnections(request, name, host):
                assert job is not None
                # What switches observed may have changed the job meanwhile.
                before = self._jobs.known(name)
                was, now_seen = (one.connections.get(host, frozenset()) for one in (before, job))
                job = before.with_connections(host, now_seen)
                self._keep(job, now)
                return [
                    facts.ConnectionsReported(name, host, len(now_seen - was), len(was - now_seen)),
                    effects.Answer(request, job),
                ]
            case events.RemoveJob(request, name):
                self._jobs.drop(name)
                self._progress.removed(name)
                return [facts.JobRemoved(name), effects.Answer(request, name)]
            case events.ChoosePolicy(request, policy):
                self._jobs.use_policy(policy)
                return [facts.PolicyChosen(str(policy)), effects.Answer(request, policy)]
            case events.SetLink(request, a, b, drained):
                self._jobs.use_links(change.drained)
                return [
                    facts.LinkChanged(f"{a}-{b}", drained),
                    effects.Answer(request, ends_of(a, b)),
                ]
            case events.MoveLinks(request) | events.TurnLinks(request):
                assert change.wiring is not None
                self._jobs.use_wiring(change.wiring)
                if request == OWN:
                    return []
                return [effects.Answer(request, change.wiring)]

    def _keep(self, job: RegisteredJob, now: Instant) -> None:
        self._jobs.keep(job)
        self._progress.accepted(job.name, now.s)

    def _refuse(
        self, asked: ChangeRequest, error: ServiceError | DocumentError, now: Instant
    ) -> list[Effect]:
        if asked.request == OWN:
            told = []
        else:
            told = [effects.Refuse(asked.request, error)]
        return [*told, *self._next(asked, now)]

    def _next(self, done: ChangeRequest, now: Instant) -> list[Effect]:
        """Begin with the next change of the same job."""
        self._turns.pop(done.request, None)
        queue = self._queues[_queue_of(done)]
        queue.popleft()
        if queue:
            return self._begin(queue[0], now)
        del self._queues[_queue_of(done)]
        return []


class DryRuns:
    """The changes that clients only ask about, planned one after the other while there is nothing
    else to plan.

    They are checked and planned like any other, but on a copy of the planner, and nothing is saved
    or written.
    """

    def __init__(self, jobs: JobStore, requests: Requests) -> None:
        self._jobs = jobs
        self._check, self._check_built = requests.check, requests.check_built
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

    def check(self, asked: events.DryRun, now: Instant) -> list[Effect]:
        """Check a change. Its job, if it brings one, has to be built before it can be planned."""
        request = asked.request
        if len(self._asked) >= MOST_DRY_RUNS:
            reason = f"{MOST_DRY_RUNS} dry runs are under way (ask again in a moment)"
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

    def built(
        self, request: int, built: RegisteredJob | DocumentError | ServiceError
    ) -> list[Effect]:
        """Go on with a change whose job is built."""
        if not isinstance(built, RegisteredJob):
            return self._refuse(request, built)
        change = self._asked[request]
        try:
            self._check_built(change.asked, built)
        except RefusedError as error:
            return self._refuse(request, error)
        change.job = built
        self._due.append(request)
        return []

    def next_work(self, planner: Planner, in_force: Planned) -> effects.Rehearse:
        """Return the work of planning the next one.

        `in_force` is the plan of all that was accepted.
        """
        request = self._due.popleft()
        before = Situation(in_force, self._jobs.fabric, self._jobs.policy)
        return effects.Rehearse(request, planner, before, self._wanted(self._asked[request]))

    def compare(self, event: events.Rehearsed, planner: Planner) -> list[Effect]:
        """Compare a plan with the one in force."""
        if event.request not in self._asked:
            return []
        if isinstance(event.after, str):
            return self._refuse(event.request, RefusedError(event.after, code="plan-impossible"))
        return [
            effects.Compare(
                event.request,
                event.before,
                event.after,
                self._jobs.whole_fabric,
                planner.make_policy,
            )
        ]

    def answer(self, event: events.ChangeCompared) -> list[Effect]:
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
        asked = self._asked
        self._asked = {}
        self._due.clear()
        return [effects.Refuse(request, error) for request in asked]

    def _refuse(self, request: int, error: DocumentError | ServiceError) -> list[Effect]:
        del self._asked[request]
        return [effects.Refuse(request, error)]

    def _wanted(self, change: Change) -> PlanRequest:
        """Return what would be planned after a change."""
        store = self._jobs
        asked = change.asked
        jobs = store.jobs
        fabric = store.fabric
        policy = store.policy
        match asked:
            case events.RegisterJob() | events.ReportDistances() | events.ReportConnections():
                assert change.job is not None
                jobs = {**jobs, change.job.name: change.job}
            case events.RemoveJob(job=name):
                jobs = {known: job for known, job in jobs.items() if known != name}
            case events.ChoosePolicy(policy=chosen):
                policy = chosen
            case events.SetLink():
                fabric = store.fabric_without(change.drained)
            case events.MoveLinks() | events.TurnLinks():
                assert change.wiring is not None
                fabric = store.fabric_after(change.wiring)
        return PlanRequest(tuple(jobs.values()), fabric, policy)


def _queue_of(asked: ChangeRequest) -> str:
    match asked:
        case events.RegisterJob(spec=spec):
            return spec.job
        case (
            events.RemoveJob(job=name)
            | events.ReportDistances(job=name)
            | events.ReportConnections(job=name)
        ):
            return name
        case _:
            return _SETTINGS
