"""Event-driven simulation of flows as fluids.

Rates change only when a flow starts or finishes, when it reaches a threshold of its ranking, or
when its sender has opened its window further. Between such events everything is linear. An event
concerns only the flows of its neighbourhood: those that share links which could be full with it,
directly or through others. (The engine in C looks only at ports where rates change, if flows keep
their queues.)

Numbers are floats. Each rate is within a part of `sharing.TOLERANCE` of the exact one for the same
flows, and links are overloaded by no more. The error of a time grows with the number of events
before it, by some 1e-16 of the time each. Ties are broken by rule rather than by the last bit: what
happens less than `SAME_TIME` apart happens at once (flows finish first, in order of their start,
then the rest in the order in which it was announced), ranks that differ by less than a grain are
equal, and of equal offers of queues that of the oldest flow goes first (`sharing`). Some closed
loops are chaotic, above all those under fair sharing: a difference, and so the error, grows by half
with every iteration or so.

The model leaves out packets and the time that end hosts take to react. Of acknowledgements it has
the share of links that they take, and of a path what it adds to the time of a flow
(`echelon.planning.windows`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from operator import attrgetter
from typing import Protocol, TypeAlias, runtime_checkable

from echelon.model.fabric.model import Fabric, Path
from echelon.model.fabric.routing import NoRouteError, route
from echelon.model.jobs.folding import FoldedJob
from echelon.model.jobs.graph import Flow, FlowKey, Job
from echelon.planning import execution
from echelon.planning.allocation import (
    ActiveFlow,
    Allocation,
    Allocator,
    FlowWatcher,
    Link,
    LocalAllocator,
)
from echelon.planning.execution import (
    Completion,
    Instruction,
    JobExecution,
    Span,
    StartCompute,
    StartFlow,
    is_executable,
    unfolded,
)
from echelon.planning.fluid import native
from echelon.planning.fluid.folds import folded_jobs
from echelon.planning.fluid.network import (
    FlowUnderWay,
    FluidError,
    FluidNetwork,
    FluidPort,
    Neighbourhood,
)
from echelon.planning.fluid.plan_execution import PlanExecution
from echelon.planning.fluid.result import (
    ENDLESS_BYTES,
    BackgroundFlow,
    FluidResult,
    RoutedFlow,
)
from echelon.planning.paths import links_of
from echelon.planning.plan import Plan, PlanError
from echelon.planning.windows import PassingTime, Windows

Until: TypeAlias = execution.Until | Fraction
Observer: TypeAlias = Callable[[float, Sequence[ActiveFlow], Allocation], None]
OnIteration: TypeAlias = Callable[[str, int], None]
Delays: TypeAlias = Mapping[tuple[str, str, int], Fraction]
"""Seconds by which a worker's first unit takes longer, by (job, worker, iteration)."""

BACKGROUND_JOB = ""
"""The name of the job of background flows, as a policy sees it."""
SAME_TIME = 1e-12
"""Events less than this apart, as a part of the time since the start of the run, happen at once."""


class PlanSource(Protocol):
    """The source of a run's plan (`echelon.planning.policies.base.Policy` is one)."""

    def plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan: ...


@runtime_checkable
class SearchingPlanSource(PlanSource, Protocol):
    """A source that makes a better plan if it has time."""

    def best_plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan: ...


class Stopping(Protocol):
    """Decides whether a run has lasted long enough (`echelon.planning.fluid.interval`)."""

    pause_s: float
    """Seconds of the run after which it is asked."""

    def is_due(self, iterations: int) -> bool:
        """Return whether to ask when every job has finished so many iterations."""

    def reached(self, spans_by_job: Mapping[str, Sequence[tuple[float, float | None]]]) -> bool:
        """Return whether to end a run with these starts and finishes of iterations now."""


