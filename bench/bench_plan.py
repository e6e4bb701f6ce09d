"""The time of a plan and of its lowering, for 10 to 1,000 jobs of 10 to 1,000 flows on a fabric of
1,024 hosts.

`python -m bench.bench_plan` prints the whole curve for every policy, and the exponent k of the best
fit time = c (n log n)^k over flows n; one column is the first plan, the next the plan after one job
has come. What a switch holds without jobs is lowered before, and is not in these times. `make
bench` measures the point of 100 jobs only.

Times are the processor's, so that they mean the same on a machine that has other work.
"""

from __future__ import annotations

import gc
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from operator import attrgetter
from random import Random
from time import process_time
from typing import TypeVar

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.jobs.graph import Job
from echelon.model.jobs.paradigms.data import all_reduce
from echelon.model.jobs.pipelines import gpipe
from echelon.planning.plan import Plan
from echelon.planning.policies import make_policy, policy_names
from echelon.planning.policies.base import Policy
from echelon.switches.lowering.identity import Identity, ShimIdentity
from echelon.switches.lowering.intent import Intent, Part
from echelon.switches.lowering.lower import Lowering
from echelon.switches.targets.softswitch.capabilities import softswitch

T = TypeVar("T")

HOSTS = 1024
HOSTS_PER_LEAF = 16
SPINES = 16
"""Leaves of 32 ports, half of them up: no link is oversubscribed."""
RATE_BPS = 100 * 10**9
FEWEST_FLOWS = 10
MOST_FLOWS = 1000


