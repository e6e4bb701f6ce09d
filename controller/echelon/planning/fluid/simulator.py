"""Event-driven simulation of flows as fluids.

Rates change only when a flow starts or finishes, when it reaches a threshold of its ranking, or
when its sender has opened its window further. Between such events everything is linear. An event
concerns only the flows of its neighbourhood: those that share links which could be full with it,
directly or through others.

Numbers are floats. Each rate is within a part of `sharing.TOLERANCE` of the exact one for the same
flows, and links are overloaded by no more. The error of a time grows with the number of events
before it, by some 1e-16 of the time each. Ties are broken by rule rather than by the last bit: what
happens less than `SAME_TIME` apart happens at once (flows finish first, in order of their start,
then the rest in the order in which it was announced), ranks that differ by less than a grain are
equal, and of equal offers of queues that of the oldest flow goes first (`sharing`). Some closed
loops are chaotic, above all those under fair sharing: a difference, and so the error, grows by half
with every iteration or so.

The model leaves out packets, acknowledgements, propagation delay, and the time that end hosts take
to react.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from operator import attrgetter
from typing import Protocol, TypeAlias, runtime_checkable

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import NoRouteError, route
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
)
from echelon.planning.fluid import native
from echelon.planning.fluid.network import (
    FlowUnderWay,
    FluidError,
    FluidNetwork,
    FluidPort,
    Neighbourhood,
)
from echelon.planning.fluid.plan_execution import PlanExecution, Windows
from echelon.planning.fluid.result import BackgroundFlow, FluidResult
from echelon.planning.paths import links_of
from echelon.planning.plan import Plan, PlanError

Until: TypeAlias = execution.Until | Fraction
Observer: TypeAlias = Callable[[float, Sequence[ActiveFlow], Allocation], None]

BACKGROUND_JOB = ""
"""The name of the job of background flows, as a policy sees it."""
ENDLESS_BYTES = 1 << 80
SAME_TIME = 1e-12
"""Events less than this apart, as a part of the time since the start of the run, happen at once."""


class FluidPlanner(Protocol):
    """The maker of a run's plan (`echelon.planning.policies.base.Policy` is one)."""

    def plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan: ...


@runtime_checkable
class PatientPlanner(FluidPlanner, Protocol):
    """A maker of plans that makes a better one if it has time."""

    def best_plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan: ...


def simulate(
    jobs: Sequence[Job],
    fabric: Fabric,
    policy: FluidPlanner,
    iterations: int | None,
    *,
    believed: Sequence[Job] | None = None,
    background: Sequence[BackgroundFlow] = (),
    delays: Mapping[tuple[str, str, int], Fraction] | None = None,
    until: Until = "all-done",
    observe: Observer | None = None,
    on_iteration: Callable[[str, int], None] | None = None,
    ideal: bool = False,
    windows: Windows | None = None,
) -> FluidResult:
    """Run `jobs` in closed loop on `fabric` as the plan that `policy` makes says.

    - `ideal`: flows have the rates that the policy itself would give them
      (`echelon.planning.allocation.Allocator`), as if switches had a queue for each flow. A policy
      that gives none has its plan executed. A policy whose plan is reactive always gives the rates.
    - `windows`: how senders open their windows; None: windows are equal and open from the start.
    - `iterations` and `until` say when the run is over (`echelon.planning.execution`). Where
      `until` is a time in seconds, jobs stop as under ``exactly``, the run ends at that time at the
      latest, and `iterations` may be None.
    - `believed`: what the policy is told of the jobs if its profile of them is wrong: other
      offsets, durations and sizes, but the same flows in the same EchelonFlows. What they compute
      and send is as in `jobs`.
    - `delays`: by (job, worker, iteration), seconds by which the worker's first unit takes longer.
    - `observe` is called with the time, all active flows (perhaps none) and their rates whenever
      rates are set; `on_iteration` with job and iteration when one is finished.

    Raises `PlanError` if a flow has no path, `FluidError` if the policy stalls, `ValueError` for a
    job that cannot run.
    """
    if iterations is None and not isinstance(until, Fraction):
        raise ValueError(f"until={until!r} needs a number of iterations")
    told = jobs if believed is None else believed
    if _membership(told) != _membership(jobs):
        raise ValueError(
            "the believed jobs do not have the same flows in the same EchelonFlows as the jobs"
        )
    if isinstance(policy, PatientPlanner):
        plan = policy.best_plan(told, fabric)
    else:
        plan = policy.plan(told, fabric)
    allocates = (ideal or plan.reactive or plan.allocated) and isinstance(policy, Allocator)
    if (
        not (allocates or plan.reactive or observe)
        and native.available()
        and native.executable(plan)
    ):
        return _in_c(
            jobs,
            fabric,
            plan,
            iterations,
            background,
            delays or {},
            until,
            on_iteration,
            windows or Windows(),
        )
    ports = {
        link: FluidPort(link, float(capacity_Bps))
        for link, capacity_Bps in fabric.capacity_Bps.items()
    }
    rates: _Rates
    if allocates:
        assert isinstance(policy, Allocator)
        rates = _Allocated(policy)
    elif plan.reactive:
        raise PlanError(
            f"policy {plan.policy}: its plan is reactive, but it does not allocate rates"
        )
    else:
        rates = PlanExecution(plan, ports, fabric, windows or Windows())
    run = _Run(
        [job.name for job in jobs], plan, ports, rates, until, iterations, observe, on_iteration
    )
    for job in told:
        run.believe(job)
    for job in plan.delayed(jobs):
        own = {
            (worker, i): delay
            for (name, worker, i), delay in (delays or {}).items()
            if name == job.name
        }
        run.add_job(job, own)
    for flow, links in _routed(background, fabric):
        run.add_background(flow, links)
    run.to_the_end()
    return FluidResult(
        plan=plan,
        jobs={name: execution.record for name, execution in run.executions.items()},
        background=run.background,
        end_s=run.now_s,
        allocations=run.allocations,
        work=run.work,
    )