def simulate(
    jobs: Sequence[Job],
    fabric: Fabric,
    policy: PlanSource,
    iterations: int | None,
    *,
    believed: Sequence[Job] | None = None,
    background: Sequence[BackgroundFlow] = (),
    delays: Delays | None = None,
    until: Until = "all-done",
    observe: Observer | None = None,
    on_iteration: OnIteration | None = None,
    ideal: bool = False,
    windows: Windows | None = None,
    stopping: Stopping | None = None,
) -> FluidResult:
    """Run `jobs` in closed loop on `fabric` as the plan that `policy` makes says.

    - `ideal`: flows have the rates that the policy itself would give them
      (`echelon.planning.allocation.Allocator`), as if switches had a queue for each flow, and a
      flow ends when its last byte has been sent. A policy that gives none has its plan executed. A
      policy whose plan is reactive always gives the rates.
    - `windows`: how senders open their windows; None: windows are equal and open from the start.
    - `iterations` and `until` say when the run is over (`echelon.planning.execution`). Where
      `until` is a time in seconds, jobs stop as under ``exactly``, the run ends at that time at the
      latest, and `iterations` may be None.
    - `believed`: the jobs as the policy sees them, if its profile of them is wrong: other offsets,
      durations and sizes, but the same flows in the same EchelonFlows. What they compute and send
      is as in `jobs`.
    - `delays`: by (job, worker, iteration), seconds by which the worker's first unit takes longer.
    - `stopping` is asked now and then whether the run may end before `iterations`.
    - `observe` is called with the time, all active flows (perhaps none) and their rates whenever
      rates are set; `on_iteration` with job and iteration when one is finished.

    Raises `PlanError` if a flow has no path, `FluidError` if the policy stalls, `ValueError` for a
    job that cannot run.
    """
    if iterations is None and not isinstance(until, Fraction):
        raise ValueError(f"until={until!r} needs a number of iterations")
    if believed is None:
        believed = jobs
    if _membership(believed) != _membership(jobs):
        raise ValueError(
            "the believed jobs do not have the same flows in the same EchelonFlows as the jobs"
        )
    if isinstance(policy, SearchingPlanSource):
        plan = policy.best_plan(believed, fabric)
    else:
        plan = policy.plan(believed, fabric)

    routed = _routed(background, fabric)
    delays = delays or {}
    windows = (windows or Windows()).under(plan, fabric)
    if ideal:
        windows = replace(windows, passes=False)
    setup = _Setup(
        jobs, fabric, plan, iterations, until, routed, delays, windows, on_iteration, stopping
    )
    allocator = None
    is_asked = ideal or plan.reactive or plan.allocated
    if is_asked and isinstance(policy, Allocator) and getattr(policy, "allocates", True):
        allocator = policy
    # A policy that gives rates, and whoever observes, sees each flow.
    sees_flows = allocator is not None or plan.reactive or observe
    if sees_flows:
        return _in_python(setup, believed, allocator, observe)
    setup = _folded(setup)
    if native.available() and native.executable(plan):
        return _in_c(setup)
    return _in_python(setup, believed, allocator, observe)


def _folded(setup: _Setup) -> _Setup:
    """Return the same run of jobs in which one flow stands for all that are equal.

    Delays concern single units of a worker, so jobs with delays stay as they are.
    """
    for job in setup.jobs:
        is_executable(job)  # says what is wrong with a job
    delayed = {name for name, _, _ in setup.delays}
    all_folded = folded_jobs(setup.jobs, setup.plan, streams=setup.windows.streams)
    jobs = []
    for job, folded in zip(setup.jobs, all_folded, strict=True):
        if job.name in delayed:
            jobs.append(job)
        else:
            jobs.append(folded)
    return replace(setup, jobs=jobs)


@dataclass(frozen=True, slots=True)
class _Setup:
    """The inputs of a run, for both engines: see `simulate`."""

    jobs: Sequence[Job]
    fabric: Fabric
    plan: Plan
    iterations: int | None
    until: Until
    background: Sequence[RoutedFlow]
    delays: Delays
    windows: Windows
    on_iteration: OnIteration | None
    stopping: Stopping | None

    @property
    def end_s(self) -> float | None:
        """The time at which the run ends at the latest; None: it has no such time."""
        if isinstance(self.until, Fraction):
            return float(self.until)
        return None

    def worker_delays(self, job: str) -> dict[tuple[str, int], Fraction]:
        """Return the delays of a job's workers, by worker and iteration."""
        by_worker = {}
        for (name, worker, iteration), delay_s in self.delays.items():
            if name == job:
                by_worker[worker, iteration] = delay_s
        return by_worker


