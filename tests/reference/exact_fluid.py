"""The fluid model in fractions and by brute force: at every event, the rates of all flows are found
anew.

It shares with `echelon.planning.fluid` what other tests hold to account: the closed loop of a job
(`echelon.planning.execution`), the end of a run (`echelon.planning.execution`), the rankings and
the policies' own rates. Time, the network and the sharing of links are its own, written for the eye
rather than for speed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import ceil
from typing import Any

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import route
from echelon.model.jobs.graph import Job
from echelon.planning.allocation import ActiveFlow, Allocator, FlowWatcher, Link
from echelon.planning.execution import (
    Completion,
    Instruction,
    JobExecution,
    JobRecord,
    StartCompute,
    StartFlow,
    Until,
)
from echelon.planning.fluid import BackgroundFlow, Windows
from echelon.planning.paths import links_of
from echelon.planning.plan import Plan, QueuePlan
from echelon.planning.rankings.base import Execution, Ranking, RatedExecution
from echelon.planning.rankings.deadline import Deadline
from echelon.planning.rankings.fixed import Fixed

_LONGEST = 400
"""The bits of a denominator from which on numbers are rounded up to a multiple of 2^-200.

In a closed loop each sharing of a link multiplies denominators, without end.
"""


def _short(number: Fraction) -> Fraction:
    if number.denominator.bit_length() < _LONGEST:
        return number
    return Fraction(-(-number * 2**200 // 1), 2**200)


@dataclass(slots=True, eq=False)
class _Sender:
    """A flow as one of those that share: its queues by (link, number), its window, and its constant
    rate if any.
    """

    queues: Sequence[tuple[Link, int]]
    window: int
    sent_Bps: Fraction | None  # noqa: N815
    rate: Fraction = Fraction(0)
    fastest: Fraction = Fraction(0)

    @property
    def units(self) -> Fraction | int:
        return self.window if self.sent_Bps is None else self.sent_Bps - self.rate


@dataclass(slots=True)
class _Filled:
    """The capacity that senders fill.

    It is the capacity by link; level, weight, and most by queue; and the share of other traffic in
    a link.
    """

    capacity: Mapping[Link, Fraction]
    plans: Callable[[tuple[Link, int]], tuple[int, int, Fraction]]
    taken: Mapping[Link, Fraction]
    narrow: Callable[[Link], bool]

    def queues(self, sender: _Sender) -> list[tuple[Link, int]]:
        return [queue for queue in sender.queues if self.narrow(queue[0])]


def _one_pass(senders: Sequence[_Sender], of: _Filled) -> bool:
    """Raise rates, the least offer first. Return whether another pass may raise them further.

    The model takes it that none does where all began with nothing and no queue kept anything for a
    flow that waits for a higher level elsewhere.
    """
    has: dict[tuple[Link, int], Fraction] = {}
    used = {link: of.taken.get(link, Fraction(0)) for link in of.capacity}

    def grow(sender: _Sender, more: Fraction) -> None:
        for queue in of.queues(sender):
            has[queue] = has.get(queue, Fraction(0)) + more
            used[queue[0]] += more

    for sender in senders:
        grow(sender, sender.rate)
    waiting = [
        sender
        for sender in senders
        if sender.rate < sender.fastest
        and all(
            used[q[0]] < of.capacity[q[0]] and has[q] < of.plans(q)[2] for q in of.queues(sender)
        )
    ]
    gained, once = False, not any(sender.rate for sender in waiting)
    undivided = len(waiting)
    while waiting:
        members: dict[tuple[Link, int], list[_Sender]] = {}
        for sender in waiting:
            for queue in of.queues(sender):
                members.setdefault(queue, []).append(sender)
        highest: dict[Link, int] = {}
        for queue in members:
            highest[queue[0]] = max(of.plans(queue)[0], highest.get(queue[0], -1))
        serving = {queue for queue in members if of.plans(queue)[0] == highest[queue[0]]}
        constant = {
            queue
            for queue in serving
            if any(sender.sent_Bps is not None for sender in members[queue])
        }
        offers: dict[tuple[Link, int], Fraction] = {}
        for link in highest:
            left = max(Fraction(0), of.capacity[link] - used[link])
            for queue, room in _rooms(
                [queue for queue in serving if queue[0] == link], has, of, left
            ).items():
                units = sum(
                    s.units
                    for s in members[queue]
                    if (s.sent_Bps is not None) == (queue in constant)
                )
                offers[queue] = (
                    min(room / units, Fraction(1)) if queue in constant else room / units
                )
        able = [
            (
                sender.sent_Bps is None,
                min(*own, (sender.fastest - sender.rate) / sender.units),
                number,
            )
            for number, sender in enumerate(waiting)
            if all(
                q in serving and (q in constant) == (sender.sent_Bps is not None)
                for q in of.queues(sender)
            )
            and (own := [offers[queue] for queue in of.queues(sender)] * 2)
        ]
        once = once and (len(waiting) < undivided or len(able) == undivided)
        if able:
            # Of equal offers, the one of the oldest flow goes first, and of its queues the first on
            # its path.
            _, size, number = min(able)
            sender = waiting[number]
            takers = [sender]
            if size < (sender.fastest - sender.rate) / sender.units:
                tightest = next(queue for queue in of.queues(sender) if offers[queue] == size)
                takers = [waiting[at] for _, _, at in able if waiting[at] in members[tightest]]
        else:  # the levels of links contradict each other: the oldest goes first
            sender = waiting[0]
            takers = [sender]
            room = min(
                min(of.capacity[q[0]] - used[q[0]], of.plans(q)[2] - has[q])
                for q in of.queues(sender)
            )
            size = max(Fraction(0), room) / sender.units
        for sender in takers:
            waiting.remove(sender)
            more = min(size * sender.units, sender.fastest - sender.rate)
            gained = gained or more > 0
            sender.rate += more
            grow(sender, more)
    return gained and not once


def _rooms(
    queues: Sequence[tuple[Link, int]],
    has: Mapping[tuple[Link, int], Fraction],
    of: _Filled,
    left: Fraction,
) -> dict[tuple[Link, int], Fraction]:
    """Return how much more each queue of one level gets: the same per weight, up to its limit, not
    less than it has.
    """

    def growth(queue: tuple[Link, int], part: Fraction) -> Fraction:
        _, weight, most = of.plans(queue)
        return max(Fraction(0), min(part * weight, most) - has[queue])

    bends = sorted(end / of.plans(q)[1] for q in queues for end in (has[q], of.plans(q)[2]))
    part = Fraction(0)
    for bend in bends:
        total, grown = sum(growth(q, part) for q in queues), sum(growth(q, bend) for q in queues)
        if grown > left:
            part += (bend - part) * (left - total) / (grown - total)
            break
        part = bend
    return {queue: growth(queue, part) for queue in queues}


def share(
    senders: Sequence[_Sender],
    capacity: Mapping[Link, Fraction],
    queues: Mapping[Link, Sequence[QueuePlan]],
    acknowledging: Fraction = Fraction(0),
) -> AbstractSet[Link]:
    """Set the rate of each sender, and return the links that have no room for all.

    A link without `queues` is one FIFO.

    `echelon.planning.fluid.sharing` says what is meant.
    """
    taken: dict[Link, Fraction] = {}
    narrow = _share(senders, capacity, queues, taken)
    if acknowledging:
        for sender in senders:
            for (node, following), _ in sender.queues if sender.sent_Bps is None else ():
                back = following, node
                taken[back] = taken.get(back, Fraction(0)) + sender.rate * acknowledging
        narrow = _share(senders, capacity, queues, taken)
    return narrow


def _share(
    senders: Sequence[_Sender],
    capacity: Mapping[Link, Fraction],
    queues: Mapping[Link, Sequence[QueuePlan]],
    taken: Mapping[Link, Fraction],
) -> AbstractSet[Link]:
    room = {
        link: capacity[link] - taken.get(link, 0) for sender in senders for link, _ in sender.queues
    }
    demand = dict.fromkeys(room, Fraction(0))
    for sender in senders:
        sender.fastest = min(room[link] for link, _ in sender.queues)
        if sender.sent_Bps is not None:
            sender.fastest = min(sender.fastest, sender.sent_Bps)
        for link, _ in sender.queues:
            demand[link] += sender.fastest
    limited = {
        link for link in room if any(plan.max_share is not None for plan in queues.get(link, ()))
    }
    narrow = {link for link in room if demand[link] > room[link] or link in limited}

    def plans(queue: tuple[Link, int]) -> tuple[int, int, Fraction]:
        link, number = queue
        if link not in queues:
            return 0, 1, capacity[link]
        plan = queues[link][number]
        return (
            plan.level,
            plan.weight,
            capacity[link] * (1 if plan.max_share is None else plan.max_share),
        )

    def least(queue: tuple[Link, int]) -> Fraction:
        link, number = queue
        return capacity[link] * (queues[link][number].min_share if link in queues else 1)

    filled = _Filled({link: capacity[link] for link in room}, plans, taken, narrow.__contains__)
    held_up, promised = [], []
    for sender in senders:
        own = filled.queues(sender)
        sender.rate = Fraction(0) if own else sender.fastest
        if own:
            held_up.append(sender)
            if all(least(queue) > 0 for queue in own) and any(link in queues for link, _ in own):
                promised.append(sender)
    # A minimum share is a link of its own, which goes first.
    apart: list[_Sender] = []

    def name(queue: tuple[Link, int]) -> Link:
        return (f"{queue[0]}", f"{queue[1]}") if queue[0] in queues else queue[0]

    shares: dict[Link, Fraction] = {}
    for sender in promised:
        for queue in filled.queues(sender):
            shares[name(queue)] = least(queue)
        apart.append(
            _Sender(
                [(name(queue), 0) for queue in filled.queues(sender)],
                sender.window,
                sender.sent_Bps,
            )
        )
        apart[-1].fastest = sender.fastest
    alone = _Filled(shares, lambda queue: (0, 1, shares[queue[0]]), taken, lambda _: True)
    while _one_pass(apart, alone):
        pass
    for sender, copy in zip(promised, apart, strict=True):
        sender.rate = copy.rate
    levels = {plans(queue)[0] for sender in held_up for queue in filled.queues(sender)}
    by_level: dict[int, list[_Sender]] = {level: [] for level in sorted(levels, reverse=True)}
    for sender in held_up:
        own = {plans(queue)[0] for queue in filled.queues(sender)}
        if promised or len(own) > 1:  # levels cannot be served one after the other
            by_level = {0: held_up}
            break
        by_level[own.pop()].append(sender)
    used = dict(taken)
    for part in by_level.values():
        rest = _Filled(filled.capacity, plans, used, narrow.__contains__)
        while _one_pass(part, rest):
            pass
        for sender in part:
            for link, _ in sender.queues:
                used[link] = used.get(link, Fraction(0)) + sender.rate
    return narrow


class _Executed:
    """The rates that switches give flows under a plan."""

    def __init__(self, plan: Plan, fabric: Fabric, windows: Windows) -> None:
        self._plan, self._fabric, self._windows = plan, fabric, windows
        self._executions: dict[type[Ranking], Execution[Any]] = {}
        self._known: dict[tuple[ActiveFlow, ...], tuple[list[Fraction], list[Fraction]]] = {}
        self._ranked: set[Link] = set()
        """The links at which flows may hold each other up."""
        self._queues = {
            link: plan.schedules.get(link, plan.default_schedule)
            for link in fabric.capacity_Bps
            if link[0] not in fabric.hosts or plan.ranks_at(link[0])
        }

    def _of(self, flow: ActiveFlow) -> tuple[Execution[Any], Ranking]:
        ranking = self._plan.ranking.get((flow.job, flow.flow), Fixed(self._plan.best_effort_queue))
        kind = type(ranking)
        if kind not in self._executions:
            self._executions[kind] = kind.execution(Fraction)
        return self._executions[kind], ranking

    def _held(self, links: Sequence[Link]) -> int:
        """Return what the slowest link sends in a round trip without queues, in packets."""
        given = self._windows
        capacity = self._fabric.capacity_Bps
        one_way_s = sum(
            given.packet_bytes / capacity[link] + _delay_s(self._fabric, link) for link in links
        )
        packets = 2 * one_way_s * min(capacity[link] for link in links) / given.packet_bytes
        return ceil(packets)

    def _window(self, flow: ActiveFlow) -> tuple[int, int]:
        """Return the packets in flight at first, and when the window is open."""
        given = self._windows
        if given.full is not None:
            first = self._held(flow.links) if given.initial is None else given.initial
            return min(first, given.full), given.full
        fits = self._held(flow.links) + 4
        full = fits
        if not self._shares(flow):
            longest = max(self._held(links_of(planned.path)) for planned in self._plan.flows) + 4
            full = max(fits, min(longest, 4 * fits))
        return min(given.initial or full, full), full

    def _in_flight(self, flow: ActiveFlow, sent: Any) -> tuple[int, Any]:
        """Return the window after so many bytes, and the bytes from which on it is larger."""
        window, full = self._window(flow)
        end = window
        while window < full and sent >= end * self._windows.packet_bytes:
            window = min(2 * window, full)
            end += window
        return window, None if window == full else end * self._windows.packet_bytes

    def _shares(self, flow: ActiveFlow) -> bool:
        """Return whether flows of its job between its hosts send one after the other."""
        _, ranking = self._of(flow)
        return (
            self._windows.streams
            and self._plan.ranks_at(flow.links[0][0])
            and isinstance(ranking, Deadline)
            and (ranking.relative is not None or bool(ranking.thresholds_s))
        )

    def _held_back(self, now_s: Fraction, flows: Sequence[ActiveFlow]) -> set[ActiveFlow]:
        """Return the flows that wait at their host for a more urgent one of the same stream."""
        streams: dict[Any, list[tuple[Any, int, ActiveFlow]]] = {}
        for flow in flows:
            if self._shares(flow):
                execution: Any
                execution, ranking = self._of(flow)
                urgency = execution.urgency(now_s, flow, ranking)
                streams.setdefault((flow.job, flow.links), []).append(
                    (-urgency, flow.sequence, flow)
                )
        return {flow for members in streams.values() for _, _, flow in sorted(members)[1:]}

    def started(self, now_s: Fraction, flow: ActiveFlow) -> None:
        execution, ranking = self._of(flow)
        execution.started(now_s, flow, ranking)

    def finished(self, now_s: Fraction, flow: ActiveFlow) -> None:
        execution, ranking = self._of(flow)
        execution.finished(now_s, flow, ranking)

    def rates(
        self, now_s: Fraction, flows: Sequence[ActiveFlow]
    ) -> tuple[list[Fraction], list[Fraction]]:
        """Return the rates of flows, and times at which they may change.

        Flows that cannot hold each other up, directly or through others, keep their rates where
        nothing happens to them: a rank that counts the bytes left is asked for when rates are set,
        and not otherwise.
        """
        before, self._known = self._known, {}
        for together in self._neighbourhoods(flows):
            found = before.get(together)
            if found is None or min(found[1], default=now_s + 1) <= now_s:
                found = self._rates(now_s, together)
            self._known[together] = found
        rate = {
            flow: rate
            for key, (rates, _) in self._known.items()
            for flow, rate in zip(key, rates, strict=True)
        }
        return [rate[flow] for flow in flows], [
            end_s for _, ends_s in self._known.values() for end_s in ends_s
        ]

    def _neighbourhoods(self, flows: Sequence[ActiveFlow]) -> Iterable[tuple[ActiveFlow, ...]]:
        of = {flow: {flow} for flow in flows}

        def join(members: Sequence[ActiveFlow]) -> None:
            together = set().union(*(of[flow] for flow in members))
            of.update(dict.fromkeys(together, together))

        self._ranked = set()
        capacity = self._fabric.capacity_Bps
        at: dict[Link, list[ActiveFlow]] = {}
        coupled: dict[Any, list[ActiveFlow]] = {}
        fastest: dict[ActiveFlow, Any] = {}
        for flow in flows:
            most = () if flow.max_rate_Bps is None else (flow.max_rate_Bps,)
            fastest[flow] = min(*most, *(capacity[link] for link in flow.links))
            for link in flow.links:
                at.setdefault(link, []).append(flow)
            execution, ranking = self._of(flow)
            if (key := execution.neighbourhood(flow, ranking)) is not None:
                coupled.setdefault((type(ranking), key), []).append(flow)
        for link, present in at.items():
            back = at.get((link[1], link[0]), []) if self._windows.acknowledging else []
            wanted = sum(fastest[flow] for flow in present)
            limited = any(plan.max_share is not None for plan in self._queues.get(link, ()))
            if back or limited or wanted > capacity[link]:
                join([*present, *back])
                self._ranked.add(link)
        for present in coupled.values():
            join(present)
        return dict.fromkeys(tuple(flow for flow in flows if flow in of[first]) for first in flows)

    def _rates(
        self, now_s: Fraction, flows: Sequence[ActiveFlow]
    ) -> tuple[list[Fraction], list[Fraction]]:
        queue: dict[tuple[ActiveFlow, Link], int] = {}
        ends_s: list[Any] = []
        counting, rated = [], []
        for link in (
            {link for flow in flows for link in flow.links} & self._queues.keys() & self._ranked
        ):
            at: dict[Execution[Any], list[tuple[ActiveFlow, Ranking]]] = {}
            for flow in flows:
                if link in flow.links:
                    execution, ranking = self._of(flow)
                    at.setdefault(execution, []).append((flow, ranking))
            for execution, present in at.items():
                ranks = execution.ranks(now_s, link, present)
                for (flow, _), rank in zip(present, ranks, strict=True):
                    queue[flow, link] = rank.queue
                    ends_s.append(rank.until_s)
                    if rank.until_bytes is not None:
                        counting.append(rank)
                if any(rank.by_rates for rank in ranks) and isinstance(execution, RatedExecution):
                    rated.append((execution, present))
        senders = []
        opening = []
        held_back = self._held_back(now_s, flows)
        sending = [flow for flow in flows if flow not in held_back]
        for flow in sending:
            sent = flow.size_bytes - flow.remaining_bytes
            window, opens = self._in_flight(flow, sent)
            opening.append(None if opens is None else opens - sent)
            queues = [(link, queue.get((flow, link), 0)) for link in flow.links]
            senders.append(_Sender(queues, window, flow.max_rate_Bps))  # type: ignore[arg-type]
        narrow = share(
            senders, self._fabric.capacity_Bps, self._queues, self._windows.acknowledging
        )
        rate = dict.fromkeys(flows, Fraction(0))
        rate |= {flow: sender.rate for flow, sender in zip(sending, senders, strict=True)}
        for execution, present in rated:
            ends_s.append(execution.until_s(now_s, present, [rate[flow] for flow, _ in present]))
        for rank in counting:
            together = sum(rate[flow] for flow in rank.counted)
            ends_s.append(now_s + rank.until_bytes / together if together else None)  # type: ignore[operator]
        # A window matters only where others wait at the same port: it also decides which of its
        # queues is filled first.
        crowd = Counter(link for sender in senders for link, _ in sender.queues)
        for sender, left in zip(senders, opening, strict=True):
            if (
                left
                and sender.rate
                and any(crowd[link] > 1 and link in narrow for link, _ in sender.queues)
            ):
                ends_s.append(now_s + left / sender.rate)
        return [rate[flow] for flow in flows], [end_s for end_s in ends_s if end_s is not None]


class _Given:
    """The rates that a policy itself gives."""

    def __init__(self, policy: Allocator) -> None:
        self._policy = policy

    def started(self, now_s: Fraction, flow: ActiveFlow) -> None:
        if isinstance(self._policy, FlowWatcher):
            self._policy.started(now_s, flow)

    def finished(self, now_s: Fraction, flow: ActiveFlow) -> None:
        if isinstance(self._policy, FlowWatcher):
            self._policy.finished(now_s, flow)

    def rates(self, now_s: Fraction, flows: Sequence[ActiveFlow]) -> tuple[list[Any], list[Any]]:
        given = self._policy.allocate(now_s, flows)
        return list(given.rates_Bps), [] if given.valid_until_s is None else [given.valid_until_s]


def simulate_exactly(
    jobs: Sequence[Job],
    fabric: Fabric,
    policy: Any,
    iterations: int,
    *,
    believed: Sequence[Job] | None = None,
    background: Sequence[BackgroundFlow] = (),
    delays: Mapping[tuple[str, str, int], Fraction] | None = None,
    until: Until = "all-done",
    ideal: bool = False,
    windows: Windows | None = None,
) -> dict[str, JobRecord[Fraction]]:
    """Return the record of each job, where `echelon.planning.fluid.simulate` with the same
    arguments returns one in floats."""
    told = jobs if believed is None else believed
    plan = policy.plan(told, fabric)
    allocates = ideal or plan.reactive
    windows = (windows or Windows()).under(plan, fabric)
    rates = _Given(policy) if allocates else _Executed(plan, fabric, windows)
    return _Run(
        jobs, told, plan, fabric, rates, iterations, until, background, delays or {}, windows
    ).to_the_end()


def _delay_s(fabric: Fabric, link: Link) -> Fraction:
    (delay_s,) = (c.delay_s for c in fabric.cables if {c.a.node, c.b.node} == {*link})
    return delay_s


class _Run:
    def __init__(
        self,
        jobs: Sequence[Job],
        told: Sequence[Job],
        plan: Plan,
        fabric: Fabric,
        rates: _Executed | _Given,
        iterations: int,
        until: Until,
        background: Sequence[BackgroundFlow],
        delays: Mapping[tuple[str, str, int], Fraction],
        windows: Windows,
    ) -> None:
        self._fabric, self._windows = fabric, windows
        self._now = Fraction(0)
        self._rates = rates
        self._paths = {(flow.job, flow.flow): links_of(flow.path) for flow in plan.flows}
        self._arranged = {
            (job.name, flow): (h.name, offset_s)
            for job in told
            for h in job.echelonflows
            for flow, offset_s in zip(h.flows, h.offsets_s, strict=True)
        }
        self._completion = Completion([job.name for job in jobs], iterations, until)
        self._jobs: dict[str, JobExecution[Fraction]] = {}
        self._flows: list[ActiveFlow] = []
        self._pending: list[tuple[Fraction, int, Callable[[], None]]] = []
        self._announced = self._started = 0
        for job in plan.delayed(jobs):
            own = {
                (worker, i): delay
                for (name, worker, i), delay in delays.items()
                if name == job.name
            }
            execution: JobExecution[Fraction] = JobExecution(
                job, delays=own, more=self._more(job.name)
            )
            self._jobs[job.name] = execution
            self._at(job.start_s, self._starter(job.name, execution))
        for sent in background:
            size = 1 << 80 if sent.size_bytes is None else sent.size_bytes
            given = (
                "",
                sent.name,
                0,
                links_of(route(fabric, sent.src, sent.dst, 0)),
                size,
                sent.max_rate_Bps,
            )
            self._at(sent.start_s, partial(self._start, *given))

    def _more(self, name: str) -> Callable[[int], bool]:
        return lambda iteration: self._completion.begins(name, iteration)

    def _starter(self, name: str, execution: JobExecution[Fraction]) -> Callable[[], None]:
        return lambda: self._obey(name, execution.start(self._now))

    def _at(self, time_s: Fraction, what: Callable[[], None]) -> None:
        self._pending.append((time_s, self._announced, what))
        self._announced += 1

    def _due(self) -> list[Callable[[], None]]:
        due = sorted(entry[:2] for entry in self._pending if entry[0] <= self._now)
        by_order = {entry[1]: entry[2] for entry in self._pending}
        self._pending = [entry for entry in self._pending if entry[0] > self._now]
        return [by_order[order] for _, order in due]

    def _obey(self, job: str, instructions: Sequence[Instruction[Fraction]]) -> None:
        for told in instructions:
            if isinstance(told, StartCompute):
                self._at(self._now + told.duration_s, partial(self._computed, job, told.name))
            elif isinstance(told, StartFlow):
                flow = told.flow
                self._start(
                    job,
                    flow.name,
                    told.iteration,
                    self._paths[job, flow.name],
                    flow.size_bytes,
                    None,
                )
            else:
                self._completion.finish(job, told.iteration)

    def _computed(self, job: str, name: str) -> None:
        self._obey(job, self._jobs[job].compute_finished(name, self._now))

    def _start(
        self,
        job: str,
        name: str,
        iteration: int,
        links: tuple[Link, ...],
        size: int,
        most: Fraction | None,
    ) -> None:
        echelonflow, ideal_s = None, self._now
        if (job, name) in self._arranged:
            echelonflow, offset_s = self._arranged[job, name]
            ideal_s = self._jobs[job].record.iterations[-1].references[echelonflow] + offset_s
        flow = ActiveFlow(
            job,
            name,
            iteration,
            echelonflow,
            links,
            size,
            Fraction(size),
            self._now,
            ideal_s,
            self._started,
            most,
        )
        self._started += 1
        if links and size:
            self._rates.started(self._now, flow)
        else:
            flow.remaining_bytes = Fraction(0)
        self._flows.append(flow)

    def _catch_up(self) -> None:
        while True:
            done = [flow for flow in self._flows if flow.remaining_bytes <= 0]
            others = self._due()
            if not done and not others:
                return
            self._flows = [flow for flow in self._flows if flow.remaining_bytes > 0]
            for flow in done:
                if flow.links and flow.size_bytes:
                    self._rates.finished(self._now, flow)
                passing_s = self._passing_s(flow)
                if flow.job and passing_s:
                    self._at(self._now + passing_s, partial(self._arrived, flow.job, flow.flow))
                elif flow.job:
                    self._arrived(flow.job, flow.flow)
            others += self._due()
            while others:
                for what in others:
                    what()
                others = self._due()

    def _arrived(self, job: str, flow: str) -> None:
        self._obey(job, self._jobs[job].flow_finished(flow, self._now))

    def _passing_s(self, flow: ActiveFlow) -> Fraction:
        """Return how long the last packet takes on links other than the slowest, and delays."""
        if not (self._windows.passes and flow.links and flow.size_bytes):
            return Fraction(0)
        last = min(flow.size_bytes, self._windows.packet_bytes)
        each_s = sorted(last / self._fabric.capacity_Bps[link] for link in flow.links)
        delays_s = (_delay_s(self._fabric, link) for link in flow.links)
        return sum(each_s[:-1], sum(delays_s, Fraction(0)))

    def to_the_end(self) -> dict[str, JobRecord[Fraction]]:
        rates: list[Any] = []
        ends_s: list[Any] = []
        while True:
            present = [*self._flows]
            self._catch_up()
            if self._completion.reached:
                return {name: execution.record for name, execution in self._jobs.items()}
            if self._flows != present or min(ends_s, default=self._now) <= self._now:
                rates, ends_s = (
                    self._rates.rates(self._now, self._flows) if self._flows else ([], [])
                )
                ends_s += [
                    self._now + f.remaining_bytes / r
                    for f, r in zip(self._flows, rates, strict=True)
                    if r
                ]
            next_s = _short(min([*ends_s, *(entry[0] for entry in self._pending)]))
            for flow, rate in zip(self._flows, rates, strict=True):
                flow.remaining_bytes = _short(
                    Fraction(flow.remaining_bytes - rate * (next_s - self._now))
                )
            self._now = next_s
