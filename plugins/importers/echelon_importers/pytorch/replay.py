"""The time of an iteration as the trace has it, beside that of the job that was imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

from echelon.model.jobs.combinators import Step
from echelon.model.jobs.graph import CollectiveStep, ComputeUnit
from echelon_importers.workload import ReadCounts, Workload

_TOLERANCE = Fraction(1, 10)
"""What the import may lose without a word: rounding, and launches between streams."""

Ends = Mapping[str, Fraction]
"""When each rank has finished its part of a node, in seconds."""


def with_times(workload: Workload, traced_s: Fraction | None) -> Workload:
    """Return the workload with a note on its time, if the trace has times.

    `traced_s` is the longest time between the start of a rank's first kernel and the end of its
    last.
    """
    if not traced_s:
        return workload
    imported_s = replayed_s(workload)
    note = (
        f"Iteration: {_ms(traced_s)} in the trace, {_ms(imported_s)} as imported if communication"
        " takes what it took in the trace."
    )
    difference = (imported_s - traced_s) / traced_s
    if abs(difference) > _TOLERANCE:
        word = "shorter" if difference < 0 else "longer"
        percent = round(abs(difference) * 100)
        note += (
            f" That is {percent} % {word}: kernels of this trace waited for something that it does"
            " not show, or files are not of the same step."
        )
    notes = [*workload.tally.notes, note]
    tally = workload.tally + ReadCounts()
    tally.notes = notes
    return replace(workload, tally=tally)


def replayed_s(workload: Workload) -> Fraction:
    """Return when the last node ends, if communication takes `Workload.took_s`."""
    ends: dict[str, Ends] = {}
    last_s = Fraction(0)
    for node in workload.nodes:
        # As the importers' graphs run (docs/reference/jobs.md): a rank without a part in a node
        # does not wait for it.
        starters, ranks = _ranks(node)
        start_s = _ready_s(starters, node.after, ends)
        if isinstance(node, ComputeUnit):
            end_s = start_s + node.duration_s
        else:
            end_s = start_s + workload.took_s.get(node.name, Fraction(0))
        ends[node.name] = dict.fromkeys(ranks, end_s)
        last_s = max(last_s, end_s)
    return last_s


def _ranks(node: Step) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ranks that must be ready for a node, and those that have a part in it."""
    if isinstance(node, ComputeUnit):
        return (node.worker,), (node.worker,)
    if isinstance(node, CollectiveStep):
        return node.group, node.group
    return (node.src,), (node.src, node.dst)


def _ready_s(
    ranks: Iterable[str],
    after: Iterable[str],
    ends: Mapping[str, Ends],
) -> Fraction:
    ready_s = Fraction(0)
    for name in after:
        for rank in ranks:
            ready_s = max(ready_s, ends[name].get(rank, Fraction(0)))
    return ready_s


def _ms(seconds: Fraction) -> str:
    return f"{float(seconds * 1000):.4g} ms"