def _in_python(
    setup: _Setup,
    believed: Sequence[Job],
    allocator: Allocator | None,
    observe: Observer | None,
) -> FluidResult:
    """Return what `simulate` returns, computed here."""
    plan = setup.plan
    ports = {}
    for link, capacity_Bps in setup.fabric.capacity_Bps.items():  # noqa: N806
        ports[link] = FluidPort(link, float(capacity_Bps))
    rates: _RateSource
    if allocator is not None:
        rates = _Allocated(allocator)
    elif plan.reactive:
        raise PlanError(
            f"policy {plan.policy}: its plan is reactive, but it does not allocate rates"
        )
    else:
        rates = PlanExecution(plan, ports, setup.fabric, setup.windows)

    run = _Run(setup, ports, rates, observe)
    for job in believed:
        run.believe(job)
    for job in plan.delayed(setup.jobs):
        run.add_job(job, setup.worker_delays(job.name))
    for flow, links in setup.background:
        run.add_background(flow, links)
    run.to_the_end()

    records = {name: execution.record for name, execution in run.executions.items()}
    for job in setup.jobs:
        if isinstance(job, FoldedJob):
            records[job.name] = unfolded(records[job.name], job)
    return FluidResult(plan, records, run.background, run.now_s, run.allocations, run.work)


def _in_c(setup: _Setup) -> FluidResult:
    """Return what `simulate` returns, computed by the engine in C."""
    jobs = setup.jobs
    delays = {key: float(delay_s) for key, delay_s in setup.delays.items()}
    network = native.NativeNetwork(jobs, setup.fabric, setup.windows, setup.background, delays)
    starts_s = [float(job.start_s) for job in setup.plan.delayed(jobs)]
    run = native.NativeRun(
        network,
        setup.plan,
        starts_s,
        iterations=setup.iterations,
        load_stays=setup.until == "all-done",
    )

    reported = [0] * len(jobs)
    for _ in _parts(run, setup):
        if setup.on_iteration is None:
            continue
        for number, job in enumerate(jobs):
            while reported[number] < run.finished(number):
                reported[number] += 1
                setup.on_iteration(job.name, reported[number])

    records = {job.name: run.record(number) for number, job in enumerate(jobs)}
    background = run.background()
    return FluidResult(setup.plan, records, background, run.now_s, run.allocations, run.work)


def _parts(run: native.NativeRun, setup: _Setup) -> Iterator[None]:
    """Run to the end, and pause now and then."""
    stopping = setup.stopping
    if stopping is None or setup.iterations is None:
        yield from run.run(setup.end_s)
        return
    jobs = setup.jobs
    time_s = 0.0
    while True:
        time_s += stopping.pause_s
        yield from run.run(time_s)
        finished = min((run.finished(number) for number in range(len(jobs))), default=0)
        if finished >= setup.iterations:
            return
        if stopping.is_due(finished):
            spans_by_job = {job.name: run.ends_s(number) for number, job in enumerate(jobs)}
            if stopping.reached(spans_by_job):
                return


def _routed(background: Sequence[BackgroundFlow], fabric: Fabric) -> list[RoutedFlow]:
    """Return each background flow with its links. Raises `PlanError` for one without a path."""
    out = []
    for flow in background:
        try:
            path = route(fabric, flow.src, flow.dst, 0)
        except NoRouteError as error:
            raise PlanError(f"background {flow.name}: {error}", code=error.code) from None
        out.append((flow, links_of(path)))
    return out


def _membership(jobs: Sequence[Job]) -> set[tuple[str, str, tuple[str, ...]]]:
    members = set()
    for job in jobs:
        for echelonflow in job.echelonflows:
            members.add((job.name, echelonflow.name, echelonflow.flows))
    return members


class _Allocated:
    """The rates that a policy gives."""

    def __init__(self, policy: Allocator) -> None:
        self._policy = policy
        self._watcher: FlowWatcher | None = None
        if isinstance(policy, FlowWatcher):
            self._watcher = policy
        self._local: LocalAllocator | None = None
        if isinstance(policy, LocalAllocator):
            self._local = policy

    @property
    def undivided(self) -> bool:
        """Whether all flows are one neighbourhood."""
        return self._local is None

    def neighbourhood(self, flow: FlowUnderWay) -> Hashable:
        if self._local is None:
            return None
        return self._local.neighbourhood(flow)

    def started(self, now_s: float, flow: FlowUnderWay) -> None:
        if self._watcher is not None:
            self._watcher.started(now_s, flow)

    def finished(self, now_s: float, flow: FlowUnderWay) -> None:
        if self._watcher is not None:
            self._watcher.finished(now_s, flow)

    def allocate(
        self, now_s: float, neighbourhoods: Sequence[Neighbourhood]
    ) -> Iterator[Allocation]:
        for neighbourhood in neighbourhoods:
            yield self._policy.allocate(now_s, neighbourhood.flows)


