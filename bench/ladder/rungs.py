"""The rungs of the ladder: which limits are taken away, and which knowledge is given.

Those of `TOFINO_RUNGS` go the other way: each has a limit more (`bench.ladder.tofino`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bench.ladder.laboratory import Scenario

Order = Literal["queues", "served", "levels", "arrival"]
"""Whom a port serves of the flows that are ranked relative to others (`ladder.h`)."""
Limit = str
"""What the data plane for Tofino has not, or not as exactly: a key of `LIMITS`."""


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
    limits: Sequence[Limit] = ()
    """The limits of Tofino's program that it has, too."""

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
LIMITS: Mapping[Limit, str] = {
    "streams": "each flow is a stream of its own",
    "steps": "queues by steps behind the most urgent flow",
    "top": "... which a register keeps",
    "alone": "... which flows change when alone",
    "units": "units of ranks are powers of two",
    "late": "delay for the memory seen on arrival",
    "hold": "thresholds: flows change queues when alone",
    "keys": "thresholds: keys of 20 bits",
    "expiry": "thresholds: ranks that run out ask for no drain",
    "left": "bytes: what is left does not count",
    "last": "bytes: no delay for the memory",
    "sequence": "TCP: no sequence numbers, no pause",
    "gaps": "bytes: iterations begin after gaps only",
}
"""The titles of the limits. Where some flows only are concerned, they begin with whose it is."""
_BY_STEPS = ("streams", "steps")


def _limited_rung(limit: Limit) -> Rung:
    """Return the product with a limit, and with those without which it would mean nothing."""
    limits: tuple[Limit, ...] = (limit,)
    if limit == "steps":
        limits = _BY_STEPS
    elif limit in ("top", "alone"):
        limits = (*_BY_STEPS, limit)
    return Rung(f"tofino-{limit}", LIMITS[limit], limits=limits)


_EVERYTHING = Rung("tofino", "all of these", limits=tuple(LIMITS))
TOFINO_RUNGS: Sequence[Rung] = (
    AS_IT_IS,
    *map(_limited_rung, LIMITS),
    _EVERYTHING,
)
"""The product, then with what Tofino's program leaves out: a limit at a time, then all."""
_WINDOWS = re.compile(r"window-(\d+)(?:-ack-(\d+))?")


def rung_named(name: str) -> Rung:
    """Return the rung of this name, which may be ``window-N`` or ``window-N-ack-M``.

    Raise `KeyError` for another name.
    """
    for rung in (*RUNGS, *TOFINO_RUNGS):
        if rung.name == name:
            return rung
    matched = _WINDOWS.fullmatch(name)
    if matched is None:
        raise KeyError(name)
    packets, ack_every = matched.groups()
    if ack_every is None:
        return window_rung(int(packets))
    return window_rung(int(packets), int(ack_every))


def beside_fluid(rungs: Sequence[Rung]) -> Sequence[Rung]:
    """Return the rungs that are compared with the fluid model.

    Those with limits are compared with the product from packets, for which that may be there, too.
    """
    ladder = [rung for rung in rungs if not rung.limits]
    if ladder == [AS_IT_IS] and len(rungs) > 1:
        return ()
    return ladder
