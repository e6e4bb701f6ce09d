"""The iteration of a job that has the whole network to itself."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from echelon.execution import Instruction, IterationRecord, JobExecution, StartCompute, StartFlow, duration_s
from echelon.fabric.model import Fabric
from echelon.fluid.ranked import RankedFlow, RankedLink, RankedNetwork
from echelon.fluid.rounding import Rounding
from echelon.jobs.graph import Flow, Job
from echelon.paths import FlowPaths, Paths, links_of

_ZERO = Fraction(0)


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
    return _Run(job, fabric, paths).to_the_end()


_Due = tuple[float, Fraction, int, str, RankedFlow | None, int]
"""A future event, sorted by time and then by when it was announced: (approximate time, time, sequence, name, the flow
whose finish it is or None for a compute unit, version of its rate). The first number tells most times apart, and is
much faster to compare than the second."""


class _Run:
    """One iteration. Events of one time are handled as in `echelon.fluid.simulator`: finished flows in order of their
    start, then compute units, and again until nothing more happens; then rates change."""

    def __init__(self, job: Job, fabric: Fabric, paths: Paths) -> None:
        self._now_s = _ZERO
        self._rounding = Rounding()
        self._network = RankedNetwork()
        self._execution: JobExecution[Fraction] = JobExecution(replace(job, start_s=_ZERO), more=lambda _: False)
        self._arranged = {
            name: (h.name, offset) for h in job.echelonflows for name, offset in zip(h.flows, h.offsets_s, strict=True)
        }
        links = {link: RankedLink(fabric.capacity_Bps[link]) for path in set(paths.values()) for link in links_of(path)}
        of_path = {path: tuple(links[link] for link in links_of(path)) for path in set(paths.values())}
        self._links = {flow: of_path[path] for flow, path in paths.items()}
        self._due: list[_Due] = []
        self._announced = 0
        self._started = 0
        self._empty: list[tuple[int, str]] = []
        """Flows that finish as they start, because they have no bytes or no links: (sequence, name)."""

    def to_the_end(self) -> IterationRecord[Fraction]:
        self._obey(self._execution.start(self._now_s))
        record = self._execution.record.iterations[0]
        while True:
            self._catch_up()
            if record.finish is not None:
                return record
            for flow, before_Bps in self._network.set_rates():  # noqa: N806
                self._change_rate(flow, before_Bps)
            self._now_s = self._rounding.time_s(self._due[0][1])

    def _catch_up(self) -> None:
        while True:
            flows, units = self._take_due()
            flows += self._empty
            self._empty = []
            if not flows and not units:
                return
            for _, name in sorted(flows):
                self._obey(self._execution.flow_finished(name, self._now_s))
            units += self._take_due()[1]
            while units:
                for name in units:
                    self._obey(self._execution.compute_finished(name, self._now_s))
                # Units of no duration finish before flows are looked at again.
                units = self._take_due()[1]

    def _take_due(self) -> tuple[list[tuple[int, str]], list[str]]:
        """Remove and return the flows, with their sequence, and compute units, in order, that have finished by now."""
        flows, units = [], []
        while self._due and self._due[0][1] <= self._now_s:
            _, _, _, name, flow, version = heapq.heappop(self._due)
            if flow is None:
                units.append(name)
            elif version == flow.version:
                flows.append((flow.rank[1], name))
                self._network.end(flow)
        return flows, units

    def _obey(self, instructions: Sequence[Instruction[Fraction]]) -> None:
        for instruction in instructions:
            if isinstance(instruction, StartCompute):
                self._announce(self._now_s + instruction.duration_s, instruction.name)
            elif isinstance(instruction, StartFlow):
                self._start(instruction.flow)

    def _announce(self, time_s: Fraction, name: str, flow: RankedFlow | None = None, version: int = 0) -> None:
        heapq.heappush(self._due, (float(time_s), time_s, self._announced, name, flow, version))
        self._announced += 1

    def _start(self, flow: Flow) -> None:
        sequence = self._started
        self._started += 1
        links = self._links[flow.name]
        if not flow.size_bytes or not links:
            self._empty.append((sequence, flow.name))
            return
        ideal_s = self._now_s
        if flow.name in self._arranged:
            echelonflow, offset_s = self._arranged[flow.name]
            ideal_s = self._execution.record.iterations[0].references[echelonflow] + offset_s
        self._network.begin(RankedFlow(flow.name, (ideal_s, sequence), links, flow.size_bytes))

    def _change_rate(self, flow: RankedFlow, before_Bps: Fraction) -> None:  # noqa: N803
        if before_Bps:
            passed = before_Bps * (self._now_s - flow.since_s)
            flow.remaining_bytes = self._rounding.bytes(flow.remaining_bytes - passed)
        flow.since_s = self._now_s
        flow.version += 1
        if flow.rate_Bps:
            finish_s = self._now_s + flow.remaining_bytes / flow.rate_Bps
            self._announce(finish_s, flow.name, flow, flow.version)
