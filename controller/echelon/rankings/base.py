"""What every ranking has in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from echelon.allocation import ActiveFlow


class Ranking(Protocol):
    """The rule by which switches choose a queue for each packet of a flow. It is part of a plan, and hashable."""

    @property
    def queues(self) -> range:
        """The queues that packets of the flow can enter."""


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
