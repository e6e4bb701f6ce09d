"""The closed loop of one training job as a state machine without I/O: facts in, instructions out.

The fluid simulator, the virtual fabric and real emulators drive the same machine. They tell it what
finished and when; it says what starts now. It only stores the times it is given, so they may be of
any type: exact seconds, integer nanoseconds.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import groupby
from typing import Generic, Literal, Self, TypeAlias, TypeVar, cast, overload

from echelon.model.jobs import analysis
from echelon.model.jobs.folding import FoldedJob
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.allocation import Number

T = TypeVar("T")
"""A point in time, in the driver's unit."""
V = TypeVar("V")
T_co = TypeVar("T_co", covariant=True)
"""The same, of records, which only their driver writes."""


@dataclass(slots=True)
class Span(Generic[T_co]):
    """The start and finish of something (finish None: not yet)."""

    start: T_co
    finish: T_co | None = None


@dataclass(slots=True)
class IterationRecord(Generic[T_co]):
    """The record of one iteration of a job. `finish` is None while it runs."""

    iteration: int
    """Counted from 1."""
    start: T_co
    finish: T_co | None = None
    flows: Mapping[str, Span[T_co]] = field(default_factory=dict)
    computes: Mapping[str, Span[T_co]] = field(default_factory=dict)
    references: Mapping[str, T_co] = field(default_factory=dict)
    """The reference time of each EchelonFlow: when the first of its flows started. That is the head
    flow, unless its producer is late. Then the EchelonFlow is late from the start, and so ranks
    higher."""


class RecordedSpans(Mapping[str, Span[float]]):
    """Spans that an engine has recorded, each made when somebody asks for it.

    An iteration may have 100,000 flows, of which most readers ask for none.
    """

    __slots__ = ("_places", "steps", "times")

    def __init__(
        self,
        steps: RecordedSteps,
        places: Mapping[str, int],
        times: array[float],
    ) -> None:
        self.steps = steps
        self._places = places
        self.times = times
        """The start and finish of each step, side by side; `places` has the index of the start.

        -1: not yet.
        """

    def __getitem__(self, name: str) -> Span[float]:
        place = self._places[name]
        start_s, finish_s = self.times[place : place + 2]
        if start_s < 0:
            raise KeyError(name)
        if finish_s < 0:
            return Span(start_s)
        return Span(start_s, finish_s)

    def __iter__(self) -> Iterator[str]:
        for name, place in self._places.items():
            if self.times[place] >= 0:
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def starts_s(self, names: Iterable[str]) -> list[float]:
        """Return the starts of these steps, of those that have started."""
        places = map(self._places.__getitem__, names)
        starts_s = map(self.times.__getitem__, places)
        return [start_s for start_s in starts_s if start_s >= 0]

    def finishes_s(self, names: Iterable[str]) -> list[float | None]:
        """Return the finish of each of these steps; None: not yet."""
        places = map(self._places.__getitem__, names)
        finishes_s: list[float | None] = []
        for place in places:
            finish_s = self.times[place + 1]
            if finish_s < 0:
                finishes_s.append(None)
            else:
                finishes_s.append(finish_s)
        return finishes_s


class FirstStarts(Mapping[str, float]):
    """The reference time of each EchelonFlow of which a flow has started, found when asked for."""

    __slots__ = ("_flows", "_spans")

    def __init__(self, flows: Mapping[str, Sequence[str]], spans: RecordedSpans) -> None:
        self._flows = flows
        self._spans = spans

    def __getitem__(self, name: str) -> float:
        starts_s = self._spans.starts_s(self._flows[name])
        if not starts_s:
            raise KeyError(name)
        return min(starts_s)

    def __iter__(self) -> Iterator[str]:
        for name, flows in self._flows.items():
            if self._spans.starts_s(flows):
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True)
class RecordedSteps:
    """The places of a job's steps among the times of an iteration that an engine records."""

    flows: Mapping[str, int]
    computes: Mapping[str, int]
    echelonflows: Mapping[str, Sequence[str]]
    """The flows of each EchelonFlow."""

    @classmethod
    def from_job(cls, job: Job, steps: Iterable[Step]) -> Self:
        """Return the places of steps that are recorded one after the other.

        Those of a folded job are the places of all steps of the original.
        """
        flows: dict[str, int] = {}
        computes: dict[str, int] = {}
        for number, step in enumerate(steps):
            places = computes
            if isinstance(step, Flow):
                places = flows
            places[step.name] = 2 * number
        if isinstance(job, FoldedJob):
            flows = _by_original(flows, job)
            computes = _by_original(computes, job)
            job = job.original
        echelonflows = {h.name: h.flows for h in job.echelonflows}
        return cls(flows, computes, echelonflows)

    def iteration(
        self,
        number: int,
        start_s: float,
        finish_s: float | None,
        times: array[float],
    ) -> IterationRecord[float]:
        """Return the record of an iteration with these times (`RecordedSpans.times`)."""
        flows = RecordedSpans(self, self.flows, times)
        computes = RecordedSpans(self, self.computes, times)
        references = FirstStarts(self.echelonflows, flows)
        return IterationRecord(number, start_s, finish_s, flows, computes, references)


