"""PyTorch's execution traces: ``{"nodes": [...]}``, what the host called, in its order.

A `record_param_comms` has as inputs: tensors, sequence number, process group, rank or root, name,
bytes to and from each rank, first rank and stride of the group, its size. Those without tensors,
such as a barrier's, begin with the sequence number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from echelon.model.quantities import excerpt
from echelon_importers.importer import Source
from echelon_importers.pytorch.raw_events import GPU, microseconds
from echelon_importers.pytorch.records import (
    MOST_BYTES,
    RECORD,
    Fields,
    Place,
    Recorded,
    is_silent,
    is_size,
    operation_named,
    positive,
    rank_number,
)
from echelon_importers.workload import Ranks, ReadCounts

_US_S = Fraction(1, 10**6)
_UNRECORDED = "c10d::"
"""The beginning of operators that hand an operation to any process group, Gloo's too."""


@dataclass(frozen=True, slots=True)
class HostNode:
    """An operation of a process group, or a kernel between those."""

    place: Place
    does: Recorded | Fraction
    """The operation, or the seconds that the kernel takes."""


@dataclass(frozen=True, slots=True)
class ExecutionTrace:
    """The trace of one rank."""

    source: Source
    nodes: Sequence[HostNode]
    groups: Mapping[str, Ranks]
    world: int | None = None
    """The number of ranks, as operations of the group of all ranks say since PyTorch 2.4."""


def read_execution(
    source: Source,
    document: Fields,
    tally: ReadCounts,
) -> ExecutionTrace:
    """Return the trace in a file. Raises `DocumentError`."""
    nodes: list[HostNode] = []
    groups: dict[str, Ranks] = {}
    unrecorded: list[str] = []
    records = 0
    world: int | None = None
    for index, node in enumerate(document["nodes"]):
        place = Place(source, index)
        name, inputs = _parts(place, node)
        if "process_group:init" in name:
            groups.update(_process_groups(place, inputs))
        elif name == RECORD:
            records += 1
            recorded = _recorded(place, inputs)
            if recorded is None:
                tally.ignored["waits of the host"] += 1
            else:
                nodes.append(HostNode(place, recorded))
                if _is_of_all(inputs):
                    world = recorded.group_size
        elif node.get("cat") in GPU and not name.startswith("nccl"):
            duration_s = microseconds(place, node, "dur") * _US_S
            nodes.append(HostNode(place, duration_s))
        else:
            if name.startswith(_UNRECORDED):
                unrecorded.append(name)
            tally.ignored["operators of the host"] += 1
    if unrecorded and not records:
        reason = (
            f"calls {excerpt(unrecorded[0][:40])}, but records no process group, as with Gloo (run"
            " the job under echelon capture)"
        )
        raise source.refusal(reason, code="missing-key")
    return ExecutionTrace(source, nodes, groups, world)


def _parts(place: Place, node: object) -> tuple[str, Sequence[Any]]:
    """Return the name and the inputs of a node."""
    if not isinstance(node, dict) or not isinstance(node.get("name"), str):
        raise place.fault("is not a node with a name", "check the format")
    inputs = node.get("inputs", [])
    if isinstance(inputs, dict):
        inputs = inputs.get("values", [])
    if not isinstance(inputs, list):
        raise place.fault("has inputs that are not a list", "check the format")
    return node["name"], inputs


def _process_groups(place: Place, values: Sequence[Any]) -> dict[str, Ranks]:
    """Return the ranks of process groups that list them; an empty list stands for all ranks."""
    try:
        described = json.loads(values[0]) if values else []
        groups = {}
        for group in described:
            if group["ranks"]:
                name = str(group["pg_name"])
                groups[name] = tuple(map(int, group["ranks"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        reason = "does not describe process groups"
        raise place.fault(reason, "record the trace anew") from None
    return groups


def _recorded(place: Place, values: Sequence[Any]) -> Recorded | None:
    index = _name_index(values)
    if index is None:
        raise place.fault("does not name a collective", "record the trace anew")
    name = values[index]
    if is_silent(name):
        return None
    operation = operation_named(place, name)
    group = values[index - 2]
    if isinstance(group, list) and group:
        # Since PyTorch 2.4, with its description.
        group = group[0]
    size, ranks = _group(values[index + 3 :])
    size_bytes = 0
    if operation != "barrier":
        size_bytes = _tensor_bytes(place, values[0])
    return Recorded(
        operation,
        str(group),
        size,
        ranks,
        size_bytes,
        member=rank_number(values[index - 1]),
        splits=_splits(values[index + 1]),
        sequence=_sequence(values, index),
    )


def _is_of_all(values: Sequence[Any]) -> bool:
    index = _name_index(values)
    assert index is not None
    group = values[index - 2]
    return isinstance(group, list) and group[1:] == ["default_pg"]


def _group(values: Sequence[Any]) -> tuple[int | None, Ranks | None]:
    """Return the size and the ranks of a group, from what follows the bytes for each rank."""
    if len(values) < 3:
        # Before PyTorch 2.3, the size alone.
        size = positive(values[0]) if values else None
        return size, None
    start, stride, number = values[:3]
    size = positive(number)
    first = rank_number(start)
    is_regular = type(stride) is int and stride > 0
    if size is None or first is None or not is_regular:
        return size, None
    return size, tuple(range(first, first + stride * size, stride))


def _name_index(values: Sequence[Any]) -> int | None:
    # The name stands before the two lists of bytes for each rank.
    for index in range(2, len(values) - 1):
        name, following = values[index : index + 2]
        if isinstance(name, str) and isinstance(following, list):
            return index
    return None


def _splits(values: Sequence[object]) -> Ranks | None:
    if not all(map(is_size, values)):
        return None
    return tuple(int(str(value)) for value in values)


def _sequence(values: Sequence[Any], name_index: int) -> object:
    """Return the number of a transfer; None before PyTorch 2.4, which does not count batches."""
    if name_index < 3:
        return None
    number = values[name_index - 3]
    is_pair = isinstance(number, list) and len(number) == 2
    return number[0] if is_pair else None


def _tensor_bytes(place: Place, tensors: Any) -> int:
    """Return the bytes of ``[id, storage, offset, elements, bytes of an element, device]``, or of a
    list of those.
    """
    if not isinstance(tensors, list):
        tensors = [None]
    elif len(tensors) == 6 and isinstance(tensors[5], str):
        tensors = [tensors]
    total = 0
    for tensor in tensors:
        if isinstance(tensor, list) and tensor and isinstance(tensor[0], list):
            # A gather or scatter has lists of lists.
            total += _tensor_bytes(place, tensor)
            continue
        sizes = tensor[3:5] if isinstance(tensor, list) else []
        if len(sizes) != 2 or not all(map(is_size, sizes)):
            reason = f"{excerpt(tensor)} is not a tensor"
            raise place.fault(reason, "record the trace anew")
        elements, element_bytes = sizes
        total += elements * element_bytes
    if total > MOST_BYTES:
        raise place.fault(f"has {total} bytes", "correct the tensors")
    return total
