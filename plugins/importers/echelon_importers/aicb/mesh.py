"""The mesh of the ranks of a list, from the sizes of its groups and from options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from echelon.model.jobs.ranked import Mesh
from echelon_importers.aicb.options import AicbOptions
from echelon_importers.aicb.rows import OTHERS, Section
from echelon_importers.importer import Importer, Source


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers of ranks in the groups of a stage; None: nothing says it."""

    tp: int | None
    dp: int | None
    ep: int | None


def ranks_of_list(
    importer: Importer[AicbOptions],
    source: Source,
    sections: Sequence[Section],
) -> Mesh[int]:
    """Return the ranks of a list. Raises `DocumentError` if it does not say how many there are."""
    stages = len(sections)
    sizes = _sizes(source, sections, importer.options)
    tp = sizes.tp or 1
    ep = sizes.ep or 1
    in_stage = _ranks_in_stage(source, sections)
    if importer.options.ranks is not None:
        ranks = importer.options.ranks
    elif in_stage:
        ranks = in_stage * stages
    elif sizes.dp:
        ranks = tp * sizes.dp * stages
    else:
        ranks = importer.given_ranks(source)
    shape = f"{stages} (pp) x {ep} (ep) x {tp} (tp)"
    if ranks < 2 or ranks % (stages * ep * tp):
        reason = f"{ranks} ranks are not a multiple of {shape} (change --hosts)"
        raise source.refusal(reason, code="wrong-length")
    data_parallel = ranks // stages // tp
    if importer.options.ranks is None and sizes.dp not in (None, data_parallel):
        reason = (
            f"{ranks} ranks are not {shape} x {sizes.dp // ep} (dp) (correct the sizes of the"
            " groups)"
        )
        raise source.refusal(reason, code="wrong-length")
    return Mesh(range(ranks), {"pp": stages, "dp": data_parallel // ep, "ep": ep, "tp": tp})


def _ranks_in_stage(source: Source, sections: Sequence[Section]) -> int:
    """Return how many ranks the list says that a stage has; 0: it does not."""
    numbers = {len(section.ranks) for section in sections if section.ranks}
    if len(numbers) > 1:
        reason = (
            "has stages with different numbers of ranks (which is unsupported: import one of them)"
        )
        raise source.refusal(reason)
    return numbers.pop() if numbers else 0


def _sizes(
    source: Source,
    sections: Sequence[Section],
    options: AicbOptions,
) -> Sizes:
    listed = _listed_sizes(source, sections)
    tp = options.tp or listed.get("tp_group")
    dp = options.dp or listed.get("dp_group")
    ep = options.ep or listed.get("ep_group")
    used: set[str] = set()
    for section in sections:
        used.update(row.group for row in section.rows)
    for name, size in (("tp", tp), ("ep", ep)):
        is_used = f"{name}_group" in used
        if size is None and is_used:
            reason = f"does not say how many ranks a {name}_group has (give --set {name}=N)"
            raise source.refusal(reason, code="missing-key")
    return Sizes(tp, dp, ep)


def _listed_sizes(source: Source, sections: Sequence[Section]) -> Mapping[str, int]:
    sizes: dict[str, int] = {}
    for section in sections:
        for row in section.rows:
            if row.group_size is None or row.kind in OTHERS:
                continue
            size = sizes.setdefault(row.group, row.group_size)
            if row.group_size == 0 or row.group_size != size:
                reason = f"says {row.group_size} ranks for {row.group}, which has {size}"
                raise source.fault(row.line, reason, "correct one of them")
    return sizes
