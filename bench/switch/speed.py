"""Lossless rates and entries per second of every target installed here, interleaved in one run."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.p4runtime_load import Load
from echelon.switches.southbound.session import SwitchSession
from tests.reference.table_updates import load_p4info, updates

from . import latency
from .generator import Generator
from .lossless import GRACE_S, GeneratorLimitError, Search, Trial, lossless_rate
from .network import received_frames
from .sink import Capture
from .targets import DEVICE_ID, RunningSwitch, Target
from .workloads import Workload, echelon, router

GENERATOR_INTERFACE = "gen0"
INGRESS_INTERFACE = "sw0"
EGRESS_INTERFACE = "sw1"
SINK_INTERFACE = "sink0"
PAIRS = ((GENERATOR_INTERFACE, INGRESS_INTERFACE), (EGRESS_INTERFACE, SINK_INTERFACE))

FRAME_BYTES = (64, 1400)
LOAD_TABLES = ("exact", "lpm", "ternary", "one_shot")
"""The tables of bench/programs/tables.p4."""
_CHECK_PPS = 4_000.0
_CHECK_S = 0.5
_COST_S = 0.5
_LATENCY_S = 1.0
_SETTLE_S = 0.1
_FIRST_GUESS_PPS = 40_000.0

Progress = Callable[[str], None]
"""The callback that is told at each step what is being measured."""


class WrongForwardingError(Exception):
    """A switch does not do to a frame what its program says, so that its speed means nothing."""


@dataclass(frozen=True, slots=True)
class EntryLoad:
    """The entries to write for the clock: so many into each table, of the program that has them."""

    p4info: Path
    program: Path
    tables: tuple[str, ...]
    entries: int


@dataclass(frozen=True, slots=True)
class Placement:
    """The processors that the switch and the generator may use."""

    name: str
    switch: tuple[int, ...]
    generator: tuple[int, ...]


def placements() -> list[Placement]:
    """Return the ways to share this machine's processors; which is better depends on the switch and
    its load.
    """
    cpus = sorted(os.sched_getaffinity(0))
    out = [Placement("any processor", tuple(cpus), tuple(cpus))]
    if len(cpus) > 1:
        out.append(Placement("a processor each", (cpus[0],), (cpus[-1],)))
    return out


@dataclass(frozen=True, slots=True)
class Point:
    """One thing measured of each target."""

    program: str
    frame_bytes: int

    def label(self, target: str) -> str:
        """Return what it is, of that target, for people."""
        return f"{target}, {self.program}, {self.frame_bytes} byte packets"


@dataclass(slots=True)
class Results:
    """The rates of every round, by target's name."""

    searched: dict[Point, dict[str, dict[Placement, list[float]]]] = field(default_factory=dict)
    """lossless rates in packets/s"""
    processor_ns: dict[Point, dict[str, list[float]]] = field(default_factory=dict)
    """processor time per packet at half of the rate, of every placement"""
    latencies: dict[Point, dict[str, dict[Placement, list[latency.Latency]]]] = field(
        default_factory=dict
    )
    """one-way latencies at half of the rate"""
    entries_per_s: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """by table"""
    settings: dict[str, str] = field(default_factory=dict)
    limits: list[str] = field(default_factory=list)
    """the searches that the generator ended: the switch carries at least so much"""
    report: Progress = lambda _: None
    """Called with each figure, when it is measured."""

    def add(
        self,
        point: Point,
        target: str,
        placement: Placement,
        rate_pps: float,
        *,
        by_generator: bool = False,
    ) -> None:
        where = f"{point.label(target)}, {placement.name}"
        self.report(f"{where}: {'at least ' * by_generator}{rate_pps:,.0f} packets/s")
        if by_generator:
            self.limits.append(where)
        by_target = self.searched.setdefault(point, {})
        by_placement = by_target.setdefault(target, {})
        by_placement.setdefault(placement, []).append(rate_pps)

    def add_cost(
        self,
        point: Point,
        target: str,
        processor_ns: float,
    ) -> None:
        self.report(f"{point.label(target)}: {processor_ns:,.0f} ns of processor time per packet")
        by_target = self.processor_ns.setdefault(point, {})
        by_target.setdefault(target, []).append(processor_ns)

    def add_latency(
        self,
        point: Point,
        target: str,
        placement: Placement,
        measured: latency.Latency,
    ) -> None:
        p50_us = measured.p50_ns / 1e3
        p99_us = measured.p99_ns / 1e3
        percentiles = f"{p50_us:,.1f} us (p50), {p99_us:,.1f} us (p99)"
        self.report(f"{point.label(target)}, {placement.name}: latency {percentiles}")
        by_target = self.latencies.setdefault(point, {})
        by_placement = by_target.setdefault(target, {})
        by_placement.setdefault(placement, []).append(measured)

    def best(self, point: Point, target: str) -> tuple[Placement, list[float]]:
        """Return the placement that suits the target best, and its rates."""
        by_placement = self.searched[point][target]
        medians = {placement: statistics.median(rates) for placement, rates in by_placement.items()}
        best = max(medians, key=medians.__getitem__)
        return best, by_placement[best]

    def guess_pps(self, point: Point, target: str) -> float:
        """Return the rate at which to begin the search."""
        if target in self.searched.get(point, {}):
            return statistics.median(self.best(point, target)[1])
        return _FIRST_GUESS_PPS


