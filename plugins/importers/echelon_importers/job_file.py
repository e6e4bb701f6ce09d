"""A workload as a job file of parallelism `graph`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from echelon.model.jobs.combinators import Step
from echelon.model.jobs.graph import CollectiveStep, ComputeUnit, Flow
from echelon.model.quantities import duration_text, rate_text
from echelon_importers.workload import Workload

_WIDTH = 118
_DURATIONS = {
    "s": Fraction(1),
    "ms": Fraction(1, 10**3),
    "us": Fraction(1, 10**6),
    "ns": Fraction(1, 10**9),
}
_SIZES = {"GB": 10**9, "MB": 10**6, "kB": 10**3}


@dataclass(frozen=True, slots=True)
class Placement:
    """The hosts that the ranks are on."""

    hosts: Sequence[str]
    ranks_per_host: int = 1
    """Rank r is on ``hosts[r // ranks_per_host]``."""
    local_bandwidth_bps: int | None = None
    """Bits per second between the ranks of a host. None: no time."""


def job_text(
    workload: Workload,
    job: str,
    placement: Placement,
    about: Iterable[str],
) -> str:
    """Return the job file, below comments with the lines of `about`.

    Durations are rounded to picoseconds.
    """
    lines = [f"# {part}" for line in about for part in textwrap.wrap(line, _WIDTH)]
    lines += [f"job: {job}", "parallelism: graph", *_list("workers", placement.hosts), "graph:"]
    if placement.ranks_per_host > 1:
        lines.append(f"  ranks_per_worker: {placement.ranks_per_host}")
        if placement.local_bandwidth_bps is not None:
            lines.append(f"  local_bandwidth: {rate_text(placement.local_bandwidth_bps)}")
    if workload.in_turn:
        lines.append("  sends: in-turn")
    if workload.groups:
        lines.append("  groups:")
        lines += [f"    {name}: [{', '.join(ranks)}]" for ranks, name in workload.groups.items()]
    lines.append("  nodes:")
    lines += [f"    - {_node(node, workload.groups)}" for node in workload.nodes]
    return "\n".join(lines) + "\n"


def _node(node: Step, groups: Mapping[tuple[str, ...], str]) -> str:
    match node:
        case ComputeUnit():
            text = f"rank: {node.worker}, compute: {_duration(node.duration_s)}"
        case CollectiveStep():
            text = f"collective: {node.operation}, group: {groups[node.group]}"
            if node.matrix is not None:
                rows = ", ".join(map(_row, node.matrix))
                text += f", matrix: [{rows}]"
            elif node.operation != "barrier":
                text += f", bytes: {_size(node.size_bytes)}"
            if node.algorithm is not None:
                text += f", algorithm: {node.algorithm}"
            if node.rounds:
                text += ", steps: rounds"
        case Flow():
            text = f"send: [{node.src}, {node.dst}], bytes: {_size(node.size_bytes)}"
    if node.after:
        text += f", after: [{', '.join(node.after)}]"
    return f"{{name: {node.name}, {text}}}"


def _row(sizes: Iterable[int]) -> str:
    cells = [_size(size) if size else "0" for size in sizes]
    return f"[{', '.join(cells)}]"


def _duration(seconds: Fraction) -> str:
    for unit, length in _DURATIONS.items():
        count = seconds / length
        if 1 <= count < 10**4 and (count * 1000).denominator == 1:
            return f"{float(count):.15g} {unit}"
    return duration_text(seconds)


def _size(size_bytes: int) -> str:
    for unit, length in _SIZES.items():
        is_near = length <= size_bytes < length * 10**4
        if is_near and size_bytes % (length // 1000) == 0:
            return f"{size_bytes / length:.15g} {unit}"
    return f"{size_bytes} B"


def _list(key: str, words: Sequence[str]) -> list[str]:
    line = f"{key}: [{', '.join(words)}]"
    if len(line) <= _WIDTH:
        return [line]
    folded = textwrap.wrap(
        f"{', '.join(words)}]",
        _WIDTH,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [f"{key}: [", *(f"  {line}" for line in folded)]
