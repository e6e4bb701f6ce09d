"""P4Runtime's status codes for refusals by the switch's tables and arrays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from softswitch.errors import DuplicateEntry, NoSuchEntry, TableError, TableFull
from softswitch.rpc.status import Code, RefusedError

__all__ = ["as_status", "refusing"]


def as_status(error: TableError, otherwise: Code = Code.INVALID_ARGUMENT) -> RefusedError:
    """Return `error` with the specification's code for it.

    `otherwise` is the code of a request that does not fit.
    """
    if isinstance(error, DuplicateEntry):
        code = Code.ALREADY_EXISTS
    elif isinstance(error, NoSuchEntry):
        code = Code.NOT_FOUND
    elif isinstance(error, TableFull):
        code = Code.RESOURCE_EXHAUSTED
    else:
        code = otherwise
    return RefusedError(code, str(error))


@contextmanager
def refusing(otherwise: Code = Code.INVALID_ARGUMENT) -> Iterator[None]:
    """Turn TableErrors of the body into RefusedErrors."""
    try:
        yield
    except TableError as error:
        raise as_status(error, otherwise) from None
