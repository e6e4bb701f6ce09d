"""Jobs in closed loop on one link, packet by packet, independent of Echelon's own simulators.

A job is data-parallel ("dp": compute, then send) or a pipeline of two stages ("pp": send every
micro-batch when it is computed; the second stage computes it, in order, when it has arrived). An
iteration begins when the one before has ended. The link carries one unit of data in one unit of
time and sends one packet after the other; the policy chooses the flow of each. Orders are ideal:
there are no levels.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["dp", "dp-same", "pp", "mix"]
Policy = Literal["fair", "deadline", "setf", "normalised", "memory"]
_SENT = 1e-9
"""The rest of a flow that counts as nothing."""


@dataclass(frozen=True)
class MixedJob:
    """A job. Times are in slots, the time of the link for one unit of data."""

    paradigm: Literal["dp", "pp"]
    compute: float
    """The time of each micro-batch on each stage; of a data-parallel job, the time before it sends.
    """
    size: float
    """The size of the flow of each micro-batch."""
    micro_batches: int
    start: float

    @property
    def alone(self) -> float:
        """The time of an iteration on an idle link."""
        if self.paradigm == "dp":
            return self.compute + self.size
        sent = finished = 0.0
        for number in range(self.micro_batches):
            sent = max(sent, (number + 1) * self.compute) + self.size
            finished = max(finished, sent) + self.compute
        return finished

    @property
    def unit(self) -> float:
        """The unit of tardiness: the time of an iteration alone; of a pipeline without its last
        transfer.
        """
        if self.paradigm == "dp":
            return self.compute + self.size
        return self.compute * (self.micro_batches + 1)

    @property
    def busy(self) -> float:
        """The time for which an iteration keeps the link busy."""
        return self.size * self.micro_batches

    @property
    def own_tardiness(self) -> float:
        """The tardiness of an iteration on an idle link."""
        sent = worst = 0.0
        for number in range(self.micro_batches):
            sent = max(sent, number * self.compute) + self.size
            worst = max(worst, sent - number * self.compute)
        return worst


@dataclass
class _Flow:
    job: int
    number: int
    due: float
    left: float


@dataclass
class _State:
    begin: float
    head: float | None = None
    """The start of the first flow of the iteration."""
    arrived: set[int] = field(default_factory=set)
    computed: int = 0
    """The micro-batches that the second stage has taken."""
    free: float = 0.0
    """The time when the second stage has computed them."""
    times: list[float] = field(default_factory=list)
    latest: float = 0.0
    """The largest tardiness of a flow of the iteration."""
    memory: float = 0.0


def make(seed: int, kind: Kind, count: int, load: float) -> list[MixedJob]:
    """Draw `count` jobs that together would keep the link busy for the fraction `load` if nothing
    slowed them.
    """
    rng = random.Random(seed)
    weights = [rng.uniform(0.5, 1.5) for _ in range(count)]
    jobs = []
    for weight in weights:
        same = kind == "dp-same"
        period = 1000 if same else rng.choice([400, 600, 800, 1000, 1400])
        fraction = load / count if same else load * weight / sum(weights)
        paradigm = rng.choice(["dp", "pp"]) if kind == "mix" else kind[:2]
        batches = rng.choice([4, 8])
        if paradigm == "dp":
            jobs.append(
                MixedJob(
                    "dp", period * (1 - fraction), period * fraction, 1, rng.uniform(0, period)
                )
            )
        else:
            compute = period / batches
            size = compute * fraction * (batches + 1) / batches
            jobs.append(MixedJob("pp", compute, size, batches, rng.uniform(0, period)))
    return jobs


def slowdowns(
    jobs: Sequence[MixedJob], policy: Policy, *, packet: float = 4, horizon: float = 60_000
) -> list[float]:
    """Return the mean iteration time of each job over its time alone, once a third of its
    iterations have passed.
    """
    states = [_State(job.start) for job in jobs]
    events: list[tuple[float, int, int, int | None]] = []
    """Time, order of entry, job, and the micro-batch that is computed (None: the iteration ends).
    """
    entered = turn = 0

    def enter(at: float, job: int, number: int | None) -> None:
        nonlocal entered
        entered += 1
        heapq.heappush(events, (at, entered, job, number))

    def compute(job: int, begin: float) -> None:
        for number in range(jobs[job].micro_batches):
            enter(begin + (number + 1) * jobs[job].compute, job, number)

    def most_urgent(flows: list[_Flow], now: float) -> _Flow:
        ranks: dict[str, Callable[[_Flow], tuple[float, ...]]] = {
            "deadline": lambda flow: (flow.due, flow.job),
            "setf": lambda flow: (tardiness[flow.job], flow.due),
            "normalised": lambda flow: ((flow.due - now) / units[flow.job],),
            "memory": lambda flow: (
                (flow.due - now - states[flow.job].memory + busy[flow.job] / 2) / roots[flow.job],
            ),
        }
        return min(flows, key=ranks[policy])

    tardiness = [job.own_tardiness for job in jobs]
    units = [job.unit for job in jobs]
    busy = [job.busy for job in jobs]
    # On one link, the root of what a job uses of it.
    roots = [math.sqrt(job.alone * job.busy) for job in jobs]
    for index, job in enumerate(jobs):
        compute(index, job.start)
    active: list[_Flow] = []
    now = 0.0
    while now < horizon:
        while events and events[0][0] <= now:
            _, _, index, number = heapq.heappop(events)
            state, job = states[index], jobs[index]
            if number is None:
                state.times.append(now - state.begin)
                memory = 0.75 * (state.memory + state.latest - tardiness[index])
                states[index] = _State(now, free=state.free, times=state.times, memory=memory)
                compute(index, now)
            else:
                state.head = now if state.head is None else state.head
                pace = job.compute if job.paradigm == "pp" else 0.0
                active.append(_Flow(index, number, state.head + number * pace, job.size))
        if not active:
            now = events[0][0]
            continue
        if policy == "fair":
            turn += 1
            flow = active[turn % len(active)]
        else:
            flow = most_urgent(active, now)
        step = min(packet, flow.left)
        if policy != "fair" and events and events[0][0] < now + step:
            step = max(_SENT, events[0][0] - now)
        now += step
        flow.left -= step
        if flow.left > _SENT:
            continue
        active.remove(flow)
        state, job = states[flow.job], jobs[flow.job]
        state.arrived.add(flow.number)
        state.latest = max(state.latest, now - flow.due)
        while state.computed in state.arrived:
            state.free = max(state.free, now) + (job.compute if job.paradigm == "pp" else 0.0)
            state.computed += 1
        if state.computed == job.micro_batches:
            enter(max(state.free, now), flow.job, None)
    settled = [state.times[len(state.times) // 3 :] for state in states]
    return [sum(times) / len(times) / job.alone for times, job in zip(settled, jobs, strict=True)]
