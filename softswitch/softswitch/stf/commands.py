"""The statements of a test, as :func:`softswitch.stf.parse` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal


class StfError(Exception):
    """A test that cannot be run. The message is one line ``FILE:LINE: reason``."""

    def __init__(
        self,
        file: str,
        line: int,
        reason: str,
    ) -> None:
        super().__init__(f"{file}:{line}: {reason}")
        self.file = file
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Digits:
    """A number with digits that match anything, which are 0 in ``value`` and in ``mask``.

    ``mask`` covers the digits as written. It is None for a decimal number, whose digits are not
    whole bits.
    """

    value: int
    mask: int | None
    wild: bool


Relation = Literal["", "/", "&&&", "->"]


@dataclass(frozen=True, slots=True)
class Value:
    """``first`` or, if ``relation`` is not empty, ``first relation second``."""

    first: Digits
    relation: Relation = ""
    second: int = 0


@dataclass(frozen=True, slots=True)
class EntryField:
    """One match field of an entry, ``field:value``."""

    field: str
    value: Value


@dataclass(frozen=True, slots=True)
class EntryAction:
    name: str
    args: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ProfileChoice:
    """The member or group that an entry of a table with an action profile refers to."""

    kind: Literal["member", "group"]
    number: int


@dataclass(frozen=True, slots=True)
class Add:
    line: int
    table: str
    priority: int | None
    matches: tuple[EntryField, ...]
    action: EntryAction | ProfileChoice
    label: str | None


@dataclass(frozen=True, slots=True)
class SetDefault:
    line: int
    table: str
    action: EntryAction


@dataclass(frozen=True, slots=True)
class RemoveAll:
    line: int


@dataclass(frozen=True, slots=True)
class Packet:
    line: int
    port: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Expect:
    """A packet through ``port`` that begins with ``digits``, or equals them if ``exact``.

    The digits are hexadecimal, or ``*`` for any.
    """

    line: int
    port: int
    digits: str
    exact: bool


@dataclass(frozen=True, slots=True)
class NoPacket:
    line: int


@dataclass(frozen=True, slots=True)
class Wait:
    line: int


@dataclass(frozen=True, slots=True)
class Time:
    """The arrival of the next packet, ``time_ns`` after the start of the test."""

    line: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class ExpectDigest:
    """A digest of these values, in the order of its fields."""

    line: int
    name: str
    values: tuple[Digits, ...]


@dataclass(frozen=True, slots=True)
class CheckCounter:
    """A check of a counter.

    ``index`` is a number, or the label of an entry; ``unit`` None demands that nothing was counted.
    """

    line: int
    counter: str
    index: int | str
    unit: Literal["packets", "bytes"] | None
    relation: str
    number: int


@dataclass(frozen=True, slots=True)
class CheckRegister:
    line: int
    register: str
    index: int
    relation: str
    number: int


@dataclass(frozen=True, slots=True)
class Control:
    """A verb, the name of its object if there is one, and numbers.

    ``label`` is the entry that an index names instead; ``operands`` are then the numbers behind it.
    """

    line: int
    verb: str
    name: str
    operands: tuple[int, ...]
    label: str | None = None

    @property
    def index(self) -> int | str:
        """Return the number or the name of the cell."""
        return self.operands[0] if self.label is None else self.label


@dataclass(frozen=True, slots=True)
class MeterRates:
    """The rates of a meter: committed, then peak, each (units per microsecond, burst in units).

    ``index`` None sets all cells.
    """

    line: int
    meter: str
    index: int | str | None
    committed: tuple[Fraction, int]
    peak: tuple[Fraction, int]


@dataclass(frozen=True, slots=True)
class AddMember:
    line: int
    profile: str
    member: int
    action: EntryAction


@dataclass(frozen=True, slots=True)
class AddGroup:
    """A new group; ``members`` are (member, weight)."""

    line: int
    profile: str
    group: int
    members: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class AddValue:
    """One value for each field of a parser value set."""

    line: int
    value_set: str
    values: tuple[Value, ...]


Command = (
    Add
    | SetDefault
    | RemoveAll
    | Packet
    | Expect
    | NoPacket
    | Wait
    | Time
    | ExpectDigest
    | CheckCounter
    | CheckRegister
    | Control
    | MeterRates
    | AddMember
    | AddGroup
    | AddValue
)
