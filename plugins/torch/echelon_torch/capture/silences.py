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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from echelon_torch.capture.iterations import alike_iterations
from echelon_torch.capture.record import Call, Group, RankRecord, RecordedIteration

_SHARE = 0.95
"""The share of an iteration's bytes before which no silence ends it."""
_SHORTEST_S = 1e-3
"""The shortest gap that is given. Processors and queues delay packets as long as that."""
_TRANSFERS = ("send", "receive")
_CLEARLY = 2
"""How much longer the silence between iterations must be than those in them."""


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
        told = self.between_s >= _CLEARLY * self.within_s and gap_s >= _SHORTEST_S
        return gap_s if told else None


def silences(records: Sequence[RankRecord], ranks_per_host: int = 1) -> Silences:
    """Return the silences of a job, whose hosts send what each of their ranks sends to those of
    others.
    """
    jobs = alike_iterations(records)[0]
    groups = {name: group for record in records for name, group in record.groups.items()}
    within_s = [0.0]
    between_s = []
    for first in range(0, len(records), ranks_per_host):
        ranks = range(first, min(first + ranks_per_host, len(records)))
        before: Sequence[RecordedIteration] | None = None
        ended_s = 0.0
        for job in jobs:
            busy = sorted(each for rank in ranks for each in _busy(job, rank, groups, ranks))
            if not busy:
                continue
            within_s += _late_silences(busy)
            if before is not None and all(
                before[rank].end_s == job[rank].start_s for rank in ranks
            ):
                between_s.append(busy[0][0] - ended_s)
            before = job
            ended_s = max(end_s for _, end_s, _ in busy)
    longest_s = max(own.end_s - own.start_s for job in jobs for own in job)
    return Silences(max(within_s), max(0.0, min(between_s, default=0.0)), longest_s)


def _late_silences(busy: Iterable[tuple[float, float, int]]) -> Iterator[float]:
    """Yield the silences behind 95 % of the bytes."""
    rows = list(busy)
    least = _SHARE * sum(size for *_, size in rows)
    sent = 0
    until_s = rows[0][0]
    for (_, end_s, size), (start_s, *_) in pairwise(rows):
        sent = sent + size
        until_s = max(until_s, end_s)
        if sent >= least and start_s > until_s:
            yield start_s - until_s


def _busy(
    job: Sequence[RecordedIteration], rank: int, groups: Mapping[str, Group], host: range
) -> Iterator[tuple[float, float, int]]:
    """Yield the times in which the rank sends to ranks of other hosts, each with the bytes."""
    shortest = _shortest_s(job)
    counts: dict[tuple[str, str], int] = {}
    for call in job[rank].calls:
        ranks = groups[call.group].ranks
        if all(each in host for each in ([ranks[call.peer]] if call.kind in _TRANSFERS else ranks)):
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
    """Return the time that each collective takes for the rank that calls it last: kind, group, and
    its number.
    """
    shortest: dict[tuple[str, str, int], float] = {}
    for iteration in job:
        counts: dict[tuple[str, str], int] = {}
        for call in filter(_is_collective, iteration.calls):
            key = call.kind, call.group
            number = counts[key] = counts.get(key, -1) + 1
            if call.end_s is None:
                took_s = math.inf
            else:
                took_s = call.end_s - call.start_s
            shortest[*key, number] = min(shortest.get((*key, number), math.inf), took_s)
    return shortest


def _is_collective(call: Call) -> bool:
    return call.kind not in (*_TRANSFERS, "barrier")
