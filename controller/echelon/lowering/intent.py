"""What one switch should hold: table entries, queue configuration, digests. In P4 terms, for no particular channel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prefix:
    """A longest-prefix match."""

    value: int
    length: int


@dataclass(frozen=True, slots=True)
class Interval:
    """A range match, both ends included."""

    low: int
    high: int


Match = int | Prefix | Interval
"""An `int` matches exactly."""


@dataclass(frozen=True, slots=True)
class ActionCall:
    name: str
    arguments: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One entry, by the names that P4Info knows.

    `actions` has one member, or several for a table with an action selector, which spreads packets over them evenly.
    """

    table: str
    match: tuple[tuple[str, Match], ...]
    actions: tuple[ActionCall, ...]
    priority: int = 0
    """Higher wins; 0 in tables whose keys need none."""


@dataclass(frozen=True, slots=True)
class QueueSetting:
    """Configuration of one queue of one egress port."""

    port: int
    queue: int
    level: int
    weight: int
    min_rate_bps: int
    max_rate_bps: int | None


@dataclass(frozen=True, slots=True)
class DigestSetting:
    """How a switch reports a digest: lists of at most `max_list_size`, at the latest `max_timeout_ns` after the first.

    With `ack_timeout_ns` 0 no acknowledgement is awaited.
    """

    name: str
    max_list_size: int
    max_timeout_ns: int
    ack_timeout_ns: int


@dataclass(frozen=True, slots=True)
class Intent:
    switch: str
    entries: tuple[TableEntry, ...]
    queues: tuple[QueueSetting, ...]
    digests: tuple[DigestSetting, ...]
    flows: tuple[tuple[str, str], ...]
    """(job, flow) by the flow identifier that this switch reports in digests."""
    classifiers: tuple[TableEntry, ...]
    """By flow identifier: the entry that recognises the flow, and counts its bytes."""
