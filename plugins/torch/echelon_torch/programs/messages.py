"""Messages of a rank to the run: JSON over a Unix socket, written by `echelon_torch.reporting`.

Times are nanoseconds of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_LONGEST = 1 << 26


class Hello(NamedTuple):
    """The first message: who the rank is."""

    job: str
    worker: str
    rank: int
    ranks: int
    """The number of ranks of the job."""


class RankReady(NamedTuple):
    """The rank has done the iterations that are not measured, and waits for the run to begin."""


class RankOperation(NamedTuple):
    """An operation of an iteration."""

    number: int
    """Its place among the operations of the iteration."""
    kind: str
    ranks: Sequence[int]
    """The ranks of its process group."""
    peer: int
    """The rank in the group that a transfer goes to or comes from."""
    size_bytes: int
    start_ns: int
    end_ns: int


class RankStep(NamedTuple):
    """The end of an iteration, counted from 1."""

    iteration: int
    at_ns: int
    operations: Sequence[RankOperation]
    waits: Sequence[tuple[int, int]]
    """The times in which the rank waited for its operations."""


Message = Hello | RankReady | RankStep


class RankLines:
    """A reader of messages from the pieces in which a stream arrives.

    It raises `ValueError` for anything else.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Message]:
        """Return the messages that `data` completes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST:
            raise ValueError("a line is too long")
        for line in lines:
            yield _message(line)


def _message(line: bytes) -> Message:
    try:
        match json.loads(line):
            case ["hello", str(job), str(worker), int(rank), int(ranks)]:
                return Hello(job, worker, rank, ranks)
            case ["ready"]:
                return RankReady()
            case ["step", int(iteration), int(at_ns), list(operations), list(waits)]:
                rank_operations = [RankOperation(*fields) for fields in operations]
                times = [(start, end) for start, end in waits]
                return RankStep(iteration, at_ns, rank_operations, times)
    except TypeError as error:
        raise ValueError(str(error)) from None
    raise ValueError("an unknown message")


def begin(at_ns: int) -> bytes:
    """Return the answer to `RankReady`: the time of its first measured iteration."""
    return f"{at_ns}\n".encode()
