"""Simulations of the plans of a search, which go on from where they paused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import ComputeUnit, Flow, Job
from echelon.planning.fluid.folds import folded_jobs
from echelon.planning.fluid.native import NativeNetwork, NativePlan, NativeRun, available
from echelon.planning.fluid.network import FluidError
from echelon.planning.fluid.simulator import Until, simulate
from echelon.planning.fluid.slowdown import mean_time_s, spans_s
from echelon.planning.plan import Plan
from echelon.planning.policies.base import FixedPlan
from echelon.planning.policies.echelon.candidates import ALONE
from echelon.planning.policies.echelon.unknowns import Unknowns
from echelon.planning.windows import Windows

Ends = list[list[tuple[float, float | None]]]
"""Start and finish of each iteration, by job; None: it has not finished."""


WINDOWS = Windows(passes=True, streams=True)
"""The windows of senders, whose packets have no known length, so that only delays count."""


class TooMuchWorkError(FluidError):
    """A simulation takes more work than it may."""


class Stage:
    """The jobs and the fabric of a search, on which plans are tried.

    The engine in C simulates them, or Python where there is none.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        windows: Windows = WINDOWS,
    ) -> None:
        self.jobs = jobs
        self.fabric = fabric
        self.windows = windows
        self._networks: dict[tuple[Windows, tuple[int, ...]], NativeNetwork] = {}
        """The networks of the engine in C, by windows and the jobs as they are folded, as objects.
        """

    def courses(self, plan: Plan) -> Callable[[Unknowns, int | None], Course]:
        """Return what begins runs of a plan, each in a draw.

        A run ends after so many iterations if they are given.
        """
        if not available():
            return partial(_InPython, self, plan)
        windows = self.windows.over({flow.path for flow in plan.flows}, self.fabric)
        jobs = folded_jobs(self.jobs, plan, streams=windows.streams)
        key = windows, tuple(map(id, jobs))
        network = self._networks.get(key)
        if network is None:
            network = self._networks[key] = NativeNetwork(jobs, self.fabric, windows)
        return partial(_InC, self, network, plan, network.planned(plan))


class Course:
    """A run under one plan in one draw."""

    work: int = 0
    """The work so far, as `NativeRun.work` counts it."""

    def ends_s(self, end_s: float | None, most_work: int) -> Ends:
        """Go on until a time, or to the end, and return start and finish of each iteration.

        Raises `FluidError` for a plan that stalls, and `TooMuchWorkError` if the run takes more
        than `most_work`.
        """
        raise NotImplementedError

    def _check(self, most_work: int) -> None:
        if self.work > most_work:
            raise TooMuchWorkError(f"a simulation takes more work than {most_work:,}")


class _InC(Course):
    def __init__(
        self,
        stage: Stage,
        network: NativeNetwork,
        plan: Plan,
        native: NativePlan,
        draw: Unknowns,
        iterations: int | None,
    ) -> None:
        self._stage = stage
        # The starts of a draw are without the shifts of the plan.
        shifted_s = []
        for job, start_s in zip(stage.jobs, draw.starts_s, strict=True):
            shift_s = plan.shifts_s.get(job.name, 0)
            shifted_s.append(start_s + float(shift_s))
        self._run = NativeRun(
            network,
            native,
            shifted_s,
            iterations=iterations,
            compute_scale=draw.compute_scale,
            size_scale=draw.size_scale,
            keeps_spans=False,
        )

    def ends_s(self, end_s: float | None, most_work: int) -> Ends:
        run = self._run
        for _ in run.run(end_s):
            self.work = run.work
            self._check(most_work)
        return [run.ends_s(number) for number in range(len(self._stage.jobs))]


class _InPython(Course):
    """A run that begins anew each time that it goes on."""

    def __init__(
        self,
        stage: Stage,
        plan: Plan,
        draw: Unknowns,
        iterations: int | None,
    ) -> None:
        self._stage = stage
        self._plan = plan
        self._iterations = iterations
        self._jobs = list(jobs_in(draw, stage.jobs))

    def ends_s(self, end_s: float | None, most_work: int) -> Ends:
        until: Until = "all-done"
        if end_s is not None:
            until = Fraction(end_s)
        result = simulate(
            self._jobs,
            self._stage.fabric,
            FixedPlan(self._plan),
            self._iterations,
            until=until,
            windows=self._stage.windows,
        )
        self.work = result.work
        self._check(most_work)
        return [spans_s(result.jobs[job.name]) for job in self._jobs]


