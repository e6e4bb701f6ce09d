"""What every ranking has in common."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from echelon.allocation import ActiveFlow


class Step(NamedTuple):
    """The keys from `lowest` to `highest`, both included, mean `queue`."""

    lowest: int
    highest: int
    queue: int


class Profile(NamedTuple):
    """What a switch needs to turn the key of a packet into a queue, for all flows that share it."""

    steps: tuple[Step, ...]
    """Ascending; together they cover every key."""
    period: tuple[tuple[str, int], ...] = ()
    """The arguments of action `set_period` (ranking `deadline`); empty: no entry in table `period`."""


class RankingAction(NamedTuple):
    """An action of the switch's table `flow`, with its arguments after `port` and `dst_mac`."""

    name: str
    arguments: Mapping[str, int]


class SwitchNumbers(Protocol):
    """The numbers by which one switch knows what the flows of one job share, and the widths of its registers."""

    @property
    def key_bits(self) -> int:
        """Width of the key that a profile maps to a queue."""

    @property
    def offset_bits(self) -> int:
        """Width of a time of a flow, an unsigned number of microseconds."""

    def echelonflow(self, name: str) -> int:
        """Return the number of an EchelonFlow of the job. Raise `ValueError`, as the other methods do."""

    def group(self, name: str) -> int:
        """Return the number of a group of flows of the job."""

    def profile(self, content: Hashable, make: Callable[[], Profile]) -> int:
        """Return the number of the profile that `make` returns. Equal `content` means the same profile."""


class Ranking(Protocol):
    """The rule by which switches choose a queue for each packet of a flow. It is part of a plan, and hashable."""

    @property
    def queues(self) -> range:
        """The queues that packets of the flow can enter."""

    def action(self, at: SwitchNumbers) -> RankingAction:
        """Return how a switch with these numbers ranks the flow.

        Raise `ValueError`, which says what does not fit the switch and what would.
        """


def steps(edges: Iterable[int], queues: Sequence[int], key_bits: int) -> tuple[Step, ...]:
    """Return the steps in which the keys below the first of the ascending `edges` mean the first of the `queues`, those
    from there to below the second edge the second, and so on: there is one queue more than there are edges.

    Edges are cut to the keys that exist; neighbours that mean the same queue become one step.
    """
    end = 1 << key_bits
    lows = [0, *(min(max(edge, 0), end) for edge in edges)]
    highs = [*lows[1:], end]
    out: list[Step] = []
    for low, high, queue in zip(lows, highs, queues, strict=True):
        if low >= high:
            continue
        if out and out[-1].queue == queue:
            out[-1] = Step(out[-1].lowest, high - 1, queue)
        else:
            out.append(Step(low, high - 1, queue))
    return tuple(out)


def microseconds(seconds: Fraction) -> int:
    """Return the nearest whole number of microseconds."""
    return round(seconds * 1_000_000)


def unsigned_us(what: str, seconds: Fraction, bits: int) -> int:
    """Return a time in microseconds. Raise `ValueError`, naming `what`, if it does not fit `bits`."""
    found = microseconds(seconds)
    if not 0 <= found < 1 << bits:
        raise ValueError(
            f"{what} {float(seconds):g} s does not fit {bits} bits of microseconds "
            f"({(1 << bits) // 60_000_000} minutes); shorten the iteration"
        )
    return found


@dataclass(frozen=True, slots=True)
class Rank:
    """The queue of a flow at one port, and how long the flow stays in it.

    It holds until `until_s`, or until `until_bytes` of the flow have passed, whichever comes first (None: for ever), as
    long as the same flows are at the port.
    """

    queue: int
    until_s: Fraction | None = None
    until_bytes: Fraction | None = None


class Execution(Protocol):
    """The state that switches keep for all flows of one kind of ranking, during a fluid run."""

    def started(self, now_s: Fraction, flow: ActiveFlow, ranking: Ranking) -> None:
        """Take note that a flow has started."""

    def finished(self, now_s: Fraction, flow: ActiveFlow, ranking: Ranking) -> None:
        """Take note that a flow has finished."""

    def ranks(self, now_s: Fraction, flows: Sequence[tuple[ActiveFlow, Ranking]]) -> Sequence[Rank]:
        """Return the rank of each of the flows that are at one port, in their order."""