def _in_c(
    jobs: Sequence[Job],
    fabric: Fabric,
    plan: Plan,
    iterations: int | None,
    background: Sequence[BackgroundFlow],
    delays: Mapping[tuple[str, str, int], Fraction],
    until: Until,
    on_iteration: Callable[[str, int], None] | None,
    windows: Windows,
) -> FluidResult:
    """Return what `simulate` returns, computed by the engine in C."""
    for job in jobs:
        JobExecution[float](job)  # says what is wrong with a job
    network = native.NativeNetwork(
        jobs,
        fabric,
        windows,
        _routed(background, fabric),
        {key: float(delay_s) for key, delay_s in delays.items()},
    )
    run = native.NativeRun(
        network,
        plan,
        [float(job.start_s) for job in plan.delayed(jobs)],
        iterations=iterations,
        load_stays=until == "all-done",
    )
    told = [0] * len(jobs)
    for _ in run.run(None if isinstance(until, str) else float(until)):
        for number, job in enumerate(jobs):
            while on_iteration is not None and told[number] < run.finished(number):
                told[number] += 1
                on_iteration(job.name, told[number])
    records = {job.name: run.record(number) for number, job in enumerate(jobs)}
    return FluidResult(plan, records, run.background(), run.now_s, run.allocations, run.work)


def _routed(
    background: Sequence[BackgroundFlow], fabric: Fabric
) -> list[tuple[BackgroundFlow, tuple[Link, ...]]]:
    """Return each background flow with its links. Raises `PlanError` for one without a path."""
    out = []
    for flow in background:
        try:
            out.append((flow, links_of(route(fabric, flow.src, flow.dst, 0))))
        except NoRouteError as error:
            raise PlanError(f"background {flow.name}: {error}", code=error.code) from None
    return out


def _membership(jobs: Sequence[Job]) -> set[tuple[str, str, tuple[str, ...]]]:
    return {(job.name, h.name, h.flows) for job in jobs for h in job.echelonflows}


class _Rates(Protocol):
    """A source of rates for the flows of a neighbourhood."""

    @property
    def whole(self) -> bool:
        """Whether all flows are one neighbourhood."""

    def neighbourhood(self, flow: FlowUnderWay) -> Hashable: ...

    def started(self, now_s: float, flow: FlowUnderWay) -> None: ...

    def finished(self, now_s: float, flow: FlowUnderWay) -> None: ...

    def allocate(self, now_s: float, neighbourhood: Neighbourhood) -> Allocation: ...


class _Allocated:
    """The rates that a policy gives."""

    def __init__(self, policy: Allocator) -> None:
        self._policy = policy
        self._watcher = policy if isinstance(policy, FlowWatcher) else None
        self._local = policy if isinstance(policy, LocalAllocator) else None

    @property
    def whole(self) -> bool:
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

    def allocate(self, now_s: float, neighbourhood: Neighbourhood) -> Allocation:
        return self._policy.allocate(now_s, neighbourhood.flows)


