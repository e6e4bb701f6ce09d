"""Crux's micro-benchmark (SIGCOMM '24): each of its three mechanisms beside the best of all
choices.

A case has up to 20 hosts at 2 to 4 top-of-rack switches, 2 aggregation switches, 5 jobs, and 3
levels. The paper says no more of its cases. Here, a job is a ring of hosts of its own, in two
racks; all links have one rate; a job begins to communicate at the start, in the middle or at the
end of its computing. Utilisation comes from a model of its own (`tests.reference.gpu_utilisation`).
Each mechanism is measured alone, and all of them together:

- paths, each assignment with its best order of jobs; a job's two connections between racks take one
  switch;
- the order of jobs, on Crux's paths, against all orders;
- levels, for Crux's order on Crux's paths, against all levels that agree with it;
- Crux's levels on its paths, against all levels on all paths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import permutations, product
from random import Random

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.fluid.alone_runs import AloneRuns
from echelon.planning.paths import Paths
from echelon.planning.policies.crux.compression import Edges, compress, contention
from echelon.planning.policies.crux.intensity import Load, load_of
from echelon.planning.policies.crux.priority import factors
from echelon.planning.policies.crux.routes import LeastCongested
from tests.reference.gpu_utilisation import Cycle, crowds, utilisations

JOBS = 5
LEVELS = 3
ORDERS = list(permutations(range(JOBS)))
WEAK_ORDERS = [
    levels
    for levels in product(range(LEVELS), repeat=JOBS)
    if {*levels} == {*range(max(levels) + 1)}
]
"""All choices of levels, those of the same order once."""
AGGREGATION = ("agg1", "agg2")
RATE_BPS = 8_000


def fabric_of(racks: int, hosts_per_rack: int) -> Fabric:
    """Return a fabric with every host at its rack, and every rack at both aggregation switches."""
    hosts = [f"h{rack}.{k}" for rack in range(racks) for k in range(hosts_per_rack)]
    tors = [f"t{rack}" for rack in range(racks)]
    ends = [(host, 0, f"t{host[1:].split('.')[0]}", 10 + int(host.split(".")[1])) for host in hosts]
    ends += [
        (tor, 1 + j, agg, 1 + i) for i, tor in enumerate(tors) for j, agg in enumerate(AGGREGATION)
    ]
    return Fabric(
        "racks",
        {
            h: Host(h, f"10.0.0.{i}", f"02:00:00:00:00:{i:02x}")
            for i, h in enumerate(hosts, start=1)
        },
        {name: Switch(name, i) for i, name in enumerate((*tors, *AGGREGATION), start=1)},
        tuple(
            CableLink(LinkEnd(a, p), LinkEnd(b, q), RATE_BPS, Fraction(0)) for a, p, b, q in ends
        ),
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
        workers = [
            free[rack].pop()
            for rack in (one, other)
            for _ in range(min(random.randint(1, 2), len(free[rack])))
        ]
        compute_ms = random.randint(500, 4000)
        before_ms = compute_ms * random.choice((0, 1, 2)) // 2
        size_bytes = random.randint(300, 3000)
        computes, flows = [], []
        for k, worker in enumerate(workers):
            computes += [
                ComputeUnit(f"before{k}", worker, Fraction(before_ms, 1000)),
                ComputeUnit(
                    f"beside{k}", worker, Fraction(compute_ms - before_ms, 1000), (f"before{k}",)
                ),
            ]
            flows.append(
                Flow(f"f{k}", worker, workers[(k + 1) % len(workers)], size_bytes, (f"before{k}",))
            )
        jobs.append(
            Job(
                f"j{number}",
                tuple(computes),
                tuple(flows),
                (EchelonFlow.coflow("H", (f.name for f in flows)),),
            )
        )
    return fabric_of(racks, hosts_per_rack), jobs


class Bench:
    """One case.

    Every method returns the utilisation that a mechanism reaches, as a part of the best.
    """

    def __init__(self, seed: int) -> None:
        self.fabric, self.jobs = case(seed)
        self._alone = AloneRuns().update(self.jobs, self.fabric)
        routes = LeastCongested().route(self.fabric, self.jobs)
        self._loads = self._loads_on(
            {
                job.name: {flow.name: routes[job.name][flow.src, flow.dst] for flow in job.flows}
                for job in self.jobs
            }
        )
        self._cycles = self._cycles_of(self._loads)
        loops = {name: load.loop for name, load in self._loads.items()}
        k = factors(
            loops, {job.name: sum(flow.size_bytes for flow in job.flows) for job in self.jobs}
        )
        self._priorities = {
            name: k[name] * float(load.intensity) for name, load in self._loads.items()
        }

    def path(self) -> float:
        """Return the quality of Crux's paths against all others, each in its best order of jobs."""
        best = self._best_order
        return best / max(
            best, *_utilisations([(cycles, order) for cycles in self._others for order in ORDERS])
        )

    def priority(self) -> float:
        """Return the quality of Crux's order on Crux's paths against all others."""
        return self._ranked / self._best_order

    def compression(self) -> float:
        """Return the quality of Crux's levels for its order on its paths against all levels that
        agree with the order.
        """
        index = {job.name: k for k, job in enumerate(self.jobs)}
        agreeing = [
            each
            for each in product(range(LEVELS), repeat=JOBS)
            if all(each[index[above]] >= each[index[below]] for above, below in self._edges)
        ]
        crux, *others = _utilisations(
            [(self._cycles, levels) for levels in (self._compressed, *agreeing)]
        )
        return crux / max(others)

    def together(self) -> float:
        """Return the quality of Crux's levels for its order on its paths against all levels on all
        paths.
        """
        choices = [
            (cycles, levels) for cycles in (self._cycles, *self._others) for levels in WEAK_ORDERS
        ]
        crux, *others = _utilisations([(self._cycles, self._compressed), *choices])
        return crux / max(others)

    @cached_property
    def _order(self) -> list[str]:
        return sorted(self._priorities, key=lambda name: -self._priorities[name])

    @cached_property
    def _ranked(self) -> float:
        return _utilisations([(self._cycles, [-self._order.index(job.name) for job in self.jobs])])[
            0
        ]

    @cached_property
    def _best_order(self) -> float:
        return max(_utilisations([(self._cycles, order) for order in ORDERS]))

    @cached_property
    def _edges(self) -> Edges:
        intensities = {name: load.intensity for name, load in self._loads.items()}
        return contention(
            self._priorities,
            intensities,
            {name: frozenset(load.busy_s) for name, load in self._loads.items()},
        )

    @cached_property
    def _compressed(self) -> list[int]:
        levels = compress(self._order, self._edges, LEVELS, orders=10)
        return [-levels[job.name] for job in self.jobs]

    @cached_property
    def _others(self) -> list[tuple[Cycle, ...]]:
        """The jobs on all other paths.

        The two aggregation switches are alike, so the first job keeps the first.
        """
        return [
            self._cycles_of(self._loads_on(self._paths_over((AGGREGATION[0], *rest))))
            for rest in product(AGGREGATION, repeat=JOBS - 1)
        ]

    def _loads_on(self, paths: Mapping[str, Paths]) -> dict[str, Load]:
        return {
            job.name: load_of(job, paths[job.name], self.fabric.capacity_Bps, self._alone[job.name])
            for job in self.jobs
        }

    def _paths_over(self, aggregation: Sequence[str]) -> dict[str, Paths]:
        """Return each job's paths, those between racks over one aggregation switch."""
        return {
            job.name: {flow.name: _path(flow, switch) for flow in job.flows}
            for job, switch in zip(self.jobs, aggregation, strict=True)
        }

    def _cycles_of(self, loads: Mapping[str, Load]) -> tuple[Cycle, ...]:
        return tuple(
            Cycle(
                len(job.workers),
                float(loads[job.name].compute_s),
                float(loads[job.name].communicate_s),
                float(loads[job.name].communicate_after_s),
                frozenset(loads[job.name].busy_s),
            )
            for job in self.jobs
        )


