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
from echelon.switches.lowering.intent import Intent
from echelon.switches.lowering.lower import Lowering
from echelon.switches.targets.softswitch.capabilities import softswitch

T = TypeVar("T")

HOSTS, HOSTS_PER_LEAF, SPINES = 1024, 16, 16
"""Leaves of 32 ports, half of them up: no link is oversubscribed."""
RATE_BPS = 100 * 10**9
FEWEST_FLOWS, MOST_FLOWS = 10, 1000


def leaf_spine() -> Fabric:
    """Return a fabric of 64 leaves of 16 hosts each, and 16 spines."""
    leaves = [f"l{i}" for i in range(HOSTS // HOSTS_PER_LEAF)]
    spines = [f"s{i}" for i in range(SPINES)]
    hosts = [f"h{i}" for i in range(HOSTS)]
    cables = [
        CableLink(
            LinkEnd(host, 0),
            LinkEnd(leaves[i // HOSTS_PER_LEAF], i % HOSTS_PER_LEAF + 1),
            RATE_BPS,
            Fraction(1, 10**6),
        )
        for i, host in enumerate(hosts)
    ]
    cables += [
        CableLink(
            LinkEnd(leaf, HOSTS_PER_LEAF + j + 1),
            LinkEnd(spine, i + 1),
            RATE_BPS,
            Fraction(1, 10**6),
        )
        for i, leaf in enumerate(leaves)
        for j, spine in enumerate(spines)
    ]
    return Fabric(
        "leaf-spine-1024",
        {
            h: Host(h, f"10.0.{i >> 8}.{i & 255}", f"02:00:00:00:{i >> 8:02x}:{i & 255:02x}")
            for i, h in enumerate(hosts)
        },
        {name: Switch(name, number) for number, name in enumerate((*leaves, *spines), start=1)},
        tuple(cables),
    )


def jobs_of(count: int, seed: int = 1) -> list[Job]:
    """Return jobs of 10 to 1,000 flows, evenly by the logarithm; rings and pipelines in turn, on
    hosts in a row.
    """
    rng = Random(seed)
    return [_job(f"job{number}", number % 2 == 0, rng) for number in range(count)]


def _job(
    name: str,
    is_ring: bool,
    rng: Random,
) -> Job:
    flows = round(math.exp(rng.uniform(math.log(FEWEST_FLOWS), math.log(MOST_FLOWS))))
    first = rng.randrange(HOSTS)
    if is_ring:
        n = max(3, round((1 + math.sqrt(1 + 2 * flows)) / 2))  # 2 n (n - 1) flows
        workers = [f"h{(first + i) % HOSTS}" for i in range(n)]
        graph = all_reduce(
            workers, Fraction(rng.randint(50, 500), 1000), rng.randint(100, 2000) * 10**6
        )
    else:
        stages = rng.randint(2, 16)
        micro_batches = max(2, round(flows / (2 * (stages - 1))))
        workers = [f"h{(first + i) % HOSTS}" for i in range(stages)]
        forward = Fraction(rng.randint(5, 50), 1000)
        size = rng.randint(1, 50) * 10**6
        graph = gpipe(
            workers,
            micro_batches,
            [forward] * stages,
            [size] * (stages - 1),
            [2 * forward] * stages,
        )
    return Job(name, *graph)


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
        self.lowering = Lowering(self.fabric, dict.fromkeys(self.fabric.switches, able))
        self.version = 0

    def lower(
        self, plan: Plan, identities: Mapping[str, Mapping[str, Identity]]
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
        identities: dict[str, Mapping[str, Identity]] = {
            job.name: {
                flow.name: ShimIdentity(number & 0xFFFF, index)
                for index, flow in enumerate(job.flows)
            }
            for number, job in enumerate((*jobs, more), start=1)
        }
        self.clear(policy)
        plan, plan_s = _timed(lambda: policy.plan(jobs, self.fabric))
        before, lower_s = _timed(lambda: self.lower(plan, identities))
        after, change_s = _timed(lambda: policy.plan([*jobs, more], self.fabric))
        intents, lower_change_s = _timed(lambda: self.lower(after, identities))
        written_before = {id(part) for intent in before.values() for part in intent.parts}
        written = 0
        for intent in intents.values():
            for part in intent.parts:
                if id(part) not in written_before:
                    written += len(part.entries)
        self.clear(policy)
        return Point(len(jobs), len(plan.flows), plan_s, lower_s, change_s, lower_change_s, written)


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    gc.collect()
    begin = process_time()
    out = work()
    return out, process_time() - begin


def exponent(points: Sequence[Point], time_s: Callable[[Point], float]) -> float:
    """Return the slope k of the least-squares line of log(time) over log(n log n), n flows."""
    x = [math.log(point.flows * math.log(point.flows)) for point in points]
    y = [math.log(time_s(point)) for point in points]
    return statistics.linear_regression(x, y).slope


def bench() -> Iterator[tuple[str, float, str]]:
    rig = Rig()
    jobs = jobs_of(101)
    for name in policy_names():
        point = rig.measure(make_policy(name), jobs[:-1], jobs[-1])
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
        task = progress.add_task("planning", total=len(policy_names()) * sum(counts))
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
            of_plan, of_lowering = (
                exponent(points, time_s) for time_s in (lambda p: p.plan_s, lambda p: p.lower_s)
            )
            fitted.add_row(name, f"{of_plan:.2f}", f"{of_lowering:.2f}")
    console = Console()
    console.print(table)
    console.print(fitted)


if __name__ == "__main__":
    main()
