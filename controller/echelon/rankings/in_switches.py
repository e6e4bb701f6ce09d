"""The needs of switches for every ranking: an action for each flow, and profiles that map keys of packets to queues."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, Protocol


class KeyRange(NamedTuple):
    """The keys from `lowest` to `highest`, both included, mean `queue`."""

    lowest: int
    highest: int
    queue: int


class LevelProfile(NamedTuple):
    """The map from the key of a packet to a queue, shared by flows."""

    steps: tuple[KeyRange, ...]
    """Ascending; together they cover every key."""
    period: tuple[tuple[str, int], ...] = ()
    """The arguments of action `set_period` (ranking `deadline`); empty: no entry in table `period`."""


class RankingAction(NamedTuple):
    """An action of the switch's table `flow`, with its arguments after `port` and `dst_mac`."""

    name: str
    arguments: Mapping[str, int]


class SwitchNumbers(Protocol):
    """The numbers by which one switch knows what the flows of one job share, and the widths and units of its
    registers."""

    @property
    def time(self) -> TimeUnit:
        """The unit of times."""

    @property
    def attained_bytes(self) -> int:
        """The number of bytes in which a group's bytes are counted, as a key."""

    @property
    def key_bits(self) -> int:
        """Width of the key that a profile maps to a queue."""

    @property
    def offset_bits(self) -> int:
        """Width of a time of a flow, an unsigned number."""

    def echelonflow(self, name: str) -> int:
        """Return the number of an EchelonFlow of the job. Raise `ValueError`, as the other methods do."""

    def group(self, name: str) -> int:
        """Return the number of a group of flows of the job."""

    def profile(self, content: Hashable, make: Callable[[], LevelProfile]) -> int:
        """Return the number of the profile that `make` returns. Equal `content` means the same profile."""


def steps(edges: Iterable[int], queues: Sequence[int], key_bits: int) -> tuple[KeyRange, ...]:
    """Return the steps in which the keys below the first of the ascending `edges` mean the first of the `queues`, those
    from there to below the second edge the second, and so on: there is one queue more than there are edges.

    Edges are cut to the keys that exist; neighbours that mean the same queue become one step.
    """
    end = 1 << key_bits
    lows = [0, *(min(max(edge, 0), end) for edge in edges)]
    highs = [*lows[1:], end]
    out: list[KeyRange] = []
    for low, high, queue in zip(lows, highs, queues, strict=True):
        if low >= high:
            continue
        if out and out[-1].queue == queue:
            out[-1] = KeyRange(out[-1].lowest, high - 1, queue)
        else:
            out.append(KeyRange(low, high - 1, queue))
    return tuple(out)


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """The unit of the times that a kind of switch is given."""

    nanoseconds: int
    suffix: str
    """What the names of such times end with in the P4 program."""
    plural: str

    def count(self, seconds: Fraction) -> int:
        """Return the nearest whole number of units."""
        return round(seconds * 1_000_000_000 / self.nanoseconds)

    def unsigned(self, what: str, seconds: Fraction, bits: int) -> int:
        """Return a time in this unit. Raise `ValueError`, naming `what`, if it does not fit `bits`."""
        found = self.count(seconds)
        if not 0 <= found < 1 << bits:
            minutes = (1 << bits) * self.nanoseconds // 60_000_000_000
            raise ValueError(
                f"{what} {float(seconds):g} s does not fit {bits} bits of {self.plural} ({minutes} minutes); "
                "shorten the iteration"
            )
        return found


MICROSECONDS = TimeUnit(1000, "us", "microseconds")
TICKS = TimeUnit(1024, "ticks", "ticks of 1.024 microseconds")
"""The time stamps of a Tofino, in nanoseconds, without their last ten bits."""
