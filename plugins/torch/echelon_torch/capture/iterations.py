"""The iterations of a job that are alike, and their times and sizes with their spread."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

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
    def over(cls, values: Sequence[float]) -> Variation:
        """Return the spread of values.

        With few of them, the lowest and the highest are p10 and p90.
        """
        if len(values) > 1:
            tenths = statistics.quantiles(
                values,
                n=10,
                method="inclusive",
            )
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
    """The name of the group in the program; empty: none."""
    size_bytes: Variation
    parts: tuple[int, ...] | None
    """The mean bytes to each rank of the group."""
    took_s: Variation | None
    """The time from the call to its end, which includes the delays of other ranks."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One event of a rank, after the computing before it in the iteration of median time.

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
    different: int
    """The iterations that do something else."""
    found_by: str
    """The means by which the ends of iterations were found."""


def profile(records: Sequence[RankRecord]) -> JobProfile:
    """Return what the iterations of a job have in common.

    Raises `DocumentError` if there are none.
    """
    alike, different, found_by = alike_iterations(records)
    groups = groups_by_name(records)
    took_s = [max(part.end_s - part.start_s for part in job) for job in alike]
    from_short_to_long = sorted(range(len(alike)), key=took_s.__getitem__)
    typical = from_short_to_long[(len(alike) - 1) // 2]
    by_rank = zip(*alike, strict=True)
    ranks = tuple(_rank_profile(iterations, typical, groups) for iterations in by_rank)
    return JobProfile(ranks, groups, len(alike), different, found_by)


def groups_by_name(records: Sequence[RankRecord]) -> dict[str, Group]:
    """Return the process groups of all ranks."""
    groups: dict[str, Group] = {}
    for record in records:
        groups.update(record.groups)
    return groups


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
        by_rank = [record.iterations[:count] for record in records]
        jobs = list(zip(*by_rank, strict=True))
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
    counts = Counter(keys)
    common = max(reversed(keys), key=counts.__getitem__)
    alike = [job for job, key in zip(jobs, keys, strict=True) if key == common]
    return alike, len(jobs) - len(alike), found_by


def _events(part: Unmarked) -> list[Call | RankWait]:
    return sorted((*part.calls, *part.waits), key=lambda event: event.start_s)


def _key(part: Unmarked) -> tuple[Hashable, ...]:
    """Return what an iteration does, without times and sizes."""
    return tuple(map(_event_key, _events(part)))


def _event_key(event: Call | RankWait) -> tuple[Hashable, ...]:
    if isinstance(event, RankWait):
        return event.calls
    return *_signature(event), event.parts is None, event.backward


def _signature(call: Call) -> tuple[Hashable, ...]:
    return call.kind, call.group, call.peer, call.tag


def _rank_profile(
    iterations: Sequence[RecordedIteration],
    typical: int,
    groups: Mapping[str, Group],
) -> RankProfile:
    # Iterations that are alike have as many events, each at the same place.
    *gaps_s, rests_s = zip(*map(_gaps_s, iterations), strict=True)
    moments = []
    for event, gap_s in zip(_events(iterations[0]), gaps_s, strict=True):
        moments.append(_moment(event, gap_s, typical))
    calls = zip(*(each.calls for each in iterations), strict=True)
    operations = [_operation(each, groups) for each in calls]

    waits = [sum(wait.end_s - wait.start_s for wait in each.waits) for each in iterations]
    totals = [each.end_s - each.start_s for each in iterations]
    computing = [total - wait for total, wait in zip(totals, waits, strict=True)]
    return RankProfile(
        tuple(operations),
        tuple(moments),
        rests_s[typical],
        Variation.over(totals),
        Variation.over(computing),
        Variation.over(waits),
        Variation.over([each.delayed_s for each in iterations]),
    )


def _gaps_s(iteration: RecordedIteration) -> list[float]:
    """Return the times of computing before each event, and before the end."""
    gaps_s = []
    until_s = iteration.start_s
    for event in _events(iteration):
        gaps_s.append(max(0.0, event.start_s - until_s))
        # While a rank calls an operation it is busy, and other work of its own has to wait.
        if isinstance(event, RankWait):
            until_s = max(until_s, event.end_s)
        else:
            until_s = max(until_s, event.start_s)
    gaps_s.append(max(0.0, iteration.end_s - until_s))
    return gaps_s


def _moment(
    event: Call | RankWait,
    gaps_s: Sequence[float],
    typical: int,
) -> Moment:
    varies = Variation.over(gaps_s)
    if isinstance(event, RankWait):
        return Moment(gaps_s[typical], varies, None, event.calls, event.backward)
    return Moment(gaps_s[typical], varies, event.number)


def _operation(calls: Sequence[Call], groups: Mapping[str, Group]) -> Operation:
    first = calls[0]
    group = groups[first.group]
    parts = None
    if first.parts is not None:
        columns = zip(*(call.parts or () for call in calls), strict=True)
        parts = tuple(round(statistics.fmean(column)) for column in columns)
    durations_s = [call.end_s - call.start_s for call in calls if call.end_s is not None]
    took_s = None
    if len(durations_s) == len(calls):
        took_s = Variation.over(durations_s)

    return Operation(
        first,
        group.ranks,
        group.backend,
        group.called,
        Variation.over([call.bytes for call in calls]),
        parts,
        took_s,
    )


def _by_repetition(records: Sequence[RankRecord]) -> Iterator[tuple[RecordedIteration, ...]]:
    """Yield iterations from where the ranks' operations repeat, from the record's middle on.

    All ranks have as many iterations, so the number of iterations is that of the rank with the
    longest period.
    """
    parts = [record.unmarked for record in records if record.unmarked is not None]
    if len(parts) < len(records):
        return
    cuts = [_cuts(part) for part in parts]
    count = min(map(len, cuts)) - 1

    by_rank = []
    for part, places in zip(parts, cuts, strict=True):
        ends = pairwise(places[-count - 1 :])
        by_rank.append([_cut(part, first, end) for first, end in ends])
    yield from zip(*by_rank, strict=True)


def _cuts(part: Unmarked) -> list[int]:
    """Return the places of calls at which iterations start and the last one ends."""
    words = list(map(_word, part.calls))
    start = len(words) // 2
    for period in range(1, (len(words) - start) // 2 + 1):
        # Most periods differ at once; slices would copy half of the calls for each.
        places = range(start, len(words) - period)
        if all(words[place] == words[place + period] for place in places):
            last = len(words) - 1
            periods = (last - start) // period
            return list(range(last - periods * period, last + 1, period))
    return [0]


def _word(call: Call) -> tuple[Hashable, ...]:
    """Return what tells a call from others: its size, too, unless it is exchanged in parts."""
    size = call.bytes if call.parts is None else 0
    return *_signature(call), size


def _cut(
    part: Unmarked,
    first: int,
    end: int,
) -> RecordedIteration:
    calls = part.calls[first:end]
    begin_s = calls[0].start_s
    end_s = part.calls[end].start_s
    waits = []
    for wait in part.waits:
        if begin_s <= wait.start_s < end_s:
            awaited = tuple(call - first for call in wait.calls if first <= call < end)
            waits.append(wait.model_copy(update={"calls": awaited}))

    numbered = []
    for number, call in enumerate(calls):
        numbered.append(call.model_copy(update={"number": number}))
    return RecordedIteration(
        start_s=begin_s,
        end_s=end_s,
        calls=tuple(numbered),
        waits=tuple(waits),
    )
