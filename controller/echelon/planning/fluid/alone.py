"""The iteration of a job that has the network to itself, in exact arithmetic, for plans.

Flows go first by rank: each in turn takes all that earlier ones leave on its path, which is
`echelon.planning.policies.filling.fill_in_order`, kept up to date: when flows begin or end, only
those are looked at whose rate may change.

Times are whole ticks, several times as fast as fractions. They need a tick of which every time of
the iteration is a multiple. It is guessed from the job and its links; rates that flows leave to
each other may ask for a finer one. Where no tick of `_TICK_BITS` serves, times are rounded up to
multiples of `_ROUNDED_S`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import gcd, lcm

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Flow, Job
from echelon.planning.execution import (
    AloneRecord,
    Instruction,
    IterationRecord,
    JobExecution,
    Span,
    StartCompute,
    StartFlow,
    duration_s,
)
from echelon.planning.paths import FlowPaths, Paths, links_of

_TRIES = 4
"""The ticks that are tried."""
_TICK_BITS = 256
"""The most bits of the number of ticks in a second."""
_ROUNDED_S = Fraction(1, 10**24)


def run_alone(job: Job, fabric: Fabric) -> AloneRecord:
    """Run one iteration of `job` on an otherwise empty fabric, its flows in order of deadline.
    Times are seconds from its beginning.

    The result is that of `echelon.planning.fluid.simulate` for one job whose flows go first by
    deadline, in time that grows with the number of rate changes rather than with the
    number of flows at each change. Raise `PlanError` if a worker cannot be reached, and
    `ValueError` for a job that cannot run.
    """
    paths = FlowPaths().update([job], fabric)
    return run_on(job, fabric, paths[job.name])


def alone_iteration_s(job: Job, fabric: Fabric) -> Fraction:
    """Return how many seconds one iteration of `job` takes on an otherwise empty fabric.

    Raise as `run_alone`.
    """
    return duration_s(run_alone(job, fabric))


def run_on(
    job: Job,
    fabric: Fabric,
    paths: Paths,
) -> AloneRecord:
    """Return the result of `run_alone` over these paths."""
    rates_Bps = set()  # noqa: N806
    for path in set(paths.values()):
        for link in links_of(path):
            rates_Bps.add(fabric.capacity_Bps[link])
    times_s = {unit.duration_s for unit in job.computes}
    for echelonflow in job.echelonflows:
        times_s.update(echelonflow.offsets_s)

    per_Bps = lcm(*(rate.denominator for rate in rates_Bps))  # noqa: N806
    per_s = lcm(*{time_s.denominator for time_s in times_s})
    # Bytes over a rate are a time, so the numerator of a rate becomes a denominator.
    per_s = lcm(per_s, *(rate.numerator for rate in rates_Bps if rate))
    for _ in range(_TRIES):
        if per_s.bit_length() > _TICK_BITS:
            break
        try:
            return _Run(job, fabric, paths, _Ticks(per_s, per_Bps)).to_the_end()
        except _FinerError as error:
            per_s *= error.times
    rounded = _Ticks(_ROUNDED_S.denominator, per_Bps, rounds=True)
    return _Run(job, fabric, paths, rounded).to_the_end()


class _FinerError(Exception):
    """A time is no multiple of the tick; it is one of a tick so many times as fine."""

    def __init__(self, times: int) -> None:
        super().__init__(times)
        self.times = times


class _Ticks:
    """The units of a run: ticks, bytes per second over `per_Bps`, and their product for amounts.

    Where `rounds`, times that are no multiple of a tick are rounded up.
    """

    def __init__(
        self,
        per_s: int,
        per_Bps: int,  # noqa: N803
        rounds: bool = False,
    ) -> None:
        self._per_s = per_s
        self._per_Bps = per_Bps
        self._rounds = rounds

    def time(self, time_s: Fraction) -> int:
        """Return a time of the job."""
        return -(-time_s.numerator * self._per_s // time_s.denominator)

    def rate(self, rate_Bps: Fraction) -> int:  # noqa: N803
        """Return a rate of the fabric."""
        return rate_Bps.numerator * (self._per_Bps // rate_Bps.denominator)

    def amount(self, size_bytes: int) -> int:
        """Return an amount."""
        return size_bytes * self._per_s * self._per_Bps

    def duration(self, amount: int, rate: int) -> int:
        """Return the time that the amount takes at the rate."""
        ticks, rest = divmod(amount, rate)
        if not rest:
            return ticks
        if not self._rounds:
            raise _FinerError(rate // gcd(rest, rate))
        return ticks + 1

    def seconds(self, time: int) -> Fraction:
        """Return a time in seconds."""
        return Fraction(time, self._per_s)


_Rank = tuple[int, int]
"""A rank: the smaller goes first, and no two flows have the same."""


class _Link:
    """A link and the flows that are under way over it."""

    __slots__ = ("capacity", "change", "served", "under_way")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.under_way: list[tuple[_Rank, _Flow]] = []
        """The flows in order of rank."""
        self.served: list[tuple[_Rank, _Flow]] = []
        """The flows among them that have a rate."""
        self.change: int = 0
        """The rate that flows have gained on this link since a flow began or ended."""

    def left_for(self, rank: _Rank) -> int:
        """Return the rate that flows of higher rank leave."""
        left = self.capacity
        for other, flow in self.served:
            if other >= rank:
                break
            left -= flow.rate
        return left

    def next_concerned(self, rank: _Rank) -> tuple[_Rank, _Flow] | None:
        """Return the first flow after `rank` to which the change may matter.

        If less is left, that is a flow that has a rate to lose; if more is left, any flow.
        """
        if not self.change:
            return None
        flows = self.served
        if self.change < 0:
            flows = self.under_way
        # A tuple of the rank alone sorts before that with its flow.
        place = bisect_left(flows, (rank,))
        if place < len(flows) and flows[place][0] == rank:
            place += 1
        if place == len(flows):
            return None
        return flows[place]


class _Flow:
    """A flow under way."""

    __slots__ = ("links", "name", "rank", "rate", "remaining", "since", "version")

    def __init__(
        self,
        name: str,
        rank: _Rank,
        links: Sequence[_Link],
        size: int,
    ) -> None:
        self.name = name
        self.rank = rank
        self.links = links
        self.rate: int = 0
        self.remaining = size
        """The value at `since`, when the flow got its present rate."""
        self.since: int = 0
        self.version = 0
        """Number of rates that the flow has had: events expected of an earlier one are outdated."""


class _Network:
    """A network in which flows begin and end, and have the rates of their ranks."""

    def __init__(self) -> None:
        self._begun: list[_Flow] = []
        self._ended: list[_Flow] = []

    def begin(self, flow: _Flow) -> None:
        self._begun.append(flow)

    def end(self, flow: _Flow) -> None:
        self._ended.append(flow)

    def set_rates(self) -> list[tuple[_Flow, int]]:
        """Return the flows whose rate changed, each with its former rate, in order of rank."""
        touched: set[_Link] = set()
        concerned = self._update_links(touched)
        out = []
        last: _Rank | None = None
        while concerned:
            rank, flow = heapq.heappop(concerned)
            if rank == last:
                continue
            last = rank
            before = flow.rate
            rate = min(link.left_for(rank) for link in flow.links)
            if rate != before:
                out.append((flow, before))
                flow.rate = rate
                for link in flow.links:
                    touched.add(link)
                    link.change += rate - before
                    if not before:
                        insort(link.served, (rank, flow))
                    elif not rate:
                        _remove(link.served, flow)
            for link in flow.links:
                following = link.next_concerned(rank)
                if following:
                    heapq.heappush(concerned, following)
        for link in touched:
            link.change = 0
        return out

    def _update_links(self, touched: set[_Link]) -> list[tuple[_Rank, _Flow]]:
        """Take ended flows off their links, and put those that have begun on theirs.

        Return a heap of the flows to look at first, and add the links that change to `touched`.
        """
        for flow in self._ended:
            for link in flow.links:
                touched.add(link)
                _remove(link.under_way, flow)
                if flow.rate:
                    _remove(link.served, flow)
                    link.change -= flow.rate
        for flow in self._begun:
            for link in flow.links:
                insort(link.under_way, (flow.rank, flow))

        concerned = [(flow.rank, flow) for flow in self._begun]
        for flow in self._ended:
            for link in flow.links:
                following = link.next_concerned(flow.rank)
                if following:
                    concerned.append(following)
        self._begun = []
        self._ended = []
        heapq.heapify(concerned)
        return concerned


def _remove(flows: list[tuple[_Rank, _Flow]], flow: _Flow) -> None:
    place = bisect_left(flows, (flow.rank,))
    assert flows[place][1] is flow
    del flows[place]


_Due = tuple[int, int, str, _Flow | None, int]
"""A future event, sorted by time and then by when it was announced: (time, sequence, name, the flow
whose finish it is or None for a compute unit, version of its rate)."""


def _never(_iteration: int) -> bool:
    return False


class _Run:
    """One iteration. Events of one time are handled as in `echelon.planning.fluid.simulator`:
    finished flows in order of their start, then compute units, and again until nothing more
    happens; then rates change."""

    def __init__(
        self,
        job: Job,
        fabric: Fabric,
        paths: Paths,
        units: _Ticks,
    ) -> None:
        self._now: int = 0
        self._units = units
        self._network = _Network()
        at_zero = replace(job, start_s=Fraction(0))
        self._execution: JobExecution[int] = JobExecution(at_zero, more=_never)
        self._arranged: dict[str, tuple[str, int]] = {}
        for echelonflow in job.echelonflows:
            for name, offset_s in zip(echelonflow.flows, echelonflow.offsets_s, strict=True):
                self._arranged[name] = echelonflow.name, units.time(offset_s)
        links = {}
        by_path = {}
        for path in set(paths.values()):
            path_links = []
            for link in links_of(path):
                if link not in links:
                    rate = units.rate(fabric.capacity_Bps[link])
                    links[link] = _Link(rate)
                path_links.append(links[link])
            by_path[path] = tuple(path_links)
        self._links = {flow: by_path[path] for flow, path in paths.items()}
        self._due: list[_Due] = []
        self._announced = 0
        self._started = 0
        self._empty: list[tuple[int, str]] = []
        """Flows that finish as they start, without bytes or links: (sequence, name)."""

    def to_the_end(self) -> AloneRecord:
        self._obey(self._execution.start(self._now))
        record = self._execution.record.iterations[0]
        while True:
            self._catch_up()
            if record.finish is not None:
                # Takes the last flows off their links: rings of objects would wait for the collector.
                self._network.set_rates()
                return _in_seconds(record, self._units)
            for flow, before in self._network.set_rates():
                self._change_rate(flow, before)
            self._now = self._due[0][0]

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
                # Units of no duration finish before flows are looked at again.
                units = self._take_due()[1]

    def _take_due(self) -> tuple[list[tuple[int, str]], list[str]]:
        """Remove and return the flows, with their sequence, and the units finished by now."""
        flows = []
        units = []
        while self._due and self._due[0][0] <= self._now:
            _, _, name, flow, version = heapq.heappop(self._due)
            if flow is None:
                units.append(name)
            elif version == flow.version:
                flows.append((flow.rank[1], name))
                self._network.end(flow)
        return flows, units

    def _obey(self, instructions: Sequence[Instruction[int]]) -> None:
        for instruction in instructions:
            if isinstance(instruction, StartCompute):
                finish = self._now + self._units.time(instruction.duration_s)
                self._announce(finish, instruction.name)
            elif isinstance(instruction, StartFlow):
                self._start(instruction.flow)

    def _announce(
        self,
        time: int,
        name: str,
        flow: _Flow | None = None,
        version: int = 0,
    ) -> None:
        heapq.heappush(self._due, (time, self._announced, name, flow, version))
        self._announced += 1

    def _start(self, flow: Flow) -> None:
        sequence = self._started
        self._started += 1
        links = self._links[flow.name]
        if not flow.size_bytes or not links:
            self._empty.append((sequence, flow.name))
            return
        deadline = self._now
        if flow.name in self._arranged:
            echelonflow, offset = self._arranged[flow.name]
            references = self._execution.record.iterations[0].references
            deadline = references[echelonflow] + offset
        amount = self._units.amount(flow.size_bytes)
        self._network.begin(_Flow(flow.name, (deadline, sequence), links, amount))

    def _change_rate(self, flow: _Flow, before: int) -> None:
        if before:
            flow.remaining = flow.remaining - before * (self._now - flow.since)
        flow.since = self._now
        flow.version += 1
        if flow.rate:
            finish = self._now + self._units.duration(flow.remaining, flow.rate)
            self._announce(finish, flow.name, flow, flow.version)


def _in_seconds(record: IterationRecord[int], units: _Ticks) -> AloneRecord:
    @cache  # many things happen at one time
    def seconds(time: int | None) -> Fraction | None:
        if time is None:
            return None
        return units.seconds(time)

    def spans(in_ticks: Mapping[str, Span[int]]) -> dict[str, Span[Fraction]]:
        out = {}
        for name, span in in_ticks.items():
            start_s = seconds(span.start)
            assert start_s is not None
            out[name] = Span(start_s, seconds(span.finish))
        return out

    start_s = seconds(record.start)
    assert start_s is not None
    references_s = {}
    for name, time in record.references.items():
        references_s[name] = units.seconds(time)
    flows = spans(record.flows)
    computes = spans(record.computes)
    finish_s = seconds(record.finish)
    return IterationRecord(record.iteration, start_s, finish_s, flows, computes, references_s)
