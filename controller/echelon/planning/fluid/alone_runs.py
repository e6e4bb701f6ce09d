"""Iterations alone of many jobs, computed once for all that look the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Self

from echelon.model.fabric.model import Fabric, ShortestPaths
from echelon.model.fabric.routing import Routes, rerouted
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import Ends, Job
from echelon.model.kept import altered, by_name, picked, replaced, succeed, without
from echelon.planning.execution import AloneRecord, duration_s
from echelon.planning.fluid.alone import run_on
from echelon.planning.fluid.shape import Rates, RunShape, shape_of
from echelon.planning.paths import FlowPaths, Paths, links_of

_Entry = tuple[RunShape, AloneRecord, tuple[int, int]]
"""A shape, its record, and the seconds that it takes as a ratio, which is hashed fast."""
_TIME = itemgetter(2)


class AloneRuns:
    """The results of `run_alone` for all jobs of a plan, kept from plan to plan.

    Jobs of the same graph on links that are as fast and are shared by the same flows have one
    record; their workers and switches may differ.
    """

    def __init__(self) -> None:
        self._records: dict[RunShape, _Entry] = {}
        """The first shape of all that are equal, and its record. Jobs hold that one, because
        comparing others to it takes long."""
        self.has_copies: Mapping[str, bool] = {}
        """Whether an iteration of another job takes as long, by job."""
        self._counts: Counter[tuple[int, int]] = Counter()
        """The number of jobs by the time of an iteration."""
        self._jobs: Mapping[str, Job] = {}
        self._fabric: Fabric | None = None
        self._entries: Mapping[str, _Entry] = {}
        """The members of `_records` by job."""
        self._alone: Mapping[str, AloneRecord] = {}
        """The records of these."""

    def update(self, jobs: Sequence[Job], fabric: Fabric) -> Mapping[str, AloneRecord]:
        """Return the records by job: the same object as at the last call where nothing changed.

        They are read-only (identity: see `echelon.planning`).

        Records of other jobs are forgotten. Raise as `run_alone`; then nothing has changed.
        """
        present = by_name(jobs)
        entries: dict[str, _Entry] = {}
        new: dict[RunShape, _Entry] = {}
        # A plan may have thousands of jobs of which few are new: those loop in Python, not all.
        changed = picked(present, replaced(present, self._jobs))
        if fabric is not self._fabric:
            # Other choices than `Router`'s may go by anything in a fabric.
            moved = jobs
            if fabric.paths == "kept":
                moved = rerouted(jobs, self._fabric, fabric)
            changed |= by_name(moved)
        for job in changed.values():
            paths = _paths_alone(job, fabric)
            shape = _shape(job, fabric, paths)
            entry = self._records.get(shape) or new.get(shape)
            if entry is None:
                record = _record(shape, job, fabric, paths)
                entry = shape, record, duration_s(record).as_integer_ratio()
                new[shape] = entry
            entries[job.name] = entry

        before = self._entries
        past = {*without(self._jobs, present), *filter(before.__contains__, entries)}
        self._records |= new
        self._jobs = present
        self._fabric = fabric
        self._entries = succeed(before, entries, present)
        if past:
            self._forget_unused()
        copies = self._recounted([before[name] for name in past], entries)
        self.has_copies = succeed(self.has_copies, copies, present)
        records = {name: record for name, (_, record, _) in entries.items()}
        self._alone = succeed(self._alone, records, present)
        return self._alone

    def _recounted(
        self,
        past: Sequence[_Entry],
        entries: Mapping[str, _Entry],
    ) -> Mapping[str, bool]:
        """Count the jobs after a change of entries; return which have copies, where that differs.

        `past` are the entries that jobs no longer have.
        """
        counts = self._counts.copy()
        counts.subtract(map(_TIME, past))
        counts.update(map(_TIME, entries.values()))
        concerned = entries
        for time in {*map(_TIME, past), *map(_TIME, entries.values())}:
            if (counts[time] > 1) != (self._counts[time] > 1):
                concerned = self._entries
            if not counts[time]:
                del counts[time]
        self._counts = counts
        return {name: counts[_TIME(entry)] > 1 for name, entry in concerned.items()}

    def _forget_unused(self) -> None:
        used = {*map(id, self._entries.values())}
        if len(used) < len(self._records):
            records = self._records.items()
            self._records = {shape: entry for shape, entry in records if id(entry) in used}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy that shares the records."""
        return altered(self, _records=dict(self._records))


_MOST_ROUTES = 4096
"""The most jobs of other connections whose paths alone are remembered on one fabric."""


@lru_cache(maxsize=2)
def _routes_on(_shortest: ShortestPaths) -> dict[tuple[Ends, ...], Routes]:
    """Return the paths of jobs alone on a fabric by their connections, as far as they are known.

    Several threads add to it, each by single operations.
    """
    return {}


def _paths_alone(job: Job, fabric: Fabric) -> Paths:
    """Return the paths of a job alone, from memory for another one of the same connections."""
    pairs = tuple(connections(job))
    remembered = _routes_on(fabric.shortest_paths)
    routes = remembered.get(pairs)
    # Other choices of paths than `Router`'s may go by anything in a job.
    if routes is None or fabric.paths != "kept":
        paths = FlowPaths().update([job], fabric)[job.name]
        routes = {flow.ends: paths[flow.name] for flow in job.flows}
        if len(remembered) < _MOST_ROUTES:
            remembered[pairs] = routes
    return {flow.name: routes[flow.ends] for flow in job.flows}


def remembered_run(job: Job, fabric: Fabric) -> AloneRecord:
    """Return `run_alone`, from memory if a job that looks the same was simulated of late."""
    paths = _paths_alone(job, fabric)
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
