"""Measure the time that a whole cluster takes.

The command is `python -m bench.cluster [HOSTS:JOBS ...] [POLICY ...]`.

`--packets SCALE`, such as 1/1000, also runs the same cluster packet by packet, with rates and sizes
so much smaller.

A job has 4, 8, 16 or 64 hosts in a row: 3D with two stages, a pipeline, FSDP or a mixture of
experts, in turn. Each host has as many jobs as `JOBS` make it, and all of them together would load
its link to 80 %, or less if there are fewer hosts of jobs than hosts. Only jobs of 64 hosts have
more than one leaf. The fabric is a leaf-spine of 100 Gbit/s, two to one oversubscribed, with 32
hosts at a leaf.

For each size and policy, a process of its own makes the scenario (`echelon.scenario`), computes
each job alone, plans, and runs two iterations of each job on the fluid engine. Times are seconds of
the processor, memory is the most that the process had until then.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from functools import partial
from multiprocessing import get_context
from random import Random
from statistics import fmean
from time import monotonic, process_time
from typing import NamedTuple

import echelon
from echelon.planning.policies import make_policy
from echelon.switches.targets.virtual import VirtualSwitches
from echelon_lab.endhosts.emulator import TrainingEmulator
from echelon_lab.scenarios.results import PolicyRun, alone_iterations_s
from echelon_lab.scenarios.scale import scaled
from echelon_lab.scenarios.scenario import Scenario
from echelon_lab.virtual import fluid_run, run

SIZES = ("1024:1000", "8192:1000")
POLICIES = ("fair", "echelon")
HOSTS_PER_LEAF = 32
RATE_BPS = 100 * 10**9
LOAD = 0.8
"""The load of a host's link by all its jobs together, if none of them were slowed down."""
MOST_S = 0.25
"""The longest time that a job sends in an iteration, alone."""

Document = Mapping[str, object]


def jobs_of(
    count: int,
    hosts: int,
    seed: int = 1,
) -> Iterator[Document]:
    """Yield the jobs' documents: first those whose hosts begin at h1, then around the cluster."""
    random = Random(seed)
    first = 0
    sizes = []
    for _ in range(count):
        [size] = random.choices((4, 8, 16, 64), (8, 8, 3, 1))
        sizes.append(size)
    use = min(LOAD, LOAD * hosts / sum(sizes))
    for number, size in enumerate(sizes):
        places = range(first, first + size)
        workers = [f"h{place % hosts + 1}" for place in places]
        first += size
        sends_s = random.uniform(MOST_S / 5, MOST_S)
        start_ms = random.randrange(1000)
        computes_s = sends_s * (1 - use) / use
        yield {
            "job": f"job{number}",
            "workers": workers,
            "start": f"{start_ms} ms",
            **_paradigm(number % 4, size, sends_s, computes_s),
        }


def _paradigm(
    kind: int,
    size: int,
    sends_s: float,
    computes_s: float,
) -> Document:
    """Return the paradigm of a job whose hosts send for `sends_s` of an iteration, and compute for
    `computes_s`.
    """
    sent_bytes = sends_s * RATE_BPS / 8
    part = (size - 1) / size
    match kind:
        case 0:
            # Activations are small beside gradients; a ring of n replicas sends 2 (n - 1) / n of
            # them.
            replicas = size // 2
            section: Document = {
                "data": replicas,
                "pipeline": 2,
                "micro_batches": 4,
                "forward": _time(computes_s / 3 / 5),
                "backward": _time(computes_s * 2 / 3 / 5),
                "activation": _bytes(sent_bytes / 100),
                "gradient": _bytes(sent_bytes * replicas / (2 * (replicas - 1))),
            }
            return {"parallelism": "mesh", "mesh": section}
        case 1:
            # While it fills and drains, a pipeline of n stages takes the time of n - 1
            # micro-batches more.
            forward_s = computes_s / 3 / (4 + size - 1)
            section = {
                "micro_batches": 4,
                "forward": _time(forward_s),
                "backward": _time(2 * forward_s),
                "activation": _bytes(sent_bytes / 4),
            }
            return {"parallelism": "pipeline", "pipeline": section}
        case 2:
            section = {
                "layers": 4,
                "forward": _time(computes_s / 12),
                "backward": _time(computes_s / 6),
                "parameters": _bytes(sent_bytes / (3 * part) / 4),
            }
            return {"parallelism": "fsdp", "fsdp": section}
        case _:
            # Experts are shared by the 4 hosts of a group; the groups' gradients are a tenth of
            # what is sent.
            replicas = size // 4
            section = {
                "group": 4,
                "layers": 2,
                "attention": _time(computes_s / 18),
                "expert": _time(computes_s / 9),
                "tokens": _bytes(sent_bytes * 4 / 3 / 8),
            }
            if replicas > 1:
                section["gradient"] = _bytes(sent_bytes / 10)
            return {"parallelism": "expert", "expert": section}


def _time(time_s: float) -> str:
    return f"{round(time_s * 10**6)} us"


def _bytes(size_bytes: float) -> str:
    return f"{round(size_bytes)} B"


class Measured(NamedTuple):
    """A scenario under one policy: processor seconds, and megabytes."""

    flows: int
    scenario_s: float
    scenario_mb: float
    alone_s: float
    plan_s: float
    plan_mb: float
    run_s: float
    run_mb: float
    slowdowns: Mapping[str, float]
    """of each job: the mean of its iterations, against alone"""


