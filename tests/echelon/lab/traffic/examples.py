"""Models of traffic to test with; as a script: a digest of their flows, for comparison between processes."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from itertools import islice

from echelon.lab.traffic.models import Burst, Consistent, Long, TrafficModel, pairs_of, stream
from echelon.lab.traffic.sizes import load_sizes

PAIRS = pairs_of(["a", "b", "c"], ["a", "d"])
WEB = load_sizes("web_search").scaled(Fraction(1, 100))
MODELS: tuple[TrafficModel, ...] = (
    Consistent(PAIRS, 20_000_000, WEB, window_us=500_000),
    Consistent(PAIRS, 20_000_000, WEB, "poisson", "printed", window_us=500_000),
    Burst(PAIRS, 20_000_000, WEB, window_us=500_000),
    Long(PAIRS, 20_000_000, 7),
)


def digest() -> str:
    flows = [flow for model in MODELS for flow in islice(stream(model, "7/web"), 2000)]
    return hashlib.sha256(repr(flows).encode()).hexdigest()


if __name__ == "__main__":
    print(digest())
