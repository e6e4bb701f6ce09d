"""Iterations alone of many jobs, computed once for all that look the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from echelon.execution import IterationRecord
from echelon.fabric.model import Fabric
from echelon.fluid.alone import run_on
from echelon.jobs.graph import Job
from echelon.paths import FlowPaths, Paths, links_of


class AloneRuns:
    """The results of `run_alone` for all jobs of a plan, kept from plan to plan.

    Jobs of the same graph on links that are as fast and are shared by the same flows have one record; their workers and
    switches may differ.
    """

    def __init__(self) -> None:
        self._records: dict[_Shape, IterationRecord[Fraction]] = {}
        self._shapes: dict[str, tuple[Job, Fabric, _Shape]] = {}

    def update(self, jobs: Sequence[Job], fabric: Fabric) -> dict[str, IterationRecord[Fraction]]:
        """Return the records by job: the same object as at the last call where nothing changed. They are read-only.

        Records of other jobs are forgotten. Raise as `run_alone`; then nothing has changed.
        """
        shapes: dict[str, tuple[Job, Fabric, _Shape]] = {}
        records: dict[_Shape, IterationRecord[Fraction]] = {}
        for job in jobs:
            known = self._shapes.get(job.name)
            if known is None or known[0] is not job or known[1] is not fabric:
                paths = FlowPaths().update([job], fabric)[job.name]
                known = (job, fabric, _shape(job, fabric, paths))
                if known[2] not in records and known[2] not in self._records:
                    records[known[2]] = run_on(job, fabric, paths)
            shapes[job.name] = known
            if known[2] not in records:
                records[known[2]] = self._records[known[2]]
        self._shapes, self._records = shapes, records
        return {name: records[shape] for name, (_, _, shape) in shapes.items()}


@dataclass(frozen=True, slots=True)
class _Shape:
    """Everything on which an iteration alone depends."""

    size: tuple[int, int, int]
    """The numbers of bytes, flows and compute units. They serve as the hash, since they tell most jobs apart, and
    hashing everything takes long."""
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
        path: tuple((numbers.setdefault(link, len(numbers)), fabric.capacity_Bps[link]) for link in links_of(path))
        for path in dict.fromkeys(paths.values())
    }
    return _Shape(
        (sum(flow.size_bytes for flow in job.flows), len(job.flows), len(job.computes)),
        tuple((c.name, c.duration_s, c.after) for c in job.computes),
        tuple((f.name, f.size_bytes, f.after) for f in job.flows),
        tuple((h.name, h.flows, h.offsets_s) for h in job.echelonflows),
        tuple(of_path[path] for path in paths.values()),
    )
