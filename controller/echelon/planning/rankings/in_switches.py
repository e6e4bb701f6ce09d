"""The form of a ranking in switches: an action for each flow, and maps from keys to queues."""

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
    """Ascending; together they cover every key. Empty: queues are in the order of ranks."""
    period: tuple[tuple[str, int], ...] = ()
    """The arguments of action `set_period`; empty: no entry in table `period`."""


class RankingAction(NamedTuple):
    """An action of the switch's table `flow`, with its arguments after `port` and `dst_mac`."""

    name: str
    arguments: Mapping[str, int]


class SwitchNumbers(Protocol):
    """The numbers and units by which one switch knows what the flows of a job share."""

    @property
    def units(self) -> Units:
        """The units and widths of the switch's numbers."""

    @property
    def whole_bytes(self) -> int | None:
        """The size of the flow, if the switch cannot tell how much of it is left; else None."""

    def echelonflow(self, name: str) -> int:
        """Return the number of an EchelonFlow of the job.

        Raise `ValueError`, as the other methods do.
        """

    def group(self, name: str) -> int:
        """Return the number of a group of flows of the job."""

    def profile(self, content: Hashable, make: Callable[[], LevelProfile]) -> int:
        """Return the number of the profile that `make` returns.

        Equal `content` means the same profile.
        """

    def once(self, ranking: object, make: Callable[[], Mapping[str, int]]) -> Mapping[str, int]:
        """Return what `make` returns, which depends on `units` and `whole_bytes` only."""


def steps(
    edges: Iterable[int],
    queues: Sequence[int],
    key_bits: int,
) -> tuple[KeyRange, ...]:
    """Return steps in which keys between two ascending `edges` mean one of the `queues`.

    There is one queue more than there are edges.

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
    """The end of the names of such times in the P4 program."""
    plural: str

    def exactly(self, seconds: Fraction) -> Fraction:
        """Return a time in this unit."""
        return seconds * 1_000_000_000 / self.nanoseconds

    def count(self, seconds: Fraction) -> int:
        """Return the nearest whole number of units, and of two that are as near the even one."""
        # As round(self.exactly(seconds)), without two fractions: every flow of every switch comes
        # here.
        per_unit = seconds.denominator * self.nanoseconds
        count, rest = divmod(seconds.numerator * 1_000_000_000, per_unit)
        is_half = 2 * rest == per_unit
        if 2 * rest > per_unit or (is_half and count % 2):
            return count + 1
        return count

    def unsigned(
        self,
        name: str,
        seconds: Fraction,
        bits: int,
    ) -> int:
        """Return a time in this unit.

        Raise `ValueError`, which has the `name`, if it does not fit `bits`.
        """
        count = self.count(seconds)
        if not 0 <= count < 1 << bits:
            minutes = (1 << bits) * self.nanoseconds // 60_000_000_000
            raise ValueError(
                f"{name} {float(seconds):g} s does not fit {bits} bits of {self.plural} ({minutes}"
                " minutes); shorten the iteration"
            )
        return count


MICROSECONDS = TimeUnit(1000, "us", "microseconds")
TICKS = TimeUnit(1024, "ticks", "ticks of 1.024 microseconds")
"""The time stamps of a Tofino, in nanoseconds, without their last ten bits."""


@dataclass(frozen=True, slots=True)
class RankShifts:
    """The shifts of a switch that cannot multiply.

    They turn times into keys and ranks, so the unit of a job's ranks is a power of two of the
    switch's time unit.

    Table `period` holds the shift of each profile, and the queue of keys that are too large for
    table `level`.
    """

    most_right: int
    most_left: int

    def period(
        self,
        right: int,
        lowest: int,
        *,
        is_relative: bool = False,
        head_start: int = 0,
        alone: int = 0,
    ) -> tuple[tuple[str, int], ...]:
        """Return the arguments of action `set_period`.

        Args:
            right: the number of bits by which times are shifted right; to the left if negative.
            lowest: the queue of keys that are too large.
            is_relative: whether the key is by how much a rank is behind the highest at the port.
            head_start: added to each rank; if it is not relative, the key of a slack of 0.
            alone: the rank that does not count as a delay.
        """
        if right < 0:
            right = _FIRST_LEFT - right
        return (
            ("right", right),
            ("is_relative", int(is_relative)),
            ("head_start", head_start % (1 << _SHIFTED_RANK_BITS)),
            ("alone", alone),
            ("lowest", lowest),
        )

    @staticmethod
    def rank(units: int, right: int) -> int:
        """Return so many of the switch's time units as the nearest rank, in two's complement.

        Raise `ValueError` if it takes more than half of the ranks.
        """
        rank = round(Fraction(units) / Fraction(2) ** right)
        if abs(rank) >= 1 << _SHIFTED_RANK_BITS - 2:
            raise ValueError(
                f"due time: {abs(units)} of the switch's units of time after the flow's offset are"
                " too many for the unit of its job;"
                " give it a due time that is nearer to its offset"
            )
        return rank % (1 << _SHIFTED_RANK_BITS)


_FIRST_LEFT = 16
"""A shift to the left by n bits has the number 16 + n."""
_SHIFTED_RANK_BITS = 32


@dataclass(frozen=True, slots=True)
class Units:
    """The units and widths in which a kind of switch computes."""

    offset_bits: int
    """Width of a flow's offset or period, an unsigned number of `time`."""
    key_bits: int
    """Width of the keys that map packets to queues, such as a slack, a signed number of `time`."""
    time: TimeUnit = MICROSECONDS
    attained_bytes: int = 1
    """The number of bytes that ranking `attained` counts as one."""
    shifts: RankShifts | None = None
    """The shifts by which times become keys and ranks.

    None: keys are as wide as times, and a rank is a time multiplied by a factor.
    """
    left_shift_bits: int = 6
    """Width of the number by which a switch knows how bytes left of a flow are shifted."""
    left_shift_bias: int = 16
    """The number of no shift. The bytes become a time, or a rank if there are `shifts`."""

    def right_shift(self, largest: int, bits: int) -> int:
        """Return the bits by which the switch shifts times up to `largest` right to fit `bits`."""
        if self.shifts is None:
            return 0
        surplus = max(0, largest.bit_length() - bits)
        return min(surplus, self.shifts.most_right)

    def left_shift(self, right: int | None) -> int:
        """Return the number by which a switch knows a shift of bytes left to the right.

        A negative shift is to the left; None: bytes do not count. Raise `ValueError` for a shift to
        the left that it does not have.
        """
        nothing = (1 << self.left_shift_bits) - 1
        if right is None:
            return nothing
        if right < -self.left_shift_bias:
            raise ValueError(
                "bytes left of a flow count too much: the switch shifts them to the left by"
                f" {self.left_shift_bias} bits, not by {-right}; give the flow a larger left_shift"
            )
        # A larger shift than the largest leaves nothing, or next to nothing.
        return min(right + self.left_shift_bias, nothing)

    def profile(
        self,
        steps: tuple[KeyRange, ...],
        right: int = 0,
        at_zero: int = 0,
    ) -> LevelProfile:
        """Return the profile of keys shifted right by so many bits, not relative to the port.

        A slack of 0 has the key `at_zero`, where the switch does not know that.
        """
        if self.shifts is None:
            return LevelProfile(steps)
        lowest = steps[-1].queue
        return LevelProfile(steps, self.shifts.period(right, lowest, head_start=at_zero))


def shifted(number: int, right: int) -> int:
    """Return the smallest number that, shifted left by `right` bits, is not below `number`."""
    return -(-number >> right)
