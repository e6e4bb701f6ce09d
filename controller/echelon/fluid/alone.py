"""The iteration of a job that has the whole network to itself."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import chain

from echelon.execution import Instruction, IterationRecord, JobExecution, Span, StartCompute, StartFlow, duration_s
from echelon.fabric.model import Fabric
from echelon.fluid.ranked import RankedFlow, RankedLink, RankedNetwork
from echelon.fluid.ticks import Exact, ExactUnits, exactly
from echelon.jobs.graph import Flow, Job
from echelon.paths import FlowPaths, Paths, links_of


def run_alone(job: Job, fabric: Fabric) -> IterationRecord[Fraction]:
    """Run one iteration of `job` on an otherwise empty fabric, its flows in order of deadline. Times are seconds from
    its beginning.

    The result is that of `echelon.fluid.simulate` for one job whose flows go first by ideal finish time, in time that
    grows with the number of rate changes rather than with the number of flows at each change. Raise `PlanError` if a
    worker cannot be reached, and `ValueError` for a job that cannot run.
    """
    return run_on(job, fabric, FlowPaths().update([job], fabric)[job.name])


def alone_iteration_s(job: Job, fabric: Fabric) -> Fraction:
    """Return how many seconds one iteration of `job` takes on an otherwise empty fabric. Raise as `run_alone`."""
    return duration_s(run_alone(job, fabric))


def run_on(job: Job, fabric: Fabric, paths: Paths) -> IterationRecord[Fraction]:
    """Return the result of `run_alone` over these paths."""
    durations_s = (unit.duration_s for unit in job.computes)
    offsets_s = (offset_s for echelonflow in job.echelonflows for offset_s in echelonflow.offsets_s)
    capacities_Bps = {fabric.capacity_Bps[link] for path in set(paths.values()) for link in links_of(path)}  # noqa: N806
    return exactly(
        chain(durations_s, offsets_s),
        capacities_Bps,
        lambda units: _Run(job, fabric, paths, units).to_the_end(),
    )


_Due = tuple[float, Exact, int, str, RankedFlow | None, int]
"""A future event, sorted by time and then by when it was announced: (approximate time, time, sequence, name, the flow
whose finish it is or None for a compute unit, version of its rate). The first number tells most times apart, and is
much faster to compare than a fraction."""


class _Run:
    """One iteration. Events of one time are handled as in `echelon.fluid.simulator`: finished flows in order of their
    start, then compute units, and again until nothing more happens; then rates change."""

    def __init__(self, job: Job, fabric: Fabric, paths: Paths, units: ExactUnits) -> None:
        self._now: Exact = 0
        self._units = units
        self._network = RankedNetwork()
        self._execution: JobExecution[Exact] = JobExecution(replace(job, start_s=Fraction(0)), more=lambda _: False)
        self._arranged = {
            name: (h.name, units.time(offset))
            for h in job.echelonflows
            for name, offset in zip(h.flows, h.offsets_s, strict=True)
        }
        links = {
            link: RankedLink(units.rate(fabric.capacity_Bps[link]))
            for path in set(paths.values())
            for link in links_of(path)
        }
        of_path = {path: tuple(links[link] for link in links_of(path)) for path in set(paths.values())}
        self._links = {flow: of_path[path] for flow, path in paths.items()}
        self._due: list[_Due] = []
        self._announced = 0
        self._started = 0
        self._empty: list[tuple[int, str]] = []
        """Flows that finish as they start, because they have no bytes or no links: (sequence, name)."""

    def to_the_end(self) -> IterationRecord[Fraction]:
        self._obey(self._execution.start(self._now))
        record = self._execution.record.iterations[0]
        while True:
            self._catch_up()
            if record.finish is not None:
                return _in_seconds(record, self._units)
            for flow, before in self._network.set_rates():
                self._change_rate(flow, before)
            self._now = self._units.bounded_time(self._due[0][1])

    def _catch_up(self) -> None:
        while True:
            flows, units = self._take_due()
            flows += self._empty
            self._empty = []
            if not flows and not units:
                return
            for _, name in sorted(flows):
                self._obey(self._execution.flow_finished(name, self._now))
            units += self._take_due()[1]
            while units:
                for name in units:
                    self._obey(self._execution.compute_finished(name, self._now))
                # ExactUnits of no duration finish before flows are looked at again.
                units = self._take_due()[1]

    def _take_due(self) -> tuple[list[tuple[int, str]], list[str]]:
        """Remove and return the flows, with their sequence, and compute units, in order, that have finished by now."""
        flows, units = [], []
        while self._due and self._due[0][1] <= self._now:
            _, _, _, name, flow, version = heapq.heappop(self._due)
            if flow is None:
                units.append(name)
            elif version == flow.version:
                flows.append((flow.rank[1], name))
                self._network.end(flow)
        return flows, units

    def _obey(self, instructions: Sequence[Instruction[Exact]]) -> None:
        for instruction in instructions:
            if isinstance(instruction, StartCompute):
                self._announce(self._now + self._units.time(instruction.duration_s), instruction.name)
            elif isinstance(instruction, StartFlow):
                self._start(instruction.flow)

    def _announce(self, time: Exact, name: str, flow: RankedFlow | None = None, version: int = 0) -> None:
        heapq.heappush(self._due, (float(time), time, self._announced, name, flow, version))
        self._announced += 1

    def _start(self, flow: Flow) -> None:
        sequence = self._started
        self._started += 1
        links = self._links[flow.name]
        if not flow.size_bytes or not links:
            self._empty.append((sequence, flow.name))
            return
        ideal = self._now
        if flow.name in self._arranged:
            echelonflow, offset = self._arranged[flow.name]
            ideal = self._execution.record.iterations[0].references[echelonflow] + offset
        amount = self._units.amount(flow.size_bytes)
        self._network.begin(RankedFlow(flow.name, (ideal, sequence), links, amount))

    def _change_rate(self, flow: RankedFlow, before: Exact) -> None:
        if before:
            flow.remaining = self._units.bounded_amount(flow.remaining - before * (self._now - flow.since))
        flow.since = self._now
        flow.version += 1
        if flow.rate:
            finish = self._now + self._units.duration(flow.remaining, flow.rate)
            self._announce(finish, flow.name, flow, flow.version)


def _in_seconds(record: IterationRecord[Exact], units: ExactUnits) -> IterationRecord[Fraction]:
    # Many things happen at one time.
    seconds = lru_cache(maxsize=None)(units.seconds)

    def spans(of: Mapping[str, Span[Exact]]) -> dict[str, Span[Fraction]]:
        return {
            name: Span(seconds(span.start), None if span.finish is None else seconds(span.finish))
            for name, span in of.items()
        }

    return IterationRecord(
        record.iteration,
        seconds(record.start),
        None if record.finish is None else seconds(record.finish),
        spans(record.flows),
        spans(record.computes),
        {name: seconds(time) for name, time in record.references.items()},
    )
