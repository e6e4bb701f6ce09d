"""The objects that ingress, before the queues, and egress, after them, hand to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Queued:
    """A packet that ingress passes to the traffic manager; only egress uses ``context``."""

    port: int
    queue: int
    length_bytes: int
    context: Any


@dataclass(slots=True)
class Departure:
    """A packet that leaves through ``port``, unless ``packet`` is None.

    The packets in ``requeue`` are to be queued next.
    """

    port: int
    packet: bytes | None
    requeue: Sequence[Queued]


@dataclass(frozen=True, slots=True)
class CloneSession:
    """The destinations of clones: (port, replication id) each.

    Clones are cut to ``truncate_bytes`` if it is set.
    """

    replicas: Sequence[tuple[int, int]]
    truncate_bytes: int | None = None
    queue: int = 0
