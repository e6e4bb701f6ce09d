"""Flows under way, and the rates that they are given."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, TypeAlias, runtime_checkable

Number: TypeAlias = float | Fraction
"""A time, rate or amount: `float` in the fluid engine, `Fraction` in plans and where packets are
counted. What uses one of them uses it throughout; policies and rankings compute with either."""

Link = tuple[str, str]
"""A directed link: (node, next node)."""

Capacities: TypeAlias = Mapping[Link, Fraction]
"""The bytes per second of each link."""


@dataclass(slots=True, eq=False)
class ActiveFlow:
    """A flow that has started and not finished, as a scheduler sees it.

    The fluid engine keeps one object for each flow and updates `remaining_bytes` before it asks for
    rates or ranks.
    """

    job: str
    flow: str
    iteration: int
    echelonflow: str | None
    """None for background traffic that no job claims."""
    links: tuple[Link, ...]
    size_bytes: int
    remaining_bytes: Number
    start_s: Number
    deadline_s: Number
    """The finish that its arrangement function asks for; the start, if it is in no EchelonFlow."""
    sequence: int
    """Counts flow starts in the whole run: breaks ties by arrival."""
    max_rate_Bps: Number | None = None  # noqa: N815
    """The constant rate of the sender, in bytes per second; None: no limit.

    Background traffic is sent at it whatever happens to its packets.
    """


@dataclass(frozen=True, slots=True)
class Allocation:
    """Rates in bytes per second, in the order of the flows given.

    They hold until one of these flows finishes or another one joins them, or until `valid_until_s`
    (None: no other limit).
    """

    rates_Bps: Sequence[Number]  # noqa: N815
    valid_until_s: Number | None = None
    ranks: Sequence[int] | None = None
    """The rank of each flow, if the policy assigns priorities rather than rates.

    The most urgent has 0.

    The flows of a coflow have the same rank.
    """


@runtime_checkable
class Allocator(Protocol):
    """A policy that gives every flow under way a rate.

    It says `allocates = False` if it does not for the jobs of its last plan.
    """

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates of `flows` from now on."""


@runtime_checkable
class LocalAllocator(Allocator, Protocol):
    """An allocator whose rates depend on neighbours only.

    `allocate` is called with all flows of one or more neighbourhoods, in order of
    `ActiveFlow.sequence`, rather than with all flows of the run. Two flows are in one neighbourhood
    if they meet at a link that could be full, have the same `neighbourhood`, or are connected by
    other flows of which this is true.
    """

    def neighbourhood(self, flow: ActiveFlow) -> Hashable:
        """Return what couples the flow to others beside links, such as its job; None: nothing."""


@runtime_checkable
class FlowWatcher(Protocol):
    """An allocator that wants to hear of every start and finish of a flow with bytes and links.

    All starts and finishes of one moment are announced before rates of that moment are asked for.
    """

    def started(self, now_s: Number, flow: ActiveFlow) -> None:
        """Take note that a flow has started."""

    def finished(self, now_s: Number, flow: ActiveFlow) -> None:
        """Take note that a flow has finished."""
