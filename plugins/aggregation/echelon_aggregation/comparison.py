"""Jobs with aggregation in the network beside rings, trees and parameter servers, as fluids.

All ways pay for headers: frames of 1,500 bytes carry 1,438 of a ring's data, and frames of 206
bytes carry 32 values, which are 128. All cut their data into so many chunks that hosts send and
receive at the same time (`echelon.model.jobs.collectives.Collective.pair_block`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import fmean
from typing import Literal

from echelon.model.fabric.builders import fat_tree, leaf_spine, one_tor, rail_optimised
from echelon.model.fabric.load import build_fabric
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.collectives import ALL_REDUCES, AllReduceName, Collective
from echelon.model.jobs.combinators import Block, compute, flow, parallel, replicate, series
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.fluid import FluidResult, alone_iteration_s, simulate
from echelon.planning.fluid.simulator import PlanSource
from echelon.planning.fluid.slowdown import slowdown
from echelon.planning.policies.fair import Fair
from echelon_aggregation.collectives import OTHER_HEADER_BYTES, VALUES, InNetwork, wire_bytes
from echelon_aggregation.memory import By
from echelon_aggregation.panama import TreesByLoad
from echelon_aggregation.policy import Aggregation

RATE_BPS = 10_000_000_000
PACKET_BYTES = 1500
VALUES_TNA = 64
WINDOW = 256


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a comparison."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def markdown(self) -> str:
        """Return the table as Markdown, its title above."""
        rule = ("---",) * len(self.columns)
        lines = [f"**{self.title}**", ""]
        for cells in (self.columns, rule, *self.rows):
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Training:
    """A data-parallel job before it is decided how its gradients are added up."""

    name: str
    workers: tuple[str, ...]
    compute_s: Fraction
    gradient_bytes: int
    start_s: Fraction = Fraction(0)

    def by_hosts(self, algorithm: AllReduceName = "ring") -> Job:
        """Return the job with an all-reduce by hosts."""
        all_reduce = Collective(ALL_REDUCES[algorithm], self.workers)
        return self._with(all_reduce.pair_block("allreduce", self._sent_by_hosts))

    def by_server(self, server: str) -> Job:
        """Return the job with a parameter server, which sends sums while it receives the rest."""
        sent = self._sent_by_hosts

        def push(number: int, worker: str) -> Block:
            return flow(f"push-w{number}", worker, server, sent)

        def pull(number: int, worker: str) -> Block:
            return flow(f"pull-w{number}", server, worker, sent)

        pushes = replicate(self.workers, push)
        pulls = replicate(self.workers, pull)
        # The first worker stands for the moment at which the server begins.
        pulls = replace(pulls, first={self.workers[0]: pulls.flows})
        return self._with(parallel(pushes, pulls))

    def in_network(self, trees: int = 1, values: int = VALUES) -> Job:
        """Return the job with an all-reduce by switches."""
        all_reduce = InNetwork(trees, values)
        block = all_reduce.block("allreduce", self.workers, self.gradient_bytes)
        return self._with(block)

    def _with(self, block: Block) -> Job:
        def gradient(number: int, worker: str) -> Block:
            return compute(f"compute-w{number}", worker, self.compute_s)

        gradients = replicate(self.workers, gradient)
        iteration = series(gradients, block)
        coflow = EchelonFlow.coflow("allreduce", block.flows)
        return Job(self.name, *iteration.graph(coflow), start_s=self.start_s)

    @property
    def _sent_by_hosts(self) -> int:
        payload_bytes = PACKET_BYTES - OTHER_HEADER_BYTES
        return self.gradient_bytes * PACKET_BYTES // payload_bytes


# -- the rate of one job ---------------------------------------------------------------------------

_GRADIENT_BYTES = 100_000_000
_ALMOST_NOTHING_S = Fraction(1, 10**9)


def rates(counts: Sequence[int] = (2, 4, 8, 16)) -> list[Table]:
    """Return the aggregated data per worker and second, in % of a link, by number of workers."""

    def switch(workers: int) -> Fabric:
        return build_fabric(one_tor(workers + 1, RATE_BPS))

    def leaves(workers: int) -> Fabric:
        hosts_per_leaf = workers // 4 + 1
        return build_fabric(leaf_spine(4, 1, hosts_per_leaf, 4, RATE_BPS))

    several = [count for count in counts if count >= 4]
    order = "4 leaves, uplinks for a quarter of the hosts, workers not in the order of leaves"
    on_switch = _rates("one switch", switch, counts)
    on_leaves = _rates(order, leaves, several)
    return [on_switch, on_leaves]


def _rates(
    place: str,
    build: Callable[[int], Fabric],
    counts: Sequence[int],
) -> Table:
    rows = []
    for count in counts:
        fabric = build(count)
        hosts = list(fabric.hosts)
        workers = _workers(hosts, count)
        job = Training("job", tuple(workers), _ALMOST_NOTHING_S, _GRADIENT_BYTES)
        ways = [
            job.in_network(),
            job.in_network(values=VALUES_TNA),
            job.by_hosts(),
            job.by_hosts("tree"),
            job.by_server(hosts[-1]),
        ]
        cells = [str(count)]
        for way in ways:
            took_s = alone_iteration_s(way, fabric) - _ALMOST_NOTHING_S
            percent = 800 * _GRADIENT_BYTES / float(took_s) / RATE_BPS
            cells.append(f"{percent:.1f}")
        rows.append(tuple(cells))
    columns = (
        "workers",
        "in network, 32 values",
        "in network, 64 values",
        "ring",
        "binomial tree",
        "parameter server",
    )
    return Table(f"Aggregated data per worker, % of a link's rate: {place}", columns, rows)


def _workers(hosts: Sequence[str], count: int) -> list[str]:
    """Return the workers among hosts, whose last is the server: of 4 leaves, one leaf after the
    other.
    """
    if count == len(hosts) - 1:
        return list(hosts[:count])
    workers: list[str] = []
    leaf_size = count // 4 + 1
    # One host of each leaf is no worker.
    for place in range(leaf_size - 1):
        workers += hosts[place::leaf_size]
    return workers[:count]


# -- memory for some of the jobs -------------------------------------------------------------------

FABRICS: Mapping[str, Fabric] = {
    "leaf-spine": build_fabric(leaf_spine(4, 4, 8, 2, RATE_BPS)),
    "fat-tree": build_fabric(fat_tree(6, RATE_BPS)),
    "rails": build_fabric(rail_optimised(8, 4, 2, 2, RATE_BPS)),
}
ROUNDS = 10
"""The number of iterations that the slowest job would complete alone."""


def draw(
    fabric: Fabric,
    jobs: int,
    workers: int,
    seed: int,
) -> list[Training]:
    """Return jobs on random hosts whose gradients take half to twice as long as their computing."""
    rng = random.Random(seed)
    place = list(fabric.hosts).index
    sample = rng.sample(sorted(fabric.hosts), jobs * workers)
    hosts = sorted(sample, key=place)
    rng.shuffle(hosts)
    drawn: list[Training] = []
    for number in range(jobs):
        first = number * workers
        group = sorted(hosts[first : first + workers], key=place)
        gradient = rng.randrange(10_000_000, 40_000_000)
        computing_share = Fraction(rng.randrange(500, 2000), 1000)
        start_share = Fraction(rng.randrange(1000), 1000)
        takes_s = Fraction(8 * wire_bytes(gradient), RATE_BPS)
        job = Training(
            f"job{number + 1}",
            tuple(group),
            takes_s * computing_share,
            gradient,
            takes_s * start_share,
        )
        drawn.append(job)
    return drawn


Way = Literal["ring", "tree", "all", "share", "share-fallback", "first", "deadline"]
WAYS: Mapping[Way, str] = {
    "ring": "ring",
    "tree": "binomial tree",
    "all": "in network, memory for all",
    "share": "share, the others by ring",
    "share-fallback": "share, the others by fallback",
    "first": "first come",
    "deadline": "by deadline",
}
_BY: Mapping[Way, By] = {
    "share": "share",
    "share-fallback": "share",
    "first": "first",
    "deadline": "deadline",
}


def run(
    drawn: Sequence[Training],
    fabric: Fabric,
    way: Way,
) -> list[float]:
    """Return the slowdown of each job against itself alone, with memory for half of the jobs."""
    alone_s = [alone_iteration_s(job.in_network(), fabric) for job in drawn]
    half = len(drawn) // 2
    served_by_way = {"ring": 0, "tree": 0, "share": half}
    served = served_by_way.get(way, len(drawn))
    algorithm: AllReduceName = "tree" if way == "tree" else "ring"
    jobs = [job.in_network() for job in drawn[:served]]
    jobs += [job.by_hosts(algorithm) for job in drawn[served:]]

    policy: PlanSource = Fair()  # gives the same rates where there are no trees
    if served:
        places = 2 * WINDOW * (len(drawn) if way == "all" else half)
        parameters = Aggregation.Parameters(
            by=_BY.get(way, "first"),
            places=places,
            window=WINDOW,
        )
        policy = Aggregation(parameters)
    end_s = ROUNDS * max(alone_s)
    result = simulate(
        jobs,
        fabric,
        policy,
        None,
        until=end_s,
        ideal=True,
    )
    slowdowns = []
    for job, time_s in zip(jobs, alone_s, strict=True):
        record = result.jobs[job.name]
        slowdowns.append(slowdown(record, float(result.end_s), float(time_s)))
    return slowdowns


def memory(draws: int, progress: Callable[[str], None] = lambda _: None) -> list[Table]:
    """Return mean and worst slowdown of two and of eight jobs by fabric, with memory for half."""
    tables = []
    for count, workers in ((2, 16), (8, 4)):
        rows = []
        for way, label in WAYS.items():
            cells = []
            for name, fabric in FABRICS.items():
                progress(f"{count} jobs, {label}, {name}")
                means = []
                worst = []
                for seed in range(draws):
                    jobs = draw(fabric, count, workers, seed)
                    slowdowns = run(jobs, fabric, way)
                    means.append(fmean(slowdowns))
                    worst.append(max(slowdowns))
                cells.append(f"{fmean(means):.2f}, {fmean(worst):.2f}")
            rows.append((label, *cells))
        title = (
            f"{count} jobs of {workers} workers, memory for {count // 2}: mean slowdown, and that"
            " of the slowest"
        )
        tables.append(Table(title, ("", *FABRICS), rows))
    return tables


# -- PANAMA's questions ----------------------------------------------------------------------------

SHORT_BYTES = 50_000
LOAD = Fraction(1, 100)
"""The part of each host's link that short flows take."""
END_S = Fraction(1, 2)