_Other: TypeAlias = tuple[str, str] | Callable[[], None]
"""A compute unit that finishes (job, name), or something to call."""
_What: TypeAlias = FlowUnderWay | Neighbourhood | _Other
"""A flow that finishes, a neighbourhood whose rates are no longer valid, or something else."""
_Event = tuple[float, int, _What, int]
"""A future event, sorted by time and then by when it was announced: (time, sequence, what happens,
version of the flow's rate)."""

_MOST_STALLED = 1000
"""The number of times in a row that a policy's rates may be valid for less time than a float can
tell.
"""


class _Run:
    """The clock, the jobs and the network of one simulation."""

    def __init__(
        self,
        jobs: Iterable[str],
        plan: Plan,
        ports: Mapping[Link, FluidPort],
        rates: _Rates,
        until: Until,
        iterations: int | None,
        observe: Observer | None,
        on_iteration: Callable[[str, int], None] | None,
    ) -> None:
        self.now_s = 0.0
        self.executions: dict[str, JobExecution[float]] = {}
        self.background: dict[str, Span[float]] = {}
        self.allocations = 0
        self.work = 0
        self._rates = rates
        self._links = {(flow.job, flow.flow): links_of(flow.path) for flow in plan.flows}
        self._arranged: dict[FlowKey, tuple[str, float]] = {}
        self._end_s = None if isinstance(until, str) else float(until)
        self._completion = Completion(
            jobs, iterations, until if isinstance(until, str) else "exactly"
        )
        self._observe = observe
        self._on_iteration = on_iteration
        self._network = FluidNetwork(ports, rates.neighbourhood, rates.whole)
        self._latest_s = 0.0
        """The latest time that counts as `now_s`."""
        self._events: list[_Event] = []
        self._announced = 0
        self._tidy_at = 1024
        """The number of events at which outdated ones are dropped."""
        self._empty: list[FlowUnderWay] = []
        """Flows that finish as they start, because they have no bytes or no links."""
        self._stalled = 0

    def believe(self, job: Job) -> None:
        """Take the arrangement of the job's flows as the policy sees it."""
        for h in job.echelonflows:
            for name, offset_s in zip(h.flows, h.offsets_s, strict=True):
                self._arranged[job.name, name] = h.name, float(offset_s)

    def add_job(self, job: Job, delays: Mapping[tuple[str, int], Fraction]) -> None:
        execution: JobExecution[float] = JobExecution(
            job, delays=delays, more=lambda iteration: self._completion.begins(job.name, iteration)
        )
        self.executions[job.name] = execution
        self._at(float(job.start_s), lambda: self._obey(job.name, execution.start(self.now_s)))

    def add_background(self, flow: BackgroundFlow, links: tuple[Link, ...]) -> None:
        most_Bps = None if flow.max_rate_Bps is None else float(flow.max_rate_Bps)  # noqa: N806

        def start() -> None:
            self.background[flow.name] = Span(self.now_s)
            if flow.size_bytes is None:
                size = ENDLESS_BYTES
            else:
                size = flow.size_bytes
            self._start((BACKGROUND_JOB, flow.name), 0, None, links, size, self.now_s, most_Bps)

        self._at(float(flow.start_s), start)

    def to_the_end(self) -> None:
        """Handle event after event, until every job is satisfied or the time is up."""
        while True:
            self._catch_up()
            if self._completion.reached:
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
            flows, others = self._take_due()
            flows += self._empty
            self._empty = []
            if not flows and not others:
                return
            flows.sort(key=_BY_START)
            for flow in flows:
                self._finish(flow)
            others += self._take_due()[1]
            while others:
                for what in others:
                    if isinstance(what, tuple):
                        job, name = what
                        self._obey(job, self.executions[job].compute_finished(name, self.now_s))
                    else:
                        what()
                # Units of no duration finish before flows are looked at again.
                others = self._take_due()[1]

    def _take_due(self) -> tuple[list[FlowUnderWay], list[_Other]]:
        """Remove from the events what happens by now.

        Return the flows that finish, and the rest in order.
        """
        flows: list[FlowUnderWay] = []
        others: list[_Other] = []
        events = self._events
        while events and events[0][0] <= self._latest_s:
            time_s, _, what, version = heapq.heappop(events)
            if isinstance(what, FlowUnderWay):
                if version != what.version:
                    continue
                what.version += 1
                self._network.remove(what)
                flows.append(what)
            elif isinstance(what, Neighbourhood):
                if what.ended:
                    continue
                self._network.touch(what)
            else:
                others.append(what)
            if time_s > self.now_s:
                self.now_s = time_s
        return flows, others

    def _obey(self, job: str, instructions: Sequence[Instruction[float]]) -> None:
        for instruction in instructions:
            if isinstance(instruction, StartCompute):
                self._at(self.now_s + float(instruction.duration_s), (job, instruction.name))
            elif isinstance(instruction, StartFlow):
                self._start_flow(job, instruction.flow, instruction.iteration)
            else:
                self._completion.finish(job, instruction.iteration)
                if self._on_iteration is not None:
                    self._on_iteration(job, instruction.iteration)

    def _start_flow(self, job: str, flow: Flow, iteration: int) -> None:
        key = job, flow.name
        echelonflow = None
        ideal_s = self.now_s
        if key in self._arranged:
            echelonflow, offset_s = self._arranged[key]
            ideal_s = self.executions[job].record.iterations[-1].references[echelonflow] + offset_s
        self._start(key, iteration, echelonflow, self._links[key], flow.size_bytes, ideal_s, None)

    def _start(
        self,
        key: FlowKey,
        iteration: int,
        echelonflow: str | None,
        links: tuple[Link, ...],
        size_bytes: int,
        ideal_s: float,
        most_Bps: float | None,  # noqa: N803
    ) -> None:
        flow = self._network.new(
            key, iteration, echelonflow, links, size_bytes, self.now_s, ideal_s, most_Bps
        )
        if size_bytes and links:
            self._rates.started(self.now_s, flow)
            self._network.add(flow)
        else:
            self._empty.append(flow)

    def _finish(self, flow: FlowUnderWay) -> None:
        if flow.neighbourhood is not None:
            self._rates.finished(self.now_s, flow)
        if flow.job == BACKGROUND_JOB:
            self.background[flow.flow].finish = self.now_s
        else:
            self._obey(flow.job, self.executions[flow.job].flow_finished(flow.flow, self.now_s))

    def _allocate(self) -> None:
        """Set the rates of all flows of neighbourhoods in which something has happened."""
        now_s = self.now_s
        valid_until_s: list[float] = []
        for neighbourhood in self._network.take_touched(now_s):
            flows = neighbourhood.flows
            self.work += sum(len(flow.links) for flow in flows)
            allocation = self._rates.allocate(now_s, neighbourhood)
            rates = allocation.rates_Bps
            if len(rates) != len(flows):
                raise FluidError(
                    f"the policy answers with {len(rates)} rates for {len(flows)} flows"
                )
            for flow, given in zip(flows, rates, strict=True):
                rate = float(given)
                if rate != flow.rate_Bps:
                    flow.rate_Bps = rate
                    flow.version += 1
                    if rate:
                        self._at(now_s + flow.remaining_bytes / rate, flow, flow.version)
            if allocation.valid_until_s is not None:
                ends_s = self._end_of_validity_s(float(allocation.valid_until_s))
                valid_until_s.append(ends_s)
                self._at(ends_s, neighbourhood)
        self.allocations += 1
        if self._observe is not None:
            present = list(self._network.flows.values())
            for flow in present:
                self._network.advance(flow, now_s)
            together = Allocation(
                tuple([flow.rate_Bps for flow in present]), min(valid_until_s, default=None)
            )
            self._observe(now_s, present, together)

    def _end_of_validity_s(self, time_s: float) -> float:
        """Return the time, or a later one if it counts as now.

        Raises `FluidError` if the policy makes no progress.
        """
        if time_s > self._latest_s:
            self._stalled = 0
            return time_s
        next_s = self.now_s + max(self.now_s, 1e-3) * 4 * SAME_TIME
        self._stalled += 1
        if self._stalled > _MOST_STALLED:
            raise FluidError(f"at {self.now_s} s the policy gives rates with no validity")
        return next_s

    def _next_event_s(self) -> float | None:
        """Return the time of the next event; None if there is none."""
        events = self._events
        if len(events) > self._tidy_at:
            events = self._events = [event for event in events if not _outdated(event)]
            heapq.heapify(events)
            self._tidy_at = 2 * len(events) + 1024
        while events and _outdated(events[0]):
            heapq.heappop(events)
        return events[0][0] if events else None

    def _at(self, time_s: float, what: _What, version: int = 0) -> None:
        heapq.heappush(self._events, (time_s, self._announced, what, version))
        self._announced += 1


_BY_START = attrgetter("sequence")


def _outdated(event: _Event) -> bool:
    what = event[2]
    if isinstance(what, FlowUnderWay):
        return what.version != event[3]
    return isinstance(what, Neighbourhood) and what.ended
