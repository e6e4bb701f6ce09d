"""Jobs with aggregation in the network beside the same jobs with a ring, a tree and a parameter
server, as fluids.

All ways pay for headers: frames of 1,500 bytes carry 1,438 of a ring's data, and frames of 206
bytes carry 32 values, which are 128. All cut their data into so many chunks that hosts send and
receive at the same time (`echelon.model.jobs.collectives.Collective.whole`).
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
from echelon.planning.fluid.simulator import FluidPlanner
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
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        return "\n".join([f"**{self.title}**", "", *(f"| {' | '.join(line)} |" for line in lines)])


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
        return self._with(
            Collective(ALL_REDUCES[algorithm], self.workers).whole("allreduce", self._sent_by_hosts)
        )

    def by_server(self, server: str) -> Job:
        """Return the job with a parameter server, which sends on what it has added up while it
        receives the rest.
        """
        sent = self._sent_by_hosts
        pushes = replicate(self.workers, lambda i, worker: flow(f"push-w{i}", worker, server, sent))
        pulls = replicate(self.workers, lambda i, worker: flow(f"pull-w{i}", server, worker, sent))
        # The first worker stands for the moment at which the server begins.
        return self._with(parallel(pushes, replace(pulls, first={self.workers[0]: pulls.flows})))

    def in_network(self, trees: int = 1, values: int = VALUES) -> Job:
        """Return the job with an all-reduce by switches."""
        return self._with(
            InNetwork(trees, values).block("allreduce", self.workers, self.gradient_bytes)
        )

    def _with(self, block: Block) -> Job:
        computed = replicate(
            self.workers, lambda i, worker: compute(f"compute-w{i}", worker, self.compute_s)
        )
        graph = series(computed, block).graph(EchelonFlow.coflow("allreduce", block.flows))
        return Job(self.name, *graph, start_s=self.start_s)

    @property
    def _sent_by_hosts(self) -> int:
        return self.gradient_bytes * PACKET_BYTES // (PACKET_BYTES - OTHER_HEADER_BYTES)


# -- the rate of one job ---------------------------------------------------------------------------

_GRADIENT_BYTES = 100_000_000
_ALMOST_NOTHING_S = Fraction(1, 10**9)


def rates(counts: Sequence[int] = (2, 4, 8, 16)) -> list[Table]:
    """Return the aggregated data per worker and second, in percent of a link, by number of
    workers.
    """
    return [
        _rates("one switch", lambda n: build_fabric(one_tor(n + 1, RATE_BPS)), counts),
        _rates(
            "4 leaves, uplinks for a quarter of the hosts, workers not in the order of leaves",
            lambda n: build_fabric(leaf_spine(4, 1, n // 4 + 1, 4, RATE_BPS)),
            [n for n in counts if n >= 4],
        ),
    ]


def _rates(place: str, make: Callable[[int], Fabric], counts: Sequence[int]) -> Table:
    rows = []
    for n in counts:
        fabric = make(n)
        hosts = list(fabric.hosts)
        each = n // 4 + 1
        # One host of each leaf is no worker; the last of all is the server.
        if n < len(hosts) - 1:
            spread = [hosts[leaf * each + at] for at in range(each - 1) for leaf in range(4)]
        else:
            spread = hosts
        workers = tuple(spread[:n])
        job = Training("job", workers, _ALMOST_NOTHING_S, _GRADIENT_BYTES)
        ways = [
            job.in_network(),
            job.in_network(values=VALUES_TNA),
            job.by_hosts(),
            job.by_hosts("tree"),
            job.by_server(hosts[-1]),
        ]
        took_s = [alone_iteration_s(way, fabric) - _ALMOST_NOTHING_S for way in ways]
        rows.append(
            (
                str(n),
                *(f"{800 * _GRADIENT_BYTES / float(time_s) / RATE_BPS:.1f}" for time_s in took_s),
            )
        )
    return Table(
        f"Aggregated data per worker, % of a link's rate: {place}",
        (
            "workers",
            "in network, 32 values",
            "in network, 64 values",
            "ring",
            "binomial tree",
            "parameter server",
        ),
        rows,
    )


# -- memory for some of the jobs -------------------------------------------------------------------

FABRICS: Mapping[str, Fabric] = {
    "leaf-spine": build_fabric(leaf_spine(4, 4, 8, 2, RATE_BPS)),
    "fat-tree": build_fabric(fat_tree(6, RATE_BPS)),
    "rails": build_fabric(rail_optimised(8, 4, 2, 2, RATE_BPS)),
}
ROUNDS = 10
"""How often the slowest job would iterate alone."""


def draw(fabric: Fabric, jobs: int, workers: int, seed: int) -> list[Training]:
    """Return jobs on random hosts, whose gradients take half to twice as long as their
    computing.
    """
    rng = random.Random(seed)
    hosts = sorted(rng.sample(sorted(fabric.hosts), jobs * workers), key=list(fabric.hosts).index)
    rng.shuffle(hosts)
    found: list[Training] = []
    for number in range(jobs):
        own = tuple(
            sorted(hosts[number * workers : (number + 1) * workers], key=list(fabric.hosts).index)
        )
        gradient = rng.randrange(10_000_000, 40_000_000)
        takes_s = Fraction(8 * wire_bytes(gradient), RATE_BPS)
        compute_s = takes_s * Fraction(rng.randrange(500, 2000), 1000)
        start_s = takes_s * Fraction(rng.randrange(1000), 1000)
        found.append(Training(f"job{number + 1}", own, compute_s, gradient, start_s))
    return found


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


def run(drawn: Sequence[Training], fabric: Fabric, way: Way) -> list[float]:
    """Return the slowdown of each job against itself in the network, alone, with memory for half of
    the jobs.
    """
    alone_s = [alone_iteration_s(job.in_network(), fabric) for job in drawn]
    served = {"ring": 0, "tree": 0, "share": len(drawn) // 2}.get(way, len(drawn))
    jobs = [
        job.in_network() if at < served else job.by_hosts("tree" if way == "tree" else "ring")
        for at, job in enumerate(drawn)
    ]
    places = 2 * WINDOW * (len(drawn) if way == "all" else len(drawn) // 2)
    policy: FluidPlanner = Fair()  # gives the same rates where there are no trees
    if served:
        policy = Aggregation(
            Aggregation.Parameters(by=_BY.get(way, "first"), places=places, window=WINDOW)
        )
    result = simulate(jobs, fabric, policy, None, until=ROUNDS * max(alone_s), ideal=True)
    return [
        slowdown(result.jobs[job.name], float(result.end_s), float(own_s))
        for job, own_s in zip(jobs, alone_s, strict=True)
    ]


def memory(draws: int, progress: Callable[[str], None] = lambda _: None) -> list[Table]:
    """Return the mean and the worst slowdown of two and of eight jobs with memory for half of them,
    by fabric.
    """
    tables = []
    for count, workers in ((2, 16), (8, 4)):
        rows = []
        for way, label in WAYS.items():
            cells = []
            for name, fabric in FABRICS.items():
                progress(f"{count} jobs, {label}, {name}")
                found = [
                    run(draw(fabric, count, workers, seed), fabric, way) for seed in range(draws)
                ]
                mean = fmean(fmean(of) for of in found)
                worst = fmean(max(of) for of in found)
                cells.append(f"{mean:.2f}, {worst:.2f}")
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
    """Return flows between random hosts, with exponential gaps, until `END_S`: a job whose
    iteration they are.
    """
    rng = random.Random(seed)
    hosts = sorted(fabric.hosts)
    gap_s = 8 * SHORT_BYTES / (float(LOAD) * RATE_BPS * len(hosts))
    at_s = rng.expovariate(1 / gap_s)
    waits: list[ComputeUnit] = []
    flows: list[Flow] = []
    while at_s < END_S:
        src, dst = rng.sample(hosts, 2)
        waits.append(ComputeUnit(f"wait{len(waits)}", src, Fraction(at_s)))
        flows.append(Flow(f"short{len(flows)}", src, dst, SHORT_BYTES, (waits[-1].name,)))
        at_s += rng.expovariate(1 / gap_s)
    return Job("short", tuple(waits), tuple(flows), ())


@dataclass(frozen=True, slots=True)
class _Shared:
    slowdowns: Sequence[float]
    short_s: Sequence[float]


def shared_cluster(draws: int, progress: Callable[[str], None] = lambda _: None) -> Table:
    """Return training times and the times of short flows beside, against a ring."""
    fabric = build_fabric(leaf_spine(4, 4, 8, 2, RATE_BPS))
    ways: Mapping[str, tuple[Callable[[Training], Job], bool]] = {
        "ring": (Training.by_hosts, False),
        "in network, one tree for all": (Training.in_network, True),
        "in network, a tree for each job, by load": (Training.in_network, False),
        "in network, 4 trees for each job, by load": (lambda job: job.in_network(4), False),
        "the same, 64 values": (lambda job: job.in_network(4, VALUES_TNA), False),
    }
    found: dict[str, _Shared] = {}
    for label, (way, one) in ways.items():
        times = []
        short = []
        for seed in range(draws):
            progress(f"{label}, draw {seed + 1}")
            result, drawn = _beside(fabric, way, TreesByLoad(one=one), seed)
            times += [slowdown(result.jobs[job.name], float(result.end_s), 1.0) for job in drawn]
            spans = result.jobs["short"].iterations[0].flows.values()
            short += [span.finish - span.start for span in spans if span.finish is not None]
        found[label] = _Shared(times, sorted(short))
    ring = found["ring"]

    def cells(of: _Shared) -> tuple[str, ...]:
        gains = [by_ring / own for by_ring, own in zip(ring.slowdowns, of.slowdowns, strict=True)]
        p99, p99_ring = (each.short_s[int(0.99 * len(each.short_s))] for each in (of, ring))
        return (
            f"{fmean(gains):.2f}",
            f"{max(gains):.2f}",
            f"{1e6 * fmean(of.short_s):.0f}",
            f"{1e6 * p99:.0f}",
            f"{p99_ring / p99:.2f}",
        )

    rows = [(label, *cells(of)) for label, of in found.items()]
    columns = (
        "",
        "training faster by, mean",
        "most",
        "short flows, mean µs",
        "p99 µs",
        "p99 better by",
    )
    return Table("4 jobs of 8 workers and short flows, 2:1 leaf-spine", columns, rows)


def _beside(
    fabric: Fabric, way: Callable[[Training], Job], paths: PathChooser, seed: int
) -> tuple[FluidResult, list[Training]]:
    drawn = draw(fabric, 4, 8, seed)
    jobs = [short_flows(fabric, seed), *(way(job) for job in drawn)]
    policy = Aggregation(Aggregation.Parameters(places=1 << 20), paths)
    return simulate(jobs, fabric, policy, None, until=END_S, ideal=True), drawn
