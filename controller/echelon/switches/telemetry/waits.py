"""The time that flows lose to others, divided over the flows on the same links.

A flow loses the time that it takes beyond its time alone at the slowest link of its path. Each flow
that was under way on a link of its path meanwhile gets a share in proportion to how long it was.
This is an estimate: it says who was there, not whose packets went first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from echelon.planning.allocation import Link


@dataclass(frozen=True, slots=True)
class FlowSpan:
    """One flow of one iteration. Times are seconds."""

    job: str
    start_s: float
    finish_s: float
    size_bytes: int
    links: tuple[Link, ...]
    """The links of its path."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The time that a job's flows lost while other flows were on the same links."""

    job: str
    other: str
    """The job of the other flows, which may be the same one."""
    wait_s: float
    links: tuple[Link, ...]
    """The links where they met, the longest meeting first."""


def waits(flows: Iterable[FlowSpan], rates_bps: Mapping[Link, int]) -> list[Wait]:
    """Return who waited for whom, the longest wait first.

    Flows that met nobody have lost nothing to others.
    """
    spans = list(flows)
    meetings = _meetings(spans)
    total: dict[tuple[str, str], float] = defaultdict(float)
    met_s: dict[tuple[str, str], dict[Link, float]] = defaultdict(lambda: defaultdict(float))
    for flow, met in zip(spans, meetings, strict=True):
        lost_s = _lost_s(flow, rates_bps)
        together_s = sum(sum(by_link.values()) for by_link in met.values())
        if not together_s or not lost_s:
            continue
        for other, by_link in met.items():
            share = sum(by_link.values()) / together_s
            total[flow.job, other] += lost_s * share
            for link, seconds in by_link.items():
                met_s[flow.job, other][link] += seconds

    all_waits = []
    for (job, other), wait_s in total.items():
        by_link = met_s[job, other]
        links = sorted(by_link, key=by_link.__getitem__, reverse=True)
        wait = Wait(job, other, wait_s, tuple(links))
        all_waits.append(wait)
    return sorted(all_waits, key=lambda wait: (-wait.wait_s, wait.job, wait.other))


def _lost_s(flow: FlowSpan, rates_bps: Mapping[Link, int]) -> float:
    """Return the time that a flow took beyond its time alone."""
    rates = [rates_bps[link] for link in flow.links if link in rates_bps]
    alone_s = flow.size_bytes * 8 / min(rates) if rates else 0.0
    return max(0.0, flow.finish_s - flow.start_s - alone_s)


_LEAST_S = 1e-9
"""Meetings shorter than this are rounding errors."""

_Met = dict[str, dict[Link, float]]
"""The time of a flow under way with those of each job, on each of its links."""


def _meetings(spans: Sequence[FlowSpan]) -> list[_Met]:
    """Return what each flow met."""
    meetings: list[_Met] = [defaultdict(dict) for _ in spans]
    on_link: dict[Link, list[int]] = defaultdict(list)
    for number, flow in enumerate(spans):
        for link in flow.links:
            on_link[link].append(number)
    for link, numbers in on_link.items():
        _meet(link, numbers, spans, meetings)
    return meetings


def _meet(
    link: Link,
    numbers: Iterable[int],
    spans: Sequence[FlowSpan],
    meetings: Sequence[_Met],
) -> None:
    """Note for each flow of a link how long the flows of each job were under way with it.

    `under_way[job]` is the time, summed over the job's flows, until the moment of the sweep: what
    it grows by from a flow's start to its finish is what the flow met.
    """
    under_way: dict[str, float] = defaultdict(float)
    active: dict[str, int] = defaultdict(int)
    at_start: dict[int, dict[str, float]] = {}
    last_moment = 0.0
    for moment, begins, number in _moments(numbers, spans):
        for job, count in active.items():
            under_way[job] += count * (moment - last_moment)
        last_moment = moment
        flow = spans[number]
        if begins:
            at_start[number] = dict(under_way)
            active[flow.job] += 1
        elif number in at_start:
            active[flow.job] -= 1
            if not active[flow.job]:
                del active[flow.job]
            before = at_start.pop(number)
            for job, until_now_s in under_way.items():
                seconds = until_now_s - before.get(job, 0.0)
                if job == flow.job:
                    # Without the flow itself.
                    seconds -= flow.finish_s - flow.start_s
                if seconds > _LEAST_S:
                    meetings[number][job][link] = seconds


def _moments(numbers: Iterable[int], spans: Sequence[FlowSpan]) -> list[tuple[float, bool, int]]:
    """Return when flows start (True) and finish, in order; of one moment, finishes come first."""
    moments = []
    for number in numbers:
        flow = spans[number]
        moments.append((flow.finish_s, False, number))
        if flow.finish_s > flow.start_s:
            moments.append((flow.start_s, True, number))
    return sorted(moments)
