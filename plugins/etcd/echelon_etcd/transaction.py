"""The comparisons and operations of an etcd transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAX_OPERATIONS = 100
"""Operations in one transaction. etcd accepts 128 by default."""
MAX_BYTES = 1 << 20
"""Bytes of keys and values in one transaction. etcd accepts 1.5 MiB by default."""


@dataclass(frozen=True, slots=True)
class Equal:
    key: bytes
    value: bytes | None
    """The expected value; None: the key is absent."""


@dataclass(frozen=True, slots=True)
class Put:
    key: bytes
    value: bytes
    lease: int = 0
    """The lease; 0: the key stays until it is deleted."""

    @property
    def size_bytes(self) -> int:
        return len(self.key) + len(self.value)


@dataclass(frozen=True, slots=True)
class Delete:
    """The deletion of the keys from `start` to before `end`."""

    start: bytes
    end: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.start) + len(self.end)


Operation = Put | Delete
"""An operation. In one transaction no key is written or deleted twice."""


@dataclass(frozen=True, slots=True)
class Outcome:
    succeeded: bool
    stored: Mapping[bytes, bytes]
    """The values of the compared keys that exist, if the transaction did not succeed."""