def leaf_spine() -> Fabric:
    """Return a fabric of 64 leaves of 16 hosts each, and 16 spines."""
    leaves = [f"l{number}" for number in range(HOSTS // HOSTS_PER_LEAF)]
    spines = [f"s{number}" for number in range(SPINES)]
    delay_s = Fraction(1, 10**6)
    hosts = {}
    cables = []
    for number in range(HOSTS):
        name = f"h{number}"
        high = number >> 8
        low = number & 255
        hosts[name] = Host(name, f"10.0.{high}.{low}", f"02:00:00:00:{high:02x}:{low:02x}")
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
    return Fabric("leaf-spine-1024", hosts, switches, tuple(cables))


def jobs_of(count: int, seed: int = 1) -> list[Job]:
    """Return jobs of 10 to 1,000 flows, evenly by the logarithm; rings and pipelines in turn, on
    hosts in a row.
    """
    rng = Random(seed)
    jobs = []
    for number in range(count):
        is_ring = number % 2 == 0
        jobs.append(_job(f"job{number}", is_ring, rng))
    return jobs


def _job(
    name: str,
    is_ring: bool,
    rng: Random,
) -> Job:
    logarithm = rng.uniform(math.log(FEWEST_FLOWS), math.log(MOST_FLOWS))
    flows = round(math.exp(logarithm))
    first = rng.randrange(HOSTS)
    if is_ring:
        # 2 n (n - 1) flows
        ranks = round((1 + math.sqrt(1 + 2 * flows)) / 2)
        workers = _in_a_row(first, max(3, ranks))
        compute_s = Fraction(rng.randint(50, 500), 1000)
        gradient = rng.randint(100, 2000) * 10**6
        graph = all_reduce(workers, compute_s, gradient)
    else:
        stages = rng.randint(2, 16)
        hops = stages - 1
        micro_batches = max(2, round(flows / (2 * hops)))
        workers = _in_a_row(first, stages)
        forward = Fraction(rng.randint(5, 50), 1000)
        size = rng.randint(1, 50) * 10**6
        graph = gpipe(
            workers,
            micro_batches,
            [forward] * stages,
            [size] * hops,
            [2 * forward] * stages,
        )
    return Job(name, *graph)


def _in_a_row(first: int, count: int) -> list[str]:
    """Return so many hosts from this one on, and from the first again after the last."""
    numbers = range(first, first + count)
    return [f"h{number % HOSTS}" for number in numbers]


@dataclass(frozen=True, slots=True)
class Point:
    """The seconds of one policy with one number of jobs."""

    jobs: int
    flows: int
    plan_s: float
    lower_s: float
    change_s: float
    """The plan after one job more has come."""
    lower_change_s: float
    written: int
    """Entries of the parts that the change made or remade, at all switches."""


class Rig:
    """A fabric, and its switches as they are without jobs."""

    def __init__(self) -> None:
        self.fabric = leaf_spine()
        # A real switch has 16,384 flow identifiers; the largest points put more than that through a
        # spine.
        able = replace(
            softswitch(),
            max_flows=1 << 20,
            max_echelonflows=1 << 20,
            max_profiles=1 << 20,
        )
        by_switch = dict.fromkeys(self.fabric.switches, able)
        self.lowering = Lowering(self.fabric, by_switch)
        self.version = 0

    def lower(
        self,
        plan: Plan,
        identities: Mapping[str, Mapping[str, Identity]],
    ) -> Mapping[str, Intent]:
        self.version += 1
        return self.lowering.lower(plan, identities, version=self.version)

    def clear(self, policy: Policy) -> None:
        """Remove all jobs, with the switches' acknowledgement."""
        self.lower(policy.plan([], self.fabric), {})
        for switch in self.fabric.switches:
            self.lowering.numbering.settle(switch, self.version)

    def measure(
        self,
        policy: Policy,
        jobs: Sequence[Job],
        more: Job,
    ) -> Point:
        identities: dict[str, Mapping[str, Identity]] = {}
        every = [*jobs, more]
        for number, job in enumerate(every, start=1):
            job_number = number & 0xFFFF
            by_flow = {}
            for index, flow in enumerate(job.flows):
                by_flow[flow.name] = ShimIdentity(job_number, index)
            identities[job.name] = by_flow
        self.clear(policy)
        plan, plan_s = _timed(partial(policy.plan, jobs, self.fabric))
        before, lower_s = _timed(partial(self.lower, plan, identities))
        after, change_s = _timed(partial(policy.plan, every, self.fabric))
        intents, lower_change_s = _timed(partial(self.lower, after, identities))
        written_before = {id(part) for part in _parts(before)}
        written = 0
        for part in _parts(intents):
            if id(part) not in written_before:
                written += len(part.entries)
        self.clear(policy)
        return Point(len(jobs), len(plan.flows), plan_s, lower_s, change_s, lower_change_s, written)


def _parts(intents: Mapping[str, Intent]) -> Iterator[Part]:
    for intent in intents.values():
        yield from intent.parts


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    gc.collect()
    begin = process_time()
    out = work()
    return out, process_time() - begin


def exponent(points: Sequence[Point], time_s: Callable[[Point], float]) -> float:
    """Return the slope k of the least-squares line of log(time) over log(n log n), n flows."""
    x = []
    y = []
    for point in points:
        n_log_n = point.flows * math.log(point.flows)
        x.append(math.log(n_log_n))
        y.append(math.log(time_s(point)))
    return statistics.linear_regression(x, y).slope


def bench() -> Iterator[tuple[str, float, str]]:
    rig = Rig()
    *jobs, more = jobs_of(101)
    for name in policy_names():
        point = rig.measure(make_policy(name), jobs, more)
        label = f"{name}, {point.jobs} jobs, {point.flows} flows"
        yield f"plan, {label}", 1000 * point.plan_s, "ms"
        yield f"plan after one job more, {label}", 1000 * point.change_s, "ms"
        yield f"lowering, {label}", 1000 * point.lower_s, "ms"
        yield f"lowering after one job more, {label}", 1000 * point.lower_change_s, "ms"


def main() -> None:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    counts = [int(word) for word in sys.argv[1:]] or [10, 100, 1000]
    table = Table(
        "policy",
        "jobs",
        "flows",
        "plan",
        "1 more",
        "lowering",
        "1 more",
        "entries",
        title="milliseconds",
    )
    fitted = Table(
        "policy", "k of the plan", "k of its lowering", title="time = c (n log n)^k, n flows"
    )
    rig = Rig()
    # The same jobs for every policy, and not looked at by the garbage collector again and again.
    every = jobs_of(max(counts) + 1)
    gc.freeze()
    with Progress(console=Console(stderr=True)) as progress:
        jobs_in_all = len(policy_names()) * sum(counts)
        task = progress.add_task("planning", total=jobs_in_all)
        for name in policy_names():
            points = []
            for count in counts:
                progress.update(task, description=f"{name}, {count} jobs")
                point = rig.measure(make_policy(name), every[:count], every[count])
                points.append(point)
                times = (point.plan_s, point.change_s, point.lower_s, point.lower_change_s)
                cells = [f"{1000 * time_s:,.1f}" for time_s in times]
                table.add_row(name, f"{count:,}", f"{point.flows:,}", *cells, f"{point.written:,}")
                progress.advance(task, count)
            table.add_section()
            plan_exponent = exponent(points, attrgetter("plan_s"))
            lowering_exponent = exponent(points, attrgetter("lower_s"))
            fitted.add_row(name, f"{plan_exponent:.2f}", f"{lowering_exponent:.2f}")
    console = Console()
    console.print(table)
    console.print(fitted)


if __name__ == "__main__":
    main()
