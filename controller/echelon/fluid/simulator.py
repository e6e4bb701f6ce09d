"""Event-driven simulation of flows as fluids.

Rates change only when a flow starts or finishes, when it reaches a threshold of its ranking, or when its sender has
opened its window further. Between such events everything is linear, and computed exactly.

The model leaves out packets, acknowledgements, propagation delay, and the time that end hosts take to react.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Protocol, TypeAlias

from echelon import completion
from echelon.allocation import ActiveFlow, Allocation, Allocator, Link, Number
from echelon.completion import Completion
from echelon.execution import Instruction, IterationFinished, JobExecution, Span, StartCompute, StartFlow
from echelon.fabric.model import Fabric
from echelon.fabric.routing import NoRouteError, route
from echelon.fluid.network import FluidError, FluidNetwork
from echelon.fluid.plan_execution import PlanExecution, Windows
from echelon.fluid.result import BackgroundFlow, FluidResult
from echelon.fluid.rounding import Rounding
from echelon.jobs.graph import Flow, Job
from echelon.paths import links_of
from echelon.plan import Plan, PlanError

Until: TypeAlias = completion.Until | Fraction
Observer: TypeAlias = Callable[[Fraction, Sequence[ActiveFlow], Allocation], None]

BACKGROUND_JOB = ""
"""The name of the job of background flows, as a policy sees it."""
ENDLESS_BYTES = 1 << 80


class FluidPlanner(Protocol):
    """Makes the plan of a run (`echelon.policies.base.Policy` is one)."""

    def plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan: ...


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

    - `ideal`: flows have the rates that the policy itself would give them (`echelon.allocation.Allocator`), as if
      switches had a queue for each flow. A policy that gives none has its plan executed. A policy whose plan is
      reactive always gives the rates.
    - `windows`: how senders open their windows; None: windows are equal and open from the start.
    - `iterations` and `until` say when the run is over (`echelon.completion`). Where `until` is a time in seconds, jobs
      stop as under ``exactly``, the run ends at that time at the latest, and `iterations` may be None.
    - `believed`: what the policy is told of the jobs if its profile of them is wrong: other offsets, durations and
      sizes, but the same flows in the same EchelonFlows. What they compute and send is as in `jobs`.
    - `delays`: by (job, worker, iteration), seconds by which the worker's first unit takes longer.
    - `observe` is called with the time, the active flows (perhaps none) and the new allocation whenever rates are set;
      `on_iteration` with job and iteration when one is finished.

    All numbers are exact until their denominators exceed 256 bits; from then on, times that do are rounded up to
    1e-12 s and remaining bytes to 2^-40 bytes, the same way in every run. The result tells how often.

    Raises `PlanError` if a flow has no path, `FluidError` if the policy stalls, `ValueError` for a job that cannot run.
    """
    if iterations is None and not isinstance(until, Fraction):
        raise ValueError(f"until={until!r} needs a number of iterations")
    told = jobs if believed is None else believed
    if _membership(told) != _membership(jobs):
        raise ValueError("the believed jobs do not have the same flows in the same EchelonFlows as the jobs")
    plan = policy.plan(told, fabric)
    allocator: Allocator
    if (ideal or plan.reactive) and isinstance(policy, Allocator):
        allocator = policy
    elif plan.reactive:
        raise PlanError(f"policy {plan.policy}: its plan is reactive, but it does not allocate rates")
    else:
        allocator = PlanExecution(plan, fabric, windows or Windows())
    run = _Run((job.name for job in jobs), plan, allocator, until, iterations, observe, on_iteration)
    for job in told:
        run.believe(job)
    for job in plan.delayed(jobs):
        own = {(worker, i): delay for (name, worker, i), delay in (delays or {}).items() if name == job.name}
        run.add_job(job, own)
    for flow in background:
        try:
            path = route(fabric, flow.src, flow.dst, 0)
        except NoRouteError as error:
            raise PlanError(f"background {flow.name}: {error}", code=error.code) from None
        run.add_background(flow, links_of(path))
    run.to_the_end()
    return FluidResult(
        plan=plan,
        jobs={name: execution.record for name, execution in run.executions.items()},
        background=run.background,
        end_s=run.now_s,
        allocations=run.allocations,
        roundings=run.rounding.count,
    )


def _membership(jobs: Sequence[Job]) -> set[tuple[str, str, tuple[str, ...]]]:
    return {(job.name, h.name, h.flows) for job in jobs for h in job.echelonflows}


@dataclass(order=True, slots=True)
class _Timer:
    time_s: Fraction
    sequence: int
    action: Callable[[], None] = field(compare=False)


