"""What a target can carry. Lowering asks, and refuses what it cannot."""

from __future__ import annotations

from dataclasses import dataclass

from echelon.p4program import constants


@dataclass(frozen=True, slots=True)
class Capabilities:
    """One kind of switch."""

    target: str
    """Its name, for messages only."""
    queues: int
    """Queues of an egress port."""
    weights: bool
    """Whether queues of one level share by DWRR weight."""
    rates: bool
    """Whether a queue has minimum and maximum rates."""
    max_flows: int
    """Flow identifiers, from the P4 program's registers."""
    max_profiles: int
    max_echelonflows: int


def softswitch() -> Capabilities:
    """The embedded switch running the v1model program."""
    numbers = constants()
    return Capabilities(
        target="softswitch",
        queues=numbers["QUEUES"],
        weights=True,
        rates=True,
        max_flows=numbers["FLOWS"],
        max_profiles=1 << numbers["PROFILE_ID_BITS"],
        max_echelonflows=numbers["ECHELONFLOWS"],
    )
