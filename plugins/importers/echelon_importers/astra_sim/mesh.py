"""The mesh of the ranks of a text workload.

As in Megatron-LM, the ranks of a group of model parallelism follow each other; then come the groups
of experts, the data-parallel replicas, and the stages.
"""

from __future__ import annotations

from echelon.model.jobs.ranked import Mesh
from echelon_importers.astra_sim.header import Header
from echelon_importers.astra_sim.loops import LOOPS
from echelon_importers.astra_sim.options import AstraSimOptions
from echelon_importers.importer import Importer, Source


def ranks_of_text(
    importer: Importer[AstraSimOptions],
    source: Source,
    header: Header,
) -> Mesh[int]:
    """Return the ranks. Raises `DocumentError` if their number is not known, or does not fit."""
    ranks = importer.options.ranks or header.number("all_gpus", 0)
    if not ranks:
        ranks = importer.given_ranks(source)
    model = _model_parallel(source, header, importer.options)
    experts = header.number("ep", 1)
    replicas, rest = divmod(ranks, header.stages * model * experts)
    if ranks < 2 or rest:
        remedy = "change --hosts"
        if importer.options.ranks is None:
            remedy = "give --hosts, or correct the first line"
        reason = (
            f"{ranks} ranks are not a multiple of {header.stages} (stages) x {model} (model) x"
            f" {experts} (experts, which are across data-parallel ranks) ({remedy})"
        )
        raise source.refusal(reason, code="wrong-length")
    sizes = {"pp": header.stages, "dp": replicas, "ep": experts, "model": model}
    return Mesh(range(ranks), sizes)


def _model_parallel(
    source: Source,
    header: Header,
    options: AstraSimOptions,
) -> int:
    """Return how many ranks a group of model parallelism has."""
    size = options.model or header.number("model_parallel_NPU_group", 0)
    if size:
        return size
    if LOOPS[header.loop].has_parts or header.loop == "HYBRID_CUSTOMIZED":
        reason = (
            f"does not say how many ranks a group has, which {header.loop} needs (give --set"
            " model=N)"
        )
        raise source.refusal(reason, code="missing-key")
    return 1


def replicas_note(ranks: int, stated: int) -> list[str]:
    """Return a line for the reader if a file says (`stated`) another number of ranks; 0: none."""
    if stated in (0, ranks):
        return []
    compared = "fewer" if ranks < stated else "more"
    note = (
        f"{ranks} ranks, the file says {stated}: {compared} data-parallel replicas, with the bytes"
        " of the file"
    )
    return [note]
