"""Parallelisations of a job: other ways to train the same model with the same global batch on as
many hosts.

TopoOpt searches them by MCMC over profiles of operators (NSDI '23, section 4.1). Ours are those
that the file itself implies, all of them: for a `mesh`, the lengths of the axes that its `order`
lists, in any order; for an `expert` job, the sizes of groups. Work, gradients and layers are
divided anew, and micro-batches stay as large.

On a panel, no order of the axes is better than another, because hosts differ by their cables only
and these are laid for the job. So of parallelisations that differ in their order, a panel tries the
first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import permutations
from typing import Any

from echelon.model.documents import DocumentError, parse_document
from echelon.model.jobs.combinators import Step
from echelon.model.jobs.free import FreeGraph
from echelon.model.jobs.graph import Job
from echelon.model.jobs.paradigms.expert import Expert
from echelon.model.jobs.paradigms.mesh import AXES, MeshOfRanks
from echelon.model.jobs.paradigms.tensor import BLOCKS
from echelon.model.jobs.ranked import RankedParadigm
from echelon.model.jobs.spec import JobSpec

_SCHEDULES = ("gpipe", "1f1b", "zero-bubble")


@dataclass(frozen=True)
class Parallelisation:
    """A way to train a job on hosts that each have one rank."""

    label: str
    paradigm: RankedParadigm
    hosts: int

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Return the steps of an iteration of ranks 0, 1..."""
        return self.paradigm.steps([str(rank) for rank in range(self.hosts)])

    def least_s(self, host_Bps: float) -> float:  # noqa: N803
        """Return a time in seconds that no iteration goes below if a host sends so many bytes per
        second.

        It follows from the numbers of a mesh, without its graph; of other jobs it is 0. A stage
        does its passes one after the other, each with the all-reduces of the ranks that share its
        layers, and gradients come last.
        """
        mesh = self.paradigm
        if not isinstance(mesh, MeshOfRanks) or _differs_by_stage(mesh):
            return 0.0
        computed_s = float(Fraction(str(mesh.forward)) + Fraction(str(mesh.backward)))
        blocks = 2 * len(BLOCKS) * mesh.layers
        summed = _ring_bytes(blocks * int(str(mesh.activation)), mesh.tensor)
        gradient = _ring_bytes(int(str(mesh.gradient or 0)), mesh.data)
        passes = int(str(mesh.micro_batches))
        if mesh.schedule != "zero-bubble":
            passes += mesh.pipeline - 1
        return passes * (computed_s + summed / host_Bps) + gradient / host_Bps


def _ring_bytes(size_bytes: int, ranks: int) -> float:
    """Return what each rank of a ring sends, 2(n-1)/n of the data."""
    return size_bytes * 2 * (ranks - 1) / ranks


def job_of(
    steps: Sequence[Step],
    spec: JobSpec,
    hosts: Sequence[str],
) -> Job:
    """Return the job with these steps, rank r on host r. Raises `GraphError`."""
    iteration = FreeGraph(tuple(steps)).iteration(hosts)
    return Job(
        spec.job,
        *iteration,
        start_s=spec.start,
        weight=spec.weight,
    )


def as_in_file(spec: JobSpec, hosts: int) -> Parallelisation:
    """Return the job as its file has it.

    Raises `DocumentError` if it has not one rank on each of so many hosts.
    """
    paradigm = spec.paradigm
    if not isinstance(paradigm, RankedParadigm):
        reason = (
            f"'{spec.parallelism}' has no groups of ranks (use mesh, expert, tensor, fsdp or graph)"
        )
        raise DocumentError(f"job {spec.job}", "parallelism", reason)
    if paradigm.ranks_per_worker > 1:
        reason = (
            "is more than 1 (give a file with one rank for each host: cables are between hosts)"
        )
        raise DocumentError(f"job {spec.job}", f"{spec.parallelism}.ranks_per_worker", reason)
    if len(spec.workers) != hosts:
        raise DocumentError(
            f"job {spec.job}", "workers", f"are {len(spec.workers)}, not {hosts} (change --hosts)"
        )
    return Parallelisation(_label(paradigm) or "as given", paradigm, hosts)


