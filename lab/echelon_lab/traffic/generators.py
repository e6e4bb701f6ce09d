"""Models of cross traffic, which generate its flows.

They are Algorithms 1 and 2 of the thesis (Salamy, MIT 2022, appendix A.1), and flows as iperf's. A
model draws its flows from a `random.Random`; the same seed gives the same flows on every machine.
All loads are of payload, over all pairs of hosts together. As printed, the thesis's algorithms
leave the load of one schedule to chance; ``draw="matched"``, the default, meets it (see `DRAWS`).
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from operator import attrgetter
from random import Random
from typing import ClassVar, TypeVar

from echelon.model.documents import suggestion
from echelon.model.quantities import excerpt
from echelon_lab.traffic.schedule import BURST_PERIOD, PacedFlow, Pair, Schedule, ScheduledFlow
from echelon_lab.traffic.sizes import SizeDistribution

T = TypeVar("T")

Gap = Callable[[float, Random], float]
"""Function of (mean gap in microseconds, random numbers) that returns one gap in microseconds."""


def exponential_gap(mean_us: float, rng: Random) -> float:
    """Return a gap of a Poisson process, whose starts are independent of each other."""
    return -math.log(1 - rng.random()) * mean_us


def poisson_gap(mean_us: float, rng: Random) -> float:
    """Return a gap of whole microseconds, distributed by Poisson as the thesis prints it.

    It is nearly periodic where the mean is large. The deviation of such a gap is the root of its
    mean: 3 % at 974 us, where that of an exponential gap is 100 %.
    """
    first, cumulative = _poisson_table(mean_us)
    return first + min(bisect_right(cumulative, rng.random()), len(cumulative) - 1)


@lru_cache(maxsize=64)
def _poisson_table(mean: float) -> tuple[int, Sequence[float]]:
    """Return k and the probabilities of at most k, k + 1...

    They go as far as they differ from 0 and 1 by more than 10^-16.
    """
    reach = 9 * math.sqrt(mean) + 40
    first = max(int(mean - reach), 0)
    last = int(mean + reach)
    log_mean = math.log(mean)
    chances = []
    for k in range(first, last + 1):
        log_chance = k * log_mean - mean - math.lgamma(k + 1)
        chances.append(math.exp(log_chance))
    total = math.fsum(chances)
    return first, [chance / total for chance in accumulate(chances)]


GAPS: Mapping[str, Gap] = {"exponential": exponential_gap, "poisson": poisson_gap}
"""Distributions of gaps by their names in files and on the command line."""


class _Printed:
    def sizes(
        self,
        sizes: SizeDistribution,
        count: int,
        total_bytes: float,
        rng: Random,
    ) -> list[int]:
        """Return `count` sizes in bytes that are to make `total_bytes`.

        That is about `count` times their mean.
        """
        return [sizes.sample(rng) for _ in range(count)]

    def window_us(self, wanted_us: int, lasts_us: float) -> float:
        """Return the length of a window of endless traffic.

        It should take `wanted_us`, and its bytes last `lasts_us`.
        """
        return wanted_us

    def starts(
        self,
        gap: Gap,
        count: int,
        time_us: float,
        rng: Random,
    ) -> list[float]:
        """Return `count` ascending times in microseconds from 0 on.

        Their mean gaps are ``time_us / count``.
        """
        mean_us = time_us / count
        return list(accumulate(gap(mean_us, rng) for _ in range(count)))


class _Matched:
    def sizes(
        self,
        sizes: SizeDistribution,
        count: int,
        total_bytes: float,
        rng: Random,
    ) -> list[int]:
        nearest: list[int] = []
        nearest_off = math.inf
        for _ in range(_DRAWS):
            # One from each of `count` equally likely layers of the distribution: a flow may be in
            # any of them.
            drawn = []
            for layer in range(count):
                share = (layer + rng.random()) / count
                drawn.append(sizes.quantile(min(share, _BELOW_1)))
            off = abs(sum(drawn) - total_bytes)
            if off < nearest_off:
                nearest = drawn
                nearest_off = off
            if nearest_off <= _NEAR * total_bytes:
                break
        shuffle(nearest, rng)
        return nearest

    def window_us(self, wanted_us: int, lasts_us: float) -> float:
        return lasts_us

    def starts(
        self,
        gap: Gap,
        count: int,
        time_us: float,
        rng: Random,
    ) -> list[float]:
        # These are exactly the times of a Poisson process that is known to have had `count` events.
        mean_us = time_us / count
        times = list(accumulate(gap(mean_us, rng) for _ in range(count + 1)))
        stretch = 0.0
        if times[-1]:
            stretch = time_us / times[-1]
        return [time * stretch for time in times[:-1]]


_DRAWS = 50
_NEAR = 0.02
_BELOW_1 = math.nextafter(1.0, 0.0)

DRAWS: Mapping[str, _Printed | _Matched] = {"matched": _Matched(), "printed": _Printed()}
"""Ways to draw by their names on the command line.

