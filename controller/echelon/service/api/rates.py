"""The limit on the requests of each token in a second."""

from __future__ import annotations

import time
from collections.abc import Callable


class RequestRates:
    """Token buckets, by the names of tokens. A bucket holds the requests of one second, and is full at first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        """What was left in each bucket, and when."""

    def take(self, name: str, per_s: int) -> float:
        """Take one request, and return 0; or return the seconds until there will be one."""
        now = self._clock()
        left, at = self._buckets.get(name, (float(per_s), now))
        left = min(float(per_s), left + (now - at) * per_s)
        if left < 1:
            self._buckets[name] = left, now
            return (1 - left) / per_s
        self._buckets[name] = left - 1, now
        return 0.0
