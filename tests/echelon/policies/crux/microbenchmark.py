"""Crux's micro-benchmark (SIGCOMM '24): each of its three mechanisms beside the best of all choices.

A case has up to 20 hosts at 2 to 4 top-of-rack switches, 2 aggregation switches, 5 jobs, and 3 levels. The paper says
no more of its cases. Here, a job is a ring of hosts of its own, in two racks; all links have one rate; a job begins to
communicate at the start, in the middle or at the end of its computing. Utilisation comes from a model of its own
(`tests.reference.gpu_utilisation`). One mechanism is measured at a time:

- paths, each assignment with its best order of jobs; a job's two connections between racks take one switch;
- the order of jobs, on Crux's paths, against all orders;
- levels, for Crux's order on Crux's paths, against all levels that agree with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import permutations, product
from random import Random

from echelon.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.fluid.alone_runs import AloneRuns
from echelon.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.paths import Paths
from echelon.policies.crux.compression import compress, contention
from echelon.policies.crux.intensity import Load, load_of
from echelon.policies.crux.priority import factors
from echelon.policies.crux.routes import LeastCongested
from tests.reference.gpu_utilisation import Cycle, utilisations

JOBS = 5
LEVELS = 3
ORDERS = list(permutations(range(JOBS)))
AGGREGATION = ("agg1", "agg2")
RATE_BPS = 8_000


def fabric_of(racks: int, hosts_per_rack: int) -> Fabric:
    """Every host at its rack, every rack at both aggregation switches."""
    hosts = [f"h{rack}.{k}" for rack in range(racks) for k in range(hosts_per_rack)]
    tors = [f"t{rack}" for rack in range(racks)]
    ends = [(host, 0, f"t{host[1:].split('.')[0]}", 10 + int(host.split(".")[1])) for host in hosts]
    ends += [(tor, 1 + j, agg, 1 + i) for i, tor in enumerate(tors) for j, agg in enumerate(AGGREGATION)]
    return Fabric(
        "racks",
        {h: Host(h, f"10.0.0.{i}", f"02:00:00:00:00:{i:02x}") for i, h in enumerate(hosts, start=1)},
        {name: Switch(name, i) for i, name in enumerate((*tors, *AGGREGATION), start=1)},
        tuple(CableLink(LinkEnd(a, p), LinkEnd(b, q), RATE_BPS, Fraction(0)) for a, p, b, q in ends),
    )


def case(seed: int) -> tuple[Fabric, list[Job]]:
    """Draw a fabric and its jobs."""
    random = Random(seed)
    racks = random.randint(2, 4)
    hosts_per_rack = 20 // racks
    free = {rack: [f"h{rack}.{k}" for k in range(hosts_per_rack)] for rack in range(racks)}
    jobs = []
    for number in range(JOBS):
        # Racks with the most free hosts, so that every job finds two.
        one, other = sorted(free, key=lambda rack: (-len(free[rack]), random.random()))[:2]
        workers = [free[rack].pop() for rack in (one, other) for _ in range(min(random.randint(1, 2), len(free[rack])))]
        compute_ms = random.randint(500, 4000)
        before_ms = compute_ms * random.choice((0, 1, 2)) // 2
        size_bytes = random.randint(300, 3000)
        computes, flows = [], []
        for k, worker in enumerate(workers):
            computes += [
                ComputeUnit(f"before{k}", worker, Fraction(before_ms, 1000)),
                ComputeUnit(f"beside{k}", worker, Fraction(compute_ms - before_ms, 1000), (f"before{k}",)),
            ]
            flows.append(Flow(f"f{k}", worker, workers[(k + 1) % len(workers)], size_bytes, (f"before{k}",)))
        jobs.append(
            Job(f"j{number}", tuple(computes), tuple(flows), (EchelonFlow.coflow("H", (f.name for f in flows)),))
        )
    return fabric_of(racks, hosts_per_rack), jobs


class Bench:
    """One case. Every method returns the utilisation that a mechanism reaches, as a part of the best."""

    def __init__(self, seed: int) -> None:
        self.fabric, self.jobs = case(seed)
        self._alone = AloneRuns().update(self.jobs, self.fabric)
        routes = LeastCongested().route(self.fabric, self.jobs)
        self._loads = self._loads_on(
            {job.name: {flow.name: routes[job.name][flow.src, flow.dst] for flow in job.flows} for job in self.jobs}
        )
        loops = {name: load.loop for name, load in self._loads.items()}
        k = factors(loops, {job.name: sum(flow.size_bytes for flow in job.flows) for job in self.jobs})
        self._priorities = {name: k[name] * float(load.intensity) for name, load in self._loads.items()}

    def path(self) -> float:
        """Crux's paths against all others, each with its best order of jobs."""
        best = self._best_order
        others = (
            max(self._of(self._loads_on(self._paths_over((AGGREGATION[0], *rest))), ORDERS))
            for rest in product(AGGREGATION, repeat=JOBS - 1)
        )
        return best / max(best, *others)

    def priority(self) -> float:
        """Crux's order on Crux's paths against all others."""
        return self._ranked / self._best_order

    def compression(self) -> float:
        """Crux's levels for its order on its paths against all levels that agree with the order."""
        intensities = {name: load.intensity for name, load in self._loads.items()}
        links = {name: frozenset(load.at) for name, load in self._loads.items()}
        edges = contention(self._priorities, intensities, links)
        compressed = compress(self._order, edges, LEVELS, orders=10)
        index = {job.name: k for k, job in enumerate(self.jobs)}
        ours = [-compressed[job.name] for job in self.jobs]
        agreeing = [
            each
            for each in product(range(LEVELS), repeat=JOBS)
            if all(each[index[above]] >= each[index[below]] for above, below in edges)
        ]
        small, *others = self._of(self._loads, [ours, *agreeing])
        return small / max(others)

    @cached_property
    def _order(self) -> list[str]:
        return sorted(self._priorities, key=lambda name: -self._priorities[name])

    @cached_property
    def _ranked(self) -> float:
        return self._of(self._loads, [[-self._order.index(job.name) for job in self.jobs]])[0]

    @cached_property
    def _best_order(self) -> float:
        return max(self._of(self._loads, ORDERS))

    def _loads_on(self, paths: Mapping[str, Paths]) -> dict[str, Load]:
        return {
            job.name: load_of(job, paths[job.name], self.fabric.capacity_Bps, self._alone[job.name])
            for job in self.jobs
        }

    def _paths_over(self, aggregation: Sequence[str]) -> dict[str, Paths]:
        """Each job's connections between racks over one aggregation switch."""
        return {
            job.name: {flow.name: _path(flow, switch) for flow in job.flows}
            for job, switch in zip(self.jobs, aggregation, strict=True)
        }

    def _of(self, loads: Mapping[str, Load], choices: Sequence[Sequence[int]]) -> list[float]:
        """The utilisation of each choice of levels. Choices that order the same jobs that meet the same way are one."""
        cycles = [
            Cycle(
                len(job.workers),
                float(loads[job.name].compute_s),
                float(loads[job.name].communicate_s),
                float(loads[job.name].communicate_after_s),
                frozenset(loads[job.name].at),
            )
            for job in self.jobs
        ]
        meeting = [(a, b) for a in range(JOBS) for b in range(a) if cycles[a].links & cycles[b].links]
        keys = [tuple((of[a] > of[b]) - (of[a] < of[b]) for a, b in meeting) for of in choices]
        different = dict(zip(keys, choices, strict=True))
        known = dict(zip(different, utilisations(cycles, list(different.values())), strict=True))
        return [float(known[key]) for key in keys]


def _path(flow: Flow, switch: str) -> tuple[str, ...]:
    one, other = (f"t{host[1:].split('.')[0]}" for host in (flow.src, flow.dst))
    return (flow.src, one, flow.dst) if one == other else (flow.src, one, switch, other, flow.dst)
