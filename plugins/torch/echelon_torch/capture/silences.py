"""The silences of a job's connections, and the one that tells its iterations apart.

Switches and agents take it that an iteration begins with the first bytes after an idle gap, once
the last one has brought 95 % of its bytes (docs/agent.md). So the gap has to be longer than the
silences in the last 5 % of what a rank sends, and shorter than the silence between two iterations.

Nobody records when bytes leave. A rank sends a word when it calls an operation. It sends until a
collective ends, which takes as long as for the rank that called it last; the others wait for that
one. A transfer leaves at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from echelon_torch.capture.iterations import alike_iterations, groups_by_name
from echelon_torch.capture.record import Call, Group, RankRecord, RecordedIteration

_SHARE = 0.95
"""The share of an iteration's bytes before which no silence ends it."""
_SHORTEST_S = 1e-3
"""The shortest gap that is given. Processors and queues delay packets as long as that."""
_TRANSFERS = ("send", "receive")
_CLEARLY = 2
"""The factor by which the silence between iterations must be longer than those in them."""
_Busy = tuple[float, float, int]
"""A time in which a rank sends, from its start to its end, and the bytes."""


@dataclass(frozen=True, slots=True)
class Silences:
    """The silences over all ranks and iterations."""

    within_s: float
    """The longest in the last 5 % of the bytes of an iteration."""
    between_s: float
    """The shortest between two iterations; 0 if none were recorded one behind the other."""
    iteration_s: float
    """The longest iteration. No silence within one is longer."""

    @property
    def gap_s(self) -> float | None:
        """The idle gap, or None: none tells iterations apart for certain.

        Half of the silence between iterations leaves room for computing that is faster than
        recorded.
        """
        gap_s = max(self.between_s / 2, math.sqrt(self.within_s * self.between_s))
        if self.between_s < _CLEARLY * self.within_s or gap_s < _SHORTEST_S:
            return None
        return gap_s


def silences(records: Sequence[RankRecord], ranks_per_host: int = 1) -> Silences:
    """Return the silences of a job whose hosts send what their ranks send to other hosts'."""
    jobs = alike_iterations(records)[0]
    groups = groups_by_name(records)
    within_s = [0.0]
    between_s = []
    for first in range(0, len(records), ranks_per_host):
        ranks = range(first, min(first + ranks_per_host, len(records)))
        before: Sequence[RecordedIteration] | None = None
        ended_s = 0.0
        for job in jobs:
            busy: list[_Busy] = []
            for rank in ranks:
                busy += _busy(job, rank, groups, ranks)
            if not busy:
                continue
            busy.sort()
            within_s += _late_silences(busy)
            if before is not None and _follows(job, before, ranks):
                first_s, *_ = busy[0]
                between_s.append(first_s - ended_s)
            before = job
            ended_s = max(end_s for _, end_s, _ in busy)
    longest_s = max(part.end_s - part.start_s for job in jobs for part in job)
    shortest_s = max(0.0, min(between_s, default=0.0))
    return Silences(max(within_s), shortest_s, longest_s)


def _follows(
    job: Sequence[RecordedIteration],
    before: Sequence[RecordedIteration],
    ranks: range,
) -> bool:
    return all(before[rank].end_s == job[rank].start_s for rank in ranks)


def _late_silences(busy: Sequence[_Busy]) -> Iterator[float]:
    """Yield the silences behind 95 % of the bytes."""
    least = _SHARE * sum(size for *_, size in busy)
    sent = 0
    until_s, *_ = busy[0]
    for (_, end_s, size), (start_s, *_) in pairwise(busy):
        sent += size
        until_s = max(until_s, end_s)
        if sent >= least and start_s > until_s:
            yield start_s - until_s


def _busy(
    job: Sequence[RecordedIteration],
    rank: int,
    groups: Mapping[str, Group],
    host: range,
) -> Iterator[_Busy]:
    """Yield the times in which the rank sends to ranks of other hosts, each with the bytes."""
    shortest = _shortest_s(job)
    counts: dict[tuple[str, str], int] = {}
    for call in job[rank].calls:
        ranks: Sequence[int] = groups[call.group].ranks
        if call.kind in _TRANSFERS:
            ranks = [ranks[call.peer]]
        if all(rank in host for rank in ranks):
            continue
        yield call.start_s, call.start_s, 0
        if call.kind == "send":
            yield call.start_s, call.start_s, call.bytes
        elif call.kind not in ("receive", "barrier"):
            key = call.kind, call.group
            number = counts[key] = counts.get(key, -1) + 1
            if call.end_s is not None:
                took_s = min(shortest[*key, number], call.end_s - call.start_s)
                yield call.end_s - took_s, call.end_s, call.bytes


def _shortest_s(job: Sequence[RecordedIteration]) -> dict[tuple[str, str, int], float]:
    """Return the time of each collective for its last caller, by kind, group and number."""
    shortest: dict[tuple[str, str, int], float] = {}
    for iteration in job:
        counts: dict[tuple[str, str], int] = {}
        for call in filter(_is_collective, iteration.calls):
            key = call.kind, call.group
            number = counts[key] = counts.get(key, -1) + 1
            took_s = math.inf
            if call.end_s is not None:
                took_s = call.end_s - call.start_s
            before_s = shortest.get((*key, number), math.inf)
            shortest[*key, number] = min(before_s, took_s)
    return shortest


def _is_collective(call: Call) -> bool:
    return call.kind not in (*_TRANSFERS, "barrier")