Only `Random.random` is used, whose values Python guarantees on every machine. Whatever is drawn in
number may be drawn in two ways:

* ``printed``: independently, as the thesis prints it. Then the load of a schedule is left to
  chance: sizes of web search have a standard deviation of 2.3 times their mean, so that of 1,000
  flows the total has one of 7 %.
* ``matched``: like cards from a pack that holds each size as often as the distribution says. Every
  single flow is distributed as before, and in which order sizes come is as random; the total is off
  by a part of the largest size: under 1 % for 1,000 flows of web search. Where it is more than 2 %
  off, as may be for a few hundred flows, they are drawn again (at most 50 times), which makes some
  sizes more frequent by a flow or so. Gaps between starts are stretched together, by one factor, so
  that they fill the time they are for.
"""


def shuffle(values: list[int], rng: Random) -> None:
    """Shuffle the values; all orders are equally likely (Fisher and Yates).

    `Random.shuffle` promises no order for a seed.
    """
    for last in range(len(values) - 1, 0, -1):
        other = int(rng.random() * (last + 1))
        values[last], values[other] = values[other], values[last]


def choice(values: Sequence[T], rng: Random) -> T:
    return values[int(rng.random() * len(values))]


def normal(
    mean: float,
    deviation: float,
    rng: Random,
) -> float:
    """Return one of the two values of Box and Muller's transform."""
    radius = math.sqrt(-2 * math.log(1 - rng.random()))
    return mean + deviation * radius * math.cos(2 * math.pi * rng.random())


def exponential_below(
    mean: float,
    limit: float,
    rng: Random,
) -> float:
    """Return an exponentially distributed value, given that it is below `limit`."""
    below = -math.expm1(-limit / mean)
    return min(-math.log1p(-rng.random() * below) * mean, math.nextafter(limit, 0.0))


@dataclass(frozen=True)
class TrafficModel(ABC):
    """A model of the flows between pairs of hosts."""

    name: ClassVar[str]

    pairs: tuple[Pair, ...]
    """Pairs of hosts. Where pairs are drawn, all are equally likely."""
    load_bps: int
    """Payload bits per second, over all pairs."""

    def __post_init__(self) -> None:
        if not self.pairs:
            raise ValueError(
                "there is no pair of different hosts (name a source and a destination)"
            )
        for name in dict.fromkeys(name for pair in self.pairs for name in pair):
            if not _HOST.fullmatch(name):
                raise ValueError(
                    f"{excerpt(name)} is not a name of a host (no spaces, commas, quotes or '#')"
                )
        for src, dst in self.pairs:
            if src == dst:
                raise ValueError(f"{src} cannot send to itself (name two hosts)")
        if self.load_bps < 1:
            raise ValueError(f"{self.load_bps} bit/s is not a load (give 1 or more)")
        if self.window_us < 1:
            raise ValueError(f"{self.window_us} us is not a window (give 1 or more)")

    @property
    @abstractmethod
    def window_us(self) -> int:
        """Approximate length of a window of endless traffic."""

    @abstractmethod
    def flows_in(self, duration_us: int) -> int:
        """Return how many flows make the load over `duration_us`.

        Raises `ValueError` for more than `MAX_FLOWS`.
        """

    @abstractmethod
    def schedule(self, duration_us: int, rng: Random) -> Schedule:
        """Return flows that start from 0 on, with the model's load over `duration_us`.

        Raises `ValueError` as `flows_in`.
        """

    def window(self, rng: Random) -> Schedule:
        """Return the next part of endless traffic.

        The one after it begins after its `duration_us`.
        """
        return self.schedule(self.window_us, rng)