def _by_original(values: Mapping[str, V], job: FoldedJob) -> dict[str, V]:
    """Return, by step of the original job, the value of the step that stands for it."""
    by_original = {}
    for name, representative in job.representatives.items():
        if representative in values:
            by_original[name] = values[representative]
    return by_original


AloneRecord: TypeAlias = IterationRecord[Fraction]
"""An iteration of a job that has the network to itself, in exact seconds."""


@dataclass(slots=True)
class JobRecord(Generic[T_co]):
    """All iterations of a job so far; the last may be unfinished."""

    job: str
    iterations: list[IterationRecord[T_co]] = field(default_factory=list)

    @property
    def finished(self) -> list[IterationRecord[T_co]]:
        """Return the iterations that have finished."""
        return [record for record in self.iterations if record.finish is not None]


def unfolded(record: JobRecord[float], job: FoldedJob) -> JobRecord[float]:
    """Return the record of the original of a folded job, of which `record` is the record."""
    out: JobRecord[float] = JobRecord(record.job)
    for iteration in record.iterations:
        flows = _by_original(iteration.flows, job)
        computes = _by_original(iteration.computes, job)
        references = {}
        for echelonflow in job.original.echelonflows:
            starts_s = []
            for name in echelonflow.flows:
                if name in flows:
                    starts_s.append(flows[name].start)
            if starts_s:
                references[echelonflow.name] = min(starts_s)
        original = replace(iteration, flows=flows, computes=computes, references=references)
        out.iterations.append(original)
    return out


@overload
def duration_s(record: IterationRecord[Fraction]) -> Fraction: ...


@overload
def duration_s(record: IterationRecord[Number]) -> Number: ...


def duration_s(record: IterationRecord[Number]) -> Number:
    """Return how long a finished iteration took, seconds.

    Raises `ValueError` if it has not finished.
    """
    if record.finish is None:
        raise ValueError(f"iteration {record.iteration} has not finished")
    return record.finish - record.start


@overload
def tardiness_s(echelonflow: EchelonFlow, record: IterationRecord[Fraction]) -> Fraction: ...


@overload
def tardiness_s(echelonflow: EchelonFlow, record: IterationRecord[Number]) -> Number: ...


def tardiness_s(echelonflow: EchelonFlow, record: IterationRecord[Number]) -> Number:
    """Return the tardiness of an EchelonFlow in an iteration, seconds.

    Raises `ValueError` if a flow is unfinished.
    """
    finishes = _finishes(record, echelonflow.flows)
    reference = record.references[echelonflow.name]
    late_s = []
    first = 0
    # Many flows in a row have the same offset, and of these, the one that finishes last decides.
    for offset_s, equal in groupby(echelonflow.offsets_s):
        following = first + len(list(equal))
        deadline_s = reference + offset_s
        late_s.append(max(finishes[first:following]) - deadline_s)
        first = following
    return max(late_s)


def _finishes(record: IterationRecord[Number], names: Sequence[str]) -> list[Number]:
    """Return the finishes of these flows. Raises `ValueError` if one is unfinished."""
    spans = record.flows
    finishes: list[Number | None] = []
    if isinstance(spans, RecordedSpans):
        finishes += spans.finishes_s(names)
    else:
        for name in names:
            finish = None
            if name in spans:
                finish = spans[name].finish
            finishes.append(finish)
    if None in finishes:
        name = names[finishes.index(None)]
        raise ValueError(f"flow {name} has not finished in iteration {record.iteration}")
    return cast("list[Number]", finishes)


@dataclass(frozen=True, slots=True)
class StartCompute:
    """A worker starts a compute unit; report `compute_finished` after `duration_s`."""

    name: str
    worker: str
    duration_s: Fraction


