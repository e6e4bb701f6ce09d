"""The summary of a capture: what an iteration does, with the spread of times and sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from echelon_torch.capture.iterations import JobProfile, Moment, Operation, RankProfile, Variation
from echelon_torch.capture.paradigms import recognise
from echelon_torch.capture.record import RankRecord
from echelon_torch.capture.traces import label


def summary(records: Sequence[RankRecord], profile: JobProfile) -> dict[str, object]:
    """Return the summary, as JSON can have it. Times are seconds, sizes bytes."""
    return {
        "ranks": len(records),
        "hosts": sorted({record.host for record in records}),
        "torch": sorted({record.torch for record in records}),
        "devices": sorted({record.device for record in records}),
        "iterations": profile.alike,
        "other_iterations": profile.different,
        "found_by": profile.found_by,
        "paradigms": [asdict(each) for each in recognise(profile)],
        "by_rank": [_by_rank(rank, each) for rank, each in enumerate(profile.ranks)],
        "operations": list(_operations(profile)),
    }


def _by_rank(rank: int, profile: RankProfile) -> dict[str, object]:
    return {
        "rank": rank,
        "iteration_s": _rounded(profile.iteration_s),
        "compute_s": _rounded(profile.compute_s),
        "wait_s": _rounded(profile.wait_s),
        "without_processor_s": _rounded(profile.delayed_s),
        "computing": [_computing(profile, moment) for moment in profile.moments],
    }


def _computing(profile: RankProfile, moment: Moment) -> dict[str, object]:
    used_s = round(moment.compute_s, 6)
    return {"before": label(profile, moment), "used_s": used_s, **_rounded(moment.varies)}


def _operations(profile: JobProfile) -> Iterator[Mapping[str, object]]:
    """Yield a row for each operation of each group, and for each transfer at its sender.

    Its time is that of the rank for which it took least: others called it earlier, and waited for
    that rank.
    """
    calls: dict[tuple[object, ...], list[tuple[int, Operation]]] = {}
    for rank, each in enumerate(profile.ranks):
        counts: Counter[tuple[object, ...]] = Counter()
        for operation in each.operations:
            key = _key(rank, operation)
            calls.setdefault((*key, counts[key]), []).append((rank, operation))
            counts[key] += 1
    for (kind, group, _, number), members in calls.items():
        if kind == "receive":
            continue
        rank, first = members[0]
        ranks = list(first.ranks)
        if kind == "send":
            ranks = [rank, first.ranks[first.call.peer]]
        yield {
            "kind": kind,
            "group": group,
            "number": number,
            "ranks": ranks,
            "backward": first.call.backward,
            "module": first.call.module,
            "bytes": _rounded_bytes(first.size_bytes),
            "took_s": _least_time([operation for _, operation in members]),
        }


def _key(rank: int, operation: Operation) -> tuple[object, ...]:
    """Return what the calls of one operation by several ranks have in common."""
    call = operation.call
    if call.kind in ("send", "receive"):
        return call.kind, call.group, (rank, call.peer, call.tag)
    return call.kind, call.group, None


def _least_time(operations: Sequence[Operation]) -> dict[str, float] | None:
    spreads = [operation.took_s for operation in operations if operation.took_s is not None]
    if not spreads:
        return None
    return _rounded(min(spreads, key=lambda spread: spread.median))


def _rounded(spread: Variation) -> dict[str, float]:
    return {key: round(value, 6) for key, value in asdict(spread).items()}


def _rounded_bytes(spread: Variation) -> dict[str, int]:
    return {key: round(value) for key, value in asdict(spread).items()}