@dataclass(frozen=True, slots=True)
class Speed:
    """The measurement to make.

    The first round tries every placement of every target, the others the best one.

    Without a search, it only looks at what comes out, and at the processor time that it takes.
    """

    targets: Sequence[Target]
    rounds: int
    search: Search | None
    entries: EntryLoad | None
    frame_bytes: Sequence[int] = FRAME_BYTES

    def steps(self, workloads: Sequence[Workload]) -> int:
        """Return the number of calls of `progress`."""
        points = len(workloads) * len(self.frame_bytes)
        searches = points * (len(self._placements) + self.rounds - 1)
        if self.entries is not None:
            entries = self.rounds * len(self._switches)
        else:
            entries = 0
        return len(self.targets) * searches + entries

    def run(
        self,
        workloads: Sequence[Workload],
        progress: Progress,
        report: Progress = lambda _: None,
    ) -> Results:
        """Measure, on the interfaces of PAIRS. Each figure is `told` at once.

        Raises TargetError, SouthboundError, WrongForwardingError.
        """
        results = Results(report=report)
        with Generator(GENERATOR_INTERFACE, SINK_INTERFACE) as generator:
            for workload in workloads:
                for size in self.frame_bytes:
                    generator.load(_name(workload, size), workload.make_cycle(size))
            for turn in range(self.rounds):
                for workload in workloads:
                    # Whoever goes first has a cooler processor: take turns.
                    for target in self._in_turn(turn):
                        for placement in self._placements:
                            sizes = [
                                size
                                for size in self.frame_bytes
                                if self._is_wanted(results, workload, size, target, placement)
                            ]
                            if sizes:
                                self._measure(
                                    target, workload, placement, sizes, generator, results, progress
                                )
                if self.entries is not None:
                    for target in (target for target in self._in_turn(turn) if target.is_switch):
                        progress(f"{target.name}: table entries")
                        self._write_entries(target, self.entries, results)
        return results

    @property
    def _placements(self) -> Sequence[Placement]:
        return placements()[: 1 if self.search is None else None]

    @property
    def _switches(self) -> Sequence[Target]:
        return [target for target in self.targets if target.is_switch]

    def _in_turn(self, turn: int) -> Sequence[Target]:
        if turn % 2 == 0:
            return self.targets
        return self.targets[::-1]

    @staticmethod
    def _is_wanted(
        results: Results,
        workload: Workload,
        size: int,
        target: Target,
        placement: Placement,
    ) -> bool:
        """Return whether the placement has not been tried yet, or suits best."""
        point = Point(workload.name, size)
        by_target = results.searched.get(point, {})
        if placement not in by_target.get(target.name, {}):
            return True
        best, _ = results.best(point, target.name)
        return best == placement

    def _measure(
        self,
        target: Target,
        workload: Workload,
        placement: Placement,
        sizes: Sequence[int],
        generator: Generator,
        results: Results,
        progress: Progress,
    ) -> None:
        interfaces = {
            workload.ingress_port: INGRESS_INTERFACE,
            workload.egress_port: EGRESS_INTERFACE,
        }
        generator.place(placement.generator)
        with RunningSwitch(target, interfaces, cpus=placement.switch) as switch:
            results.settings[target.name] = switch.settings

            def searches() -> None:
                for size in sizes:
                    progress(
                        f"{target.name}: {workload.name}, {size} byte packets, {placement.name}"
                    )
                    check_forwarding(target, workload, size, generator)
                    point = Point(workload.name, size)
                    run = partial(trial, generator, _name(workload, size))
                    half_pps = _CHECK_PPS
                    if self.search is not None:
                        try:
                            guess_pps = results.guess_pps(point, target.name)
                            rate_pps = lossless_rate(run, guess_pps, self.search)
                            results.add(point, target.name, placement, rate_pps)
                        except GeneratorLimitError as limit:
                            rate_pps = limit.rate_pps
                            results.add(point, target.name, placement, rate_pps, by_generator=True)
                        half_pps = rate_pps / 2
                    before_ns = switch.processor_ns()
                    carried = run(half_pps, _COST_S).carried
                    used_ns = switch.processor_ns() - before_ns
                    results.add_cost(point, target.name, used_ns / max(1, carried))
                    name = _name(workload, size)
                    found_latency = latency.measure(
                        generator, name, half_pps, _LATENCY_S, SINK_INTERFACE
                    )
                    results.add_latency(point, target.name, placement, found_latency)

            if target.is_switch:
                asyncio.run(with_controller(switch, workload, searches))
            else:
                searches()

    def _write_entries(
        self,
        target: Target,
        load: EntryLoad,
        results: Results,
    ) -> None:
        with RunningSwitch(target, {}) as switch:
            p4info = load_p4info(load.p4info)
            with Load(switch.address, p4info, device_id=DEVICE_ID) as client:
                client.push(load.program.read_bytes())
                for table in load.tables:
                    rate = client.write(updates(p4info, table, load.entries))
                    by_target = results.entries_per_s.setdefault(table, {})
                    by_target.setdefault(target.name, []).append(rate.per_second)
                    results.report(
                        f"{target.name}, table {table}: {rate.per_second:,.0f} entries/s"
                    )