@dataclass(frozen=True, slots=True)
class StartFlow:
    """A flow starts; report `flow_finished` when its last byte has arrived."""

    flow: Flow
    iteration: int


@dataclass(frozen=True, slots=True)
class IterationFinished(Generic[T]):
    """All units and flows of an iteration have finished."""

    iteration: int
    start: T
    finish: T


Instruction: TypeAlias = StartCompute | StartFlow | IterationFinished[T]


def _for_ever(iteration: int) -> bool:
    return True


Step: TypeAlias = ComputeUnit | Flow


def steps_of(job: Job) -> tuple[Step, ...]:
    """Return the steps of a job in the order in which it lists them, flows last."""
    return (*job.computes, *job.flows)


class Turns:
    """The order in which hosts send the flows of a job that sends in turn: that of their starts.

    Of steps that start at once, the one that the job lists first goes first.
    """

    def __init__(self, job: Job) -> None:
        self._in_turn = job.in_turn
        self._place: dict[str, int] = {}
        if job.in_turn:
            self._place = {step.name: place for place, step in enumerate(steps_of(job))}
        self._waiting: dict[str, deque[str]] = {}
        """The flows that wait for their turn, by the host that sends another."""

    def begins(self, step: Step) -> bool:
        """Return whether a step may start. A flow that may not waits for its turn."""
        if not self._in_turn or isinstance(step, ComputeUnit):
            return True
        if step.src in self._waiting:
            self._waiting[step.src].append(step.name)
            return False
        self._waiting[step.src] = deque()
        return True

    def after(self, step: Step | None, ready: list[str]) -> list[str]:
        """Return the steps that start when a step has finished for which `ready` waited.

        None stands for another host's flow. Flows that have waited for their turn go first.
        """
        if not self._in_turn:
            return ready
        ready = sorted(ready, key=self._place.__getitem__)
        if not isinstance(step, Flow):
            return ready
        waiting = self._waiting.pop(step.src)
        return [*waiting, *ready]


