"""What a transaction of etcd compares and does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAX_OPERATIONS = 100
"""In one transaction. etcd takes 128 by default."""
MAX_BYTES = 1 << 20
"""Of keys and values in one transaction. etcd takes 1.5 MiB by default."""


@dataclass(frozen=True, slots=True)
class Equal:
    key: bytes
    value: bytes | None
    """None: the key is absent."""


@dataclass(frozen=True, slots=True)
class Put:
    key: bytes
    value: bytes
    lease: int = 0
    """0: stays until it is deleted."""

    @property
    def size_bytes(self) -> int:
        return len(self.key) + len(self.value)


@dataclass(frozen=True, slots=True)
class Delete:
    """Of the keys from `start` on and before `end`."""

    start: bytes
    end: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.start) + len(self.end)


Operation = Put | Delete
"""In one transaction no key is written or deleted twice."""


@dataclass(frozen=True, slots=True)
class Outcome:
    succeeded: bool
    found: Mapping[bytes, bytes]
    """Where it did not: the values of the compared keys that are there."""
