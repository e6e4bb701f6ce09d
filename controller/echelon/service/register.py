"""What was accepted: jobs, policy, drained links, in memory as they are on disk. Every change is on disk first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from echelon.documents import DocumentError, suggestion
from echelon.fabric.model import Fabric
from echelon.service.errors import ConflictError, RefusedError, UnknownError
from echelon.service.jobs import RegisteredJob, check_hosts, check_size, free_number, from_document, parse_job
from echelon.service.metrics import Metrics
from echelon.service.resources import DistanceReport, PolicySetting
from echelon.service.store import Changes, Leadership, NotLeaderError, Snapshot, Store, StoreError

Link = tuple[str, str]
"""The two ends, in order of their names."""

_DRAINED = "drained"
_NUMBER = "job_number"
_POLICY = "policy"


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    """That have it or wait for it."""


class Register:
    """Changes of one job follow one another; those of others go on beside them.

    `generation` counts accepted changes, and `generations` has that of each job's last one.
    """

    def __init__(
        self,
        fabric: Fabric,
        policy: PolicySetting,
        store: Store,
        leadership: Leadership,
        metrics: Metrics,
        *,
        max_jobs: int,
        flows_per_job: int,
    ) -> None:
        self.jobs: dict[str, RegisteredJob] = {}
        """In the order in which they were accepted."""
        self.policy = policy
        self.drained: frozenset[Link] = frozenset()
        self.generation = 0
        self.generations: dict[str, int] = {}
        self._fabric = fabric
        self._store = store
        self._leadership = leadership
        self._metrics = metrics
        self._max_jobs = max_jobs
        self._flows_per_job = flows_per_job
        self._last_number = 0
        self._reserved: dict[str, int] = {}
        """Numbers of jobs that are on their way to the disk, by job."""
        self._turns: dict[str, _Turn] = {}

    def load(self, snapshot: Snapshot) -> None:
        """Raises `DocumentError` for a job that this version cannot read."""
        settings = snapshot["settings"]
        for name, document in sorted(snapshot["jobs"].items(), key=lambda item: float(item[1]["accepted_at"])):
            try:
                job = from_document(document)
            except DocumentError as error:
                raise DocumentError(
                    f"{self._store.url}: job {name}",
                    error.path,
                    f"{error.reason}; this version cannot read it: start the version that wrote it",
                ) from None
            self._keep(job)
        self._last_number = int(settings.get(_NUMBER, {}).get("last", 0))
        if _POLICY in settings:
            self.policy = PolicySetting.model_validate(settings[_POLICY])
        known = {ends_of(cable.a.node, cable.b.node) for cable in self._fabric.cables}
        drained = settings.get(_DRAINED, {}).get("links", [])
        self.drained = frozenset(ends_of(a, b) for a, b in drained) & known

    def known(self, name: str) -> RegisteredJob:
        """Raises `UnknownError`."""
        job = self.jobs.get(name)
        if job is None:
            raise UnknownError(f"there is no job '{name}' ({suggestion(name, self.jobs)})", code="unknown-job")
        return job

    async def register(self, document: Mapping[str, Any], *, replace: bool) -> tuple[RegisteredJob, bool, bool]:
        """(the job, whether it is new, whether anything changed). Raises `DocumentError`, `ServiceError`."""
        spec = parse_job(document)
        name = spec.job
        async with self._turn(name):
            before = self.jobs.get(name)
            if before is not None:
                if before.spec == spec:
                    return before, False, False
                if not replace:
                    raise ConflictError(
                        f"there is another job '{name}' (take another name, or replace it with PUT)", "job"
                    )
            check_hosts(spec, self._fabric)
            check_size(spec, self._flows_per_job)
            number = self._number_for(name, before)
            try:
                job = RegisteredJob(
                    name=name,
                    number=number,
                    accepted_at=time.time() if before is None else before.accepted_at,
                    document=dict(document),
                    spec=spec,
                    offsets_s={},
                )
                # Off the loop: thousands of flows take a while.
                await asyncio.to_thread(job.build)
                await self.commit(
                    Changes(
                        puts={("jobs", name): job.to_document(), ("settings", _NUMBER): {"last": self._last_number}}
                    )
                )
            finally:
                self._reserved.pop(name, None)
            self._keep(job)
            return job, before is None, True

    async def remove(self, name: str) -> None:
        async with self._turn(name):
            self.known(name)
            await self.commit(Changes(deletes=[("jobs", name)]))
            del self.jobs[name], self.generations[name]
            self.generation += 1

    async def report_distances(self, name: str, report: DistanceReport) -> RegisteredJob:
        async with self._turn(name):
            offsets_s = report.offsets if isinstance(report.offsets, tuple) else (report.offsets,)
            job = await asyncio.to_thread(self.known(name).with_reported, report.echelonflow, offsets_s)
            await self.commit(Changes(puts={("jobs", name): job.to_document()}))
            self._keep(job)
            return job

    def correct(self, job: RegisteredJob) -> None:
        """What switches saw of a job: not on disk, they will see it again."""
        self.jobs[job.name] = job
        self.generation += 1

    async def set_policy(self, setting: PolicySetting) -> None:
        async with self._turn(""):
            await self.commit(Changes(puts={("settings", _POLICY): setting.model_dump()}))
            self.policy = setting
            self.generation += 1

    async def set_drained(self, link: Link, drained: bool) -> None:
        async with self._turn(""):
            links = self.drained | {link} if drained else self.drained - {link}
            await self.commit(Changes(puts={("settings", _DRAINED): {"links": [list(one) for one in sorted(links)]}}))
            self.drained = links
            self.generation += 1

    async def commit(self, changes: Changes) -> None:
        """Raises `StoreError`."""
        # The store may be led again by then, by this process, in a later term that has loaded without this change.
        self._check_leads()
        began = time.perf_counter()
        try:
            await self._store.commit(changes)
        except StoreError:
            self._metrics.commit_failed()
            raise
        self._metrics.committed(time.perf_counter() - began)

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[None]:
        """One change of a job at a time. ``""``: of the settings."""
        turn = self._turns.setdefault(name, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                self._check_leads()
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[name]

    def _check_leads(self) -> None:
        if self._leadership.lost.is_set():
            raise NotLeaderError("this controller does not lead any more (ask again: another one does)")

    def _keep(self, job: RegisteredJob) -> None:
        """It is on disk."""
        self.jobs[job.name] = job
        self.generation += 1
        self.generations[job.name] = self.generation

    def _number_for(self, name: str, before: RegisteredJob | None) -> int:
        if before is not None:
            return before.number
        if len(self.jobs) + len(self._reserved) >= self._max_jobs:
            raise RefusedError(
                f"there are {self._max_jobs} jobs, and this service takes no more (remove some, or raise limits.jobs)"
            )
        taken = [*(job.number for job in self.jobs.values()), *self._reserved.values()]
        self._last_number = self._reserved[name] = free_number(taken, self._last_number)
        return self._last_number


def ends_of(a: str, b: str) -> Link:
    """A link's name, whichever end is said first."""
    return (a, b) if a < b else (b, a)
