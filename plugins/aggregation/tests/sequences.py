"""Random sequences of packets: jobs, their fallbacks and switches that lose, repeat and delay what
they are given.

`python -m plugins.aggregation.tests.sequences --count 1000000` runs as many, each from its own
seed, and says how many packets went which way.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import repeat
from math import frexp, ldexp
from random import Random
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from echelon_aggregation.fallback import Fallback
from echelon_aggregation.group import Group
from echelon_aggregation.wire import PORT, Kind, Packet
from echelon_aggregation.worker import Collective, Worker, all_reduce, broadcast, reduce_scatter
from plugins.aggregation.tests.reference_switch import (
    Address,
    Datagram,
    Entry,
    Member,
    Switch,
    Take,
)

AT_ONCE = 500
"""The sequences that a process runs between two reports."""
MOST_EVENTS = 300_000
"""A sequence that goes on for longer than this does not end."""


@dataclass
class Plan:
    """The values that the workers of a job are to add up, and their places."""

    number: int
    workers: int
    leaves: int
    """Switches that have workers; with more than one there is a root above them."""
    window: int
    collectives: int
    restarts: bool
    """Whether all workers begin anew, in another session, in the middle."""
    lowered: bool
    """Whether a worker says that the exponents of some blocks are smaller than they are."""
    by_tree: bool
    passing: frozenset[int]
    """Switches without memory for the job."""
    take: Take


@dataclass
class Weather:
    """The behaviour of the network towards packets."""

    loss: float
    copies: float
    congested: float
    longest: float
    """The longest that a packet takes over one link; the shortest is 1/20 of it."""
    forgets: float
    """The chance that switches lose their memory once."""


@dataclass(eq=False)
class Job:
    """A job in one session."""

    plan: Plan
    group: Group
    workers: list[Worker]
    fallback: Fallback
    given: list[list[Collective]] = field(default_factory=list)
    """The collectives that each worker was given, in order."""
    expected: list[Any] = field(default_factory=list)
    ended: bool = False
    woken_at: dict[int, float] = field(default_factory=dict)
    """The time at which each worker is woken next."""

    def __post_init__(self) -> None:
        self.addresses: list[Address] = [
            (f"host{self.plan.number}.{worker}", 1000 + worker)
            for worker in range(self.plan.workers)
        ]
        self.fallback_address = self.addresses[0][0], PORT
        self.ranks: dict[Address, int | None] = {
            address: rank for rank, address in enumerate(self.addresses)
        }
        """The worker at an address; None for the fallback."""
        self.ranks[self.fallback_address] = None


class Sequence:
    """One sequence, which follows from its seed.

    `make_switch` may make switches that do what the model does, for packets of so many `values`.
    """

    def __init__(
        self, seed: int, make_switch: Callable[[], Switch] = Switch, values: int = 2
    ) -> None:
        self.values = values
        self.rng = rng = Random(seed)
        self.weather = Weather(
            loss=rng.choice([0, 0, 0.01, 0.1, 0.3]),
            copies=rng.choice([0, 0, 0.02, 0.2]),
            congested=rng.choice([0, 0, 0.1, 0.5]),
            longest=rng.choice([0.0001, 0.001, 0.01]),
            forgets=rng.choice([0, 0, 0, 1]),
        )
        take = rng.choice(list(Take))
        jobs = rng.choice([1, 1, 2, 3])
        leaves = rng.choice([1, 1, 2, 3])
        self.plans = [
            Plan(
                number=number,
                workers=rng.randint(1 if jobs > 1 else 2, 5),
                leaves=leaves,
                window=rng.choice([1, 2, 4]),
                collectives=rng.randint(1, 3),
                restarts=rng.random() < 0.2,
                lowered=rng.random() < 0.1,
                by_tree=rng.random() < 0.7,
                passing=frozenset(switch for switch in range(leaves + 1) if rng.random() < 0.1),
                take=take,
            )
            for number in range(1, jobs + 1)
        ]
        self.switches = [make_switch() for _ in range(leaves + 1 if leaves > 1 else 1)]
        self.root = leaves if leaves > 1 else 0
        self.places = rng.choice([1, 2, 4, 8])
        self.ends: dict[tuple[int, int], tuple[int, int] | list[str]] = {}
        """The other end of each port: a switch and its port, or a host's name."""
        self.events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.now = 0.0
        self.number = 0
        self.jobs: list[Job] = []
        self.due_of: dict[int, int] = {}
        self._wire()
        for plan in self.plans:
            self._start(plan, 1)
            if plan.restarts:
                self._at(rng.random() * 0.05, self._on_restart, plan)
        if self.weather.forgets:
            self._at(rng.random() * 0.05, self._on_forget)

    def run(self) -> Counter[str]:
        """Run to the end, check every result, and return what happened."""
        count = 0
        while self.events:
            self.now, _, what, arguments = heappop(self.events)
            what(*arguments)
            count += 1
            assert count < MOST_EVENTS, "it does not end"
        for job in self.jobs:
            if not job.ended:
                self._check(job)
        happened = Counter({"events": count})
        for switch in self.switches:
            happened.update({reason.value: number for reason, number in switch.counted.items()})
        for job in self.jobs:
            happened["asked"] += job.fallback.tally.asked
            happened["added by fallbacks"] += job.fallback.tally.added
            happened["results of fallbacks"] += job.fallback.tally.results
            happened["sent"] += sum(worker.tally.sent for worker in job.workers)
            happened["sent again by workers"] += sum(worker.tally.resent for worker in job.workers)
        return happened

    # -- what is where -----------------------------------------------------------------------------

    def _wire(self) -> None:
        """Give each host a port of its leaf, and each leaf one of the root."""
        leaves = self.plans[0].leaves
        ports: Counter[int] = Counter()
        for plan in self.plans:
            for worker in range(plan.workers):
                leaf = worker % leaves
                host, port = f"host{plan.number}.{worker}", 1 + ports[leaf]
                ports[leaf] += 1
                self.ends[leaf, port] = [host]
                for switch in range(len(self.switches)):
                    up = 0 if switch != self.root else 1 + leaf
                    self.switches[switch].routes[host] = port if switch == leaf else up
        if leaves > 1:
            for leaf in range(leaves):
                self.ends[leaf, 0] = self.root, 1 + leaf
                self.ends[self.root, 1 + leaf] = leaf, 0

    def _start(self, plan: Plan, session: int) -> None:
        """Make the job's cores in a session, and the entries of its tree."""
        group = Group(
            plan.workers,
            plan.number,
            session,
            plan.window,
            values=self.values,
            shared_memory=plan.take != Take.OWN,
            least_timeout_s=0.001,
            most_timeout_s=0.2,
            by_tree=plan.by_tree,
        )
        job = Job(
            plan, group, [Worker(group, rank) for rank in range(plan.workers)], Fallback(group)
        )
        self.jobs.append(job)
        self._fill_tables(job)
        self._draw_work(job)
        for rank in range(plan.workers):
            at = self.now
            for collective in job.given[rank]:
                self._at(at, self._on_submit, job, rank, collective)
                at += self.rng.choice([0.0, 0.0, self.rng.random() * 0.02])

    def _fill_tables(self, job: Job) -> None:
        plan, group = job.plan, job.group
        key = group.tree, group.session
        leaf_of = [worker % plan.leaves for worker in range(plan.workers)]
        above: dict[int, int] = {}
        for leaf in range(plan.leaves):
            switch = self.switches[leaf]
            members = [worker for worker in range(plan.workers) if leaf_of[worker] == leaf]
            bits = sum(1 << worker for worker in members)
            if not bits:
                continue
            above[leaf] = bits
            for worker in members:
                kind = Member.FALLBACK if worker == 0 else Member.CHILD
                switch.members[group.tree, switch.routes[job.addresses[worker][0]]] = (
                    kind,
                    1 << worker,
                )
            children = tuple(
                (switch.routes[job.addresses[worker][0]], job.addresses[worker])
                for worker in members
            )
            if leaf != self.root:
                switch.members[group.tree, 0] = Member.PARENT, 0
            self._entry(job, leaf, bits, children, 0 if leaf != self.root else None)
        if plan.leaves > 1:
            root = self.switches[self.root]
            for leaf, bits in above.items():
                root.members[group.tree, 1 + leaf] = (
                    Member.FALLBACK if bits & 1 else Member.CHILD,
                    bits,
                )
            # A switch that passes packets on does not multiply results: its workers are the root's
            # own children.
            direct = [(1 + leaf, None) for leaf in above if leaf not in plan.passing]
            copies = [
                (1 + leaf_of[worker], job.addresses[worker])
                for worker in range(plan.workers)
                if leaf_of[worker] in plan.passing
            ]
            self._entry(job, self.root, group.everyone, (*direct, *copies), None)
        for switch in self.switches:
            switch.holders[key] = job.addresses[plan.workers - 1], job.fallback_address

    def _entry(
        self,
        job: Job,
        at: int,
        bits: int,
        children: tuple[tuple[int, Address | None], ...],
        parent: int | None,
    ) -> None:
        plan, places = job.plan, self.places
        if plan.take == Take.OWN:
            first, start = (plan.number - 1) * 2 * plan.window, 0
            places = 2 * plan.window
        else:
            first, start = 0, self.rng.randrange(places)
        entry = Entry(first, places - 1, bits, children, start, plan.take, parent)
        self.switches[at].trees[job.group.tree, job.group.session] = (
            None if at in plan.passing else entry
        )

    # -- what is added up, and what must come out --------------------------------------------------

    def _draw_work(self, job: Job) -> None:
        rng, workers = self.rng, job.plan.workers
        job.given = [[] for _ in range(workers)]
        for _ in range(job.plan.collectives):
            kind = rng.choice(["int", "float", "float", "scatter", "broadcast"])
            size = rng.randint(1, 9) if kind != "scatter" else workers * rng.randint(1, 3)
            if kind in ("int", "broadcast"):
                arrays = [_drawn(rng, size) for _ in range(workers)]
                root = rng.randrange(workers)
                for rank, array in enumerate(arrays):
                    whole = all_reduce(array) if kind == "int" else broadcast(array, rank == root)
                    job.given[rank].append(whole)
                used = arrays if kind == "int" else [arrays[root]]
                sums = [sum(int(array[at]) for array in used) for at in range(size)]
                job.expected.append(
                    np.array([(total + 2**31) % 2**32 - 2**31 for total in sums], np.int32)
                )
                continue
            reals = [
                np.array([_real(rng) for _ in range(size)], np.float32) for _ in range(workers)
            ]
            for rank, array in enumerate(reals):
                made = (
                    all_reduce(array) if kind == "float" else reduce_scatter(array, rank, workers)
                )
                job.given[rank].append(made)
            job.expected.append(_sum_of_reals(reals, job.group.values))

    def _check(self, job: Job) -> None:
        """Raise `AssertionError` unless all workers have the exact sums."""
        for number, expected in enumerate(job.expected):
            for rank, given in enumerate(job.given):
                collective = given[number]
                assert collective.done, f"{job.plan}: worker {rank} lacks collective {number}"
                part = expected[collective.start : collective.start + len(collective.result)]
                if job.plan.lowered and collective.is_real:
                    # A sum on a coarser scale is within its bound; exact sums on the finest one are
                    # `expected`.
                    first = job.given[0][number]
                    off = np.abs(collective.result.astype(np.float64) - part.astype(np.float64))
                    assert (off <= 2 * collective.bound + np.abs(part) * 2.0**-23).all()
                    if len(first.result) == len(expected):
                        assert first.result.tobytes() == collective.result.tobytes()
                else:
                    assert part.tobytes() == collective.result.tobytes(), (
                        f"{job.plan}: {part} {collective.result}"
                    )
        for worker in job.workers:
            assert worker.next_wake is None
            assert not worker.waits_for

    # -- events ------------------------------------------------------------------------------------

    def _at(self, time: float, what: Callable[..., None], *arguments: Any) -> None:
        self.number += 1
        heappush(self.events, (time, self.number, what, arguments))

    def _on_submit(self, job: Job, rank: int, collective: Collective) -> None:
        if not job.ended:
            self._from_worker(job, rank, job.workers[rank].submit(collective, self.now))

    def _on_wake(self, job: Job, rank: int) -> None:
        if job.woken_at.get(rank) == self.now:
            del job.woken_at[rank]
            if not job.ended:
                self._from_worker(job, rank, job.workers[rank].wake(self.now))

    def _on_restart(self, plan: Plan) -> None:
        old = next(job for job in self.jobs if job.plan is plan)
        old.ended = True
        self._start(plan, 2)
        if self.rng.random() < 0.5:
            for switch in self.switches:
                switch.trees.pop((plan.number, 1), None)

    def _on_forget(self) -> None:
        self.rng.choice(self.switches).places.clear()

    def _on_arrive(self, switch: int, port: int, datagram: Datagram) -> None:
        due = self.due_of.get(datagram.packet.tree, 0)
        if self.rng.random() < 0.1:
            self.due_of[datagram.packet.tree] = due = self.rng.randrange(100)
        congested = self.rng.random() < self.weather.congested or datagram.congested
        packet, src, dst, _, _ = datagram
        for out, sent in self.switches[switch].receive(
            port, Datagram(packet, src, dst, due, congested)
        ):
            end = self.ends[switch, out]
            if isinstance(end, tuple):
                self._carry(self._on_arrive, *end, sent)
            else:
                self._carry(self._on_deliver, end[0], sent)

    def _on_deliver(self, host: str, datagram: Datagram) -> None:
        assert host == datagram.dst[0], f"{datagram} came to {host}"
        for job in self.jobs:
            if job.ended or datagram.dst not in job.ranks:
                continue
            rank = job.ranks[datagram.dst]
            if rank is not None:
                self._from_worker(job, rank, job.workers[rank].receive(datagram.packet, self.now))
                continue
            for to, packet in job.fallback.receive(datagram.packet, self.now):
                self._send(Datagram(packet, job.fallback_address, job.addresses[to or 0]), host)

    def _from_worker(self, job: Job, rank: int, packets: list[Packet]) -> None:
        host = job.addresses[rank][0]
        for packet in packets:
            if job.plan.lowered and packet.kind == Kind.CONTRIBUTION and packet.block % 3 == 0:
                packet = replace(packet, next_exponent=max(packet.next_exponent - 20, 0))
            self._send(Datagram(packet, job.addresses[rank], job.fallback_address), host)
        at = job.workers[rank].next_wake
        if at is not None and at < job.woken_at.get(rank, at + 1):
            job.woken_at[rank] = at = max(at, self.now)
            self._at(at, self._on_wake, job, rank)

    def _send(self, datagram: Datagram, host: str) -> None:
        leaf = int(host.partition(".")[2]) % self.plans[0].leaves
        self._carry(self._on_arrive, leaf, self.switches[leaf].routes[host], datagram)

    def _carry(self, what: Callable[..., None], *arguments: Any) -> None:
        """Lose, delay or repeat a packet."""
        rng, weather = self.rng, self.weather
        if rng.random() >= weather.loss:
            self._at(self.now + weather.longest * rng.uniform(0.05, 1), what, *arguments)
        while rng.random() < weather.copies:
            # A copy may come after the block, or the session, has ended.
            self._at(
                self.now + weather.longest * rng.choice([1, 20]) * rng.random(), what, *arguments
            )


