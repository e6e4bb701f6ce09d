"""The rows of the iterations that are wanted, in the order in which a stage begins them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from echelon_importers.aicb.rows import Row, Section
from echelon_importers.importer import Source


def chosen_rows(
    source: Source,
    section: Section,
    wanted: range,
) -> list[Row]:
    """Return the rows of these iterations, counted from 1. Raises `DocumentError`."""
    epochs = section.epochs()
    iterations = epochs
    # The first epoch sets the job up, unless it is the only one.
    if len(epochs) > 1:
        iterations = epochs[1:]
    if wanted.stop - 1 > len(iterations):
        reason = f"has {len(iterations)} iterations (choose among them with --iterations)"
        raise source.refusal(reason, code="out-of-range")
    rows = chain.from_iterable(iterations[number - 1] for number in wanted)
    return _sends_first(rows)


def _sends_first(rows: Iterable[Row]) -> list[Row]:
    """Return the rows with each `irecv` behind the `isend` to its stage that follows it.

    Megatron-LM starts both before it waits for either.
    """
    ordered: list[Row] = []
    for row in rows:
        before = ordered[-1] if ordered else row
        sends_next = (before.kind, row.kind) == ("irecv", "isend")
        if sends_next and before.neighbour == row.neighbour:
            ordered.insert(-1, row)
        else:
            ordered.append(row)
    return ordered
