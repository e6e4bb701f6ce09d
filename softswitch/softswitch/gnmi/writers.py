"""The clients that change a device.

A controller that finds its entries changed asks for the latest of them beside itself. Who calls is
known by the connection: whoever has learnt a primary's election id may write with it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from softswitch.rpc.status import BatchFailedError

__all__ = ["READER", "Writers"]

_MOST = 16
"""The connections that are remembered. Strangers with more push out only each other."""

_NAME_CHARACTERS = 64
"""The characters of a role's name that are told: a stranger chooses it."""

READER: ContextVar[str] = ContextVar("reader", default="")
"""The connection of the client that reads now."""


@dataclass(slots=True)
class _Writer:
    """The changes of one connection, numbered with those of all others."""

    role: str
    first: int
    latest: int


class Writers:
    """The latest clients that changed a device."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._writers: dict[str, _Writer] = {}
        """The writers by connection; the latest comes last."""

    @contextmanager
    def noting(self, connection: str, role: str) -> Iterator[None]:
        """Note the change that the block makes, in part or as a whole."""
        try:
            yield
        except BatchFailedError:
            self._note(connection, role)
            raise
        self._note(connection, role)

    def _note(self, connection: str, role: str) -> None:
        with self._lock:
            number = next(self._numbers)
            writer = self._writers.pop(connection, None)
            first = number if writer is None else writer.first
            self._writers[connection] = _Writer(role, first, number)
            if len(self._writers) > _MOST:
                del self._writers[next(iter(self._writers))]

    def foreign(self) -> str | None:
        """Return the latest client that changed the device since the one that reads began to.

        None: there is none. Those before are earlier sessions of the same controller, too.
        """
        connection = READER.get()
        with self._lock:
            reader = self._writers.get(connection)
            since = 0 if reader is None else reader.first
            for other, writer in reversed(self._writers.items()):
                if other != connection and writer.latest > since:
                    return f"{_role_text(writer.role)} at {other}"
        return None


def _role_text(role: str) -> str:
    if not role:
        return "the default role"
    return f"role {role[:_NAME_CHARACTERS]!r}"
