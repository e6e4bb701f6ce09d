"""Figure 3-1 of the thesis: where cross traffic meets the ring.

A: four servers train, and cross traffic leaves by the network interface of server S0, h1 here. Its
own traffic waits in the interface's queue, which no switch sees; so S0's interface is a switch of
its own (`fabric.builders.thesis_a`).

B: three servers train; the fourth, S2, sends into S0's link: the queue is in the top-of-rack
switch.

In both, cross traffic goes where the ring goes (A: to S1, B: to S0), so that there is exactly one
bottleneck.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from echelon.model.fabric.builders import thesis_a, thesis_b
from echelon.model.fabric.load import FabricSpec
from research.measure import Bottleneck
from research.thesis.published import LINK_GBPS


@dataclass(frozen=True, slots=True)
class Configuration:
    """One half of the figure."""

    fabric: Callable[[int], FabricSpec]
    """Rate of the links in bits per second."""
    ring: tuple[str, ...]
    cross: tuple[str, str]
    """Source and destination of cross traffic."""
    congested: tuple[Literal["src", "dst"], str]
    """The end of the bottleneck that is a host, and that host: see `Bottleneck`."""

    def bottleneck(self, link_bps: int) -> Bottleneck:
        end, host = self.congested
        return Bottleneck(end, (host,), link_bps)


CONFIGURATIONS: Mapping[str, Configuration] = {
    "a": Configuration(
        thesis_a,
        ring=("h1", "h2", "h3", "h4"),
        cross=("h1", "h2"),
        congested=("src", "h1"),
    ),
    "b": Configuration(
        thesis_b,
        ring=("h1", "h2", "h4"),
        cross=("h3", "h1"),
        congested=("dst", "h1"),
    ),
}
LINK_BPS = round(LINK_GBPS * 1e9)
"""Rate of every link of the thesis."""