def _utilisations(choices: Sequence[tuple[Sequence[Cycle], Sequence[int]]]) -> list[float]:
    """Return the utilisation of each choice of paths and levels.

    What cannot differ is simulated once.

    That is so for choices in which the same jobs meet, as long on their busiest links, and in the
    same order.
    """
    together: dict[int, tuple[object, ...]] = {id(cycles): crowds(cycles) for cycles, _ in choices}
    meeting = {
        id(cycles): [
            (a, b) for a in range(JOBS) for b in range(a) if cycles[a].links & cycles[b].links
        ]
        for cycles, _ in choices
    }
    keys = [
        (
            together[id(cycles)],
            tuple(cycle.communicate_s for cycle in cycles),
            tuple(
                (levels[a] > levels[b]) - (levels[a] < levels[b]) for a, b in meeting[id(cycles)]
            ),
        )
        for cycles, levels in choices
    ]
    different = dict(zip(keys, choices, strict=True))
    known = dict(zip(different, utilisations(list(different.values())), strict=True))
    return [float(known[key]) for key in keys]


def _path(flow: Flow, switch: str) -> tuple[str, ...]:
    one, other = (f"t{host[1:].split('.')[0]}" for host in (flow.src, flow.dst))
    return (flow.src, one, flow.dst) if one == other else (flow.src, one, switch, other, flow.dst)
