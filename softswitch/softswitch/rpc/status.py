"""Outcomes of P4Runtime and gNMI operations, free of gRPC: a code and a text for the user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

__all__ = ["OK", "BatchFailedError", "Code", "RefusedError", "Status"]


class Code(IntEnum):
    """The canonical error codes (google/rpc/code.proto) that the switch uses.

    The numbers are gRPC's.
    """

    OK = 0
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    UNAVAILABLE = 14


@dataclass(frozen=True, slots=True)
class Status:
    """The outcome of one operation; `message` is empty when the code is OK."""

    code: Code
    message: str = ""


OK = Status(Code.OK)


class RefusedError(Exception):
    """The specification demands that the operation is refused, with this code and reason."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.status = Status(code, message)


class BatchFailedError(Exception):
    """The failure of at least one element of a Write or Read batch.

    `statuses` has one element per element of the request, in its order. The RPC as a whole ends
    with UNKNOWN.
    """

    def __init__(self, operation: str, statuses: Sequence[Status]) -> None:
        failed = [(index, status) for index, status in enumerate(statuses) if status.code]
        index, first = failed[0]
        super().__init__(
            f"{operation}: {len(failed)} of {len(statuses)} failed; number {index}:"
            f" {first.code.name}: {first.message}"
        )
        self.statuses = tuple(statuses)
