"""The time of an iteration as the trace has it, beside that of the job that was imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from echelon.model.jobs.graph import ComputeUnit, Flow
from echelon_importers.workload import Workload, step_ranks

_TOLERANCE = Fraction(1, 10)
"""The part of the time that may differ without a word: rounding, launches between streams."""


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a node, and the ranks that have a part in it."""

    time_s: Fraction
    ranks: frozenset[str]


def with_times(workload: Workload, traced_s: Fraction) -> Workload:
    """Return the workload with a note on its time, if the trace has times.

    `traced_s` is the longest time between the start of a rank's first kernel and the end of its
    last; 0: the trace has no times.
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
    tally = replace(workload.tally, notes=[*workload.tally.notes, note])
    return replace(workload, tally=tally)


def replayed_s(workload: Workload) -> Fraction:
    """Return when the last node ends, if communication takes `Workload.took_s`."""
    ends: dict[str, _End] = {}
    last_s = Fraction(0)
    for node in workload.nodes:
        # As the importers' graphs run (docs/reference/jobs.md): a rank without a part in a node
        # does not wait for it.
        ranks = frozenset(step_ranks(node))
        starters = ranks
        if isinstance(node, Flow):
            starters = frozenset((node.src,))
        end_s = _ready_s(starters, node.after, ends)
        if isinstance(node, ComputeUnit):
            end_s += node.duration_s
        else:
            end_s += workload.took_s.get(node.name, Fraction(0))
        ends[node.name] = _End(end_s, ranks)
        last_s = max(last_s, end_s)
    return last_s


def _ready_s(
    starters: frozenset[str],
    after: Iterable[str],
    ends: Mapping[str, _End],
) -> Fraction:
    ready_s = Fraction(0)
    for name in after:
        end = ends[name]
        if end.time_s > ready_s and not end.ranks.isdisjoint(starters):
            ready_s = end.time_s
    return ready_s


def _ms(seconds: Fraction) -> str:
    return f"{float(seconds * 1000):.4g} ms"
