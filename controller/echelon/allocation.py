"""Flows under way, and the rates that they are given.

Numbers are `Fraction`, so that the fluid simulator is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, runtime_checkable

Link = tuple[str, str]
"""A directed link: (node, next node)."""


@dataclass(frozen=True, slots=True)
class ActiveFlow:
    """A flow that has started and not finished, as a scheduler sees it."""

    job: str
    flow: str
    iteration: int
    echelonflow: str | None
    """None for background traffic that no job claims."""
    links: tuple[Link, ...]
    size_bytes: int
    remaining_bytes: Fraction
    start_s: Fraction
    ideal_finish_s: Fraction
    sequence: int
    """Counts flow starts in the whole run: breaks ties by arrival."""
    max_rate_Bps: Fraction | None = None  # noqa: N815
    """Bytes per second at which the sender sends, whatever happens to its packets (background); None: no limit."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Rates in bytes per second, in the order of the flows given.

    They hold until a flow starts or finishes, or until `valid_until_s` (None: no other limit).
    """

    rates_Bps: tuple[Fraction, ...]  # noqa: N815
    valid_until_s: Fraction | None = None


@runtime_checkable
class Allocator(Protocol):
    """Gives every flow under way a rate."""

    def allocate(self, now_s: Fraction, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates of `flows` from now on."""