class JobExecution(Generic[T]):
    """A job that runs iteration after iteration; each starts when the previous one has finished.

    `delays` maps (worker, iteration) to the seconds by which the first unit that the worker starts
    in that iteration takes longer (a straggler). `more(iteration)` says, before each iteration
    after the first, whether to start it.

    Raises `ValueError` for a job that could never run: an unknown or repeated name, a cycle,
    nothing to do, or an EchelonFlow of flows that the job does not have or that are in another
    EchelonFlow.
    """

    def __init__(
        self,
        job: Job,
        *,
        delays: Mapping[tuple[str, int], Fraction] | None = None,
        more: Callable[[int], bool] = _for_ever,
    ) -> None:
        self.job = job
        self.record: JobRecord[T] = JobRecord(job.name)
        # What the last iteration's record shows.
        self._flows: dict[str, Span[T]] = {}
        self._computes: dict[str, Span[T]] = {}
        self._references: dict[str, T] = {}
        self._delays = dict(delays or {})
        self._more = more
        self._order = analysis.topological_order(job)
        if not self._order:
            raise ValueError(f"job {job.name}: an iteration has neither compute units nor flows")
        self._steps = {step.name: step for step in steps_of(job)}
        self._followers: dict[str, list[str]] = {name: [] for name in self._order}
        for name in self._order:
            for before in self._steps[name].after:
                self._followers[before].append(name)
        self._echelonflow_by_flow: dict[str, str] = {}
        for echelonflow in job.echelonflows:
            self._add(echelonflow)
        self._missing: dict[str, int] = {}
        self._running: set[str] = set()
        self._turns = Turns(job)
        self._unfinished = 0
        self._delayed: set[str] = set()

    def _add(self, echelonflow: EchelonFlow) -> None:
        job = self.job.name
        for name in echelonflow.flows:
            if not isinstance(self._steps.get(name), Flow):
                raise ValueError(
                    f"job {job}: EchelonFlow {echelonflow.name} has no flow {name} to hold"
                )
            before = self._echelonflow_by_flow.setdefault(name, echelonflow.name)
            if before != echelonflow.name:
                raise ValueError(f"job {job}: flow {name} is in two EchelonFlows")

    def start(self, now: T) -> list[Instruction[T]]:
        """Start iteration 1. Raises `ValueError` if the job has started before."""
        if self.record.iterations:
            raise ValueError(f"job {self.job.name} has started already")
        return self._begin(1, now)

    def compute_finished(self, name: str, now: T) -> list[Instruction[T]]:
        """Record that a compute unit has finished. Raises `ValueError` if it was not running."""
        return self._finished(name, now, self._computes)

    def flow_finished(self, name: str, now: T) -> list[Instruction[T]]:
        """Record that the last byte of a flow has arrived.

        Raises `ValueError` if the flow was not running.
        """
        return self._finished(name, now, self._flows)

    @property
    def _current(self) -> IterationRecord[T]:
        if not self.record.iterations:
            raise ValueError(f"job {self.job.name} has not started")
        return self.record.iterations[-1]

    def _begin(self, iteration: int, now: T) -> list[Instruction[T]]:
        self._flows = {}
        self._computes = {}
        self._references = {}
        spans = self._flows, self._computes, self._references
        self.record.iterations.append(IterationRecord(iteration, now, None, *spans))
        # Each iteration is the same graph, begun with nothing finished.
        self._missing = {name: len(self._steps[name].after) for name in self._order}
        self._unfinished = len(self._steps)
        self._delayed.clear()
        first = [name for name in self._order if not self._steps[name].after]
        return self._start_all(first, now)

    def _start_all(self, names: Iterable[str], now: T) -> list[Instruction[T]]:
        current = self._current
        out: list[Instruction[T]] = []
        for name in names:
            step = self._steps[name]
            if not self._turns.begins(step):
                continue
            self._running.add(name)
            if isinstance(step, Flow):
                self._flows[name] = Span(now)
                echelonflow = self._echelonflow_by_flow.get(name)
                if echelonflow is not None:
                    self._references.setdefault(echelonflow, now)
                out.append(StartFlow(step, current.iteration))
            else:
                self._computes[name] = Span(now)
                out.append(StartCompute(name, step.worker, self._duration_s(step)))
        return out

    def _duration_s(self, unit: ComputeUnit) -> Fraction:
        if not self._delays or unit.worker in self._delayed:
            return unit.duration_s
        self._delayed.add(unit.worker)
        delay_s = self._delays.get((unit.worker, self._current.iteration))
        if delay_s is None:
            return unit.duration_s
        return unit.duration_s + delay_s

    def _finished(
        self,
        name: str,
        now: T,
        spans: dict[str, Span[T]],
    ) -> list[Instruction[T]]:
        current = self._current
        if name not in self._running or name not in spans:
            raise ValueError(f"job {self.job.name}: {name} finished but was not running")
        self._running.remove(name)
        spans[name].finish = now
        self._unfinished -= 1
        ready = []
        for follower in self._followers[name]:
            self._missing[follower] -= 1
            if not self._missing[follower]:
                ready.append(follower)
        ready = self._turns.after(self._steps[name], ready)
        if self._unfinished:
            return self._start_all(ready, now)
        current.finish = now
        following = current.iteration + 1
        out: list[Instruction[T]] = [IterationFinished(current.iteration, current.start, now)]
        if self._more(following):
            out += self._begin(following, now)
        return out


@analysis.once
@analysis.once
def is_executable(job: Job) -> bool:
    """Return True. Raises `ValueError` as `JobExecution` for a job that could never run."""
    JobExecution[float](job)
    return True


Until: TypeAlias = Literal["all-done", "exactly"]
"""The rule for a job that has finished before the others.

It continues (``all-done``) or stops (``exactly``).
"""


class Completion:
    """The progress of a run's jobs, and what follows from it.

    `iterations` is the number that every job has to finish; None means that the run never ends by
    itself.

    Virtual runs, runs on real hosts and the fluid simulator share this rule:

    - A run is over when every job has finished the iterations that were asked for.
    - Under ``all-done``, a job that is ahead begins further iterations until then, so that the load
      on the network stays.
    - Under ``exactly``, it stops after its own.
    - Background and cross traffic last as long as the run and never prolong it.
    """

    def __init__(
        self,
        jobs: Iterable[str],
        iterations: int | None,
        until: Until = "all-done",
    ) -> None:
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
        if not self._load_stays:
            return False
        counts = [count for name, count in self._finished.items() if name != job]
        return any(count < self._iterations for count in counts)

    @property
    def reached(self) -> bool:
        """Whether the run is over. A run without jobs is over at once."""
        if self._iterations is None:
            return False
        return min(self._finished.values(), default=self._iterations) >= self._iterations

    @property
    def common_iterations(self) -> int:
        """The number of iterations that every job has finished; 0 for a run without jobs."""
        return min(self._finished.values(), default=0)
