"""Iterations alone of many jobs, computed once for all that look the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import compress
from operator import is_not, itemgetter
from typing import Any, Self

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Job
from echelon.model.kept import altered
from echelon.planning.execution import IterationRecord
from echelon.planning.fluid.alone import run_on
from echelon.planning.paths import FlowPaths, Paths, links_of


class AloneRuns:
    """The results of `run_alone` for all jobs of a plan, kept from plan to plan.

    Jobs of the same graph on links that are as fast and are shared by the same flows have one
    record; their workers and switches may differ.
    """

    def __init__(self) -> None:
        self._records: dict[_Shape, tuple[_Shape, IterationRecord[Fraction]]] = {}
        """The first shape of all that are equal, and its record. Jobs hold that one, because
        comparing others to it takes long."""
        self._jobs: dict[str, Job] = {}
        self._fabric: Fabric | None = None
        self._found: dict[str, tuple[_Shape, IterationRecord[Fraction]]] = {}
        """The members of `_records` by job."""

    def update(self, jobs: Sequence[Job], fabric: Fabric) -> dict[str, IterationRecord[Fraction]]:
        """Return the records by job: the same object as at the last call where nothing changed.
        They are read-only.

        Records of other jobs are forgotten. Raise as `run_alone`; then nothing has changed.
        """
        of = {job.name: job for job in jobs}
        last = self._jobs if fabric is self._fabric else {}
        found_of = dict(self._found)
        new: dict[_Shape, tuple[_Shape, IterationRecord[Fraction]]] = {}
        for job in compress(jobs, map(is_not, jobs, map(last.get, of))):
            paths = FlowPaths().update([job], fabric)[job.name]
            shape = _shape(job, fabric, paths)
            found = self._records.get(shape) or new.get(shape)
            if found is None:
                found = new[shape] = (
                    shape,
                    _recalled(shape) or _note(shape, run_on(job, fabric, paths)),
                )
            found_of[job.name] = found
        self._records |= new
        self._jobs = of
        self._fabric = fabric
        self._found = dict(zip(of, map(found_of.__getitem__, of), strict=True))
        used = {*map(id, self._found.values())}
        if len(used) < len(self._records):
            self._records = {
                shape: found for shape, found in self._records.items() if id(found) in used
            }
        return dict(zip(of, map(itemgetter(1), self._found.values()), strict=True))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy that shares the records."""
        return altered(self, _records=dict(self._records))


def remembered_run(job: Job, fabric: Fabric) -> IterationRecord[Fraction]:
    """Return `run_alone`, without a simulation if a job that looks the same was simulated of
    late.
    """
    paths = FlowPaths().update([job], fabric)[job.name]
    shape = _shape(job, fabric, paths)
    return _recalled(shape) or _note(shape, run_on(job, fabric, paths))


_RECENT = 64
"""The most simulations that are kept for whoever asks next."""
_RECENT_STEPS = 50_000
"""The most steps that their jobs have together: shapes and records are as large as jobs."""
_recent: dict[_Shape, IterationRecord[Fraction]] = {}
"""Several threads use it, each by single operations."""


def _recalled(shape: _Shape) -> IterationRecord[Fraction] | None:
    return _recent.get(shape)


def _note(shape: _Shape, record: IterationRecord[Fraction]) -> IterationRecord[Fraction]:
    _recent[shape] = record
    steps = 0
    for number, known in enumerate(reversed([*_recent])):
        steps += len(known.computes) + len(known.flows)
        if number >= _RECENT or steps > _RECENT_STEPS:
            _recent.pop(known, None)
    return record


@dataclass(frozen=True, slots=True)
class _Shape:
    """Everything on which an iteration alone depends."""

    size: tuple[object, ...]
    """The numbers of bytes, flows and compute units, the duration of the first unit and the links
    of the first flow. They serve as the hash, since they tell most jobs apart, and hashing
    everything takes long."""
    computes: tuple[tuple[object, ...], ...]
    flows: tuple[tuple[object, ...], ...]
    echelonflows: tuple[tuple[object, ...], ...]
    links: tuple[tuple[tuple[int, Fraction], ...], ...]
    """The number and the bytes per second of each link of a flow's path."""

    def __hash__(self) -> int:
        return hash(self.size)


def _shape(job: Job, fabric: Fabric, paths: Paths) -> _Shape:
    numbers: dict[tuple[str, str], int] = {}
    of_path = {
        path: tuple(
            (numbers.setdefault(link, len(numbers)), fabric.capacity_Bps[link])
            for link in links_of(path)
        )
        for path in dict.fromkeys(paths.values())
    }
    return _Shape(
        (
            sum(flow.size_bytes for flow in job.flows),
            len(job.flows),
            len(job.computes),
            *(unit.duration_s for unit in job.computes[:1]),
            *(of_path[paths[flow.name]] for flow in job.flows[:1]),
        ),
        tuple((c.name, c.duration_s, c.after) for c in job.computes),
        tuple((f.name, f.size_bytes, f.after) for f in job.flows),
        tuple((h.name, h.flows, h.offsets_s) for h in job.echelonflows),
        tuple(of_path[path] for path in paths.values()),
    )
