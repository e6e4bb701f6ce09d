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
from math import ceil
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
        forward_s = Fraction(str(mesh.forward))
        backward_s = Fraction(str(mesh.backward))
        activation = int(str(mesh.activation))
        gradient = int(str(mesh.gradient or 0))
        passes = int(str(mesh.micro_batches))
        if mesh.schedule != "zero-bubble":
            passes += mesh.pipeline - 1

        computed_s = float(forward_s + backward_s)
        blocks = 2 * len(BLOCKS) * mesh.layers
        summed = _ring_bytes(blocks * activation, mesh.tensor)
        pass_s = computed_s + summed / host_Bps
        gradient_s = _ring_bytes(gradient, mesh.data) / host_Bps
        return passes * pass_s + gradient_s


def _ring_bytes(size_bytes: int, ranks: int) -> float:
    """Return what each rank of a ring sends, 2(n-1)/n of the data."""
    return size_bytes * 2 * (ranks - 1) / ranks


def job_of(
    steps: Sequence[Step],
    spec: JobSpec,
    hosts: Sequence[str],
) -> Job:
    """Return the job with these steps, rank r on host r. Raises `GraphError`."""
    graph = FreeGraph(tuple(steps))
    iteration = graph.iteration(hosts)
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
    as_given = first.paradigm.model_dump(mode="json", exclude_none=True)
    kind = type(first.paradigm)
    for keys in _alternatives(first.paradigm, first.hosts, orders):
        document = {**as_given, **keys}
        try:
            paradigm = parse_document(kind, document, spec.job)
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
            axes = []
            for axis in paradigm.order:
                size = int(getattr(paradigm, axis))
                if size > 1:
                    axes.append(f"{axis} {size}")
            return " x ".join(axes)
        case Expert():
            return f"expert {paradigm.group}"
    return None


def _alternatives(
    paradigm: RankedParadigm,
    hosts: int,
    orders: bool,
) -> Iterator[Mapping[str, Any]]:
    """Yield the keys that differ, of each other way to divide the job."""
    match paradigm:
        case MeshOfRanks():
            yield from _meshes(paradigm, hosts, orders)
        case Expert(load=None):
            yield from _expert_groups(paradigm, hosts)


def _expert_groups(expert: Expert, hosts: int) -> Iterator[Mapping[str, Any]]:
    if expert.gradient is None:
        return
    # The experts are as many, so a rank of a smaller group holds more of them.
    gradients = expert.gradient * expert.group
    for group in _divisors(hosts):
        if group > 1:
            gradient = ceil(Fraction(gradients, group))
            yield {"group": group, "gradient": f"{gradient} B"}


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
        stage_hosts = hosts // pipeline
        for tensor in _divisors(stage_hosts):
            data = stage_hosts // tensor
            lengths = {"data": data, "pipeline": pipeline, "tensor": tensor}
            changed = _with_lengths(mesh, lengths)
            if changed is None:
                continue
            long = [axis for axis in mesh.order if lengths[axis] > 1]
            short = [axis for axis in mesh.order if lengths[axis] == 1]
            for order in permutations(long):
                yield {**changed, "order": [*order, *short]}
                if not orders:
                    break


def _with_lengths(mesh: MeshOfRanks, lengths: Mapping[str, int]) -> dict[str, Any] | None:
    """Return the keys of the same job on axes of other lengths; None if it cannot be cut so."""
    long = {axis for axis in AXES if lengths[axis] > 1}
    if not long.issubset(mesh.order):
        return None
    if "data" in long and mesh.gradient is None:
        return None
    samples = mesh.data * int(str(mesh.micro_batches))
    micro_batches, samples_left = divmod(samples, lengths["data"])
    layers, layers_left = divmod(mesh.layers * mesh.pipeline, lengths["pipeline"])
    if samples_left or layers_left:
        return None
    changed: dict[str, Any] = {
        **lengths,
        "micro_batches": micro_batches,
        "layers": layers,
    }

    # What a rank computes and holds of a sample grows as the ranks that share the layers get fewer.
    sharing_before = mesh.pipeline * mesh.tensor
    sharing = lengths["pipeline"] * lengths["tensor"]
    part = Fraction(sharing_before, sharing)
    for key in ("forward", "backward", "weights"):
        value = getattr(mesh, key)
        if value:
            duration_ns = float(Fraction(value) * part * 10**9)
            changed[key] = f"{duration_ns:.6f} ns"
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
