"""Cuts between the rows of a text: at micro-batches, and at transformer layers.

The names of rows are those of AICB (`mocked_model` of aliyun/aicb).
"""

from __future__ import annotations

from itertools import pairwise

from echelon_importers.astra_sim.layers import Rows
from echelon_importers.importer import Source

_MICRO_BATCH = "embedding_layer"
"""The beginning of the name of a micro-batch's first row."""
_AFTER_ALL = ("cross_entropy", "optimizer")
"""The beginnings of the names of the rows behind all micro-batches."""
LAYER = "attention"
"""The beginning of the names of a transformer layer's first rows."""


def micro_batch_bounds(
    source: Source,
    layers: Rows,
    count: int,
) -> list[int]:
    """Return the row at which each of `count` micro-batches begins, and the end of the last one."""
    starts = starts_of(layers, _MICRO_BATCH)
    if not starts:
        return _equal_bounds(source, len(layers), count)
    if len(starts) != count:
        reason = (
            f"has {len(starts)} micro-batches (rows of {layers[starts[0]].name}), but ga says"
            f" {count} (correct ga, or give --set pp=1 for one stage alone)"
        )
        raise source.refusal(reason, code="conflicting-key")
    end = starts[-1]
    while end < len(layers) and not layers[end].name.startswith(_AFTER_ALL):
        end += 1
    return [*starts, end]


def _equal_bounds(
    source: Source,
    number: int,
    count: int,
) -> list[int]:
    size, rest = divmod(number, count)
    if rest:
        reason = (
            f"does not say where its {count} micro-batches (ga) begin (AICB begins each with"
            " embedding_layer: name a row so, or correct ga)"
        )
        raise source.refusal(reason, code="missing-key")
    return list(range(0, number + 1, size))


def starts_of(rows: Rows, beginning: str) -> list[int]:
    """Return the first row of each run of rows whose names begin with `beginning`."""
    starts = []
    is_inside = False
    for index, row in enumerate(rows):
        is_alike = row.name.startswith(beginning)
        if is_alike and not is_inside:
            starts.append(index)
        is_inside = is_alike
    return starts


def chunks_of_layers(
    source: Source,
    rows: Rows,
    count: int,
) -> list[Rows]:
    """Return the rows of a micro-batch in chunks of equally many transformer layers."""
    if count == 1:
        return [rows]
    starts = starts_of(rows, LAYER)
    if not starts or len(starts) % count:
        reason = (
            f"has {len(starts)} transformer layers a stage (from line {rows[0].line} on), which vpp"
            f" {count} does not divide (give --set vpp=1 for one chunk, or correct vpp)"
        )
        raise source.refusal(reason, code="conflicting-key")
    size = len(starts) // count
    cuts = [0, *starts[size::size], len(rows)]
    return [rows[first:last] for first, last in pairwise(cuts)]


def divided(
    source: Source,
    rows: Rows,
    count: int,
) -> list[Rows]:
    """Return the rows of a model in parts of equally many layers; the first ones have one more."""
    starts = starts_of(rows, LAYER)
    if len(starts) < count:
        reason = f"has {len(starts)} transformer layers for {count} stages (correct pp or vpp)"
        raise source.refusal(reason, code="out-of-range")
    size, larger = divmod(len(starts), count)
    cuts = [0]
    for part in range(count - 1):
        passed = (part + 1) * size + min(part + 1, larger)
        cuts.append(starts[passed])
    cuts.append(len(rows))
    return [rows[first:last] for first, last in pairwise(cuts)]
