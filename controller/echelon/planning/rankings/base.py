"""The interfaces of every ranking."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from echelon.planning.allocation import ActiveFlow, Link, Number
from echelon.planning.rankings.in_switches import RankingAction, SwitchNumbers

R_contra = TypeVar(
    "R_contra",
    bound="Ranking",
    contravariant=True,
)


ToNumber = Callable[[Fraction], Number]
"""A function that turns a number of a plan into one of a run."""


class HostView(NamedTuple):
    """The knowledge of a host about a flow when it decides which flow to send."""

    age_s: float
    """Seconds since the job's iteration began."""
    memory: float
    """The time that the job lost in earlier iterations, in its periods."""
    sent_bytes: int
    """The bytes that the host has sent of the flow's group in this iteration."""
    left_bytes: int = 0
    """The bytes of the flow that it has not sent."""


class HostOrder(NamedTuple):
    """The order of a flow among those of its host.

    Equally urgent flows go in the order in which they started.
    """

    urgency: Callable[[HostView], float]
    """A function that is called for every packet while several flows wait. The largest value goes
    first. Hosts in C know `Steps` and `Overdue`."""
    group: str | None = None
    """The flows of the job whose bytes decide; None if no bytes do."""


@dataclass(frozen=True, slots=True)
class Steps:
    """An urgency with steps: a value for each range between two thresholds.

    They are thresholds of the bytes that the group has sent or, with `due_s`, of how long the flow
    is overdue.
    """

    thresholds: tuple[float, ...]
    values: tuple[float, ...]
    due_s: float | None = None

    def __call__(self, view: HostView) -> float:
        """Return the urgency."""
        if self.due_s is None:
            number: float = view.sent_bytes
        else:
            number = view.age_s - self.due_s
        return self.values[bisect_right(self.thresholds, number)]


@dataclass(frozen=True, slots=True)
class Overdue:
    """An urgency that grows: how long the flow is overdue, in periods, with what is left of it.

    What the job lost before comes on top.
    """

    due_s: float
    left_s: float
    """Seconds for each byte that is left."""
    unit_s: float
    head_start: float

    def __call__(self, view: HostView) -> float:
        """Return the urgency, as `deadline_rank` of the module `deadline`; `memory` is in units."""
        overdue_s = view.age_s - self.due_s - self.left_s * view.left_bytes
        return overdue_s / self.unit_s + view.memory - self.head_start


IN_ORDER_OF_START = HostOrder(Steps((), (0.0,)))


class EngineKind(IntEnum):
    """The ways of ranking that the fluid engine in C knows (`fluid/engine/state.h`)."""

    FIXED = 0
    THRESHOLDS = 1
    RELATIVE = 2
    ATTAINED = 3
    WINDOW = 4

    @property
    def state(self) -> str:
        """The kind of state that it needs, which others may share."""
        if self in (self.THRESHOLDS, self.RELATIVE):
            return "reference"
        return self.name


class EngineRanking(NamedTuple):
    """A ranking as the fluid engine in C executes it."""

    kind: EngineKind
    lowest: int
    """The lowest queue; the only one of FIXED, that outside of WINDOW."""
    highest: int
    group: str | None = None
    """The part of the job to which its state belongs."""
    numbers: tuple[float, ...] = ()
    """Thresholds or steps, ascending."""
    orders: tuple[int, ...] = ()
    """The queues of ATTAINED, one more than there are thresholds."""
    times: Mapping[str, float] = {}
    """The other fields of the engine's structure `Ranking`, by name."""


@runtime_checkable
class InEngine(Protocol):
    """A ranking that the fluid engine in C knows. Plans with others run in Python."""

    def in_engine(self) -> EngineRanking:
        """Return the ranking as the engine executes it."""


class Ranking(Protocol):
    """The rule by which switches choose a queue for each packet of a flow.

    It is part of a plan, and hashable.
    """

    @property
    def queues(self) -> range:
        """The queues that packets of the flow can enter."""

    def action(self, switch: SwitchNumbers) -> RankingAction:
        """Return how a switch with these numbers ranks the flow.

        Raise `ValueError`, which says what does not fit the switch and what would.
        """

    def at_host(self) -> HostOrder:
        """Return the order of the flow at its host, among flows that can enter as high a queue."""

    @staticmethod
    def execution(number: ToNumber) -> Execution[Any]:
        """Return the state of all switches at the beginning of a fluid run.

        `number` turns a number of the plan into one of the type that the run uses: `float`, or
        `Fraction` in the exact model of the tests.
        """


