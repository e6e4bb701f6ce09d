"""Statistics of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from echelon.lab.traffic.models import BURST_PERIOD, Pair
from echelon.lab.traffic.schedule import Schedule, ScheduledFlow


@dataclass(frozen=True, slots=True)
class PairLoad:
    pair: Pair
    flows: int
    total_bytes: int
    offered_bps: float
    """The load of one pair over the schedule's duration."""


def pair_loads(schedule: Schedule) -> list[PairLoad]:
    """Return the loads by pair, the one with the most bytes first."""
    flows: dict[Pair, int] = {}
    sizes: dict[Pair, int] = {}
    for flow in schedule.flows:
        pair = flow.src, flow.dst
        flows[pair] = flows.get(pair, 0) + 1
        sizes[pair] = sizes.get(pair, 0) + flow.size_bytes
    per_byte = 8e6 / schedule.duration_us if schedule.duration_us else 0.0
    loads = [PairLoad(pair, flows[pair], size, size * per_byte) for pair, size in sizes.items()]
    return sorted(loads, key=lambda load: (-load.total_bytes, load.pair))


def burst_us(schedule: Schedule) -> int | None:
    """Return the length of the bursts of a schedule that says that it has some."""
    text = schedule.about.get("burst_us", "")
    # A longer number is not a duration, and Python may refuse to read it.
    length_us = int(text) if text.isdecimal() and len(text) <= len(str(schedule.duration_us)) else 0
    return length_us if 0 < length_us <= schedule.duration_us else None


def burst_share(schedule: Schedule, length_us: int) -> float:
    """Return the part of all bytes whose flows start in the first `length_us` of each period of ten times that."""
    period_us = BURST_PERIOD * length_us
    inside = sum(flow.size_bytes for flow in schedule.flows if flow.start_us % period_us < length_us)
    return inside / schedule.total_bytes if schedule.total_bytes else 0.0


def loads_bps(flows: Sequence[ScheduledFlow], begin_us: int, end_us: int, bins: int) -> list[float]:
    """Return the offered load in each of `bins` equal parts of that time. Flows count when they start."""
    totals = [0] * bins
    for flow in flows:
        if begin_us <= flow.start_us < end_us:
            totals[(flow.start_us - begin_us) * bins // (end_us - begin_us)] += flow.size_bytes
    return [total * 8e6 * bins / (end_us - begin_us) for total in totals]