class _Run:
    """The clock, the jobs and the network of one simulation."""

    def __init__(
        self,
        jobs: Iterable[str],
        plan: Plan,
        allocator: Allocator,
        until: Until,
        iterations: int | None,
        observe: Observer | None,
        on_iteration: Callable[[str, int], None] | None,
    ) -> None:
        self.now_s = Fraction(0)
        self.executions: dict[str, JobExecution[Fraction]] = {}
        self.background: dict[str, Span[Fraction]] = {}
        self.allocations = 0
        self.rounding = Rounding()
        self._allocator = allocator
        self._links = {(flow.job, flow.flow): links_of(flow.path) for flow in plan.flows}
        self._arranged: dict[tuple[str, str], tuple[str, Fraction]] = {}
        self._end_s = until if isinstance(until, Fraction) else None
        self._completion = Completion(jobs, iterations, "exactly" if isinstance(until, Fraction) else until)
        self._observe = observe
        self._on_iteration = on_iteration
        self._network = FluidNetwork(self.rounding)
        self._valid_until_s: Number | None = None
        self._timers: list[_Timer] = []
        self._timers_set = 0

    def believe(self, job: Job) -> None:
        """Take the arrangement of the job's flows as the policy sees it."""
        for h in job.echelonflows:
            for name, offset in zip(h.flows, h.offsets_s, strict=True):
                self._arranged[job.name, name] = h.name, offset

    def add_job(self, job: Job, delays: Mapping[tuple[str, int], Fraction]) -> None:
        execution: JobExecution[Fraction] = JobExecution(
            job, delays=delays, more=partial(self._completion.begins, job.name)
        )
        self.executions[job.name] = execution
        self._at(job.start_s, lambda: self._obey(job.name, execution.start(self.now_s)))

    def add_background(self, flow: BackgroundFlow, links: tuple[Link, ...]) -> None:
        def start() -> None:
            self.background[flow.name] = Span(self.now_s)
            size = ENDLESS_BYTES if flow.size_bytes is None else flow.size_bytes
            key = BACKGROUND_JOB, flow.name
            self._network.start(key, 0, None, links, size, self.now_s, self.now_s, flow.max_rate_Bps)

        self._at(flow.start_s, start)

    def to_the_end(self) -> None:
        """Handle event after event, until every job is satisfied or the time is up."""
        while True:
            self._catch_up()
            if self._completion.reached:
                return
            outdated = self._valid_until_s is not None and self._valid_until_s <= self.now_s
            if self._network.changed or outdated:
                self._allocate()
            following = self._next_event_s()
            if self._end_s is not None and (following is None or following > self._end_s):
                self.now_s = self._end_s
                return
            if following is None:
                raise FluidError(f"at {float(self.now_s)} s the policy gives no flow a rate, and nothing else happens")
            self.now_s = following

    def _catch_up(self) -> None:
        """Handle everything that happens now, and what follows from it without any time passing."""
        busy = True
        while busy:
            busy = False
            for job, flow in self._network.take_finished(self.now_s):
                busy = True
                if job == BACKGROUND_JOB:
                    self.background[flow].finish = self.now_s
                else:
                    self._obey(job, self.executions[job].flow_finished(flow, self.now_s))
            while self._timers and self._timers[0].time_s <= self.now_s:
                busy = True
                heapq.heappop(self._timers).action()

    def _obey(self, job: str, instructions: Sequence[Instruction[Fraction]]) -> None:
        for instruction in instructions:
            match instruction:
                case StartCompute(name, _, duration_s):
                    self._at(self.now_s + duration_s, partial(self._finish_compute, job, name))
                case StartFlow(flow, iteration):
                    self._start_flow(job, flow, iteration)
                case IterationFinished(iteration):
                    self._completion.finish(job, iteration)
                    if self._on_iteration is not None:
                        self._on_iteration(job, iteration)

    def _finish_compute(self, job: str, name: str) -> None:
        self._obey(job, self.executions[job].compute_finished(name, self.now_s))

    def _start_flow(self, job: str, flow: Flow, iteration: int) -> None:
        key = job, flow.name
        echelonflow, offset = self._arranged.get(key, (None, Fraction(0)))
        ideal = self.now_s
        if echelonflow is not None:
            ideal = self.executions[job].record.iterations[-1].references[echelonflow] + offset
        self._network.start(key, iteration, echelonflow, self._links[key], flow.size_bytes, self.now_s, ideal)

    def _allocate(self) -> None:
        flows = self._network.advance(self.now_s)
        allocation = Allocation(())
        if flows:
            allocation = self._allocator.allocate(self.now_s, flows)
            self.allocations += 1
        self._network.set_rates(allocation.rates_Bps)
        self._valid_until_s = allocation.valid_until_s
        if self._valid_until_s is not None:
            self._valid_until_s = self.rounding.time_s(self._valid_until_s)
            if self._valid_until_s <= self.now_s:
                raise FluidError(f"at {float(self.now_s)} s the policy gives rates with no validity")
        if self._observe is not None:
            self._observe(self.now_s, flows, allocation)

    def _next_event_s(self) -> Fraction | None:
        times = [self._network.next_finish_s(), self._valid_until_s, self._timers[0].time_s if self._timers else None]
        following = min((time for time in times if time is not None), default=None)
        return None if following is None else self.rounding.time_s(following)

    def _at(self, time_s: Fraction, action: Callable[[], None]) -> None:
        heapq.heappush(self._timers, _Timer(time_s, self._timers_set, action))
        self._timers_set += 1