def jobs_in(draw: Unknowns, jobs: Sequence[Job]) -> Iterator[Job]:
    """Return the jobs as they turn out to be in a draw."""
    return map(_scaled, jobs, draw.starts_s, draw.compute_scale, draw.size_scale)


def _scaled(
    job: Job,
    start_s: float,
    compute_scale: float,
    size_scale: float,
) -> Job:
    """Return a job that starts then, and computes and sends so many times as much."""

    def scaled_unit(unit: ComputeUnit) -> ComputeUnit:
        return replace(unit, duration_s=unit.duration_s * Fraction(compute_scale))

    def scaled_flow(flow: Flow) -> Flow:
        size_bytes = max(1, round(flow.size_bytes * Fraction(size_scale)))
        return replace(flow, size_bytes=size_bytes)

    return replace(
        job,
        start_s=Fraction(start_s),
        computes=tuple(map(scaled_unit, job.computes)),
        flows=tuple(map(scaled_flow, job.flows)),
    )


class Reference:
    """The seconds that each job takes alone, by draw."""

    def __init__(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        exact_s: Sequence[float],
    ) -> None:
        self.exact_s = exact_s
        self._courses = []
        for job in jobs:
            stage = Stage([job], fabric)
            plan = ALONE.new_policy().plan([job], fabric)
            self._courses.append(stage.courses(plan))
        self._drawn_s: dict[Unknowns, list[float]] = {}

    def alone_s(self, draw: Unknowns, is_exact: bool) -> Sequence[float]:
        """Return the seconds of an iteration of each job that has the network to itself.

        `is_exact`: sizes and computing of the draw are those of the job files.
        """
        if is_exact:
            return self.exact_s
        if draw not in self._drawn_s:
            times_s = [self._drawn(place, draw) for place in range(len(self._courses))]
            self._drawn_s[draw] = times_s
        return self._drawn_s[draw]

    def _drawn(self, place: int, draw: Unknowns) -> float:
        compute_scale = (draw.compute_scale[place],)
        size_scale = (draw.size_scale[place],)
        by_itself = Unknowns(1, (0.0,), compute_scale, size_scale)
        course = self._courses[place](by_itself, 1)
        # A job alone costs little beside runs of all jobs.
        [ends_s] = course.ends_s(None, _UNLIMITED)
        [(_, finish_s)] = ends_s
        assert finish_s is not None
        return finish_s


_UNLIMITED = 1 << 62


class Trial:
    """The simulations of one plan, in one draw after another."""

    def __init__(
        self,
        stage: Stage,
        plan: Plan,
        reference: Reference,
    ) -> None:
        self._new_course = stage.courses(plan)
        self._reference = reference
        self._courses: list[Course] = []

    @property
    def work(self) -> int:
        """The work of all simulations so far."""
        return sum(course.work for course in self._courses)

    def slowdowns(
        self,
        draws: Sequence[Unknowns],
        iterations: int,
        most_work: int,
    ) -> list[list[float]]:
        """Return the slowdown of each job, by draw, in so many iterations of the slowest job alone.

        The first draw is exact. Raises `FluidError` for a plan that stalls, and `TooMuchWorkError`
        if a simulation takes more than `most_work`.
        """
        by_draw = []
        for number, draw in enumerate(draws):
            alone_s = self._reference.alone_s(draw, number == 0)
            if number == len(self._courses):
                self._courses.append(self._new_course(draw, None))
            end_s = iterations * max(alone_s)
            ends_s = self._courses[number].ends_s(end_s, most_work)
            slowdowns = []
            for spans, period_s in zip(ends_s, alone_s, strict=True):
                slowdowns.append(mean_time_s(spans, end_s) / period_s)
            by_draw.append(slowdowns)
        return by_draw
