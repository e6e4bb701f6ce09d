"""Models of traffic to test with; as a script: a digest of their flows, for comparison between
processes.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from fractions import Fraction
from itertools import islice

from echelon_lab.traffic.generators import Burst, Consistent, Long, TrafficModel, pairs_of, stream
from echelon_lab.traffic.sizes import SizeDistribution, load_sizes

PAIRS = pairs_of(["a", "b", "c"], ["a", "d"])
WEB = load_sizes("web_search").scaled(Fraction(1, 100))
MODELS: tuple[TrafficModel, ...] = (
    Consistent(PAIRS, 20_000_000, WEB, window_us=500_000),
    Consistent(PAIRS, 20_000_000, WEB, "poisson", "printed", window_us=500_000),
    Burst(PAIRS, 20_000_000, WEB, window_us=500_000),
    Long(PAIRS, 20_000_000, 7),
)


def share_up_to(sizes: SizeDistribution, size_bytes: float) -> float:
    """Return the share of flows no larger than that, by the points of the distribution."""
    columns, shares = (
        [size for size, _ in sizes.points],
        [float(share) for _, share in sizes.points],
    )
    at = bisect_right(columns, size_bytes)
    if at in (0, len(columns)):
        return 0.0 if at == 0 else shares[-1]
    if sizes.draw == "points":
        return shares[at - 1]
    low, high = columns[at - 1], columns[at]
    return shares[at - 1] + (shares[at] - shares[at - 1]) * (size_bytes - low) / (high - low)


def digest() -> str:
    flows = [flow for model in MODELS for flow in islice(stream(model, "7/web"), 2000)]
    return hashlib.sha256(repr(flows).encode()).hexdigest()


if __name__ == "__main__":
    print(digest())
