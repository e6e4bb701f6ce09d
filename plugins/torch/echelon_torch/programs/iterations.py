"""The iterations of jobs whose workers are programs, from what their ranks tell. No I/O, no clock.

A program has no barrier of ours between its iterations: it has those of its collectives, and some
ranks are ahead of others. An iteration of the job ends when the last of its ranks has made the
step, and the next one begins then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from echelon.model.jobs.graph import Job
from echelon.planning.execution import Completion, IterationRecord, JobRecord
from echelon_lab.scenarios.results import Observed, ObservedComputing, ObservedOperation
from echelon_torch.programs.messages import Hello, RankOperation, RankStep

NS_PER_S = 1_000_000_000
_RECEIVED = frozenset({"receive", "barrier"})
"""Operations that give no bytes: the rank that sends has the transfer as its own."""


@dataclass
class _Job:
    workers: dict[int, str] = field(default_factory=dict)
    """The hosts of the ranks that have said who they are."""
    ranks: int | None = None
    """The number of ranks. None: no rank has said anything yet."""
    ready: set[int] = field(default_factory=set)
    begin_ns: int = 0
    steps: list[dict[int, RankStep]] = field(default_factory=list)
    """The steps of each iteration, by rank."""
    finished: int = 0

    @property
    def is_ready(self) -> bool:
        return self.ranks is not None and len(self.ready) >= self.ranks


class ProgramIterations:
    """The iterations of `jobs`, whose ends go to `completion`.

    `on_iteration(job, iteration)` is called when all ranks have ended an iteration, `on_over(job)`
    when the job has no more to do.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        completion: Completion,
        on_iteration: Callable[[str, int], None],
        on_over: Callable[[str], None],
    ) -> None:
        self._specified = {job.name: job for job in jobs}
        self._jobs = {job.name: _Job() for job in jobs}
        self._completion = completion
        self._on_iteration = on_iteration
        self._on_over = on_over
        self._origin_ns = 0

    @property
    def missing(self) -> Sequence[str]:
        """Jobs whose ranks have not all come to their first measured iteration."""
        return [name for name, job in self._jobs.items() if not job.is_ready]

    def note_rank(self, hello: Hello) -> None:
        """Keep who a rank is. Raise `ValueError` for one that no job has."""
        job = self._jobs.get(hello.job)
        is_expected = job is not None and hello.worker in self._specified[hello.job].workers
        if job is None or not is_expected or hello.rank in job.workers:
            raise ValueError(
                f"rank {hello.rank} of {hello.job} on {hello.worker} is none of the run's"
            )
        job.workers[hello.rank] = hello.worker
        job.ranks = hello.ranks

    def note_ready(self, job: str, rank: int) -> None:
        """Keep that a rank waits for its first measured iteration."""
        self._jobs[job].ready.add(rank)

    def begin(self, origin_ns: int) -> Mapping[str, int]:
        """Return when each job begins. `origin_ns` is time 0 of the run."""
        self._origin_ns = origin_ns
        for name, job in self._jobs.items():
            job.begin_ns = origin_ns + round(self._specified[name].start_s * NS_PER_S)
        return {name: job.begin_ns for name, job in self._jobs.items()}

    def finished(self, job: str) -> int:
        """Return how many iterations a job has finished."""
        return self._jobs[job].finished

    def note_step(
        self,
        name: str,
        rank: int,
        step: RankStep,
    ) -> None:
        """Keep the end of an iteration on one rank. Raise `ValueError` for one out of order."""
        job = self._jobs[name]
        if step.iteration > len(job.steps):
            job.steps.append({})
        if step.iteration > len(job.steps) or rank in job.steps[step.iteration - 1]:
            raise ValueError(f"rank {rank} tells of iteration {step.iteration} out of order")
        job.steps[step.iteration - 1][rank] = step
        # A rank may be ahead of others by several iterations.
        while job.finished < len(job.steps) and len(job.steps[job.finished]) == job.ranks:
            job.finished += 1
            self._completion.finish(name, job.finished)
            self._on_iteration(name, job.finished)
            if not self._completion.begins(name, job.finished + 1):
                self._on_over(name)

    @property
    def records(self) -> Mapping[str, JobRecord[Fraction]]:
        """The finished iterations of each job so far, in seconds from the beginning of the run."""
        records = {}
        for name, job in self._jobs.items():
            records[name] = JobRecord(name, self._records_of(job))
        return records

    @property
    def end_s(self) -> float:
        """Return when the last iteration was finished, in seconds from the beginning of the run."""
        end_s = 0.0
        for record in self.records.values():
            if record.iterations:
                end_s = max(end_s, float(record.iterations[-1].finish or 0))
        return end_s

    @property
    def observed(self) -> Mapping[str, Observed]:
        """Return the reports of each job's ranks on its finished iterations."""
        return {name: self._observed_of(job) for name, job in self._jobs.items()}

    def _records_of(self, job: _Job) -> list[IterationRecord[Fraction]]:
        start_s = self._seconds(job.begin_ns)
        records = []
        for number, steps in enumerate(job.steps[: job.finished], start=1):
            end_s = self._seconds(max(step.at_ns for step in steps.values()))
            records.append(IterationRecord(number, start_s, end_s))
            start_s = end_s
        return records

    def _observed_of(self, job: _Job) -> Observed:
        operations: list[ObservedOperation] = []
        computing: list[ObservedComputing] = []
        for number in range(1, job.finished + 1):
            for rank, step in sorted(job.steps[number - 1].items()):
                begin_ns = job.begin_ns
                if number > 1:
                    begin_ns = job.steps[number - 2][rank].at_ns
                operations += self._operations(job, rank, step)
                computing += self._computing(job.workers[rank], begin_ns, step)
        return Observed(tuple(operations), tuple(computing))

    def _operations(
        self,
        job: _Job,
        rank: int,
        step: RankStep,
    ) -> Iterator[ObservedOperation]:
        worker = job.workers[rank]
        for operation in step.operations:
            if operation.kind in _RECEIVED or not operation.size_bytes:
                continue
            yield ObservedOperation(
                f"{operation.kind}-{operation.number}-{worker}",
                step.iteration,
                worker,
                job.workers[_peer(operation, rank)],
                operation.size_bytes,
                self._seconds(operation.start_ns),
                self._seconds(operation.end_ns),
            )

    def _computing(
        self,
        worker: str,
        begin_ns: int,
        step: RankStep,
    ) -> Iterator[ObservedComputing]:
        for number, (start_ns, end_ns) in enumerate(_computing_times(begin_ns, step), start=1):
            name = f"compute-{number}-{worker}"
            start_s = self._seconds(start_ns)
            end_s = self._seconds(end_ns)
            yield ObservedComputing(name, step.iteration, worker, start_s, end_s)

    def _seconds(self, time_ns: int) -> Fraction:
        return Fraction(time_ns - self._origin_ns, NS_PER_S)


def _peer(operation: RankOperation, rank: int) -> int:
    """Return the rank that an operation sends to: the next one of the group, for a collective."""
    if operation.kind == "send":
        return operation.ranks[operation.peer]
    place = operation.ranks.index(rank) + 1
    return operation.ranks[place % len(operation.ranks)]


def _computing_times(begin_ns: int, step: RankStep) -> list[tuple[int, int]]:
    """Return the times of an iteration in which a rank did not wait."""
    times = []
    at_ns = begin_ns
    for start_ns, end_ns in sorted(step.waits):
        if start_ns > at_ns:
            times.append((at_ns, start_ns))
        at_ns = max(at_ns, end_ns)
    if step.at_ns > at_ns:
        times.append((at_ns, step.at_ns))
    return times
