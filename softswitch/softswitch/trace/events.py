"""The steps of a packet's way.

Widths are in bits; ``position`` is FILE:LINE of the P4 source, None if that is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from softswitch.lookup import KeyElement

Value = int | bytes
"""A field's value; bytes for a field of variable length."""


@dataclass(frozen=True, slots=True)
class Received:
    """Ingress begins.

    ``repetition`` is ``resubmitted`` or ``recirculated`` for a packet that was here before.
    """

    now_ns: int
    port: int
    data: bytes
    repetition: str | None


@dataclass(frozen=True, slots=True)
class State:
    """The parser enters a state."""

    name: str


@dataclass(frozen=True, slots=True)
class Extracted:
    """The parser extracts a header; ``fields`` are (name, value, width)."""

    header: str
    fields: tuple[tuple[str, Value, int], ...]


@dataclass(frozen=True, slots=True)
class ParserError:
    name: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """The parser has ended, with or without an error."""

    parsed_bytes: int
    left_bytes: int


@dataclass(frozen=True, slots=True)
class Checksum:
    """A checksum is verified.

    ``wanted`` is None if its condition does not hold, or the header is invalid.
    """

    field: str
    wanted: int | None
    actual: int


@dataclass(frozen=True, slots=True)
class Condition:
    text: str
    position: str | None
    value: bool


@dataclass(frozen=True, slots=True)
class Match:
    """One field of a table's key: the packet's value and the entry's element.

    The element is None if no entry matched.
    """

    name: str
    kind: str
    value: int
    width: int
    wanted: KeyElement


@dataclass(frozen=True, slots=True)
class Applied:
    """A table is applied.

    ``handle`` of the entry is None for a miss, ``priority`` if the table has no priorities.
    """

    table: str
    keys: tuple[Match, ...]
    hit: bool
    handle: int | None
    priority: int | None
    position: str | None


@dataclass(frozen=True, slots=True)
class Chosen:
    """An action profile selects a member, None for a call of the entry's own."""

    table: str
    group: int | None
    member: int | None


@dataclass(frozen=True, slots=True)
class Ran:
    """An action runs; ``arguments`` are (name, value, width)."""

    action: str
    arguments: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Block:
    """Statements of a control follow that belong to no table."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement runs; ``text`` is the P4 source, or else the name of the primitive."""

    text: str
    position: str | None


@dataclass(frozen=True, slots=True)
class Wrote:
    field: str
    old: Value
    new: Value
    width: int


@dataclass(frozen=True, slots=True)
class Validity:
    header: str
    valid: bool


@dataclass(frozen=True, slots=True)
class Copied:
    """A header is copied with all its fields; it is ``valid`` if its source was."""

    target: str
    source: str
    valid: bool


@dataclass(frozen=True, slots=True)
class Marked:
    """The packet is marked to be dropped."""


@dataclass(frozen=True, slots=True)
class Counted:
    counter: str
    index: int


@dataclass(frozen=True, slots=True)
class RegisterRead:
    register: str
    index: int
    value: int


@dataclass(frozen=True, slots=True)
class RegisterWritten:
    register: str
    index: int
    old: int
    new: int


@dataclass(frozen=True, slots=True)
class Overrun:
    """The program used an index out of range; ``array`` names the array."""

    array: str


@dataclass(frozen=True, slots=True)
class Logged:
    text: str


@dataclass(frozen=True, slots=True)
class Digested:
    name: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cloned:
    """The packet is cloned; ``copies`` are (port, queue)."""

    session: int
    copies: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Replicated:
    """The packet is replicated; ``copies`` are (port, replication id)."""

    group: int
    copies: tuple[tuple[int, int], ...]
    queue: int


@dataclass(frozen=True, slots=True)
class Enqueued:
    port: int
    queue: int
    length_bytes: int


@dataclass(frozen=True, slots=True)
class Dropped:
    reason: str


@dataclass(frozen=True, slots=True)
class Departing:
    """Egress begins. Depths are in packets, at the times of enqueueing and of leaving."""

    port: int
    queue: int
    waited_ns: int
    enqueued_depth: int
    leaving_depth: int


@dataclass(frozen=True, slots=True)
class Recirculated:
    data: bytes


@dataclass(frozen=True, slots=True)
class Sent:
    """The packet is sent; ``headers`` are those that the deparser emitted."""

    port: int
    data: bytes
    headers: tuple[str, ...]


Event = (
    Received
    | State
    | Extracted
    | ParserError
    | Parsed
    | Checksum
    | Condition
    | Applied
    | Chosen
    | Ran
    | Block
    | Statement
    | Wrote
    | Validity
    | Copied
    | Marked
    | Counted
    | RegisterRead
    | RegisterWritten
    | Overrun
    | Logged
    | Digested
    | Cloned
    | Replicated
    | Enqueued
    | Dropped
    | Departing
    | Recirculated
    | Sent
)

Tracer = Callable[[Event], object]
"""A function that takes the events in the order in which they happen."""
