"""The iterations of a job that are alike, and what they have in common: times and sizes with their
spread.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from echelon.model.documents import DocumentError
from echelon_torch.capture.record import (
    Call,
    Group,
    RankRecord,
    RankWait,
    RecordedIteration,
    Unmarked,
)


@dataclass(frozen=True, slots=True)
class Variation:
    """The spread of a value over iterations."""

    median: float
    p10: float
    p90: float
    mean: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Variation:
        """Return the spread of values.

        With few of them, the lowest and the highest are p10 and p90.
        """
        if len(values) > 1:
            tenths = statistics.quantiles(values, n=10, method="inclusive")
        else:
            tenths = [values[0]] * 9
        return cls(statistics.median(values), tenths[0], tenths[8], statistics.fmean(values))


@dataclass(frozen=True, slots=True)
class Operation:
    """A call of one rank, in all iterations that are alike."""

    call: Call
    """The call in the first of those iterations."""
    ranks: tuple[int, ...]
    backend: str
    called: str
    """What the program calls the group; empty: nothing."""
    size_bytes: Variation
    parts: tuple[int, ...] | None
    """The mean bytes to each rank of the group."""
    took_s: Variation | None
    """The time from the call to its end, which includes the delays of other ranks."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One event of a rank, behind the computing that precedes it in the iteration that took the
    median time.

    Medians of parts would add up to less than the median of the whole, which the latest rank
    decides.
    """

    compute_s: float
    varies: Variation
    """The same computing in all iterations that are alike."""
    call: int | None
    """The operation that is called; None: the rank waits."""
    waits: tuple[int, ...] = ()
    """The operations that it waits for."""
    ends_backward: bool = False
    """Whether it waits at the end of a backward pass."""


@dataclass(frozen=True, slots=True)
class RankProfile:
    """The operations and moments of one rank in an iteration."""

    operations: tuple[Operation, ...]
    moments: tuple[Moment, ...]
    rest_s: float
    """The computing behind the last event."""
    iteration_s: Variation
    compute_s: Variation
    wait_s: Variation
    delayed_s: Variation
    """The time in which the rank could have run, and had no processor."""


@dataclass(frozen=True, slots=True)
class JobProfile:
    """The profiles of all ranks of a job in an iteration."""

    ranks: tuple[RankProfile, ...]
    groups: Mapping[str, Group]
    alike: int
    """The iterations that do the same, from which times and sizes are."""
    others: int
    found_by: str
    """The means by which the ends of iterations were found."""


def profile(records: Sequence[RankRecord]) -> JobProfile:
    """Return what the iterations of a job have in common.

    Raises `DocumentError` if there are none.
    """
    alike, others, found_by = alike_iterations(records)
    groups = {name: group for record in records for name, group in record.groups.items()}
    took_s = [max(own.end_s - own.start_s for own in job) for job in alike]
    typical = sorted(range(len(alike)), key=took_s.__getitem__)[(len(alike) - 1) // 2]
    ranks = tuple(_rank_profile(each, typical, groups) for each in zip(*alike, strict=True))
    return JobProfile(ranks, groups, len(alike), others, found_by)


def alike_iterations(
    records: Sequence[RankRecord],
) -> tuple[list[tuple[RecordedIteration, ...]], int, str]:
    """Return the iterations that do the same, each with its part of every rank, the number of
    others, and by what means their ends were found.

    Raises `DocumentError` if there are none.
    """
    if all(record.iterations for record in records):
        found_by = "steps of the optimizer"
        count = min(len(record.iterations) for record in records)
        jobs = [tuple(record.iterations[at] for record in records) for at in range(count)]
    else:
        found_by = "repetition of the operations"
        jobs = list(_by_repetition(records))
    if not jobs:
        raise DocumentError(
            "the capture",
            "",
            "has no whole iteration, and operations that do not repeat (train for more iterations"
            " than --skip, or call step() of the observer at the end of each)",
            code="empty-document",
        )
    keys = [tuple(map(_key, job)) for job in jobs]
    # Of kinds that are equally frequent, the last: it is furthest from the start of the training.
    common = max(Counter(keys).items(), key=lambda item: (item[1], -keys[::-1].index(item[0])))[0]
    alike = [job for job, key in zip(jobs, keys, strict=True) if key == common]
    return alike, len(jobs) - len(alike), found_by


def _events(part: Unmarked) -> list[Call | RankWait]:
    return sorted((*part.calls, *part.waits), key=lambda event: event.start_s)


def _key(part: Unmarked) -> tuple[Hashable, ...]:
    """Return what an iteration does, without times and sizes."""
    return tuple(
        (
            event.calls
            if isinstance(event, RankWait)
            else (*_signature(event), event.parts is None, event.backward)
        )
        for event in _events(part)
    )


def _signature(call: Call) -> tuple[Hashable, ...]:
    return call.kind, call.group, call.peer, call.tag


def _rank_profile(
    iterations: Sequence[RecordedIteration], typical: int, groups: Mapping[str, Group]
) -> RankProfile:
    events = [_events(each) for each in iterations]
    gaps: dict[int, list[float]] = defaultdict(list)
    for iteration, own in zip(iterations, events, strict=True):
        cursor = iteration.start_s
        for at, event in enumerate(own):
            gaps[at].append(max(0.0, event.start_s - cursor))
            # While a rank calls an operation it is busy, and other work of its own has to wait.
            cursor = max(cursor, event.end_s if isinstance(event, RankWait) else event.start_s)
        gaps[len(own)].append(max(0.0, iteration.end_s - cursor))
    moments = tuple(
        (
            Moment(gaps[at][typical], Variation.of(gaps[at]), None, event.calls, event.backward)
            if isinstance(event, RankWait)
            else Moment(gaps[at][typical], Variation.of(gaps[at]), event.number)
        )
        for at, event in enumerate(events[0])
    )
    operations = tuple(
        _operation([each.calls[number] for each in iterations], groups)
        for number in range(len(iterations[0].calls))
    )
    waits = [sum(wait.end_s - wait.start_s for wait in each.waits) for each in iterations]
    totals = [each.end_s - each.start_s for each in iterations]
    return RankProfile(
        operations,
        moments,
        gaps[len(moments)][typical],
        Variation.of(totals),
        Variation.of([total - wait for total, wait in zip(totals, waits, strict=True)]),
        Variation.of(waits),
        Variation.of([each.delayed_s for each in iterations]),
    )


def _operation(calls: Sequence[Call], groups: Mapping[str, Group]) -> Operation:
    first = calls[0]
    group = groups[calls[0].group]
    parts = None
    if first.parts is not None:
        columns = zip(*(call.parts or () for call in calls), strict=True)
        parts = tuple(round(statistics.fmean(column)) for column in columns)
    took = [call.end_s - call.start_s for call in calls if call.end_s is not None]
    return Operation(
        first,
        group.ranks,
        group.backend,
        group.called,
        Variation.of([call.bytes for call in calls]),
        parts,
        Variation.of(took) if len(took) == len(calls) else None,
    )


def _by_repetition(records: Sequence[RankRecord]) -> Iterator[tuple[RecordedIteration, ...]]:
    """Yield iterations that begin where the operations of all ranks begin to repeat, from the
    middle of the record on.

    All ranks have as many iterations, so the number of iterations is that of the rank with the
    longest period.
    """
    parts = [record.unmarked for record in records]
    if not all(parts):
        return
    cuts = [_cuts(part) for part in parts if part is not None]
    count = min(map(len, cuts)) - 1
    for at in range(count):
        yield tuple(
            _cut(part, own[len(own) - count - 1 + at], own[len(own) - count + at])
            for part, own in zip(parts, cuts, strict=True)
            if part is not None
        )


def _cuts(part: Unmarked) -> list[int]:
    """Return the places of calls at which iterations start and the last one ends."""
    words = [_signature(call) for call in part.calls]
    words = [
        (*word, call.bytes * (call.parts is None))
        for word, call in zip(words, part.calls, strict=True)
    ]
    start = len(words) // 2
    for period in range(1, (len(words) - start) // 2 + 1):
        if all(words[at] == words[at + period] for at in range(start, len(words) - period)):
            last = len(words) - 1
            return list(range(last - (last - start) // period * period, last + 1, period))
    return [0]


def _cut(part: Unmarked, first: int, end: int) -> RecordedIteration:
    calls = part.calls[first:end]
    begin_s = calls[0].start_s
    end_s = part.calls[end].start_s
    waits = tuple(
        wait.model_copy(
            update={"calls": tuple(call - first for call in wait.calls if first <= call < end)}
        )
        for wait in part.waits
        if begin_s <= wait.start_s < end_s
    )
    numbered = tuple(call.model_copy(update={"number": at}) for at, call in enumerate(calls))
    return RecordedIteration(start_s=begin_s, end_s=end_s, calls=numbered, waits=waits)
