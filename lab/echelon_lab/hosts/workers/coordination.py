"""The barrier between the iterations of jobs on many hosts, and their records. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from echelon.model.jobs.graph import Job
from echelon.planning.execution import Completion, IterationRecord, JobRecord, Span
from echelon_lab.hosts.workers.messages import Begin, IterationDone, StepFinished, StepStarted

NS_PER_S = 1_000_000_000


@dataclass
class _Iteration:
    start_ns: int
    started: dict[str, int] = field(default_factory=dict)
    finished: dict[str, int] = field(default_factory=dict)
    complete: bool = False


class Coordination:
    """The barrier: jobs begin an iteration when all their workers have finished the one before.

    `completion` says when the run is over; it may know of more jobs. `on_iteration(job, iteration)`
    is called when all workers have finished an iteration.

    The report of a step may come after the report of a later step at another worker. After all
    workers have reported the end of an iteration, nothing of it is missing.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        completion: Completion,
        on_iteration: Callable[[str, int], None] | None = None,
    ) -> None:
        self._jobs = {job.name: job for job in jobs}
        self._completion = completion
        self._on_iteration = on_iteration
        self._history: dict[str, list[_Iteration]] = {name: [] for name in self._jobs}
        self._busy: dict[str, set[str]] = {name: set() for name in self._jobs}
        self._counts: dict[tuple[str, str], tuple[int, int]] = {}
        self._origin_ns = 0

    @property
    def done(self) -> bool:
        """Return whether every job has done its iterations."""
        return self._completion.reached

    def start(self, origin_ns: int) -> list[Begin]:
        """Return the orders to begin the first iterations.

        `origin_ns`, time 0 of the run, may be in the future.
        """
        self._origin_ns = origin_ns
        events = []
        for name, job in self._jobs.items():
            events.append(self._begin(name, origin_ns + round(job.start_s * NS_PER_S)))
        return events

    def note(self, report: StepStarted | StepFinished) -> None:
        """Keep what a worker has seen."""
        iteration = self._history[report.job][report.iteration - 1]
        if isinstance(report, StepStarted):
            times = iteration.started
        else:
            times = iteration.finished
        times[report.step] = report.at_ns

    def worker_done(self, report: IterationDone, now_ns: int) -> list[Begin]:
        """Return the order to begin the next iteration if this was the last worker.

        Raises `ValueError` for one that was not busy.
        """
        busy = self._busy[report.job]
        if report.host not in busy or report.iteration != len(self._history[report.job]):
            raise ValueError(
                f"job {report.job}: {report.host} did not work on iteration {report.iteration}"
            )
        busy.remove(report.host)
        self._counts[report.job, report.host] = (report.reordered, report.retransmitted)
        if busy:
            return []
        self._history[report.job][-1].complete = True
        self._completion.finish(report.job, report.iteration)
        if self._on_iteration is not None:
            self._on_iteration(report.job, report.iteration)
        if self._completion.begins(report.job, report.iteration + 1):
            return [self._begin(report.job, now_ns)]
        return []

    def busy_workers(self, job: str) -> Collection[str]:
        """Return the hosts that have not finished the current iteration."""
        return self._busy[job]

    @property
    def records(self) -> Mapping[str, JobRecord[Fraction]]:
        """The iterations of each job so far, in seconds from the beginning of the run.

        An iteration begins when its workers are told to, and is finished when the last of its steps
        is. The time to agree on that is in neither.
        """
        records = {}
        for name, job in self._jobs.items():
            records[name] = JobRecord(name, self._records_of(job))
        return records

    @property
    def end_s(self) -> float:
        """Return when the last reported step was finished, in seconds from the run's beginning."""
        finishes_ns: list[int] = []
        for iterations in self._history.values():
            for iteration in iterations:
                finishes_ns += iteration.finished.values()
        if finishes_ns:
            return float(self._seconds(max(finishes_ns)))
        return 0.0

    @property
    def reordered(self) -> Mapping[str, int]:
        """Packets that arrived after one that was sent later, by job."""
        return {job: reordered for job, (reordered, _) in self._packet_counts().items()}

    @property
    def retransmitted(self) -> Mapping[str, int]:
        """Packets sent again, by job."""
        return {job: retransmitted for job, (_, retransmitted) in self._packet_counts().items()}

    def _begin(self, job: str, at_ns: int) -> Begin:
        history = self._history[job]
        history.append(_Iteration(at_ns))
        self._busy[job] = set(self._jobs[job].workers)
        return Begin(job, len(history), at_ns)

    def _packet_counts(self) -> dict[str, tuple[int, int]]:
        """Return the packets that were reordered and retransmitted at all hosts, by job."""
        counts = dict.fromkeys(self._jobs, (0, 0))
        for (job, _host), (reordered, retransmitted) in self._counts.items():
            before = counts[job]
            counts[job] = before[0] + reordered, before[1] + retransmitted
        return counts

    def _seconds(self, time_ns: int) -> Fraction:
        return Fraction(time_ns - self._origin_ns, NS_PER_S)

    def _records_of(self, job: Job) -> list[IterationRecord[Fraction]]:
        history = self._history[job.name]
        records = []
        for number, iteration in enumerate(history, start=1):
            records.append(self._record(job, number, iteration))
        return records

    def _record(
        self,
        job: Job,
        number: int,
        iteration: _Iteration,
    ) -> IterationRecord[Fraction]:
        flows = self._spans((flow.name for flow in job.flows), iteration)
        computes = self._spans((compute.name for compute in job.computes), iteration)
        references = {}
        for echelonflow in job.echelonflows:
            starts = [flows[name].start for name in echelonflow.flows if name in flows]
            if starts:
                # The first of its flows to start is what all others refer to.
                references[echelonflow.name] = min(starts)
        finish_s = None
        if iteration.complete:
            finish_ns = max(iteration.finished.values(), default=iteration.start_ns)
            finish_s = self._seconds(finish_ns)
        start_s = self._seconds(iteration.start_ns)
        return IterationRecord(number, start_s, finish_s, flows, computes, references)

    def _spans(self, names: Iterable[str], iteration: _Iteration) -> dict[str, Span[Fraction]]:
        spans: dict[str, Span[Fraction]] = {}
        for name in names:
            start_ns = iteration.started.get(name)
            if start_ns is None:
                continue
            finish_ns = iteration.finished.get(name)
            finish_s = None
            if finish_ns is not None:
                finish_s = self._seconds(finish_ns)
            spans[name] = Span(self._seconds(start_ns), finish_s)
        return spans
