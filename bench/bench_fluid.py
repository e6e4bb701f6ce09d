"""The speed of the fluid engines: jobs on a leaf-spine fabric, in C and in Python.

`python -m bench fluid` prints, for every policy, the milliseconds of an event (a moment at which
rates are set) of 8 jobs on 64 hosts, and how many times as long the engine in Python takes. `python
-m bench.bench_fluid [HOSTS:JOBS ...] [POLICY ...]` prints how that grows: milliseconds of an event,
flows under way and memory for more and more hosts and jobs, and the exponent k of the best fit time
of an event = c (n log n)^k, n flows under way. Memory is the most that the process had until then:
name one policy to see its own.

Times are the processor's, so that they mean the same on a machine that has other work.
"""

from __future__ import annotations

import gc
import math
import resource
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random
from time import process_time
from unittest import mock

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.jobs.graph import Job
from echelon.model.jobs.paradigms.data import all_reduce
from echelon.model.jobs.pipelines import gpipe
from echelon.planning.fluid import Windows, native, simulate
from echelon.planning.policies import make_policy, policy_names

HOSTS_PER_LEAF = 16
SPINES = 8
"""Leaves are two times oversubscribed."""
RATE_BPS = 10 * 10**9
WINDOWS = Windows(
    packet_bytes=1500,
    full=16,
    initial=10,
    acknowledgement_bytes=60,
)
HORIZON_S = Fraction(1, 4)
"""The simulated time of a run: the first iterations, in which all jobs have begun."""
MOST_JOBS_IN_PYTHON = 20
SIZES = ((64, 8), (128, 20), (256, 45), (512, 95), (1024, 200))