def short_flows(fabric: Fabric, seed: int) -> Job:
    """Return a job of flows between random hosts, with exponential gaps, until `END_S`."""
    rng = random.Random(seed)
    hosts = sorted(fabric.hosts)
    offered_bps = float(LOAD) * RATE_BPS * len(hosts)
    gap_s = 8 * SHORT_BYTES / offered_bps
    at_s = rng.expovariate(1 / gap_s)
    waits: list[ComputeUnit] = []
    flows: list[Flow] = []
    while at_s < END_S:
        src, dst = rng.sample(hosts, 2)
        number = len(flows)
        wait = ComputeUnit(f"wait{number}", src, Fraction(at_s))
        waits.append(wait)
        flows.append(Flow(f"short{number}", src, dst, SHORT_BYTES, (wait.name,)))
        at_s += rng.expovariate(1 / gap_s)
    return Job("short", tuple(waits), tuple(flows), ())


@dataclass(frozen=True, slots=True)
class _Shared:
    """The slowdowns of jobs, and the times of short flows beside them, the shortest first."""

    slowdowns: Sequence[float]
    short_s: Sequence[float]

    @property
    def p99_s(self) -> float:
        place = int(0.99 * len(self.short_s))
        return self.short_s[place]

    def cells(self, ring: _Shared) -> tuple[str, ...]:
        """Return the figures of a row of the table, against those of a ring."""
        slowdowns = zip(ring.slowdowns, self.slowdowns, strict=True)
        gains = [by_ring / in_network for by_ring, in_network in slowdowns]
        mean_us = 1e6 * fmean(self.short_s)
        p99_us = 1e6 * self.p99_s
        better = ring.p99_s / self.p99_s
        return (
            f"{fmean(gains):.2f}",
            f"{max(gains):.2f}",
            f"{mean_us:.0f}",
            f"{p99_us:.0f}",
            f"{better:.2f}",
        )


