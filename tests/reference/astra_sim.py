"""Times of collectives in ASTRA-sim's analytical network back end, in exact rationals.

Source: `astra-sim/astra-network-analytical` (commit 599a047, MIT), and the collectives of
`astra-sim/astra-sim` (commit 518bd51). A message of s bytes over h hops takes h * latency + s /
rate (`congestion_unaware`). Messages of a collective have size / ranks bytes, and each follows the
one before it. The back end drops fractions of a nanosecond of every message, which the formulas
here keep.

On the ring, where direct messages share links, the times are those of `congestion_aware`. It serves
messages of a link in their order of arrival and routes messages between opposite ranks clockwise,
which makes the clockwise links the slower ones. On the switch they are those of
`congestion_unaware`, because `congestion_aware` has the switch wait for the whole message before it
sends the first byte on.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

Kind = Literal["ring", "switch"]
Operation = Literal["all-reduce", "all-to-all by ring", "all-to-all"]

RATE_BPS = 50 * 2**30 * 8
"""50 GB/s as the back end counts it, in bits per second."""
LATENCY_S = Fraction(500, 10**9)
"""The latency of a hop in the examples that ASTRA-sim comes with."""

_HOPS = {"ring": 1, "switch": 2}


def time_s(
    kind: Kind, operation: Operation, ranks: int, size_bytes: int, latency_s: Fraction = LATENCY_S
) -> Fraction:
    """Return how long the collective takes if each rank has `size_bytes`; `ranks` is even."""
    part_s = Fraction(8 * size_bytes, ranks * RATE_BPS)
    if operation == "all-to-all" and kind == "ring":
        # A clockwise link carries the parts for ranks at distances 1 to ranks / 2, each as often as
        # its distance. Two latencies remain visible: links are busy with other messages during the
        # rest.
        distances = ranks // 2
        return distances * (distances + 1) // 2 * part_s + 2 * latency_s
    messages = {
        "all-reduce": 2 * (ranks - 1),
        # Every rank passes on what is not for itself: all parts on the way move one rank further at
        # a time.
        "all-to-all by ring": ranks * (ranks - 1) // 2,
        "all-to-all": ranks - 1,
    }[operation]
    return messages * (_HOPS[kind] * latency_s + part_s)