def parallelisations(spec: JobSpec, *, orders: bool = False) -> tuple[Parallelisation, ...]:
    """Return the job as given, and then all other parallelisations; with `orders`, in each order of
    axes.

    Raises `DocumentError` as `as_in_file`.
    """
    first = as_in_file(spec, len(spec.workers))
    by_label = {first.label: first}
    ranks = [str(rank) for rank in range(first.hosts)]
    for keys in _alternatives(first.paradigm, first.hosts, orders):
        document = {
            **first.paradigm.model_dump(
                mode="json",
                exclude_none=True,
            ),
            **keys,
        }
        try:
            paradigm = parse_document(type(first.paradigm), document, spec.job)
            paradigm.check(ranks)
        except (DocumentError, ValueError):
            continue  # such as layers that stages cannot share evenly
        label = _label(paradigm) or ""
        if label not in by_label:
            by_label[label] = Parallelisation(label, paradigm, first.hosts)
    return tuple(by_label.values())


def _label(paradigm: RankedParadigm) -> str | None:
    match paradigm:
        case MeshOfRanks():
            sizes = {axis: int(getattr(paradigm, axis)) for axis in paradigm.order}
            return " x ".join(f"{axis} {size}" for axis, size in sizes.items() if size > 1)
        case Expert():
            return f"expert {paradigm.group}"
    return None


def _alternatives(
    paradigm: RankedParadigm,
    hosts: int,
    orders: bool,
) -> Iterator[Mapping[str, Any]]:
    """Yield the keys that differ, of each other way to divide the job."""
    if isinstance(paradigm, Expert) and paradigm.load is None and paradigm.gradient is not None:
        for group in _divisors(hosts):
            if group > 1:
                gradient = -(-paradigm.gradient * paradigm.group // group)
                yield {"group": group, "gradient": f"{gradient} B"}
    if isinstance(paradigm, MeshOfRanks):
        yield from _meshes(paradigm, hosts, orders)


def _meshes(
    mesh: MeshOfRanks,
    hosts: int,
    orders: bool,
) -> Iterator[Mapping[str, Any]]:
    if _differs_by_stage(mesh) or mesh.schedule not in _SCHEDULES:
        return
    if mesh.exchange or mesh.parameters or mesh.buckets > 1:
        return
    for pipeline in _divisors(hosts):
        for tensor in _divisors(hosts // pipeline):
            data = hosts // pipeline // tensor
            lengths: dict[str, int] = dict(zip(AXES, (data, pipeline, tensor), strict=True))
            changed = _with_lengths(mesh, lengths)
            if changed is None:
                continue
            long = tuple(axis for axis in mesh.order if lengths[axis] > 1)
            short = [axis for axis in mesh.order if lengths[axis] == 1]
            for order in permutations(long) if orders else [long]:
                yield {**changed, "order": [*order, *short]}


def _with_lengths(mesh: MeshOfRanks, lengths: Mapping[str, int]) -> dict[str, Any] | None:
    """Return the keys of the same job on axes of other lengths; None if it cannot be cut so."""
    data, pipeline, tensor = (lengths[axis] for axis in AXES)
    samples = mesh.data * int(str(mesh.micro_batches))
    layers = mesh.layers * mesh.pipeline
    if any(lengths[axis] > 1 for axis in AXES if axis not in mesh.order):
        return None
    if data > 1 and mesh.gradient is None:
        return None
    if samples % data or layers % pipeline:
        return None
    changed: dict[str, Any] = {
        **lengths,
        "micro_batches": samples // data,
        "layers": layers // pipeline,
    }
    # What a rank computes and holds of a sample grows as the ranks that share the layers get fewer.
    part = Fraction(mesh.pipeline * mesh.tensor, pipeline * tensor)
    for key in ("forward", "backward", "weights"):
        value = getattr(mesh, key)
        if value:
            changed[key] = f"{float(Fraction(value) * part * 10**9):.6f} ns"
    if mesh.gradient is not None:
        gradient = round(int(str(mesh.gradient)) * part)
        changed["gradient"] = f"{max(1, gradient)} B"
    return changed


def _differs_by_stage(mesh: MeshOfRanks) -> bool:
    """Return whether the file gives anything stage by stage."""
    values = (
        mesh.forward,
        mesh.backward,
        mesh.activation,
        mesh.gradient,
        mesh.micro_batches,
        mesh.weights,
    )
    return any(isinstance(value, tuple) for value in values)


def _divisors(number: int) -> Iterator[int]:
    return (divisor for divisor in range(1, number + 1) if number % divisor == 0)
