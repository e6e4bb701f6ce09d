"""The comparisons of `echelon_aggregation.comparison` from packets.

``python -m plugins.aggregation.tests.from_packets memory DRAWS ROUNDS [JOBS FABRIC...]``, or
``shared DRAWS``, prints their tables.

Jobs, fabrics and ways are the same. Links have 100 Mbit/s instead of 10 Gbit/s, and jobs move and
compute a 2000th of the bytes, so that an iteration has 40 to 160 blocks and takes a twentieth of
the time. Switches are softswitches with the P4 program, whose places are scaled down with the
window: 16 blocks of a job are under way.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random
from statistics import fmean

from echelon.model.fabric.builders import fat_tree, leaf_spine, rail_optimised
from echelon.model.fabric.load import build_fabric
from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import ComputeUnit, Flow, Job
from echelon.model.jobs.spec import make_job_spec
from echelon.planning.fluid.slowdown import slowdown
from echelon.planning.policies.base import Policy
from echelon.planning.policies.fair import Fair
from echelon_aggregation.comparison import Table, Training, draw
from echelon_aggregation.memory import By
from echelon_aggregation.panama import TreesByLoad
from echelon_aggregation.policy import Aggregation
from echelon_lab.scenarios.results import PolicyRun
from echelon_lab.scenarios.scenario import PolicyChoice, Scenario, Transport
from echelon_lab.virtual.run import run

RATE_BPS = 100_000_000
SCALE = 2000
SLOWER = 100
WINDOW = 16
FABRICS: Mapping[str, Fabric] = {
    "leaf-spine": build_fabric(leaf_spine(4, 4, 8, 2, RATE_BPS)),
    "fat-tree": build_fabric(fat_tree(6, RATE_BPS)),
    "rails": build_fabric(rail_optimised(8, 4, 2, 2, RATE_BPS)),
}
TRANSPORT = Transport(1500, 16, Fraction(1, 20))


def small(job: Training) -> Training:
    """Return a job of the comparison at this scale."""
    faster = Fraction(SLOWER, SCALE)
    return replace(
        job,
        gradient_bytes=job.gradient_bytes // SCALE,
        compute_s=job.compute_s * faster,
        start_s=job.start_s * faster,
    )


def scenario(fabric: Fabric, jobs: Sequence[Job], iterations: int) -> Scenario:
    data = {"compute": "1 s", "gradient": "1 kB"}
    return Scenario(
        name="packets",
        description="",
        file=Path("packets.yaml"),
        fabric=fabric,
        jobs=tuple(jobs),
        policies=(PolicyChoice("fair"),),
        iterations=iterations,
        until="exactly",
        seed=0,
        transport=TRANSPORT,
        control_latency_s=Fraction(0),
        stop_controller_after_iteration=None,
        profile_error=Fraction(0),
        delays=(),
        background=(),
        queue_bytes=1 << 20,
        # The jobs are not those of files; a file says how switches recognise them.
        specs={
            job.name: make_job_spec(
                job=job.name, parallelism="data", workers=list(job.workers[:2]), data=data
            )
            for job in jobs
        },
    )


def played(
    fabric: Fabric,
    jobs: Sequence[Job],
    make: Callable[[], Policy],
    iterations: int = 2,
    end_s: Fraction | None = None,
) -> PolicyRun:
    return run(scenario(fabric, jobs, iterations), "packets", make, lambda *_: None, end_s=end_s)


def policy(by: By, places: int, always_first: bool = False) -> Aggregation:
    parameters = Aggregation.Parameters(by=by, places=places, window=WINDOW)
    return Aggregation(parameters, TreesByLoad(always_first=always_first))


def alone_s(fabric: Fabric, job: Job) -> Fraction:
    """Return how long an iteration takes alone, in the network, with memory."""
    record = (
        played(fabric, [job], lambda: policy("share", 2 * WINDOW)).records[job.name].finished[-1]
    )
    assert record.finish is not None
    return Fraction(record.finish) - Fraction(record.start)


WAYS: Mapping[str, tuple[By, int, bool]] = {
    "ring": ("first", 0, False),
    "in network, memory for all": ("share", 1, False),
    "share, the others by ring": ("share", 2, True),
    "share, the others by fallback": ("share", 2, False),
    "first come": ("first", 2, False),
    "by deadline": ("deadline", 2, False),
    "first come, memory for one": ("first", 8, False),
    "by deadline, memory for one": ("deadline", 8, False),
}
"""Who gets memory, for which part of the jobs, and whether the others have rings."""


def memory(draws: int, rounds: int, counts: Sequence[int], names: Sequence[str]) -> list[Table]:
    tables = []
    for count in counts:
        workers = 32 // count
        cells: dict[str, list[str]] = {way: [] for way in WAYS}
        for name in names:
            fabric = FABRICS[name]
            found: dict[str, list[list[float]]] = {way: [] for way in WAYS}
            for seed in range(draws):
                drawn = [small(job) for job in draw(fabric, count, workers, seed)]
                own_s = [alone_s(fabric, job.in_network()) for job in drawn]
                for way, (by, part, others) in WAYS.items():
                    if part > count:
                        continue
                    began = time.process_time()
                    served = 0 if way == "ring" else count // part if others else count
                    jobs = [
                        job.in_network() if at < served else job.by_hosts()
                        for at, job in enumerate(drawn)
                    ]
                    places = 2 * WINDOW * count // (part or 1)

                    def make(by: By = by, places: int = places, served: int = served) -> Policy:
                        return policy(by, places) if served else Fair()

                    result = played(fabric, jobs, make, end_s=rounds * max(own_s))
                    slow = [
                        slowdown(result.records[job.name], float(rounds * max(own_s)), float(one_s))
                        for job, one_s in zip(jobs, own_s, strict=True)
                    ]
                    found[way].append(slow)
                    again = sum(result.retransmitted.values())
                    took = f"sent again {again}, {time.process_time() - began:.0f} s"
                    _say(
                        f"{count} jobs, {name}, draw {seed}, {way}: {fmean(slow):.2f},"
                        f" {max(slow):.2f}; {took}"
                    )
            for way, of in found.items():
                cells[way].append(
                    f"{fmean(map(fmean, of)):.2f}, {fmean(map(max, of)):.2f}" if of else "-"
                )
        title = (
            f"{count} jobs of {workers} workers, memory for {count // 2}: mean slowdown, and that"
            " of the slowest"
        )
        tables.append(Table(title, ("", *names), [(way, *of) for way, of in cells.items()]))
    return tables


SHORT_BYTES = 3000
LOAD = 0.02
END_S = Fraction(1, 10)


def short_flows(fabric: Fabric, seed: int) -> Job:
    """Return flows between random hosts, with exponential gaps, until `END_S`."""
    rng, hosts = Random(seed), sorted(fabric.hosts)
    gap_s = 8 * SHORT_BYTES / (LOAD * RATE_BPS * len(hosts))
    at_s = rng.expovariate(1 / gap_s)
    waits: list[ComputeUnit] = []
    flows: list[Flow] = []
    while at_s < END_S:
        src, dst = rng.sample(hosts, 2)
        waits.append(ComputeUnit(f"wait{len(waits)}", src, Fraction(at_s)))
        flows.append(Flow(f"short{len(flows)}", src, dst, SHORT_BYTES, (waits[-1].name,)))
        at_s += rng.expovariate(1 / gap_s)
    return Job("short", tuple(waits), tuple(flows), ())


def shared(draws: int) -> Table:
    fabric = FABRICS["leaf-spine"]
    ways: Mapping[str, tuple[Callable[[Training], Job], bool]] = {
        "ring": (Training.by_hosts, False),
        "in network, one tree for all": (Training.in_network, True),
        "in network, a tree for each job, by load": (Training.in_network, False),
        "in network, 4 trees for each job, by load": (lambda job: job.in_network(4), False),
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    short: dict[str, list[float]] = {way: [] for way in ways}
    for seed in range(draws):
        drawn = [small(job) for job in draw(fabric, 4, 8, seed)]
        for way, (make, same) in ways.items():
            began = time.process_time()
            jobs = [short_flows(fabric, seed), *(make(job) for job in drawn)]
            result = played(
                fabric, jobs, lambda same=same: policy("share", 4096, same), end_s=END_S
            )  # type: ignore[misc]
            times[way] += [slowdown(result.records[job.name], float(END_S), 1.0) for job in drawn]
            spans = result.records["short"].iterations[0].flows.values()
            short[way] += [
                float(span.finish - span.start) for span in spans if span.finish is not None
            ]
            _say(f"{way}, draw {seed}: {len(spans)} flows, {time.process_time() - began:.0f} s")
    rows = []
    for way in ways:
        gains = [ring / own for ring, own in zip(times["ring"], times[way], strict=True)]
        p99, p99_ring = (sorted(of)[int(0.99 * len(of))] for of in (short[way], short["ring"]))
        rows.append(
            (
                way,
                f"{fmean(gains):.2f}",
                f"{max(gains):.2f}",
                f"{1e6 * fmean(short[way]):.0f}",
                f"{1e6 * p99:.0f}",
                f"{p99_ring / p99:.2f}",
            )
        )
    columns = ("", "faster, mean", "most", "short flows, mean µs", "p99 µs", "p99 better by")
    return Table("4 jobs of 8 workers and short flows, 2:1 leaf-spine", columns, rows)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    what, draws = sys.argv[1], int(sys.argv[2])
    if what == "memory":
        counts = [int(count) for count in sys.argv[4].split(",")] if len(sys.argv) > 4 else [2, 8]
        made = memory(draws, int(sys.argv[3]), counts, sys.argv[5:] or list(FABRICS))
    else:
        made = [shared(draws)]
    for table in made:
        print(table.markdown(), end="\n\n", flush=True)
