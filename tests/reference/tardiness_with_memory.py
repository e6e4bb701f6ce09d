"""Jobs in closed loop ranked by tardiness with memory, as a fluid in small steps of time.

It knows links and jobs of two kinds only, and finds neither crossings nor finishes ahead of time:
it ranks anew after each tick. A job is data-parallel (its flows start together, on one link or
more) or a pipeline (each hop sends one flow for each micro-batch). All times are in one unit, links
carry one unit of bytes in one unit of time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

STEPS = (0.001, 0.03, 0.08, 0.15, 0.3, 0.6)
_SENT = 1e-6
Ports = tuple[str, ...]


@dataclass
class Job:
    """A job; `hops` are the ports of each of its flows, or of each boundary between stages."""

    kind: Literal["data", "pipeline"]
    compute: float
    size: float
    micro_batches: int
    hops: list[Ports]
    start: float
    offsets: list[float] = field(init=False)
    """The starts of the first flow of each hop in an iteration alone."""
    tardiness: float = field(init=False)
    """The largest e - d alone."""
    alone: float = field(init=False)

    def __post_init__(self) -> None:
        self.offsets, self.tardiness = [], 0.0
        arrived = [0.0] * self.micro_batches
        if self.kind == "data":
            self.offsets, self.tardiness, self.alone = (
                [self.compute],
                self.size,
                self.compute + self.size,
            )
            return
        for stage in range(len(self.hops) + 1):
            free = sent = first = 0.0
            out = []
            for m, there in enumerate(arrived):
                free = max(free, there) + self.compute
                first = first or free
                sent = max(sent, free) + self.size
                out.append(sent)
                if stage < len(self.hops):
                    self.tardiness = max(self.tardiness, sent - first - m * self.compute)
            if stage < len(self.hops):
                self.offsets.append(first)
            arrived, self.alone = out, free

    @property
    def busy(self) -> float:
        """The time for which the job's busiest link is busy in an iteration."""
        return self.size * self.micro_batches

    @property
    def unit(self) -> float:
        """The iteration time alone, times the square root of the links in use.

        The links of the two hosts of a hop are not ports of the model; they are a hundred times as
        fast.
        """
        links = sum(len(ports) + 0.02 for ports in self.hops)
        return math.sqrt(self.alone * self.busy * links)


@dataclass
class _Flow:
    job: int
    hop: int
    number: int
    ports: Ports
    left: float
    due: float
    rank: float = 0.0
    rate: float = 0.0


class _State:
    def __init__(self) -> None:
        self.memory = 0.0
        self.times: list[float] = []

    def begin(self, job: Job, now: float) -> None:
        self.begun, self.latest, self.reference = now, float("-inf"), None
        stages = 1 if job.kind == "data" else len(job.hops) + 1
        self.computed = [0] * stages
        self.busy_until: list[float | None] = [None] * stages
        self.arrived = [[False] * job.micro_batches for _ in range(stages)]
        self.unsent = len(job.hops)

    reference: float | None