def stream(model: TrafficModel, seed: int | str) -> Iterator[ScheduledFlow]:
    """Yield endless traffic in the order of its starts, in windows of the model's length.

    The same seed gives the same flows.
    """
    rng = Random(seed)
    offset_us = 0
    while True:
        window = model.window(rng)
        for flow in window.flows:
            yield replace(flow, start_us=flow.start_us + offset_us)
        offset_us += window.duration_us


@dataclass(frozen=True)
class _Drawn(TrafficModel):
    """A model of flows whose sizes and starts are drawn."""

    sizes: SizeDistribution
    gaps: str = "exponential"
    """Distribution of the gaps between starts, a key of `GAPS`; ``poisson`` as printed."""
    draw: str = "matched"
    """Way to draw, a key of `DRAWS`; ``printed`` as printed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_key("gaps", self.gaps, GAPS)
        _check_key("draw", self.draw, DRAWS)

    def _sizes(
        self,
        flows: int,
        total_bytes: float,
        rng: Random,
    ) -> list[int]:
        return DRAWS[self.draw].sizes(self.sizes, flows, total_bytes, rng)

    def _starts(
        self,
        flows: int,
        time_us: float,
        rng: Random,
    ) -> list[float]:
        return DRAWS[self.draw].starts(GAPS[self.gaps], flows, time_us, rng)

    def _bytes_in(self, duration_us: int) -> Fraction:
        return Fraction(self.load_bps * duration_us, 8 * 10**6)

    @property
    def _about(self) -> dict[str, str]:
        return {
            "model": self.name,
            "load_bps": str(self.load_bps),
            "sizes": (
                f"{self.sizes.name} ({self.sizes.draw}), mean {float(self.sizes.mean_bytes):.0f} B"
            ),
            "gaps": self.gaps,
            "draw": self.draw,
        }


@dataclass(frozen=True)
class Consistent(_Drawn):
    """Algorithm 1: flows of drawn sizes at drawn times.

    As many flows as carry the load by their mean size, one mean gap apart.
    """

    name: ClassVar[str] = "consistent"

    window_us: int = 10_000_000
    """Approximate length of a window of endless traffic. Every window has at least one flow."""

    def flows_in(self, duration_us: int) -> int:
        return _checked(max(int(self._bytes_in(duration_us) / self.sizes.mean_bytes), 1))

    def schedule(self, duration_us: int, rng: Random) -> Schedule:
        flows = self._flows(self._sizes_in(duration_us, rng), duration_us, rng)
        return Schedule(tuple(flows), duration_us, self._about)

    def window(self, rng: Random) -> Schedule:
        sizes = self._sizes_in(self.window_us, rng)
        length_us = DRAWS[self.draw].window_us(self.window_us, sum(sizes) * 8e6 / self.load_bps)
        flows = tuple(self._flows(sizes, length_us, rng))
        return Schedule(flows, max(round(length_us), flows[-1].start_us), self._about)

    def _sizes_in(self, duration_us: int, rng: Random) -> list[int]:
        return self._sizes(self.flows_in(duration_us), float(self._bytes_in(duration_us)), rng)

    def _flows(
        self,
        sizes: Sequence[int],
        time_us: float,
        rng: Random,
    ) -> Iterator[ScheduledFlow]:
        starts = self._starts(len(sizes), time_us, rng)
        for start_us, size_bytes in zip(starts, sizes, strict=True):
            src, dst = choice(self.pairs, rng)
            yield ScheduledFlow(int(start_us), src, dst, size_bytes)


BURST_SHARE = Fraction(3, 10)
"""Part of a period's bytes that its burst carries."""
BURST_FLOWS = 2
MIN_FLOWS_BETWEEN = 8
"""Minimum number of flows in the rest of a period; with fewer, sizes are scaled down."""
SPLIT_DEVIATION = 0.15
"""Standard deviation of the first flow's share of a burst, around a half.

The thesis says that the split is normal, but not how wide.
"""
SPLIT_LIMITS = (0.05, 0.95)