def measure(
    hosts: int,
    jobs: int,
    policy: str,
    scale: Fraction,
) -> Measured:
    begin = process_time()
    scenario = _scenario(hosts, jobs, policy, scale)
    built = process_time()
    built_mb = _peak_mb()
    alone_s = alone_iterations_s(scenario)
    ran_alone = process_time()
    planner = make_policy(policy)
    planner.plan(scenario.jobs, scenario.fabric)
    planned = process_time()
    planned_mb = _peak_mb()
    plan_s = planned - ran_alone
    fluid = fluid_run.run(scenario, policy, partial(make_policy, policy), unseen)
    # The run plans once more.
    run_s = process_time() - planned - plan_s
    flows = [len(job.flows) for job in scenario.jobs]
    return Measured(
        sum(flows),
        built - begin,
        built_mb,
        ran_alone - built,
        plan_s,
        planned_mb,
        run_s,
        _peak_mb(),
        _slowdowns(fluid, alone_s),
    )


def unseen(_job: str, _iteration: int) -> None:
    """Show no progress."""


class Packets(NamedTuple):
    """A run packet by packet: packets that switches sent, processor and real seconds, megabytes."""

    sent: int
    run_s: float
    real_s: float
    run_mb: float
    slowdowns: Mapping[str, float]


def by_packets(
    hosts: int,
    jobs: int,
    policy: str,
    scale: Fraction,
) -> Packets:
    scenario = _scenario(hosts, jobs, policy, scale)
    sent = 0

    def count(switches: VirtualSwitches, _emulator: TrainingEmulator) -> None:
        nonlocal sent
        sent = sum(switch.packets_out for switch in switches.switches.values())

    begin = process_time()
    begin_real = monotonic()
    done = run.run(scenario, policy, partial(make_policy, policy), unseen, count)
    run_s = process_time() - begin
    real_s = monotonic() - begin_real
    peak_mb = _peak_mb()
    slowdowns = _slowdowns(done, alone_iterations_s(scenario))
    return Packets(sent, run_s, real_s, peak_mb, slowdowns)


def _scenario(
    hosts: int,
    jobs: int,
    policy: str,
    scale: Fraction,
) -> Scenario:
    leaves = hosts // HOSTS_PER_LEAF
    fabric = echelon.fabrics.leaf_spine(leaves, 16, HOSTS_PER_LEAF, 2, RATE_BPS)
    document = {
        "fabric": fabric,
        "jobs": list(jobs_of(jobs, hosts)),
        "iterations": 2,
        "until": "exactly",
    }
    scenario = echelon.scenario(document, [policy])
    return scaled(scenario, scale).scenario


def _slowdowns(ran: PolicyRun, alone_s: Mapping[str, Fraction]) -> Mapping[str, float]:
    """Return how many times as long as alone each job's iterations took in the mean."""
    slowdowns = {}
    for job, record in ran.records.items():
        total = 0.0
        for iteration in record.finished:
            if iteration.finish is not None:
                duration_s = iteration.finish - iteration.start
                total += float(duration_s / alone_s[job])
        slowdowns[job] = total / len(record.finished)
    return slowdowns


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster")
    parser.add_argument(
        "chosen",
        nargs="*",
        metavar="HOSTS:JOBS|POLICY",
    )
    parser.add_argument(
        "--packets",
        type=Fraction,
        metavar="SCALE",
        help="also packet by packet, for example 1/1000",
    )
    options = parser.parse_args()
    sizes = [word for word in options.chosen if ":" in word] or SIZES
    policies = [word for word in options.chosen if ":" not in word] or POLICIES
    heads: tuple[str, ...] = (
        "hosts",
        "jobs",
        "flows",
        "policy",
        "scenario, s",
        "alone, s",
        "plan, s",
        "run, s",
    )
    heads += ("memory: scenario, MB", "plan, MB", "run, MB", "mean slowdown")
    if options.packets:
        heads += (
            "packets: sent by switches",
            "processor, s",
            "real, s",
            "MB",
            "mean slowdown",
            "jobs apart: mean",
            "most",
        )
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|", flush=True)
    for size in sizes:
        hosts, jobs = map(int, size.split(":"))
        for policy in policies:
            with ProcessPoolExecutor(2, get_context("spawn"), max_tasks_per_child=1) as processes:
                scale = options.packets or Fraction(1)
                measured = processes.submit(measure, hosts, jobs, policy, scale).result()
                cells: tuple[str, ...] = (
                    f"{hosts:,}",
                    f"{jobs:,}",
                    f"{measured.flows:,}",
                    f"`{policy}`",
                )
                times_s = (measured.scenario_s, measured.alone_s, measured.plan_s, measured.run_s)
                cells += tuple(f"{time_s:.1f}" for time_s in times_s)
                cells += tuple(
                    f"{mb:,.0f}" for mb in (measured.scenario_mb, measured.plan_mb, measured.run_mb)
                )
                cells += (f"{fmean(measured.slowdowns.values()):.3f}",)
                if options.packets:
                    packets = processes.submit(by_packets, hosts, jobs, policy, scale).result()
                    apart = []
                    for job, slowdown in measured.slowdowns.items():
                        apart.append(abs(packets.slowdowns[job] / slowdown - 1))
                    cells += (
                        f"{packets.sent:,}",
                        f"{packets.run_s:.1f}",
                        f"{packets.real_s:.1f}",
                        f"{packets.run_mb:,.0f}",
                    )
                    cells += (
                        f"{fmean(packets.slowdowns.values()):.3f}",
                        f"{fmean(apart):.1%}",
                        f"{max(apart):.1%}",
                    )
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