class Rank(NamedTuple):
    """The queue of a flow at one port, and how long the flow stays in it.

    The rank holds as long as the same flows are at the port, until `until_s`, or until the flows
    `counted` have sent `until_bytes` more together, whichever comes first (None: no such limit).
    """

    queue: int
    until_s: Number | None = None
    until_bytes: Number | None = None
    counted: Sequence[ActiveFlow] = ()
    by_rates: bool = False
    """Whether rates at the port decide how long the rank holds (`RatedExecution`)."""


class Execution(Protocol[R_contra]):
    """The state that switches keep for all flows with one class of ranking, during a fluid run.

    All starts and finishes of one moment are announced before ranks of that moment are asked for. A
    flow without bytes or links is never announced. The engine asks for the ranks at a port when a
    flow starts or finishes there, when a rank has expired, and, if a rank has `until_bytes`, when
    one of the flows `counted` gets another rate. A time `until_s` that has been reached must not be
    returned again: compare `now_s` with the same sum that gave `until_s`, since differences of
    floats may not reach it.
    """

    def started(
        self,
        now_s: Number,
        flow: ActiveFlow,
        ranking: R_contra,
    ) -> None:
        """Take note that a flow has started."""

    def finished(
        self,
        now_s: Number,
        flow: ActiveFlow,
        ranking: R_contra,
    ) -> None:
        """Take note that a flow has finished."""

    def ranks(
        self,
        now_s: Number,
        port: Link,
        flows: Sequence[tuple[ActiveFlow, R_contra]],
    ) -> Sequence[Rank]:
        """Return the rank of each of the flows that are at one port of a switch, in their order.

        The port belongs to the switch `port[0]` and leads to `port[1]`. The `remaining_bytes` of
        the flows, and of all flows with the same `neighbourhood`, are those of `now_s`.
        """

    def neighbourhood(self, flow: ActiveFlow, ranking: R_contra) -> Hashable:
        """Return what couples the flow's rank to flows at other ports; None if nothing does.

        Flows with the same value have their rates set together. All flows `counted` in a rank must
        have the same value as the flow that is ranked.
        """


@runtime_checkable
class RatedExecution(Execution[R_contra], Protocol[R_contra]):
    """An execution of which some ranks count bytes left, and so depend on rates.

    The engine asks for the ranks at such a port whenever it sets rates there.
    """

    def until_s(
        self,
        now_s: Number,
        flows: Sequence[tuple[ActiveFlow, R_contra]],
        rates_Bps: Sequence[Number],  # noqa: N803
    ) -> Number | None:
        """Return until when the ranks of the flows at a port hold at these rates."""


class OneQueue(Protocol):
    """A ranking by which all packets of a flow enter the same queue."""

    @property
    def queue(self) -> int:
        """The queue, at every port."""


class UncoupledExecution:
    """The part of an execution whose ranks couple no flows at different ports."""

    def started(
        self,
        now_s: Number,
        flow: ActiveFlow,
        ranking: Any,
    ) -> None:
        """Do nothing."""

    def finished(
        self,
        now_s: Number,
        flow: ActiveFlow,
        ranking: Any,
    ) -> None:
        """Do nothing."""

    def neighbourhood(self, flow: ActiveFlow, ranking: Any) -> None:
        """Return None."""


class StatelessExecution(UncoupledExecution):
    """The execution of rankings for which switches keep no state."""

    def ranks(
        self,
        now_s: Number,
        port: Link,
        flows: Sequence[tuple[ActiveFlow, OneQueue]],
    ) -> list[Rank]:
        return [Rank(ranking.queue) for _, ranking in flows]

    def urgency(
        self,
        now_s: Number,
        flow: ActiveFlow,
        ranking: OneQueue,
    ) -> Number:
        """Return the urgency of a flow at its host, among flows of its job."""
        return ranking.queue