@dataclass(frozen=True)
class Burst(_Drawn):
    """Algorithm 2: a burst of two flows in the first tenth of each period, Algorithm 1 in the rest.

    The burst's two flows carry 3/10 of the period's bytes; their split is normal, their starts
    exponential from the burst's beginning on (mean: half of it), both cut off where they would
    leave it. In the other 9/10 of the period are as many flows as carry 7/10 of the bytes by their
    mean size, rounded down; where those are fewer than 8, 8 with sizes that are scaled down.
    ``matched`` makes up for the rounding, too, by scaling sizes up (by an eighth at most).
    """

    name: ClassVar[str] = "burst"

    burst_us: int = 1000
    """Length of a burst. The period is ten times as long."""
    window_us: int = 10_000_000
    """Approximate length of a window of endless traffic, made of whole periods."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.burst_us < 1:
            raise ValueError(f"a burst cannot take {self.burst_us} us (give 1 or more)")
        if self.load_bps * self.period_us < 10**8:
            raise ValueError(
                f"{self.load_bps} bit/s are {self.load_bps * self.period_us / 8e6:.1f} bytes in a"
                f" period of {self.period_us} us (give a higher load or longer bursts)"
            )

    @property
    def period_us(self) -> int:
        return BURST_PERIOD * self.burst_us

    def flows_in(self, duration_us: int) -> int:
        return _checked(self._periods(duration_us) * (self._between()[0] + BURST_FLOWS))

    def schedule(self, duration_us: int, rng: Random) -> Schedule:
        """Return a schedule of whole periods, at least one: `duration_us` is rounded to them."""
        self.flows_in(duration_us)
        periods = self._periods(duration_us)
        flows = list(self._flows(periods, rng))
        flows.sort(key=attrgetter("start_us"))
        return Schedule(tuple(flows), periods * self.period_us, self._about)

    def _flows(self, periods: int, rng: Random) -> Iterator[ScheduledFlow]:
        between = self._between_bytes
        flows, scale = self._between()
        total_bytes = float(flows * periods * self.sizes.mean_bytes)
        drawn = self._sizes(flows * periods, total_bytes, rng)
        sizes = [max(round(size * scale), 1) for size in drawn]
        rest_us = self.period_us - self.burst_us
        burst_bytes = round(self._bytes_in(self.period_us) - between)
        remaining = iter(sizes)
        for period in range(periods):
            begin_us = period * self.period_us
            yield from self._burst(begin_us, burst_bytes, rng)
            for gap_us in self._starts(flows, rest_us, rng):
                # As printed, the last gaps may lead into the next period's burst; they end with
                # their period here.
                inside_us = min(int(gap_us), rest_us - 1)
                start_us = begin_us + self.burst_us + inside_us
                src, dst = choice(self.pairs, rng)
                yield ScheduledFlow(start_us, src, dst, next(remaining))

    def _burst(
        self,
        begin_us: int,
        total_bytes: int,
        rng: Random,
    ) -> Iterator[ScheduledFlow]:
        least, most = SPLIT_LIMITS
        share = min(max(normal(0.5, SPLIT_DEVIATION, rng), least), most)
        # Each of both flows has a byte at least.
        first = min(max(round(total_bytes * share), 1), total_bytes - 1)
        for size_bytes in (first, total_bytes - first):
            start_us = int(exponential_below(self.burst_us / BURST_FLOWS, self.burst_us, rng))
            src, dst = choice(self.pairs, rng)
            yield ScheduledFlow(begin_us + start_us, src, dst, size_bytes)

    def _periods(self, duration_us: int) -> int:
        return max(round(duration_us / self.period_us), 1)

    def _between(self) -> tuple[int, float]:
        """Return the flows between two bursts, and the factor of their sizes."""
        wanted = self._between_bytes / self.sizes.mean_bytes
        flows = max(int(wanted), MIN_FLOWS_BETWEEN)
        scale = float(wanted / flows)
        return flows, _SCALES[self.draw](scale)

    @property
    def _between_bytes(self) -> Fraction:
        return self._bytes_in(self.period_us) * (1 - BURST_SHARE)

    @property
    def _about(self) -> dict[str, str]:
        flows, scale = self._between()
        return {
            **super()._about,
            "burst_us": str(self.burst_us),
            "between": f"{flows} flows in a period, sizes times {scale:.4g}",
        }


_SCALES = {"matched": lambda scale: scale, "printed": lambda scale: min(scale, 1.0)}
"""Factor of the sizes between bursts, by draw.