def leaf_spine(hosts: int) -> Fabric:
    """Return a fabric of leaves of 16 hosts each, and 8 spines."""
    leaves = [f"l{number}" for number in range(hosts // HOSTS_PER_LEAF)]
    spines = [f"s{number}" for number in range(SPINES)]
    delay_s = Fraction(1, 10**6)
    by_name = {}
    cables = []
    for number in range(hosts):
        name = f"h{number}"
        high = number >> 8
        low = number & 255
        by_name[name] = Host(name, f"10.0.{high}.{low}", f"02:00:00:00:{high:02x}:{low:02x}")
        leaf, place = divmod(number, HOSTS_PER_LEAF)
        leaf_end = LinkEnd(leaves[leaf], place + 1)
        cables.append(CableLink(LinkEnd(name, 0), leaf_end, RATE_BPS, delay_s))
    for leaf_number, leaf_name in enumerate(leaves, start=1):
        for spine_number, spine in enumerate(spines, start=1):
            leaf_end = LinkEnd(leaf_name, HOSTS_PER_LEAF + spine_number)
            spine_end = LinkEnd(spine, leaf_number)
            cables.append(CableLink(leaf_end, spine_end, RATE_BPS, delay_s))
    switches = {}
    for number, name in enumerate((*leaves, *spines), start=1):
        switches[name] = Switch(name, number)
    return Fabric(f"leaf-spine-{hosts}", by_name, switches, tuple(cables))


def jobs_of(
    count: int,
    hosts: int,
    seed: int = 1,
) -> list[Job]:
    """Return rings of 4 to 12 workers and pipelines of 4 to 8 stages in turn, on hosts that may
    serve several.
    """
    rng = Random(seed)
    jobs = []
    for number in range(count):
        is_ring = number % 2 == 0
        jobs.append(_job(f"job{number}", is_ring, hosts, rng))
    return jobs


def _job(
    name: str,
    is_ring: bool,
    hosts: int,
    rng: Random,
) -> Job:
    start_s = Fraction(rng.randrange(1000), 10_000)
    if is_ring:
        most_workers = 12
    else:
        most_workers = 8
    count = rng.randint(4, most_workers)
    workers = [f"h{number}" for number in rng.sample(range(hosts), count)]
    if is_ring:
        compute_s = Fraction(rng.randint(50, 200), 1000)
        gradient = rng.randint(50, 150) * 10**6
        graph = all_reduce(workers, compute_s, gradient)
    else:
        hops = count - 1
        forward = Fraction(rng.randint(5, 20), 1000)
        size = rng.randint(5, 20) * 10**6
        backward = [2 * forward] * count
        graph = gpipe(workers, 8, [forward] * count, [size] * hops, backward)
    return replace(Job(name, *graph), start_s=start_s)


@dataclass(slots=True)
class Measured:
    """One run: processor seconds, settings of rates, and the mean number of flows under way."""

    run_s: float
    events: int
    flows: float

    @property
    def event_ms(self) -> float:
        return 1000 * self.run_s / self.events


def measure(
    policy: str,
    fabric: Fabric,
    jobs: Sequence[Job],
    *,
    ideal: bool = False,
) -> Measured:
    chosen = make_policy(policy)
    chosen.plan(jobs, fabric)  # plans have a benchmark of their own
    gc.collect()
    begin = process_time()
    result = simulate(
        jobs,
        fabric,
        chosen,
        None,
        until=HORIZON_S,
        windows=WINDOWS,
        ideal=ideal,
    )
    run_s = process_time() - begin
    under_way_s = 0.0
    for record in result.jobs.values():
        for iteration in record.iterations:
            for span in iteration.flows.values():
                if span.finish is None:
                    last_s = result.end_s
                else:
                    last_s = span.finish
                under_way_s += float(last_s - span.start)
    return Measured(run_s, result.allocations, under_way_s / float(result.end_s))


def measure_in_python(
    policy: str,
    fabric: Fabric,
    jobs: Sequence[Job],
) -> Measured:
    with mock.patch.object(native, "available", return_value=False):
        return measure(policy, fabric, jobs)


def exponent(points: Sequence[Measured]) -> float:
    """Return k of the least-squares line of log(time of an event) over log(n log n), n flows under
    way.
    """
    x = []
    y = []
    for point in points:
        n_log_n = point.flows * math.log(point.flows)
        x.append(math.log(n_log_n))
        y.append(math.log(point.event_ms))
    return statistics.linear_regression(x, y).slope


def _peak_mb() -> str:
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}"


def warm_up() -> None:
    """Build the engine, which the first process after an installation waits for."""
    hosts, count = SIZES[0]
    measure("fair", leaf_spine(hosts), jobs_of(count, hosts))


def bench() -> Iterator[tuple[str, float, str]]:
    warm_up()
    hosts, count = SIZES[0]
    fabric = leaf_spine(hosts)
    jobs = jobs_of(count, hosts)
    for name in policy_names():
        fast = measure(name, fabric, jobs)
        slow = measure_in_python(name, fabric, jobs)
        yield f"{name}, {count} jobs on {hosts} hosts, an event", fast.event_ms, "ms"
        yield f"{name}, Python / C", slow.event_ms / fast.event_ms, "times"


def main() -> None:
    from rich.console import Console
    from rich.table import Table

    sizes = []
    policies = []
    for word in sys.argv[1:]:
        hosts_text, colon, jobs_text = word.partition(":")
        if colon:
            sizes.append((int(hosts_text), int(jobs_text)))
        else:
            policies.append(word)
    if not sizes:
        sizes = list(SIZES)
    if not policies:
        policies = list(policy_names())
    heads = (
        "policy",
        "hosts",
        "jobs",
        "flows under way",
        "events",
        "ms an event",
        "peak MB",
        "k",
        "Python / C",
        "MB",
    )
    table = Table(*heads)
    warm_up()
    for name in policies:
        points: list[Measured] = []
        for hosts, count in sizes:
            fabric = leaf_spine(hosts)
            jobs = jobs_of(count, hosts)
            point = measure(name, fabric, jobs)
            points.append(point)
            cells = [f"{point.flows:.0f}", f"{point.events:,}", f"{point.event_ms:.2f}", _peak_mb()]
            k = ""
            if len(points) > 1:
                k = f"{exponent(points):.2f}"
            cells.append(k)
            if count <= MOST_JOBS_IN_PYTHON:
                slow = measure_in_python(name, fabric, jobs)
                cells += [f"{slow.run_s / point.run_s:.1f}", _peak_mb()]
            table.add_row(name, f"{hosts:,}", f"{count}", *cells)
            print(
                name,
                hosts,
                count,
                *cells,
                file=sys.stderr,
                flush=True,
            )
    Console().print(table)


if __name__ == "__main__":
    main()
