"""Who waits for whom: the time that flows lose, divided over the flows that were on the same links
meanwhile.

A flow loses the time that it takes beyond its time alone at the slowest link of its path. Each flow
that was under way on a link of its path meanwhile gets a share in proportion to how long it was.
This is an estimate: it says who was there, not whose packets went first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Link = tuple[str, str]
"""A direction of a link: a node and the next one."""


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
    """The time that a job's flows lost while another job's, or others of its own, were on the same
    links.
    """

    job: str
    other: str
    wait_s: float
    links: tuple[Link, ...]
    """The links where they met, the longest meeting first."""


def links_of(path: Sequence[str]) -> tuple[Link, ...]:
    """Return the links of a path."""
    return tuple(pairwise(path))


def waits(flows: Iterable[FlowSpan], rates_bps: Mapping[Link, int]) -> list[Wait]:
    """Return who waited for whom, the longest wait first.

    Flows that met nobody have lost nothing to others.
    """
    spans = list(flows)
    lost = [_lost_s(flow, rates_bps) for flow in spans]
    met: list[dict[str, dict[Link, float]]] = [defaultdict(dict) for _ in spans]
    on_link: dict[Link, list[int]] = defaultdict(list)
    for number, flow in enumerate(spans):
        for link in flow.links:
            on_link[link].append(number)
    for link, numbers in on_link.items():
        _meet(link, numbers, spans, met)
    total: dict[tuple[str, str], float] = defaultdict(float)
    where: dict[tuple[str, str], dict[Link, float]] = defaultdict(lambda: defaultdict(float))
    for number, flow in enumerate(spans):
        together_s = sum(sum(by_link.values()) for by_link in met[number].values())
        if not together_s or not lost[number]:
            continue
        for other, by_link in met[number].items():
            total[flow.job, other] += lost[number] * sum(by_link.values()) / together_s
            for link, seconds in by_link.items():
                where[flow.job, other][link] += seconds
    found = [
        Wait(
            job,
            other,
            wait_s,
            tuple(sorted(where[job, other], key=lambda link: -where[job, other][link])),
        )
        for (job, other), wait_s in total.items()
    ]
    return sorted(found, key=lambda wait: (-wait.wait_s, wait.job, wait.other))


def _lost_s(flow: FlowSpan, rates_bps: Mapping[Link, int]) -> float:
    slowest = min((rates_bps[link] for link in flow.links if link in rates_bps), default=None)
    if slowest is None:
        alone_s = 0.0
    else:
        alone_s = flow.size_bytes * 8 / slowest
    return max(0.0, flow.finish_s - flow.start_s - alone_s)


def _meet(
    link: Link, numbers: list[int], spans: list[FlowSpan], met: list[dict[str, dict[Link, float]]]
) -> None:
    """Note for each flow of a link how long the flows of each job were under way with it.

    `under_way[job]` is the time, summed over the job's flows, until the moment of the sweep: what
    it grows by from a flow's start to its finish is what the flow met.
    """
    moments = sorted(
        [(spans[n].finish_s, 0, n) for n in numbers]
        + [(spans[n].start_s, 1, n) for n in numbers if _lasts(spans[n])]
    )
    under_way: dict[str, float] = defaultdict(float)
    active: dict[str, int] = defaultdict(int)
    at_start: dict[int, dict[str, float]] = {}
    now = moments[0][0] if moments else 0.0
    for moment, begins, number in moments:
        for job, count in active.items():
            under_way[job] += count * (moment - now)
        now = moment
        flow = spans[number]
        if begins:
            at_start[number] = dict(under_way)
            active[flow.job] += 1
        elif number in at_start:
            active[flow.job] -= 1
            if not active[flow.job]:
                del active[flow.job]
            before = at_start.pop(number)
            for job, until_now in under_way.items():
                own = flow.finish_s - flow.start_s if job == flow.job else 0.0
                seconds = until_now - before.get(job, 0.0) - own
                if seconds > _LEAST_S:
                    met[number][job][link] = seconds


_LEAST_S = 1e-9
"""Meetings shorter than this are rounding errors."""


def _lasts(flow: FlowSpan) -> bool:
    return flow.finish_s > flow.start_s