async def with_controller(
    switch: RunningSwitch,
    workload: Workload,
    work: Callable[[], None],
) -> None:
    """Do `work` while a controller is connected that wrote the workload's intent, as in service."""
    async with SwitchSession(
        switch.target.name, switch.address, DEVICE_ID, workload.program
    ) as session:
        await session.reconcile(workload.intent)
        await asyncio.to_thread(work)


def _name(workload: Workload, frame_bytes: int) -> str:
    return f"{workload.name} {frame_bytes}"


def trial(
    generator: Generator,
    name: str,
    rate_pps: float,
    duration_s: float,
) -> Trial:
    """Run one trial; return once nothing comes out any more."""
    before = received_frames(SINK_INTERFACE)
    sent = generator.run(name, rate_pps, duration_s, GRACE_S)
    seen = -1
    while (now := received_frames(SINK_INTERFACE)) != seen:
        seen = now
        time.sleep(_SETTLE_S)
    return Trial(sent.rate_pps, sent.frames, sent.arrived, seen - before - sent.arrived)


def check_forwarding(
    target: Target,
    workload: Workload,
    frame_bytes: int,
    generator: Generator,
) -> None:
    """Send slowly, and look at every frame that leaves. Raises WrongForwardingError."""
    cycle = workload.make_cycle(frame_bytes)
    with Capture(SINK_INTERFACE, frame_bytes) as capture:
        sent = generator.run(_name(workload, frame_bytes), _CHECK_PPS, _CHECK_S, 0.2)
    where = f"{target.name}, {workload.name}, {frame_bytes} byte packets"
    if len(capture.arrivals) != sent.frames:
        raise WrongForwardingError(
            f"{where}: of {sent.frames} packets sent slowly, {len(capture.arrivals)} came out"
        )
    for came, left in cycle.matched(arrival.head for arrival in capture.arrivals):
        if target.is_switch:
            faults = workload.faults(came, left)
        else:
            faults = ["bytes"] * (came != left)
        if faults:
            raise WrongForwardingError(
                f"{where}: wrong {', '.join(faults)}; sent {came.hex()}, got {left.hex()}"
            )


def default_workloads() -> list[Workload]:
    """Return the two programs."""
    return [router(), echelon()]