It is made from the factor that makes `flows` of them carry what they should.
"""


@dataclass(frozen=True)
class Long(TrafficModel):
    """Flows as ``iperf -b`` sends them, for ever: `parallel` in all, each at an equal load.

    They go round the pairs in order and are given in pieces of `window_us` (see `PacedFlow`).
    Nothing is drawn.
    """

    name: ClassVar[str] = "long"

    parallel: int = 4
    window_us: int = 1_000_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.parallel <= 65536:
            raise ValueError(f"{self.parallel} is not a number of parallel flows (give 1 to 65536)")
        if self.load_bps * self.window_us < 8 * 10**6 * self.parallel:
            raise ValueError(
                f"{self.load_bps} bit/s are less than a byte for each of {self.parallel} flows in"
                f" {self.window_us} us (give a higher load or longer pieces)"
            )

    def flows_in(self, duration_us: int) -> int:
        return _checked(-(-duration_us // self.window_us) * self.parallel)

    def schedule(self, duration_us: int, rng: Random) -> Schedule:
        self.flows_in(duration_us)
        flows: list[ScheduledFlow] = []
        for start_us in range(0, duration_us, self.window_us):
            end_us = min(start_us + self.window_us, duration_us)
            flows += self._pieces(start_us, end_us)
        return Schedule(tuple(flows), duration_us, self._about)

    def _pieces(self, start_us: int, end_us: int) -> Iterator[PacedFlow]:
        begin = self.load_bps * start_us // (8 * 10**6)
        end = self.load_bps * end_us // (8 * 10**6)
        for number in range(self.parallel):
            src, dst = self.pairs[number % len(self.pairs)]
            # Bytes go round, so that all of them together are exact
            # and none ever gets less than before.
            rest = self.parallel - 1 - number
            size_bytes = (end + rest) // self.parallel - (begin + rest) // self.parallel
            if size_bytes > 0:
                rate_bps = -(-self.load_bps // self.parallel)
                yield PacedFlow(start_us, src, dst, size_bytes, rate_bps, number // len(self.pairs))

    @property
    def _about(self) -> dict[str, str]:
        return {"model": self.name, "load_bps": str(self.load_bps), "parallel": str(self.parallel)}


def pairs_of(sources: Sequence[str], destinations: Sequence[str]) -> tuple[Pair, ...]:
    """Return pairs of every source with every destination, but of none with itself."""
    return tuple((src, dst) for src in sources for dst in destinations if src != dst)


MAX_FLOWS = 10**7
"""Maximum number of flows in a schedule, or in a window of endless traffic.

More are a mistake of units and would fill the memory.
"""
_HOST = re.compile(r'[^\s,"#]+')
"""Names that the line of a schedule can hold unquoted."""


def _checked(flows: int) -> int:
    if flows > MAX_FLOWS:
        raise ValueError(
            f"{flows} flows are too many at once (at most {MAX_FLOWS}: give a lower load, larger"
            " sizes or less time)"
        )
    return flows


def _check_key(
    parameter: str,
    key: str,
    keys: Mapping[str, object],
) -> None:
    if key not in keys:
        raise ValueError(f"unknown {parameter} '{key}' ({suggestion(key, keys)})")