def slowdowns(jobs: Sequence[Job], levels: bool, horizon: float, tick: float) -> list[float]:
    """Return the mean iteration time of each job over its time alone, once a third of its
    iterations have passed.

    Ranks are continuous or, with `levels`, steps below the most urgent flow at each port; at all of
    its ports, a flow has the lowest level that it has at any. Flows of one rank share max-min.
    """
    states = [_State() for _ in jobs]
    for job, state in zip(jobs, states, strict=True):
        state.begin(job, job.start)
    active: list[_Flow] = []
    now = 0.0
    while now < horizon:
        following = horizon
        for index, (job, state) in enumerate(zip(jobs, states, strict=True)):
            following = min(following, _compute(index, job, state, active, now))
        if active:
            _rank(jobs, states, active, now, levels)
            following = min(
                following, now + tick, *(now + f.left / f.rate for f in active if f.rate > 1e-12)
            )
        step = max(following - now, 1e-7)
        now += step
        for flow in active:
            flow.left -= flow.rate * step
        sent = [flow for flow in active if flow.left <= _SENT]
        active = [flow for flow in active if flow.left > _SENT]
        for flow in sent:
            job, state = jobs[flow.job], states[flow.job]
            state.latest = max(state.latest, now - flow.due)
            state.unsent -= 1
            if job.kind == "pipeline":
                state.arrived[flow.hop + 1][flow.number] = True
            elif not state.unsent:
                _end(job, state, now)
    out = []
    for job, state in zip(jobs, states, strict=True):
        settled = state.times[len(state.times) // 3 :]
        out.append(sum(settled) / len(settled) / job.alone)
    return out


def _end(job: Job, state: _State, now: float) -> None:
    state.times.append(now - state.begun)
    state.memory = 0.75 * (state.memory + state.latest - job.tardiness)
    state.begin(job, now)


def _compute(index: int, job: Job, state: _State, active: list[_Flow], now: float) -> float:
    """Start and finish what is due now; return when the next compute unit finishes."""
    busy = True
    while busy:
        busy = False
        for stage, done in enumerate(state.computed):
            ready = stage == 0 or (done < job.micro_batches and state.arrived[stage][done])
            if (
                state.busy_until[stage] is None
                and ready
                and done < job.micro_batches
                and now >= state.begun - 1e-9
            ):
                state.busy_until[stage] = now + job.compute
            until = state.busy_until[stage]
            if until is None or now < until - 1e-9:
                continue
            busy, state.busy_until[stage] = True, None
            state.computed[stage] += 1
            if state.reference is None:
                state.reference = now - job.offsets[0]
            if job.kind == "data":
                active += [
                    _Flow(index, k, 0, ports, job.size, now) for k, ports in enumerate(job.hops)
                ]
            elif stage < len(job.hops):
                due = state.reference + job.offsets[stage] + done * job.compute
                active.append(_Flow(index, stage, done, job.hops[stage], job.size, due))
            elif state.computed[stage] == job.micro_batches:
                _end(job, state, now)
                break
    waiting = [until for until in state.busy_until if until is not None]
    return min([*waiting, *([state.begun] if now < state.begun else [])], default=float("inf"))


def _rank(
    jobs: Sequence[Job], states: Sequence[_State], active: list[_Flow], now: float, levels: bool
) -> None:
    for flow in active:
        job = jobs[flow.job]
        flow.rate = 0.0
        flow.rank = (now - flow.due + states[flow.job].memory - job.busy / 2) / job.unit
    if levels:
        top: dict[str, float] = {}
        for flow in active:
            for port in flow.ports:
                top[port] = max(top.get(port, flow.rank), flow.rank)
        for flow in active:
            behind = [top[port] - flow.rank for port in flow.ports]
            flow.rank = -float(max(sum(gap > step for step in STEPS) for gap in behind))
    room = {port: 1.0 for flow in active for port in flow.ports}
    groups: dict[float, list[_Flow]] = {}
    for flow in active:
        groups.setdefault(round(flow.rank, 9), []).append(flow)
    for rank in sorted(groups, reverse=True):
        _share(groups[rank], room)


def _share(flows: list[_Flow], room: dict[str, float]) -> None:
    """Share the room among the flows max-min fairly, by progressive filling."""
    while flows:
        at = {
            port: [flow for flow in flows if port in flow.ports]
            for flow in flows
            for port in flow.ports
        }
        port = min(at, key=lambda port: room[port] / len(at[port]))
        share = max(0.0, room[port] / len(at[port]))
        for flow in at[port]:
            flow.rate = share
            for used in flow.ports:
                room[used] -= share
        flows = [flow for flow in flows if port not in flow.ports]


def on_link(seed: int, kind: Literal["data", "mix"], count: int, load: float) -> list[Job]:
    """Draw jobs on one link that keep it busy for the fraction `load` unless slowed."""
    rng = random.Random(seed)
    parts = [rng.uniform(0.5, 1.5) for _ in range(count)]
    jobs = []
    for part in parts:
        period, share = rng.choice([400, 600, 800, 1000, 1400]), load * part / sum(parts)
        start = float(rng.randrange(period))
        if kind == "data" or rng.random() < 0.5:
            jobs.append(
                Job(
                    "data", round(period * (1 - share)), round(period * share), 1, [("a-b",)], start
                )
            )
        else:
            batches = rng.choice([4, 8])
            compute = round(period / batches)
            jobs.append(
                Job("pipeline", compute, round(compute * share), batches, [("a-b",)], start)
            )
    return jobs


def on_switch(seed: int, count: int, hosts: int, share: float, into: bool = True) -> list[Job]:
    """Draw jobs between `hosts` that have a port out of a switch and, with `into`, a port into it
    each.
    """

    def path(a: int, b: int) -> Ports:
        return (f"{a}-s", f"s-{b}") if into else (f"s-{b}",)

    rng = random.Random(seed)
    jobs = []
    for _ in range(count):
        chosen = rng.sample(range(hosts), rng.choice([2, 3, 4]))
        period, start = rng.choice([400, 600, 800, 1000, 1400]), float(rng.randrange(1000))
        part = share * rng.uniform(0.5, 1.5)
        if rng.random() < 0.5:
            hops = [path(a, b) for a, b in zip(chosen, chosen[1:] + chosen[:1], strict=True)]
            jobs.append(
                Job("data", round(period * (1 - part)), round(period * part), 1, hops, start)
            )
        else:
            hops = [path(a, b) for a, b in pairwise(chosen)]
            batches = rng.choice([4, 8])
            compute = round(period / (batches + len(hops)))
            jobs.append(Job("pipeline", compute, round(compute * part * 2), batches, hops, start))
    return jobs
