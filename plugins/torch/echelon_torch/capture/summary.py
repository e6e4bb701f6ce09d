"""The summary of a capture: what an iteration does, with the spread of times and sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from echelon_torch.capture.iterations import JobProfile, Operation, Variation
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
        "other_iterations": profile.others,
        "found_by": profile.found_by,
        "paradigms": [asdict(each) for each in recognise(profile)],
        "by_rank": [
            {
                "rank": rank,
                "iteration_s": _rounded(own.iteration_s),
                "compute_s": _rounded(own.compute_s),
                "wait_s": _rounded(own.wait_s),
                "without_processor_s": _rounded(own.delayed_s),
                "computing": [
                    {
                        "before": label(own, each),
                        "used_s": round(each.compute_s, 6),
                        **_rounded(each.varies),
                    }
                    for each in own.moments
                ],
            }
            for rank, own in enumerate(profile.ranks)
        ],
        "operations": list(_operations(profile)),
    }


def _operations(profile: JobProfile) -> Iterator[Mapping[str, object]]:
    """Yield a row for each operation of each group, in its order, and for each transfer at its
    sender.

    Its time is that of the rank for which it took least: others called it earlier, and waited for
    that rank.
    """
    parts: dict[tuple[object, ...], list[tuple[int, Operation]]] = {}
    for rank, own in enumerate(profile.ranks):
        count: dict[tuple[object, ...], int] = {}
        for each in own.operations:
            call = each.call
            one_sided = call.kind in ("send", "receive")
            key = (call.kind, call.group, (rank, call.peer, call.tag) if one_sided else None)
            number = count[key] = count.get(key, -1) + 1
            parts.setdefault((*key, number), []).append((rank, each))
    for (kind, group, _, place), found in parts.items():
        if kind == "receive":
            continue
        took = [each.took_s for _, each in found if each.took_s is not None]
        rank, first = found[0]
        row: dict[str, object] = {
            "kind": kind,
            "group": group,
            "number": place,
            "ranks": list(first.ranks),
        }
        if kind == "send":
            row["ranks"] = [rank, first.ranks[first.call.peer]]
        row["backward"] = first.call.backward
        row["module"] = first.call.module
        row["bytes"] = _rounded(first.size_bytes, 0)
        row["took_s"] = _rounded(min(took, key=lambda spread: spread.median)) if took else None
        yield row


def _rounded(spread: Variation, digits: int = 6) -> dict[str, float]:
    return {
        key: round(value, digits) if digits else round(value)
        for key, value in asdict(spread).items()
    }
