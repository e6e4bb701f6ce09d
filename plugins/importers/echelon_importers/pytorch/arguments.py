"""The record of an operation in the arguments of an event of the profiler.

Kineto copies them from the host's event `record_param_comms` to the kernel that it launches
(``appendCollectiveArgs`` in ``libkineto/src/output_json.cpp``), all but `Rank`: the root, or the
place in the group of a transfer's other end.
"""

from __future__ import annotations

from echelon.model.quantities import excerpt
from echelon_importers.pytorch import records
from echelon_importers.pytorch.records import Fields, Operation, Place, Recorded
from echelon_importers.workload import Ranks

_ELEMENTS = {
    1: "bool byte char qint8 quint8",
    2: "half bfloat16 short uint16",
    4: "float int uint32 complexhalf",
    8: "double long uint64 complexfloat",
    16: "complexdouble",
}
"""PyTorch's names of types (``c10/core/ScalarType.h``) by the bytes of an element."""
_BYTE_FLOATS = ("float8_", "float4_")
"""Beginnings of `Float8_e4m3fn` and the like. Two elements of `Float4_e2m1fn_x2` are one."""


def operation_name(arguments: Fields) -> str | None:
    """Return the name of the operation that an event describes; None: it describes none."""
    name = arguments.get("Collective name")
    return None if name is None else str(name)


def record_id(arguments: Fields) -> int | None:
    """Return the number of the record to which the profiler links an event; None: none."""
    number = arguments.get("External id")
    return number if type(number) is int else None


def described(place: Place, arguments: Fields) -> Recorded | None:
    """Return what the arguments of an event say; None if they describe no operation.

    Raises `DocumentError`.
    """
    name = operation_name(arguments)
    if name is None or records.is_silent(name):
        return None
    operation = records.operation_named(place, name)
    size_bytes = 0
    if operation != "barrier":
        size_bytes = _input_bytes(place, arguments)
    size = records.positive(arguments.get("Group size"))
    splits = arguments.get("In split size")
    rank, peer = _ends(operation, arguments)
    return Recorded(
        operation,
        str(arguments.get("Process Group Name", "")),
        size,
        _group(arguments, size),
        size_bytes,
        member=records.rank_number(arguments.get("Rank")),
        peer=peer,
        rank=rank,
        splits=records.whole_list(splits, None),
    )


def _ends(operation: Operation, arguments: Fields) -> tuple[int | None, int | None]:
    """Return the rank at this end of a transfer, and the one at the other."""
    src = records.rank_number(arguments.get("Src Rank"))
    dst = records.rank_number(arguments.get("Dst Rank"))
    if operation == "send":
        return src, dst
    if operation == "recv":
        return dst, src
    return None, None


def _group(arguments: Fields, size: int | None) -> Ranks | None:
    listed = arguments.get("Process Group Ranks")
    ranks = records.whole_list(listed, size)
    if not ranks or len(set(ranks)) < len(ranks):
        # Groups whose ranks are not evenly spaced have an empty list.
        return None
    return ranks


def _input_bytes(place: Place, arguments: Fields) -> int:
    elements = arguments.get("In msg nelems")
    element = arguments.get("dtype")
    element_bytes = _element_bytes(str(element).lower())
    if not records.is_size(elements) or element_bytes is None:
        reason = f"has {excerpt(elements)} elements of {excerpt(element)}"
        raise place.fault(reason, "give numbers and a type")
    assert isinstance(elements, int)
    return elements * element_bytes


def _element_bytes(name: str) -> int | None:
    if name.startswith(_BYTE_FLOATS):
        return 1
    for size_bytes, names in _ELEMENTS.items():
        if name in names.split():
            return size_bytes
    return None
