"""The section of a job that trains a model with tables of embeddings."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from echelon.model.documents import DocumentError
from echelon.model.quantities import duration_text, size_text
from echelon_lab.models.computing import backward_s, forward_s
from echelon_lab.models.layers import Tables
from echelon_lab.models.placement import Placement
from echelon_lab.models.traffic import INDEX_BYTES
from echelon_lab.models.training import Training

_ROUNDED = 10**9


@dataclass(slots=True)
class _Nodes:
    """The nodes of an iteration, with a rank for each host."""

    hosts: int
    nodes: list[dict[str, Any]] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)
    """The names of nodes in which all ranks have a part."""

    def compute(self, name: str, seconds: Fraction, *after: str) -> None:
        """Add a node to each rank, behind those of these names."""
        duration = duration_text(Fraction(round(seconds * _ROUNDED), _ROUNDED))
        for rank in range(self.hosts):
            node = {"name": f"{name}-{rank}", "rank": rank, "compute": duration}
            self._add(node, [self._part(before, rank) for before in after])

    def collective(self, name: str, kind: str, size_bytes: int, *after: str) -> None:
        """Add a node of all ranks, behind those of these names on every rank."""
        node = {
            "name": name,
            "collective": kind,
            "group": "all",
            "bytes": size_text(size_bytes),
        }
        names = []
        for before in after:
            names += [self._part(before, rank) for rank in range(self.hosts)]
        self._add(node, names)
        self.shared.add(name)

    def _part(self, name: str, rank: int) -> str:
        if name in self.shared:
            return name
        return f"{name}-{rank}"

    def _add(self, node: dict[str, Any], after: list[str]) -> None:
        if after:
            node["after"] = after
        self.nodes.append(node)


def recommending(training: Training, placed: Placement) -> dict[str, Any]:
    """Return an iteration of a DLRM as a graph, with a rank for each host.

    GPUs share the tables, by tables or columns in equal parts, and have copies of all else. Each
    looks up rows for the samples of all and adds them up. An all-to-all brings the sums to the GPUs
    of the samples, another brings the gradients back (D. Mudigere et al., arXiv:2104.05158,
    section 4). The layers at the bottom are computed meanwhile. Numbers of rows are exchanged for
    the next batch (TorchRec, TrainPipelineSparseDist). The gradients of copies are summed as soon
    as they are there.
    """
    tables_layer, bottom, *above = training.model.layers
    tables = tables_layer.tables
    _check(training, tables)
    samples = placed.gpus_per_host * training.micro_batch_samples
    element_bytes = training.model.parameter_bytes
    row_bytes = training.micro_batch_samples * element_bytes * tables.looked_up
    rows_s = Fraction(row_bytes, training.gpu.memory_bytes_per_s)
    vector_bytes = samples * element_bytes * tables.pooled
    index_bytes = samples * INDEX_BYTES * tables.indices
    bottom_bytes = element_bytes * training.dense([bottom])
    above_bytes = element_bytes * training.dense(above)

    nodes = _Nodes(placed.hosts)
    nodes.collective("indices", "all-to-all", index_bytes)
    nodes.compute("lookup", rows_s)
    nodes.collective("embeddings", "all-to-all", vector_bytes, "lookup")
    nodes.compute("bottom", forward_s(training, [bottom]), "lookup")
    nodes.compute("top", forward_s(training, above), "bottom", "embeddings")
    nodes.compute("top-back", backward_s(training, above), "top")
    nodes.collective("gradients", "all-to-all", vector_bytes, "top-back")
    nodes.collective("top-sum", "all-reduce", above_bytes, "top-back")
    nodes.compute("bottom-back", backward_s(training, [bottom]), "top-back")
    nodes.collective("bottom-sum", "all-reduce", bottom_bytes, "bottom-back")
    # Each row is read and written.
    nodes.compute("update", 2 * rows_s, "bottom-back", "gradients")
    return {"groups": {"all": list(range(placed.hosts))}, "nodes": nodes.nodes}


def _check(training: Training, tables: Tables) -> None:
    if training.micro_batches > 1:
        size = training.micro_batches * training.micro_batch_samples
        reason = (
            f"{training.micro_batches} do not go with tables, which change with each batch (give"
            f" --micro-batch-size {size})"
        )
        raise DocumentError("--micro-batches", "", reason)
    if tables.pooled < training.gpus:
        reason = f"{training.gpus} are more than the {tables.pooled} columns of all tables"
        raise DocumentError("--gpus", "", f"{reason} (give at most as many)")
