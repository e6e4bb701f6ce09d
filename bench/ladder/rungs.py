"""The rungs of the ladder: which limits are taken away, and which knowledge is given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bench.ladder.laboratory import Scenario

Order = Literal["queues", "served", "levels", "arrival"]
"""Whom a port serves of the flows that are ranked relative to others (`ladder.h`)."""


@dataclass(frozen=True, slots=True)
class Rung:
    """A fabric in virtual time. By default it is the product's."""

    name: str
    title: str
    order: Order = "queues"
    free_acks: bool = False
    """Whether acknowledgements arrive at once, and take no link's time."""
    true_stamps: bool = False
    """Whether packets leave their hosts with the true age and memory of their iteration."""
    window: int | None = None
    """The packets in flight on a connection; None: as the scenario says."""
    ack_every: int | None = None
    """The packets for which there is one acknowledgement at most; None: as receivers choose."""

    def scenario(self, scenario: Scenario) -> Scenario:
        """Return the scenario as its senders are on this rung."""
        if self.window is None:
            return scenario
        transport = replace(scenario.transport, window_packets=self.window)
        return replace(scenario, transport=transport)


AS_IT_IS = Rung("as-is", "as it is")


def window_rung(packets: int, ack_every: int | None = None) -> Rung:
    """Return a rung whose flows each have a window of so many packets."""
    name = f"window-{packets}"
    title = f"window {packets}"
    if ack_every is not None:
        name = f"{name}-ack-{ack_every}"
        title = f"{title}, ack each {ack_every}"
    return Rung(name, title, window=packets, ack_every=ack_every)


_WINDOW = 16
"""It holds two packets on each of four links there and back, which is what most fabrics need."""
RUNGS: Sequence[Rung] = (
    AS_IT_IS,
    window_rung(8),
    window_rung(_WINDOW),
    window_rung(_WINDOW, 2),
    Rung("free-acks", "acks cost nothing and no time", free_acks=True),
    Rung("truth", "true reference and memory", true_stamps=True),
    Rung("arrival", "exact order, rank of arrival", order="arrival"),
    Rung("levels", "7 levels, given anew when served", order="levels"),
    Rung("served", "exact order, ranked when served", order="served"),
    Rung(
        "all",
        f"ranked when served, acks free, window {_WINDOW}",
        order="served",
        free_acks=True,
        window=_WINDOW,
    ),
)
"""The ladder, from the product to a fabric without any of its limits."""
_WINDOWS = re.compile(r"window-(\d+)(?:-ack-(\d+))?")


def rung_named(name: str) -> Rung:
    """Return the rung of this name, which may be ``window-N`` or ``window-N-ack-M``.

    Raise `KeyError` for another name.
    """
    for rung in RUNGS:
        if rung.name == name:
            return rung
    matched = _WINDOWS.fullmatch(name)
    if matched is None:
        raise KeyError(name)
    packets, ack_every = matched.groups()
    if ack_every is None:
        return window_rung(int(packets))
    return window_rung(int(packets), int(ack_every))
