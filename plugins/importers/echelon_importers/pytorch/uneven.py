"""Collectives to which ranks give different numbers of bytes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from echelon_importers.trace_parts import Joined, TraceNode
from echelon_importers.workload import Ranks, ReadCounts

_SIZED = ("all-gather", "reduce-scatter", "all-to-all")
"""The collectives whose ranks may give different numbers of bytes.

A job file has one number. Of an all-gather and a reduce-scatter, the mean keeps the bytes of all
parts together.
"""
_Key = tuple[Ranks, int]
"""The ranks of a group, and the number of the collective among those of these ranks."""


def even(
    traces: Sequence[Sequence[TraceNode]],
    tally: ReadCounts,
) -> list[list[TraceNode]]:
    """Return the traces with collectives that a job file can say.

    An all-to-all whose ranks all say what they send to each has these parts, or none if all are the
    same. Any other collective has the mean of the ranks' bytes.
    """
    joined: defaultdict[_Key, list[Joined]] = defaultdict(list)
    for trace in traces:
        for key, does in _collectives(trace):
            joined[key].append(does)

    changed: dict[_Key, Joined] = {}
    for key, parts in joined.items():
        kinds = {does.kind for does in parts}
        if len(kinds) > 1 or not kinds <= set(_SIZED):
            continue
        if _is_matrix(parts):
            tally.derived["all-to-alls with what each rank sends to each"] += 1
        else:
            changed[key] = _mean(parts, tally)
    return [_replaced(trace, changed) for trace in traces]


def _is_matrix(parts: Sequence[Joined]) -> bool:
    """Return whether all ranks say what they send to each, and that is not all the same."""
    sizes: set[int] = set()
    for does in parts:
        if does.parts is None:
            return False
        sizes.update(does.parts)
    return len(sizes) > 1


def _mean(parts: Sequence[Joined], tally: ReadCounts) -> Joined:
    first = parts[0]
    sizes = [does.size_bytes for does in parts]
    # Rounded up, so that few bytes do not become none.
    mean = -(-sum(sizes) // len(sizes))
    if len(set(sizes)) > 1:
        noun = f"{first.kind}s with the mean of the ranks' bytes"
        tally.derived[noun] += 1
    return replace(first, size_bytes=mean, parts=None)


def _collectives(trace: Sequence[TraceNode]) -> Iterator[tuple[_Key, Joined]]:
    count: Counter[Ranks] = Counter()
    for node in trace:
        does = node.does
        if isinstance(does, Joined):
            ranks = does.ranks
            yield (ranks, count[ranks]), does
            count[ranks] += 1


def _replaced(
    trace: Sequence[TraceNode],
    changed: Mapping[_Key, Joined],
) -> list[TraceNode]:
    """Return a trace with other collectives in the place of some."""
    collectives = _collectives(trace)
    nodes = []
    for node in trace:
        if isinstance(node.does, Joined):
            key, does = next(collectives)
            node = replace(node, does=changed.get(key, does))
        nodes.append(node)
    return nodes