def shared_cluster(draws: int, progress: Callable[[str], None] = lambda _: None) -> Table:
    """Return training times and the times of short flows beside, against a ring."""

    def four_trees(job: Training) -> Job:
        return job.in_network(4)

    def four_trees_of_tofino(job: Training) -> Job:
        return job.in_network(4, VALUES_TNA)

    fabric = build_fabric(leaf_spine(4, 4, 8, 2, RATE_BPS))
    same_tree = "in network, one tree for all"
    ways: Mapping[str, Callable[[Training], Job]] = {
        "ring": Training.by_hosts,
        same_tree: Training.in_network,
        "in network, a tree for each job, by load": Training.in_network,
        "in network, 4 trees for each job, by load": four_trees,
        "the same, 64 values": four_trees_of_tofino,
    }
    by_label: dict[str, _Shared] = {}
    for label, way in ways.items():
        slowdowns: list[float] = []
        short_s: list[float] = []
        for seed in range(draws):
            progress(f"{label}, draw {seed + 1}")
            trees = TreesByLoad(always_first=label == same_tree)
            result, drawn = _beside_short_flows(fabric, way, trees, seed)
            end_s = float(result.end_s)
            for job in drawn:
                record = result.jobs[job.name]
                slowdowns.append(slowdown(record, end_s, 1.0))
            short_s += _short_times_s(result)
        by_label[label] = _Shared(slowdowns, sorted(short_s))
    ring = by_label["ring"]
    rows = [(label, *shared.cells(ring)) for label, shared in by_label.items()]
    columns = (
        "",
        "training faster by, mean",
        "most",
        "short flows, mean µs",
        "p99 µs",
        "p99 better by",
    )
    return Table("4 jobs of 8 workers and short flows, 2:1 leaf-spine", columns, rows)


def _short_times_s(result: FluidResult) -> list[float]:
    """Return how long each short flow took that ended."""
    short = result.jobs["short"]
    iteration = short.iterations[0]
    times_s = []
    for span in iteration.flows.values():
        if span.finish is not None:
            times_s.append(span.finish - span.start)
    return times_s


def _beside_short_flows(
    fabric: Fabric,
    way: Callable[[Training], Job],
    paths: PathChooser,
    seed: int,
) -> tuple[FluidResult, list[Training]]:
    drawn = draw(fabric, 4, 8, seed)
    jobs = [short_flows(fabric, seed), *map(way, drawn)]
    policy = Aggregation(Aggregation.Parameters(places=1 << 20), paths)
    result = simulate(
        jobs,
        fabric,
        policy,
        None,
        until=END_S,
        ideal=True,
    )
    return result, drawn
