"""How fast the fluid engine runs: jobs on a leaf-spine fabric, in floats and in exact fractions.

`make bench` prints, for every policy, seconds of 20 jobs on 128 hosts in floats, and how many times as long exact
fractions take. `python -m tests.bench.bench_fluid` prints the growth: seconds, seconds per event, active flows and
memory for more and more jobs and hosts, and the exponent k of the best fit time per event = c (n log n)^k over the mean
number n of flows under way.

Times are the processor's, so that they mean the same on a machine that has other work.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random
from time import process_time

from echelon.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.fluid import Windows, simulate
from echelon.jobs.graph import Job
from echelon.jobs.paradigms.data import all_reduce
from echelon.jobs.pipelines.gpipe import gpipe
from echelon.policies import make_policy

HOSTS_PER_LEAF, SPINES = 16, 8
"""Leaves are two times oversubscribed."""
RATE_BPS = 10 * 10**9
WINDOWS = Windows(packet_bytes=1500, full=16, initial=10, acknowledgement_bytes=60)
ITERATIONS = 3


def leaf_spine(hosts: int) -> Fabric:
    """Leaves of 16 hosts, and 8 spines."""
    leaves = [f"l{i}" for i in range(hosts // HOSTS_PER_LEAF)]
    spines = [f"s{i}" for i in range(SPINES)]
    names = [f"h{i}" for i in range(hosts)]
    delay_s = Fraction(1, 10**6)
    cables = [
        CableLink(LinkEnd(host, 0), LinkEnd(leaves[i // HOSTS_PER_LEAF], i % HOSTS_PER_LEAF + 1), RATE_BPS, delay_s)
        for i, host in enumerate(names)
    ]
    cables += [
        CableLink(LinkEnd(leaf, HOSTS_PER_LEAF + j + 1), LinkEnd(spine, i + 1), RATE_BPS, delay_s)
        for i, leaf in enumerate(leaves)
        for j, spine in enumerate(spines)
    ]
    return Fabric(
        f"leaf-spine-{hosts}",
        {
            h: Host(h, f"10.0.{i >> 8}.{i & 255}", f"02:00:00:00:{i >> 8:02x}:{i & 255:02x}")
            for i, h in enumerate(names)
        },
        {name: Switch(name, number) for number, name in enumerate((*leaves, *spines), start=1)},
        tuple(cables),
    )


def jobs_of(count: int, hosts: int, seed: int = 1) -> list[Job]:
    """Rings of 4 to 12 workers and pipelines of 4 to 8 stages in turn, on random hosts; hosts may serve several."""
    rng = Random(seed)
    return [_job(f"job{number}", number % 2 == 0, hosts, rng) for number in range(count)]


def _job(name: str, is_ring: bool, hosts: int, rng: Random) -> Job:
    start_s = Fraction(rng.randrange(1000), 10_000)
    if is_ring:
        workers = [f"h{i}" for i in rng.sample(range(hosts), rng.randint(4, 12))]
        graph = all_reduce(workers, Fraction(rng.randint(50, 200), 1000), rng.randint(50, 150) * 10**6)
    else:
        workers = [f"h{i}" for i in rng.sample(range(hosts), rng.randint(4, 8))]
        hops = len(workers) - 1
        forward = Fraction(rng.randint(5, 20), 1000)
        size = rng.randint(5, 20) * 10**6
        backward = [2 * forward] * len(workers)
        graph = gpipe(workers, 8, [forward] * len(workers), [size] * hops, backward)
    return replace(Job(name, *graph), start_s=start_s)


@dataclass(slots=True)
class Measured:
    """One run: processor seconds, how often rates were set, and the mean number of flows under way then."""

    run_s: float
    events: int
    flows: float


def measure(policy: str, fabric: Fabric, jobs: Sequence[Job], **options: bool) -> Measured:
    chosen = make_policy(policy)
    chosen.plan(jobs, fabric)  # what a plan costs is measured elsewhere
    gc.collect()
    begin = process_time()
    result = simulate(jobs, fabric, chosen, ITERATIONS, until="exactly", windows=WINDOWS, **options)
    run_s = process_time() - begin
    under_way = sum(
        float(span.finish - span.start)
        for record in result.jobs.values()
        for iteration in record.finished
        for span in iteration.flows.values()
        if span.finish is not None
    )
    return Measured(run_s, result.allocations, under_way / float(result.end_s))