_RateSource: TypeAlias = _Allocated | PlanExecution
"""A source of rates for the flows of a neighbourhood."""
_Action: TypeAlias = tuple[str, str] | Callable[[], None]
"""A compute unit that finishes (job, name), or something to call."""
_Subject: TypeAlias = FlowUnderWay | Neighbourhood | _Action
"""A flow that finishes, a neighbourhood whose rates are no longer valid, or an action."""
_Event = tuple[float, int, _Subject, int]
"""A future event: (time, sequence, subject, version of the flow's rate).

Events are sorted by time and then by when they were announced.
"""

_MOST_STALLED = 1000
"""The times in a row that a policy's rates may be valid for less than a float can tell."""
_LEAST_TIDIED = 1024
"""The number of events up to which it does not pay to drop outdated ones."""


class _Run:
    """The clock, the jobs and the network of one simulation."""

    def __init__(
        self,
        setup: _Setup,
        ports: Mapping[Link, FluidPort],
        rates: _RateSource,
        observe: Observer | None,
    ) -> None:
        self.now_s = 0.0
        self.executions: dict[str, JobExecution[float]] = {}
        self.background: dict[str, Span[float]] = {}
        self.allocations = 0
        self.work = 0
        self._rates = rates
        self._links = {}
        self._passing = {}
        passing_by_path: dict[Path, PassingTime] = {}
        for flow in setup.plan.flows:
            path = flow.path
            if path not in passing_by_path:
                passing_by_path[path] = setup.windows.passing(path, setup.fabric)
            self._links[flow.job, flow.flow] = links_of(path)
            self._passing[flow.job, flow.flow] = passing_by_path[path]
        self._arranged: dict[FlowKey, tuple[str, float]] = {}
        self._end_s = setup.end_s
        until = setup.until
        if isinstance(until, Fraction):
            until = "exactly"
        names = [job.name for job in setup.jobs]
        self._completion = Completion(names, setup.iterations, until)
        self._observe = observe
        self._on_iteration = setup.on_iteration
        self._stopping = setup.stopping
        self._is_stopped = False
        self._network = FluidNetwork(ports, rates.neighbourhood, rates.undivided)
        self._latest_s = 0.0
        """The latest time that counts as `now_s`."""
        self._events: list[_Event] = []
        self._announced = 0
        self._most_events = _LEAST_TIDIED
        """The number of events above which outdated ones are dropped."""
        self._empty: list[FlowUnderWay] = []
        """Flows that finish as they start, because they have no bytes or no links."""
        self._stalled = 0

    def believe(self, job: Job) -> None:
        """Take the arrangement of the job's flows as the policy sees it."""
        for echelonflow in job.echelonflows:
            offsets_s = zip(echelonflow.flows, echelonflow.offsets_s, strict=True)
            for name, offset_s in offsets_s:
                self._arranged[job.name, name] = echelonflow.name, float(offset_s)

    def add_job(self, job: Job, delays: Mapping[tuple[str, int], Fraction]) -> None:
        def begins(iteration: int) -> bool:
            return self._completion.begins(job.name, iteration)

        job_execution: JobExecution[float] = JobExecution(job, delays=delays, more=begins)
        self.executions[job.name] = job_execution

        def start() -> None:
            self._obey(job.name, job_execution.start(self.now_s))

        self._announce(float(job.start_s), start)

    def add_background(self, flow: BackgroundFlow, links: tuple[Link, ...]) -> None:
        key = BACKGROUND_JOB, flow.name
        size_bytes = ENDLESS_BYTES
        if flow.size_bytes is not None:
            size_bytes = flow.size_bytes
        limit_Bps = None  # noqa: N806
        if flow.max_rate_Bps is not None:
            limit_Bps = float(flow.max_rate_Bps)  # noqa: N806

        def start() -> None:
            self.background[flow.name] = Span(self.now_s)
            now_s = self.now_s
            self._start(self._network.new(key, 0, None, links, size_bytes, now_s, now_s, limit_Bps))

        self._announce(float(flow.start_s), start)

    def to_the_end(self) -> None:
        """Handle event after event, until every job is satisfied or the time is up."""
        while True:
            self._catch_up()
            if self._completion.reached or self._is_stopped:
                return
            if self._network.changed:
                self._allocate()
            following = self._next_event_s()
            if self._end_s is not None and (following is None or following > self._end_s):
                self.now_s = self._end_s
                return
            if following is None:
                raise FluidError(
                    f"at {self.now_s} s the policy gives no flow a rate, and nothing else happens"
                )
            self.now_s = following
            self._latest_s = following + following * SAME_TIME

    def _catch_up(self) -> None:
        """Handle everything that happens now, and what follows from it without any time passing.

        Flows finish first, in order of their start, since the rates of others depend on them only
        later.
        """
        while True:
            flows, actions = self._take_due()
            flows += self._empty
            self._empty = []
            if not flows and not actions:
                return
            flows.sort(key=_BY_START)
            for flow in flows:
                self._finish(flow)

            actions += self._take_due()[1]
            while actions:
                for action in actions:
                    self._act(action)
                # Units of no duration finish before flows are looked at again.
                actions = self._take_due()[1]

    def _act(self, action: _Action) -> None:
        if isinstance(action, tuple):
            job, name = action
            job_execution = self.executions[job]
            self._obey(job, job_execution.compute_finished(name, self.now_s))
        else:
            action()

    def _take_due(self) -> tuple[list[FlowUnderWay], list[_Action]]:
        """Remove the events of now, and return the flows that finish, and the actions in order."""
        flows = []
        actions = []
        events = self._events
        while events and events[0][0] <= self._latest_s:
            time_s, _, subject, version = heapq.heappop(events)
            if isinstance(subject, FlowUnderWay):
                if version != subject.version:
                    continue
                # A second event of the same finish is outdated from now on.
                subject.version += 1
                self._network.remove(subject)
                flows.append(subject)
            elif isinstance(subject, Neighbourhood):
                if subject.ended:
                    continue
                self._network.touch(subject)
            else:
                actions.append(subject)
            if time_s > self.now_s:
                self.now_s = time_s
        return flows, actions

    def _obey(self, job: str, instructions: Sequence[Instruction[float]]) -> None:
        for instruction in instructions:
            if isinstance(instruction, StartCompute):
                finish_s = self.now_s + float(instruction.duration_s)
                self._announce(finish_s, (job, instruction.name))
            elif isinstance(instruction, StartFlow):
                self._start_flow(job, instruction.flow, instruction.iteration)
            else:
                self._completion.finish(job, instruction.iteration)
                if self._on_iteration is not None:
                    self._on_iteration(job, instruction.iteration)
                if self._stopping is not None:
                    self._ask(self._stopping)

    def _ask(self, stopping: Stopping) -> None:
        if not stopping.is_due(self._completion.common_iterations):
            return
        spans_by_job = {}
        for name, job_execution in self.executions.items():
            iterations = job_execution.record.iterations
            spans_by_job[name] = [(iteration.start, iteration.finish) for iteration in iterations]
        self._is_stopped = stopping.reached(spans_by_job)

    def _start_flow(
        self,
        job: str,
        flow: Flow,
        iteration: int,
    ) -> None:
        key = job, flow.name
        echelonflow = None
        deadline_s = self.now_s
        if key in self._arranged:
            echelonflow, offset_s = self._arranged[key]
            references = self.executions[job].record.iterations[-1].references
            deadline_s = references[echelonflow] + offset_s
        links = self._links[key]
        size_bytes = flow.size_bytes
        self._start(
            self._network.new(
                key,
                iteration,
                echelonflow,
                links,
                size_bytes,
                self.now_s,
                deadline_s,
                count=flow.count,
            )
        )

    def _start(self, flow: FlowUnderWay) -> None:
        if flow.size_bytes and flow.links:
            self._rates.started(self.now_s, flow)
            self._network.add(flow)
        else:
            self._empty.append(flow)

    def _finish(self, flow: FlowUnderWay) -> None:
        if flow.neighbourhood is not None:
            self._rates.finished(self.now_s, flow)
        if flow.job == BACKGROUND_JOB:
            self.background[flow.flow].finish = self.now_s
            return
        passing_s = 0.0
        if flow.neighbourhood is not None:
            passing_s = self._passing[flow.job, flow.flow].seconds(flow.size_bytes)
        if passing_s:
            self._announce(self.now_s + passing_s, partial(self._arrive, flow))
        else:
            self._arrive(flow)

    def _arrive(self, flow: FlowUnderWay) -> None:
        """Tell the job that the last byte of a flow has arrived."""
        job_execution = self.executions[flow.job]
        self._obey(flow.job, job_execution.flow_finished(flow.flow, self.now_s))

    def _allocate(self) -> None:
        """Set the rates of all flows of neighbourhoods in which something has happened."""
        now_s = self.now_s
        valid_until_s = []
        neighbourhoods = list(self._network.take_touched(now_s))
        allocations = self._rates.allocate(now_s, neighbourhoods)
        for neighbourhood, allocation in zip(neighbourhoods, allocations, strict=True):
            flows = neighbourhood.flows
            self.work += sum(len(flow.links) for flow in flows)
            rates_Bps = allocation.rates_Bps  # noqa: N806
            if len(rates_Bps) != len(flows):
                raise FluidError(
                    f"the policy answers with {len(rates_Bps)} rates for {len(flows)} flows"
                )
            for flow, number in zip(flows, rates_Bps, strict=True):
                rate_Bps = float(number)  # noqa: N806
                if rate_Bps != flow.rate_Bps:
                    flow.rate_Bps = rate_Bps
                    flow.version += 1
                    if rate_Bps:
                        finish_s = now_s + flow.remaining_bytes / rate_Bps
                        self._announce(finish_s, flow, flow.version)
            if allocation.valid_until_s is not None:
                end_s = self._end_of_validity_s(float(allocation.valid_until_s))
                valid_until_s.append(end_s)
                self._announce(end_s, neighbourhood)
        self.allocations += 1
        if self._observe is not None:
            self._show(self._observe, min(valid_until_s, default=None))

    def _show(self, observe: Observer, valid_until_s: float | None) -> None:
        """Call the observer with all flows as they are now, and their rates."""
        flows = list(self._network.flows.values())
        for flow in flows:
            self._network.advance(flow, self.now_s)
        rates_Bps = [flow.rate_Bps for flow in flows]  # noqa: N806
        allocation = Allocation(tuple(rates_Bps), valid_until_s)
        observe(self.now_s, flows, allocation)

    def _end_of_validity_s(self, time_s: float) -> float:
        """Return the time, or a later one if it counts as now.

        Raises `FluidError` if the policy makes no progress.
        """
        if time_s > self._latest_s:
            self._stalled = 0
            return time_s
        self._stalled += 1
        if self._stalled > _MOST_STALLED:
            raise FluidError(f"at {self.now_s} s the policy gives rates with no validity")
        # Four times what counts as now, and at the start of a run, of a millisecond: the next time
        # is then another one whatever the rounding.
        return self.now_s + max(self.now_s, 1e-3) * 4 * SAME_TIME

    def _next_event_s(self) -> float | None:
        """Return the time of the next event; None if there is none."""
        events = self._events
        if len(events) > self._most_events:
            events = self._events = [event for event in events if not _outdated(event)]
            heapq.heapify(events)
            # Twice as many may come before the next time, so that tidying costs little per event.
            self._most_events = 2 * len(events) + _LEAST_TIDIED
        while events and _outdated(events[0]):
            heapq.heappop(events)
        if not events:
            return None
        return events[0][0]

    def _announce(
        self,
        time_s: float,
        subject: _Subject,
        version: int = 0,
    ) -> None:
        heapq.heappush(self._events, (time_s, self._announced, subject, version))
        self._announced += 1


_BY_START = attrgetter("sequence")


def _outdated(event: _Event) -> bool:
    subject = event[2]
    if isinstance(subject, FlowUnderWay):
        return subject.version != event[3]
    return isinstance(subject, Neighbourhood) and subject.ended
