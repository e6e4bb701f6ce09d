"""Notes of an import of Chakra traces: what was derived, and what is contradictory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from echelon_importers.chakra.groups import Groups
from echelon_importers.chakra.streams import StreamOrder
from echelon_importers.importer import Source
from echelon_importers.workload import ReadCounts

_STAGE = (b"symbolic_tensor_network", b'"y_tensor_size"')
"""The schema that STAGE names in a trace's metadata, and a key of its JSON."""


def say_groups(groups: Groups, tally: ReadCounts) -> None:
    """Count the groups that the traces' own nodes explain."""
    names: set[str] = set()
    for recorded in groups.by_rank:
        names.update(recorded)
    tally.derived["groups from the nodes of the traces"] = len(names)


def say_orders(
    sources: Sequence[Source],
    orders: Sequence[StreamOrder],
    tally: ReadCounts,
) -> None:
    """Count the waits by start times, and note where times contradict dependencies."""
    derived = tally.derived
    against = 0
    far = []
    for source, order in zip(sources, orders, strict=False):
        derived["waits for the node before on a stream, by start times"] += order.on_stream
        derived["waits for nodes of other streams, by start times"] += order.between
        against += order.contradictions
        if order.is_far:
            far.append((source, order))
    if against:
        tally.notes.append(
            f"{against} nodes start before nodes of their stream for which they wait: the trace"
            " contradicts itself, and the dependencies count"
        )
    if far:
        source, order = far[0]
        span_ms = order.span_us / 1000
        replayed_ms = order.replayed_us / 1000
        tally.notes.append(
            f"{len(far)} of {len(orders)} traces do not add up: {source.name} spans {span_ms:g} ms"
            f" by its start times, but its dependencies and durations make it {replayed_ms:g} ms,"
            " which counts"
        )


def say_units(
    sources: Iterable[Source],
    element_bytes: int,
    tally: ReadCounts,
) -> None:
    """Note the unit of sizes, where they may be no bytes."""
    if element_bytes > 1:
        tally.notes.append(f"sizes are counted as elements of {element_bytes} bytes each")
        return
    for source in sources:
        beginning = source.beginning(400)
        if any(word in beginning for word in _STAGE):
            tally.notes.append(
                "STAGE counts elements, each taken as one byte as ASTRA-sim does (--set"
                " element_bytes=2: FP16), and a multiplication with its addition as one operation"
            )
            return
