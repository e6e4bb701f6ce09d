"""Times of computing that nothing has measured.

AICB writes 1 ns wherever it has no measurement, so everywhere without a GPU; recomputation and the
sum of a forward and a backward time make 2 ns of it (`SimAI_training_workload_generator.py` of
aliyun/aicb). No kernel is that short: launching one takes microseconds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeGuard

from echelon.model.documents import DocumentError
from echelon.model.jobs.combinators import Step
from echelon.model.jobs.graph import ComputeUnit
from echelon_importers.astra_sim.layers import CYCLE_S
from echelon_importers.importer import Source
from echelon_importers.workload import SPREAD, Workload

_LONGEST_PLACEHOLDER_S = 2 * CYCLE_S


@dataclass(frozen=True, slots=True)
class TimeKinds:
    """The numbers of times of computing of each kind."""

    measured: int
    placeholders: int
    zeros: int

    def note(self) -> str:
        """Return a line for the reader; empty: all times are measured."""
        if not self.placeholders and not self.zeros:
            return ""
        number = self.measured + self.placeholders + self.zeros
        return (
            f"of {number} times of computing {self.placeholders} are placeholders (1 or 2 ns) and"
            f" {self.zeros} are 0"
        )


def completed(
    source: Source,
    workload: Workload,
    computing_s: Fraction | None,
    gpu: str | None,
) -> Workload:
    """Return the workload with times that can be believed.

    `computing_s`, what a rank computes in all, takes the place of placeholders in equal parts. With
    measured times the workload stays as it is, with a note on the others. Raises `DocumentError`
    if there are placeholders alone and nothing replaces them.
    """
    if gpu is not None:
        reason = (
            "a text workload has no operations from which a GPU's time follows (give --computing,"
            " what a rank computes in all)"
        )
        raise DocumentError(source.name, "--gpu", reason, code="conflicting-key")
    kinds = _kinds(workload)
    if kinds.measured:
        note = kinds.note()
        if note:
            workload.tally.notes.append(note)
        return workload
    if kinds.placeholders and computing_s is None:
        reason = (
            f"all {kinds.placeholders} times of computing are placeholders (1 or 2 ns, which AICB"
            " writes without a GPU), and no job computes nothing (give --computing '300 ms', what a"
            " rank computes in all; --computing '0 s', if communication alone is meant; or run AICB"
            " with --aiob_enable)"
        )
        raise source.refusal(reason, code="missing-key")
    if computing_s is None:
        return workload
    workload.tally.ignored["placeholders of computing (1 or 2 ns)"] = kinds.placeholders
    return _spread(workload, computing_s, zeros_too=not kinds.placeholders)


def _kinds(workload: Workload) -> TimeKinds:
    """Return the numbers of times of one rank: the one that computes most often."""
    by_rank: dict[str, Counter[str]] = {}
    for node in workload.nodes:
        if isinstance(node, ComputeUnit):
            counts = by_rank.setdefault(node.worker, Counter())
            counts[_kind(node.duration_s)] += 1
    counts = max(by_rank.values(), key=Counter.total, default=Counter())
    return TimeKinds(counts["measured"], counts["placeholder"], counts["zero"])


def _kind(duration_s: Fraction) -> str:
    if duration_s > _LONGEST_PLACEHOLDER_S:
        return "measured"
    return "placeholder" if duration_s else "zero"


def _spread(
    workload: Workload,
    computing_s: Fraction,
    *,
    zeros_too: bool,
) -> Workload:
    """Return the workload with equal parts of `computing_s` as each rank's times."""
    slots: Counter[str] = Counter()
    for node in workload.nodes:
        if _is_slot(node, zeros_too):
            slots[node.worker] += 1
    nodes: list[Step] = []
    for node in workload.nodes:
        if _is_slot(node, zeros_too):
            part_s = computing_s / slots[node.worker]
            node = replace(node, duration_s=part_s)
        nodes.append(node)
    if computing_s:
        longest = max(slots.values(), default=0)
        workload.tally.derived[SPREAD] += longest
    return replace(workload, nodes=tuple(nodes))


def _is_slot(node: Step, zeros_too: bool) -> TypeGuard[ComputeUnit]:
    """Return whether a node computes for a time that nothing has measured."""
    return isinstance(node, ComputeUnit) and (zeros_too or node.duration_s > 0)
