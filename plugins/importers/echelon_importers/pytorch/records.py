"""PyTorch's records of operations of process groups, named `record_param_comms`.

The fields are those of ``torch/csrc/distributed/c10d/ParamCommsUtils.hpp``, which the profiler
writes as arguments of an event, and an execution trace as inputs of a node. The names of operations
are those of ``ProcessGroupNCCL.cpp``; torchcomms and other process groups have similar ones. Gloo
records nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from echelon.model.documents import DocumentError
from echelon.model.errors import Code
from echelon.model.quantities import excerpt
from echelon_importers.importer import Source
from echelon_importers.workload import CollectiveKind, Ranks

Operation = CollectiveKind | Literal["send", "recv", "gather", "scatter"]
Fields = Mapping[str, Any]
"""The members of an object of JSON."""
RECORD = "record_param_comms"
TRANSFERS = ("send", "recv")

_KINDS: tuple[tuple[str, CollectiveKind], ...] = (
    ("allreduce", "all-reduce"),
    ("allgather", "all-gather"),
    ("reducescatter", "reduce-scatter"),
    ("alltoall", "all-to-all"),
    ("broadcast", "broadcast"),
    ("barrier", "barrier"),
    ("reduce", "reduce"),
)
"""Beginnings of names of collectives, in small letters only.

PyTorch adds words like `_base`, `_coalesced` and `_into_tensor`, which change nothing.
"""
_OTHERS: dict[str, Operation] = {
    "send": "send",
    "recv": "recv",
    "gather": "gather",
    "gathersingle": "gather",
    "scatter": "scatter",
}
_SILENT = ("wait", "init", "finalize", "split")
"""Records of calls that send nothing that a job file describes."""
_REFUSED = {
    "allreducesparse": "does not say how many elements of a sparse tensor are sent",
    "recvanysource": "does not say which rank sends",
    "batchopissue": "does not say what its batch sends",
}
MOST_BYTES = 10**15


@dataclass(frozen=True, slots=True)
class Recorded:
    """One rank's part of an operation."""

    operation: Operation
    group: str
    """The name of the process group."""
    group_size: int | None
    ranks: Ranks | None
    """The ranks of the group, in its order; None if the record does not list all."""
    size_bytes: int
    """The bytes of this rank's input tensors."""
    member: int | None = None
    """The place in the group of the root, or of the other end of a transfer; None: not recorded."""
    peer: int | None = None
    """The rank at the other end of a transfer; None: not recorded."""
    rank: int | None = None
    """The rank at this end of a transfer; None: not recorded."""
    splits: Ranks | None = None
    """The elements or rows for each rank, of an all-to-all.

    None or empty: equal parts, or not recorded as a whole.
    """
    sequence: object = None
    """The number in the group. Transfers of a batch have the same; None: not recorded."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an entry in a file."""

    source: Source
    entry: int

    def __str__(self) -> str:
        return f"entry {self.entry}"

    def fault(
        self,
        reason: str,
        remedy: str,
        code: Code = "invalid-value",
    ) -> DocumentError:
        """Return an error about this place."""
        return DocumentError(self.source.name, str(self), f"{reason} ({remedy})", code=code)


def is_silent(name: str) -> bool:
    """Return whether a recorded name is that of something which sends nothing."""
    return _letters(name) in _SILENT


def operation_named(place: Place, name: str) -> Operation:
    """Return the operation that PyTorch records under a name. Raises `DocumentError`."""
    letters = _letters(name)
    if letters in _REFUSED:
        reason = f"{excerpt(name)} {_REFUSED[letters]}"
        remedy = "take steps without it by --iterations; no job without it would be the same"
        raise place.fault(reason, remedy)
    operation = _OTHERS.get(letters) or _collective_kind(letters)
    if operation is None:
        reason = f"{excerpt(name)} is no operation of a process group that is known here"
        remedy = "correct the name; a job without it would be another"
        raise place.fault(reason, remedy)
    return operation


def kernel_kind(name: str) -> CollectiveKind | None:
    """Return the collective that the name of a kernel of NCCL begins with."""
    letters = _letters(name)
    for prefix in ("nccl", "dev", "kernel"):
        letters = letters.removeprefix(prefix)
    return _collective_kind(letters)


def _collective_kind(letters: str) -> CollectiveKind | None:
    """Return the collective whose name the small letters begin with."""
    for start, kind in _KINDS:
        if letters.startswith(start):
            return kind
    return None


def _letters(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


def whole_list(text: object, size: int | None) -> Ranks | None:
    """Return the numbers in ``[0, 8, 16]``; None if they are not all there.

    PyTorch cuts lists of more than 30 numbers: ``[0, 8, ..., 248]``. Ranks of a group that it
    records are evenly spaced, so the first two, the last and the size of the group give them all.
    """
    if not isinstance(text, str):
        return None
    number = "[0-9]{1,15}"
    if re.fullmatch(rf"\[({number}(, ?{number})*)?\]", text):
        return _numbers(text)
    if size is None or not re.fullmatch(rf"\[({number}, ?)+\.\.\., ?{number}\]", text):
        return None
    numbers = _numbers(text)
    first, second, last = numbers[0], numbers[1], numbers[-1]
    stride = second - first
    # Two numbers and dots have no stride that is known, and PyTorch does not write them.
    is_regular = len(numbers) > 2 and stride > 0
    if not is_regular or first + stride * (size - 1) != last:
        return None
    return tuple(range(first, last + 1, stride))


def _numbers(text: str) -> Ranks:
    return tuple(int(word) for word in re.findall("[0-9]+", text))


def is_size(value: object) -> bool:
    """Return whether a value is a number of elements or bytes."""
    return type(value) is int and 0 <= value <= MOST_BYTES


def positive(value: object) -> int | None:
    """Return a number of ranks; None if the value is none."""
    number = rank_number(value)
    return number or None


def rank_number(value: object) -> int | None:
    """Return a rank; None if the value is none."""
    return value if type(value) is int and 0 <= value < 10**6 else None
