"""The store of accepted jobs, the policy and drained links, in memory as in the durable store."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from echelon.controller.machine.errors import RefusedError, UnknownError
from echelon.controller.machine.jobs import RegisteredJob, free_number, from_document
from echelon.controller.machine.lines import JobLine
from echelon.controller.machine.records import Changes, Document, Key, Snapshot
from echelon.controller.machine.wiring import LinkEnds, Wiring, ends_of, links_of
from echelon.model.documents import DocumentError, suggestion
from echelon.model.fabric.model import Fabric

_DRAINED = "drained"
_LINKS = "links"
_NUMBER = "job_number"
_POLICY = "policy"


@dataclass(frozen=True)
class ChosenPolicy:
    """A policy by name, with its parameters."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the policy as `echelon run --policy` takes it."""
        if not self.parameters:
            return self.name
        parameters = [f"{key}={value}" for key, value in sorted(self.parameters.items())]
        return f"{self.name}({', '.join(parameters)})"


class _Registered(Mapping[str, RegisteredJob]):
    """The jobs of some lines, by name."""

    def __init__(self, lines: Mapping[str, JobLine]) -> None:
        self._lines = lines

    def __getitem__(self, name: str) -> RegisteredJob:
        return self._lines[name].registered

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)


class JobStore:
    """The accepted state.

    Each `change_*` method returns what to save; call the method that applies it once saved.
    `generation` counts accepted changes.
    """

    def __init__(
        self,
        fabric: Fabric,
        policy: ChosenPolicy,
        max_jobs: int,
    ) -> None:
        self.lines: dict[str, JobLine] = {}
        """The line of each job, in the order of their acceptance."""
        self.jobs: Mapping[str, RegisteredJob] = _Registered(self.lines)
        """The jobs, in the same order."""
        self.policy = policy
        self.drained: frozenset[LinkEnds] = frozenset()
        self.down: frozenset[LinkEnds] = frozenset()
        """Links that are down by themselves and that plans avoid.

        They are not saved: whoever leads sees it anew.
        """
        self.fabric = fabric
        """The fabric for plans: without drained links.

        Links that are down or about to move are left out, too, unless jobs have no other path.
        """
        self.generation = 0
        self.file_fabric = fabric
        """The fabric as its file has it."""
        self.wiring = Wiring(fabric)
        """The links that there are, and the move of links that is under way."""
        self.is_outdated = False
        """Whether moves were saved that no longer hold, because the file has other links since."""
        self._max_jobs = max_jobs
        self._last_number = 0
        self._numbers: set[int] = set()
        """The numbers of all jobs."""

    def restore(self, snapshot: Snapshot) -> None:
        """Take over what was saved.

        Raises `DocumentError` for a job that this version cannot read.
        """
        jobs = sorted(snapshot["jobs"].items(), key=_saved_order)
        for name, document in jobs:
            try:
                self.keep(from_document(document))
            except DocumentError as error:
                reason = (
                    f"{error.reason}; this version cannot read it: start the version that wrote it"
                )
                raise DocumentError(f"job {name}", error.path, reason) from None

        settings = snapshot["settings"]
        if _NUMBER in settings:
            self._last_number = int(settings[_NUMBER]["last"])
        if _POLICY in settings:
            policy = settings[_POLICY]
            self.policy = ChosenPolicy(policy["name"], dict(policy["parameters"]))
        if _LINKS in settings:
            saved = Wiring.from_document(settings[_LINKS], self.file_fabric)
            self.wiring = saved or self.wiring
            self.is_outdated = saved is None
        if _DRAINED in settings:
            drained = frozenset(ends_of(a, b) for a, b in settings[_DRAINED]["links"])
            self.drained = drained & links_of(self.whole_fabric)
        self.fabric = self.fabric_without(self.drained)

    @property
    def whole_fabric(self) -> Fabric:
        """The fabric with all links."""
        return self.wiring.now

    def find(self, name: str) -> RegisteredJob:
        """Return the job of that name. Raises `UnknownError`."""
        job = self.jobs.get(name)
        if job is None:
            hint = suggestion(name, self.jobs)
            raise UnknownError(f"there is no job '{name}' ({hint})", code="unknown-job")
        return job

    def unchanged_since(self, generation: int) -> list[str]:
        """Return the jobs whose last change is not newer than `generation`."""
        return [name for name, line in self.lines.items() if line.generation <= generation]

    # -- jobs --------------------------------------------------------------------------------------

    def free_number(self, reserved: Collection[int]) -> int:
        """Return the number that a new job would get.

        `reserved` are those of new jobs that are not saved yet. Raises `RefusedError` when there is
        none.
        """
        if len(self.lines) + len(reserved) >= self._max_jobs:
            raise RefusedError(
                f"there are {self._max_jobs} jobs, and this service takes no more (remove some, or"
                " raise limits.jobs)",
                code="limit-reached",
            )
        return free_number(self._numbers.union(reserved), self._last_number)

    def reserve_number(self, job: RegisteredJob) -> None:
        """Note that the number of a new job is taken: it comes back as late as possible."""
        if job.name not in self.lines:
            self._last_number = job.number

    def change_job(self, job: RegisteredJob) -> Changes:
        """Return what to save of a new or changed job; `keep` applies it."""
        puts: dict[Key, Document] = {("jobs", job.name): job.to_document()}
        if job.name not in self.lines:
            puts["settings", _NUMBER] = {"last": self._last_number}
        return Changes(puts)

    def removal(self, name: str) -> Changes:
        """Return what to save of a job's removal; `drop` applies it."""
        return Changes(deletes=[("jobs", name)])

    def keep(self, job: RegisteredJob) -> None:
        """Hold a job that is saved."""
        self.generation += 1
        line = self.lines.get(job.name)
        if line is not None:
            line.change(job, self.generation)
            return
        # Jobs are built side by side, so one may be ready after those that came later: it goes
        # before them, as it does after a restart.
        later = []
        for name in reversed(self.lines):
            if _order(self.jobs[name]) <= _order(job):
                break
            later.append(name)
        self.lines[job.name] = JobLine(job, self.generation)
        self._numbers.add(job.number)
        for name in reversed(later):
            self.lines[name] = self.lines.pop(name)

    def correct(self, job: RegisteredJob) -> None:
        """Hold a job with what switches observed of it, which is not saved."""
        self.lines[job.name].registered = job
        self.generation += 1

    def drop(self, name: str) -> None:
        """Forget a job that is no longer saved."""
        self._numbers.discard(self.lines.pop(name).registered.number)
        self.generation += 1

    # -- settings ----------------------------------------------------------------------------------

    def change_policy(self, policy: ChosenPolicy) -> Changes:
        """Return what to save of a new policy; `use_policy` applies it."""
        document = {"name": policy.name, "parameters": dict(policy.parameters)}
        return Changes({("settings", _POLICY): document})

    def use_policy(self, policy: ChosenPolicy) -> None:
        """Hold a policy that is saved."""
        self.policy = policy
        self.generation += 1

    def change_links(self, drained: frozenset[LinkEnds]) -> Changes:
        """Return what to save of a new set of drained links; `use_links` applies it."""
        links = [list(ends) for ends in sorted(drained)]
        return Changes({("settings", _DRAINED): {"links": links}})

    def use_links(self, drained: frozenset[LinkEnds]) -> None:
        """Hold a set of drained links that is saved."""
        self.drained = drained
        self.fabric = self.fabric_without(drained)
        self.generation += 1

    def avoid_links(self, down: Collection[LinkEnds]) -> None:
        """Hold a set of links that are down, whether or not they are drained."""
        self.down = frozenset(down)
        self.fabric = self.fabric_without(self.drained)
        self.generation += 1

    def change_wiring(self, wiring: Wiring) -> Changes:
        """Return what to save of links that move; `use_wiring` applies it."""
        drained = self.change_links(self.drained & links_of(wiring.now))
        document = wiring.to_document(self.file_fabric)
        return Changes({("settings", _LINKS): document, **drained.puts})

    def use_wiring(self, wiring: Wiring) -> None:
        """Hold links that are saved. A link that has gone is no longer drained."""
        before = self.wiring
        links = links_of(wiring.now)
        self.wiring = wiring
        self.drained &= links
        self.down &= links
        self.is_outdated = False
        if (wiring.now, wiring.avoided) != (before.now, before.avoided):
            self.fabric = self.fabric_without(self.drained)
            self.generation += 1

    def fabric_without(self, drained: frozenset[LinkEnds]) -> Fabric:
        """Return the fabric as it would be with these links drained."""
        return self.whole_fabric.without(drained, self.down | self.wiring.avoided)

    def fabric_after(self, wiring: Wiring) -> Fabric:
        """Return the fabric after a move, with the drained links and those that are down."""
        fabric = wiring.then or wiring.now
        links = links_of(fabric)
        return fabric.without(self.drained & links, self.down & links)


def _order(job: RegisteredJob) -> tuple[float, int]:
    """Return what jobs are ordered by."""
    return job.accepted_at, job.number


def _saved_order(saved: tuple[str, Document]) -> tuple[float, int]:
    """Return the same of a job as it is saved."""
    _, document = saved
    return float(document["accepted_at"]), int(document["number"])
