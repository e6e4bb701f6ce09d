"""The parts of a switch that the BF Runtime server needs: entries by table, and digests.

A match-action table, a register, a counter, a meter and a table of the traffic manager are all
`Entries`. The server checks messages against the description first, so that `Entries` are given
only keys and data of their table's form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from echelon_tofino_model.bfruntime.schema import Schema

__all__ = [
    "BfrtDevice",
    "BfrtProgram",
    "Data",
    "Entries",
    "Key",
    "Lpm",
    "OnDigest",
    "Optional",
    "Range",
    "Ternary",
]


class Ternary(NamedTuple):
    """A match of the bits of `mask`. `value` has no others."""

    value: int
    mask: int


class Lpm(NamedTuple):
    """A match of the first `length` bits. `value` has no others."""

    value: int
    length: int


class Range(NamedTuple):
    """A match of every value from `low` to `high`."""

    low: int
    high: int


class Optional(NamedTuple):
    """A match of one value, or of all if it is not valid."""

    value: int
    is_valid: bool


Key = tuple[Any, ...]
"""The matches of an entry by key field: int or str if Exact, else the kind's own type."""


@dataclass(frozen=True, slots=True)
class Data:
    """The action of an entry, and fields by name: of the action, and of the table.

    Numbers are ints; repeated fields are tuples. A message that changes an entry may have some of
    the fields only.
    """

    action: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


class Entries(Protocol):
    """The entries of one table.

    Calls raise `softswitch.rpc.status.RefusedError`, with what to tell the client.
    """

    def insert(self, key: Key, data: Data) -> None:
        """Add an entry.

        Refused with ALREADY_EXISTS, or RESOURCE_EXHAUSTED where there is no room.
        """
        ...

    def modify(self, key: Key, data: Data) -> None:
        """Change the fields given, and the action if one is given. Refused with NOT_FOUND."""
        ...

    def delete(self, key: Key) -> None:
        """Remove an entry. Refused with NOT_FOUND."""
        ...

    def clear(self) -> None:
        """Remove all entries, or set them back where the table always has the same ones."""
        ...

    def get(self, key: Key) -> Data:
        """Return an entry with all its fields. Refused with NOT_FOUND."""
        ...

    def all(self) -> Iterable[tuple[Key, Data]]:
        """Return every entry, as it is now."""
        ...

    def usage(self) -> int:
        """Return the number of entries."""
        ...

    def default(self) -> Data | None:
        """Return the default entry; None if there is none."""
        ...

    def set_default(self, data: Data | None) -> None:
        """Set the default entry; None sets it back to the program's."""
        ...


@dataclass(frozen=True, slots=True)
class BfrtProgram:
    """A program for a Tofino."""

    name: str
    """The name by which clients bind to it."""
    schema: Schema
    context: bytes = b""
    """The `context.json`."""
    binary: bytes = b""
    """The binary that the switch executes: for the emulator, the assembly."""


OnDigest = Callable[[str, Sequence[Mapping[str, int]]], None]
"""Called with a digest's name and a list of its messages, each with its fields by name."""


class BfrtDevice(Protocol):
    """A switch that runs one program. The caller holds the switch's lock during every call."""

    on_digest: OnDigest | None

    @property
    def program(self) -> BfrtProgram | None:
        """The program that runs; None before there is one."""
        ...

    def entries(self, table: str, pipe: int | None) -> Entries | None:
        """Return the entries of a table of the program or a fixed table; None if there is none.

        `pipe` is the pipe that a request names, or None for all pipes. Tables of a program have the
        same entries in all pipes.
        """
        ...

    def load(self, program: BfrtProgram) -> None:
        """Replace the program.

        All tables begin with their initial contents, the fixed ones too. Raises ValueError for a
        program that cannot run; the one before it goes on then.
        """
        ...
