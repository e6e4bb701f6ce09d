"""Iterations alone of many jobs, computed once for all that look the same."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import compress
from operator import is_not, itemgetter
from typing import Any, Self

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Job
from echelon.model.kept import altered
from echelon.planning.execution import AloneRecord
from echelon.planning.fluid.alone import run_on
from echelon.planning.fluid.shape import Rates, RunShape, shape_of
from echelon.planning.paths import FlowPaths, Paths, links_of


class AloneRuns:
    """The results of `run_alone` for all jobs of a plan, kept from plan to plan.

    Jobs of the same graph on links that are as fast and are shared by the same flows have one
    record; their workers and switches may differ.
    """

    def __init__(self) -> None:
        self._records: dict[RunShape, tuple[RunShape, AloneRecord]] = {}
        """The first shape of all that are equal, and its record. Jobs hold that one, because
        comparing others to it takes long."""
        self._jobs: dict[str, Job] = {}
        self._fabric: Fabric | None = None
        self._entries: dict[str, tuple[RunShape, AloneRecord]] = {}
        """The members of `_records` by job."""

    def update(self, jobs: Sequence[Job], fabric: Fabric) -> dict[str, AloneRecord]:
        """Return the records by job: the same object as at the last call where nothing changed.

        They are read-only (identity: see `echelon.planning`).

        Records of other jobs are forgotten. Raise as `run_alone`; then nothing has changed.
        """
        by_name = {job.name: job for job in jobs}
        last = {}
        if fabric is self._fabric:
            last = self._jobs
        entries = dict(self._entries)
        new: dict[RunShape, tuple[RunShape, AloneRecord]] = {}
        # A plan may have thousands of jobs of which few are new: those loop in Python, not all.
        is_new = map(is_not, jobs, map(last.get, by_name))
        for job in compress(jobs, is_new):
            paths = FlowPaths().update([job], fabric)[job.name]
            shape = _shape(job, fabric, paths)
            entry = self._records.get(shape) or new.get(shape)
            if entry is None:
                entry = shape, _record(shape, job, fabric, paths)
                new[shape] = entry
            entries[job.name] = entry

        self._records |= new
        self._jobs = by_name
        self._fabric = fabric
        self._entries = {name: entries[name] for name in by_name}
        self._forget_unused()
        records = map(itemgetter(1), self._entries.values())
        return dict(zip(by_name, records, strict=True))

    def _forget_unused(self) -> None:
        used = {*map(id, self._entries.values())}
        if len(used) < len(self._records):
            records = self._records.items()
            self._records = {shape: entry for shape, entry in records if id(entry) in used}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy that shares the records."""
        return altered(self, _records=dict(self._records))


def remembered_run(job: Job, fabric: Fabric) -> AloneRecord:
    """Return `run_alone`, from memory if a job that looks the same was simulated of late."""
    paths = FlowPaths().update([job], fabric)[job.name]
    return _record(_shape(job, fabric, paths), job, fabric, paths)


_RECENT = 64
"""The most simulations that are kept for whoever asks next."""
_RECENT_STEPS = 300_000
"""The most steps that their jobs have together: shapes and records are as large as jobs. A step
takes some 250 bytes. The eight jobs of a mix on 32 hosts have 80,000, and a search asks for each
of its candidates."""
_recent: dict[RunShape, AloneRecord] = {}
"""Several threads use it, each by single operations."""


def _record(
    shape: RunShape,
    job: Job,
    fabric: Fabric,
    paths: Paths,
) -> AloneRecord:
    """Return the record of a recent job of this shape, or else of a simulation."""
    record = _recent.get(shape)
    if record is None:
        record = run_on(job, fabric, paths)
        _recent[shape] = record
        _forget_old()
    return record


def _forget_old() -> None:
    steps = 0
    for number, recent in enumerate(reversed([*_recent])):
        steps += len(recent.computes) + len(recent.flows)
        if number >= _RECENT or steps > _RECENT_STEPS:
            _recent.pop(recent, None)


def _shape(
    job: Job,
    fabric: Fabric,
    paths: Paths,
) -> RunShape:
    rates: dict[Hashable, Rates] = {}
    for path in set(paths.values()):
        rates[path] = [(link, fabric.capacity_Bps[link]) for link in links_of(path)]
    return shape_of(job, tuple(paths.values()), rates)