def _drawn(rng: Random, size: int) -> NDArray[np.int32]:
    most = rng.choice([10, 2**31 - 1])
    return np.array([rng.randint(-most, most) for _ in range(size)], np.int32)


def _real(rng: Random) -> float:
    return rng.choice(
        [0.0, 0.0, rng.uniform(-1, 1), ldexp(rng.uniform(-1, 1), rng.randint(-160, 126))]
    )


def _sum_of_reals(arrays: list[NDArray[np.float32]], chunk: int) -> NDArray[np.float32]:
    """Return what the page says comes out, by Python's own numbers."""
    workers, found = len(arrays), []
    growth = next(bits for bits in range(6) if 2**bits >= workers)
    for at in range(0, len(arrays[0]), chunk):
        parts = [[float(value) for value in array[at : at + chunk]] for array in arrays]
        sizes = [frexp(value)[1] + 126 for part in parts for value in part if value]
        power = max(max(sizes, default=0), 1) + growth - 156
        for place in range(len(parts[0])):
            total = sum(round(ldexp(part[place], -power)) for part in parts)
            found.append(ldexp(total, power))
    return np.array(found, np.float32)


def run_many(seeds: Iterable[int], on: str = "model") -> Counter[str]:
    """Run the sequences of these seeds. Raise `AssertionError` with the seed of one that fails.

    On "softswitch", "bmv2" or "tofino" each packet goes through the P4 program as well, which must
    do what the model does.
    """
    happened: Counter[str] = Counter()
    with ExitStack() as closing:
        switches = None if on == "model" else closing.enter_context(_programs(on))
        for seed in seeds:
            try:
                happened.update(Sequence(seed).run() if switches is None else switches.run(seed))
            except Exception as error:
                raise AssertionError(f"the sequence of seed {seed}: {error!r}") from error
            happened["sequences"] += 1
    return happened


def _programs(on: str) -> AbstractContextManager[Any]:
    # A thousand sequences of the model run before these are imported.
    if on == "tofino":
        from plugins.aggregation.tests.tofino_switch import tofino_programs

        return tofino_programs()
    from plugins.aggregation.tests.program_switch import programs

    return programs(on)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--on", choices=["model", "softswitch", "bmv2", "tofino"], default="model")
    given = parser.parse_args()
    happened: Counter[str] = Counter()
    last, began = given.seed + given.count, monotonic()
    with ProcessPoolExecutor(given.processes) as pool:
        parts = [range(at, min(at + AT_ONCE, last)) for at in range(given.seed, last, AT_ONCE)]
        for counted in pool.map(run_many, parts, repeat(given.on)):
            happened.update(counted)
            rate = happened["sequences"] / (monotonic() - began)
            print(f"{happened['sequences']:>15,} sequences, {rate:.1f} a second", file=sys.stderr)
    for what, number in happened.most_common():
        print(f"{number:>15,} {what}")


if __name__ == "__main__":
    main()
