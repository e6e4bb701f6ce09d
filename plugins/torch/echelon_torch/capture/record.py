"""The records that `echelon_torch.observer` writes, one for each rank."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from echelon.model.documents import DocumentError, Section, parse_document

_MOST_BYTES = 1 << 28
_Count = Annotated[int, Field(ge=0, le=10**15)]
_Rank = Annotated[int, Field(ge=0, lt=10**6)]
_Moment = Annotated[float, Field(ge=0, le=10**12, allow_inf_nan=False)]
Kind = Literal[
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce", "barrier", "gather", "scatter",
    "send", "receive",
]  # fmt: skip


class Group(Section):
    """A process group."""

    ranks: Annotated[tuple[_Rank, ...], Field(min_length=1)]
    """The ranks of the job, in the order in which the group numbers them."""
    backend: str
    called: str = ""
    """Its name in the program or a device mesh (`group_desc`); empty: none."""


class Call(Section):
    """An operation that a rank called. Times are seconds of the rank's own clock."""

    number: _Count
    """Its place among the calls of the iteration."""
    kind: Kind
    group: str
    bytes: _Count
    """The bytes of a rank before a collective, sent or received; for a scatter, those it gets."""
    peer: int = 0
    """The rank in the group that it sends to or receives from, or the root."""
    tag: int = 0
    parts: tuple[_Count, ...] | None = None
    """The bytes to each rank of the group, of an all-to-all that is told them."""
    backward: bool
    """Whether it was called in a backward pass."""
    module: str = ""
    """The innermost module whose forward pass called it; empty if there is none or unknown."""
    start_s: _Moment
    returned_s: _Moment
    end_s: _Moment | None
    """The time at which it had ended. None: not known."""


class RankWait(Section):
    """A time of a rank's wait for calls of the iteration; without any, for an earlier one's."""

    start_s: _Moment
    end_s: _Moment
    calls: tuple[_Count, ...]
    backward: bool
    """Whether it is the wait at the end of a backward pass."""


class Unmarked(Section):
    """Everything that a rank did, where nothing told the ends of iterations."""

    calls: tuple[Call, ...]
    waits: tuple[RankWait, ...]


class RecordedIteration(Unmarked):
    """The calls and waits of a rank in an iteration, each in the order of their starts."""

    start_s: _Moment
    end_s: _Moment
    delayed_s: _Moment = 0.0
    """The time in which the rank could have run, and had no processor."""


class RankRecord(Section):
    """The record of one rank."""

    echelon_capture: Literal[1]
    rank: _Rank
    ranks: Annotated[int, Field(ge=1, le=10**6)]
    """The number of ranks in the job."""
    host: str
    torch: str
    device: str
    """The kind of device that communicates, as PyTorch calls it."""
    groups: Mapping[str, Group]
    iterations: tuple[RecordedIteration, ...]
    unmarked: Unmarked | None = None


def read_records(directory: Path) -> tuple[RankRecord, ...]:
    """Return the records in a directory, by rank.

    Raises `DocumentError` unless they are those of a whole job.
    """
    records = [_read(path) for path in directory.glob("rank-*.json")]
    if not records:
        raise DocumentError(
            str(directory),
            "",
            "has no records: no process ended that had called torch.distributed.init_process_group"
            " (check that the command trains, and that it hands on its environment)",
            code="empty-document",
        )
    records.sort(key=lambda record: record.rank)
    ranks = [record.rank for record in records]
    if ranks != list(range(records[0].ranks)):
        missing = next(rank for rank in range(records[0].ranks + 1) if rank not in ranks)
        raise DocumentError(
            str(directory),
            "",
            f"has {len(ranks)} records of a job of {records[0].ranks} ranks, and none of rank"
            f" {missing} (copy those of all hosts into one directory, and give it with --records)",
            code="wrong-length",
        )
    return tuple(records)


def _read(path: Path) -> RankRecord:
    try:
        with path.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
        if len(data) <= _MOST_BYTES:
            document = json.loads(data)
        else:
            document = None
    except OSError as error:
        raise DocumentError(
            str(path), "", f"{error.strerror} (check the path)", code="unreadable-file"
        ) from None
    except (ValueError, RecursionError):
        raise DocumentError(
            str(path), "", "is not JSON (record the job anew)", code="bad-syntax"
        ) from None
    if not isinstance(document, dict):
        raise DocumentError(
            str(path), "", "is not a record of at most 256 MiB (record fewer iterations)"
        )
    record = parse_document(RankRecord, document, str(path))
    parts: list[Unmarked] = [*record.iterations]
    if record.unmarked is not None:
        parts.append(record.unmarked)
    for number, part in enumerate(parts):
        _check(path, record, number, part)
    return record


def _check(
    path: Path,
    record: RankRecord,
    number: int,
    part: Unmarked,
) -> None:
    for place, call in enumerate(part.calls):
        group = record.groups.get(call.group)
        members: Sequence[int] = group.ranks if group else ()
        key = f"iterations[{number}].calls[{place}]"
        is_member = record.rank in members and 0 <= call.peer < len(members)
        if call.number != place or not is_member:
            raise DocumentError(str(path), key, "does not fit its group (record anew)")
        if call.parts is None:
            continue
        if len(call.parts) != len(members) or call.kind != "all-to-all":
            raise DocumentError(str(path), key, "has parts of other ranks (record anew)")
    if any(call >= len(part.calls) for wait in part.waits for call in wait.calls):
        raise DocumentError(
            str(path),
            f"iterations[{number}].waits",
            "wait for calls that there are not (record anew)",
        )
