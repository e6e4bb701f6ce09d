"""`python -m bench bound`: how far plans are from the least that any schedule of links can reach.

Small random groups of two or three jobs between the same two leaves run in the fluid model, each
long enough that its start does not matter. `tests.reference.best_order` has the bound, which holds
for all schedules: any rates, at any time, with knowledge of all that comes. The distance is the part
by which the mean slowdown of the jobs is above it. No schedule without such knowledge need reach it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from random import Random
from statistics import fmean, median, quantiles

from rich.console import Console
from rich.table import Table

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, IterationGraph, Job
from echelon.model.jobs.paradigms.data import all_reduce, bucketed_all_reduce
from echelon.model.jobs.pipelines import gpipe
from echelon.planning.fluid import alone_iteration_s, simulate
from echelon.planning.fluid.slowdown import slowdown
from echelon.planning.plan import Plan
from echelon.planning.policies import make_policy
from echelon.planning.policies.echelon.candidates import candidates
from echelon.planning.policies.echelon.policy import Echelon
from tests.reference.best_order import Bound, TooManyStatesError, best_mean_slowdown

POLICIES = ("echelon", "fair", "crux", "srpt")
BEST = "best candidate"
"""The best of all plans that `echelon` chooses from, in hindsight."""
UNIT_S = Fraction(1, 100)
UNIT_BYTES = 10_000
RATE_BPS = 8 * UNIT_BYTES * 100
LEAST_LOAD = 0.8
MOST_LOAD = 1.5
"""What the jobs of a group ask for of the busier direction: with less, any order does."""
ITERATIONS = 150
"""The length of a run, in iterations of the slowest job alone; the first third does not count."""
MOST_STATES = 250_000
Workers = tuple[str, str]


def leaves(count: int) -> Fabric:
    """Return two leaves with so many hosts each and one link between them, all as fast."""
    left_end = LinkEnd("leaf-a", 0)
    right_end = LinkEnd("leaf-b", 0)
    cables = [_cable(left_end, right_end)]
    hosts = {}
    for number in range(2 * count):
        side = "ab"[number % 2]
        port = number // 2
        name = f"{side}{port}"
        hosts[name] = Host(name, f"10.0.0.{number + 1}", f"02:00:00:00:00:{number + 1:02x}")
        leaf_end = LinkEnd(f"leaf-{side}", port + 1)
        cables.append(_cable(LinkEnd(name, 0), leaf_end))
    switches = {
        "leaf-a": Switch("leaf-a", 1),
        "leaf-b": Switch("leaf-b", 2),
    }
    return Fabric("leaves", hosts, switches, tuple(cables))


def _cable(end: LinkEnd, other: LinkEnd) -> CableLink:
    return CableLink(end, other, RATE_BPS, Fraction(0))


def direction(flow: Flow) -> str:
    """Return the one link that a flow shares with other jobs."""
    return flow.src[0]


# -- groups ----------------------------------------------------------------------------------------


def group(seed: int) -> list[Job]:
    """Return the jobs of a group: the same for the same number."""
    random = Random(f"bound {seed}")
    while True:
        count = random.choice((2, 2, 3))
        jobs = [_drawn(random, number) for number in range(count)]
        if LEAST_LOAD <= _load(jobs) <= MOST_LOAD:
            return jobs


def _drawn(random: Random, number: int) -> Job:
    draw = random.choice((_data, _parts, _buckets, _pipeline))
    workers = f"a{number}", f"b{number}"
    if random.random() < 0.5:
        workers = workers[1], workers[0]
    start_s = random.randrange(20) * UNIT_S
    graph = draw(random, workers)
    job = Job(f"job{number}", *graph)
    return replace(job, start_s=start_s)


def _data(random: Random, workers: Workers) -> IterationGraph:
    """Computing, and then an all-reduce in two rounds."""
    compute_s = random.randint(4, 20) * UNIT_S
    chunk_bytes = random.randint(2, 8) * UNIT_BYTES
    return all_reduce(workers, compute_s, 2 * chunk_bytes)


def _parts(random: Random, workers: Workers) -> IterationGraph:
    """Computing and sending in turns, in one direction."""
    computes = []
    flows = []
    groups = []
    after: tuple[str, ...] = ()
    for part in range(random.randint(1, 3)):
        duration_s = random.randint(2, 10) * UNIT_S
        size_bytes = random.randint(2, 10) * UNIT_BYTES
        unit = ComputeUnit(f"compute{part}", workers[0], duration_s, after)
        flow = Flow(f"flow{part}", *workers, size_bytes, (unit.name,))
        after = (flow.name,)
        computes.append(unit)
        flows.append(flow)
        coflow = EchelonFlow.coflow(f"part{part}", after)
        groups.append(coflow)
    return IterationGraph(tuple(computes), tuple(flows), tuple(groups))


def _buckets(random: Random, workers: Workers) -> IterationGraph:
    """An all-reduce in buckets, while computing goes on."""
    buckets = random.randint(2, 3)
    forward_s = random.randint(2, 6) * UNIT_S
    bucket_s = random.randint(1, 5) * UNIT_S
    chunk_bytes = random.randint(1, 4) * UNIT_BYTES
    backward_s = buckets * bucket_s
    size_bytes = 2 * buckets * chunk_bytes
    return bucketed_all_reduce(workers, forward_s, backward_s, buckets, size_bytes)


def _pipeline(random: Random, workers: Workers) -> IterationGraph:
    forward_s = []
    backward_s = []
    for _ in workers:
        stage_s = random.randint(1, 3) * UNIT_S
        forward_s.append(stage_s)
        backward_s.append(2 * stage_s)
    activation_bytes = random.randint(1, 5) * UNIT_BYTES
    micro_batches = random.randint(2, 4)
    return gpipe(workers, micro_batches, forward_s, [activation_bytes], backward_s)


def _load(jobs: Sequence[Job]) -> float:
    """Return the part of the busier direction that the jobs ask for if each runs as if alone."""
    fabric = leaves(len(jobs))
    loads = dict.fromkeys("ab", 0.0)
    for job in jobs:
        alone_s = float(alone_iteration_s(job, fabric))
        for flow in job.flows:
            sent_s = flow.size_bytes * 8 / RATE_BPS
            loads[direction(flow)] += sent_s / alone_s
    return max(loads.values())


# -- runs ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """A group with its bound, and the mean slowdowns that plans reach."""

    seed: int
    jobs: int
    bound: Bound
    slowdowns: Mapping[str, float]

    def distance(self, plan: str) -> float:
        """Return the part by which the mean slowdown under a plan is above the bound."""
        return self.slowdowns[plan] / self.bound.least - 1


def measured(seed: int) -> Measured | None:
    """Return the figures of a group; None: it has too many states."""
    jobs = group(seed)
    fabric = leaves(len(jobs))
    try:
        bound = best_mean_slowdown(jobs, UNIT_S, UNIT_BYTES, direction, most_states=MOST_STATES)
    except TooManyStatesError:
        return None
    slowdowns = {}
    for policy in POLICIES:
        plan = _planned(policy, jobs, fabric)
        slowdowns[policy] = _mean_slowdown(jobs, fabric, plan, bound)
    hindsight = []
    for candidate in candidates(several_paths=False):
        plan = candidate.new_policy().plan(jobs, fabric)
        mean = _mean_slowdown(jobs, fabric, plan, bound)
        hindsight.append(mean)
    slowdowns[BEST] = min(hindsight)
    return Measured(seed, len(jobs), bound, slowdowns)


def _planned(
    name: str,
    jobs: Sequence[Job],
    fabric: Fabric,
) -> Plan:
    policy = make_policy(name)
    # Other policies have one plan, which takes no search.
    if isinstance(policy, Echelon):
        return policy.best_plan(jobs, fabric)
    return policy.plan(jobs, fabric)


@dataclass(frozen=True)
class _Fixed:
    """A source of one plan."""

    result: Plan

    def plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan:
        return self.result


def _mean_slowdown(
    jobs: Sequence[Job],
    fabric: Fabric,
    plan: Plan,
    bound: Bound,
) -> float:
    end_s = ITERATIONS * max(bound.alone) * UNIT_S
    run = simulate(jobs, fabric, _Fixed(plan), None, until=end_s)
    slowdowns = []
    for job, units in zip(jobs, bound.alone, strict=True):
        record = run.jobs[job.name]
        alone_s = float(units * UNIT_S)
        job_slowdown = slowdown(record, float(end_s), alone_s)
        slowdowns.append(job_slowdown)
    return fmean(slowdowns)


# -- the command -----------------------------------------------------------------------------------


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench bound", description=__doc__)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the number of the first group")
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args(words)
    seeds = range(arguments.first, arguments.first + arguments.groups)
    results = []
    with ProcessPoolExecutor(arguments.processes) as pool:
        measurements = pool.map(measured, seeds)
        for seed, result in zip(seeds, measurements, strict=True):
            if result is None:
                line = f"group {seed}: more than {MOST_STATES:,} states"
            else:
                results.append(result)
                line = _line(result)
            # Large groups take a minute: who waits sees how far it is.
            print(line, file=sys.stderr, flush=True)
    table = Table("plan", "groups", "median", "90 %", "largest", "mean", "of group")
    for row in rows(results):
        table.add_row(*row)
    Console().print(table)


def _line(result: Measured) -> str:
    bound = result.bound
    words = [
        f"group {result.seed}: {result.jobs} jobs, {bound.states:,} states,",
        f"bound {bound.least:.4f} to {bound.reached:.4f}",
    ]
    for plan in result.slowdowns:
        words.append(f"{plan} {result.distance(plan):+.3%}")
    return " ".join(words)


def rows(results: Sequence[Measured]) -> Iterator[Sequence[str]]:
    """Yield the distances of each plan to the bound, as cells."""
    for plan in (*POLICIES, BEST):
        distances = [result.distance(plan) for result in results]
        [*_, ninetieth] = quantiles(distances, n=10, method="inclusive")
        largest = max(results, key=_distance_under(plan))
        figures = [
            median(distances),
            ninetieth,
            max(distances),
            fmean(distances),
        ]
        cells = [f"{figure:.1%}" for figure in figures]
        yield plan, str(len(results)), *cells, str(largest.seed)


def _distance_under(plan: str) -> Callable[[Measured], float]:
    return partial(Measured.distance, plan=plan)
