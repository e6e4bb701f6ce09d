"""Ranking by ideal finish time (EchelonFlow, HotNets '22)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from echelon.model.p4program import constants
from echelon.planning.allocation import ActiveFlow, Link, Number
from echelon.planning.rankings.base import (
    EngineKind,
    EngineRanking,
    HostOrder,
    Overdue,
    Rank,
    Steps,
)
from echelon.planning.rankings.in_switches import (
    LevelProfile,
    RankingAction,
    RankShifts,
    SwitchNumbers,
    TimeUnit,
    Units,
    shifted,
    steps,
)

_RANK_BITS = 48
"""Width of a rank in a switch, which is two's complement."""
_FACTOR_BITS = 32
"""Width of the factor by which a switch multiplies a tardiness to get a rank."""


@dataclass(frozen=True, slots=True)
class Relative:
    """Levels relative to the most urgent flow at the port, by tardiness with memory.

    The rank of a packet is (now - d + E - c left / line) / `unit_s` - `head_start`. d is the ideal
    finish time of its flow (`Deadline.due_s`), E the memory of its job (`Memory`), and c left /
    line a multiple of the time that the bytes left of the flow take (`Deadline.left_shift`). The
    most urgent flow at a port is in queue `highest`. Others are one queue lower for each of the
    ascending `steps` by which their rank is behind.
    """

    unit_s: Fraction
    head_start: Fraction
    alone_tardiness_s: Fraction
    """The largest e - d of the job's flows in an iteration alone on the fabric, with e the actual
    finish time.
    """
    idle_s: Fraction
    """The time after which a flow that has not sent has left the port."""
    steps: tuple[Fraction, ...]
    apart: Fraction = Fraction(0)
    """The part of `head_start` that only tells the job apart from copies that start together; 0: it
    has none.
    """

    def __hash__(self) -> int:
        """Return a hash of what differs from job to job.

        Hashes of all the fractions take longer than the profile.
        """
        return hash((*self.unit_s.as_integer_ratio(), *self.head_start.as_integer_ratio()))

    def profile(self, lowest: int, highest: int, units: Units) -> LevelProfile:
        """Return what switches with these units need for flows that enter the queues from `lowest`
        to `highest`.

        Raise `ValueError` for steps that decrease, and for a unit that is not positive or that the
        switch cannot make.
        """
        if self.unit_s <= 0 or any(a > b for a, b in pairwise((Fraction(0), *self.steps))):
            raise ValueError(
                "the unit of a relative ranking must be positive, and its steps must not decrease"
            )
        unit = Fraction(constants()["RANK_UNIT"])
        shifts = units.shifts
        right = 0
        if shifts is not None:
            right = _rank_shift(self.unit_s, units.time, shifts)
            # The unit becomes a power of two, and everything that is compared with ranks keeps its
            # time.
            unit = units.time.exactly(self.unit_s) / Fraction(2) ** right
        edges = [int(step * unit) + 1 for step in self.steps]
        queues = [max(highest - behind, lowest) for behind in range(len(edges) + 1)]
        ranges = steps(edges, queues, units.key_bits)
        alone = units.time.unsigned("tardiness alone", self.alone_tardiness_s, 32)
        head_start = round(self.head_start * unit)
        if shifts is None:
            return LevelProfile(ranges, self._factors(int(unit), head_start, alone, units))
        alone_rank = min(round(alone / Fraction(2) ** right), (1 << 32) - 1)
        return LevelProfile(
            ranges,
            shifts.period(
                right, queues[-1], is_relative=True, head_start=-head_start, alone=alone_rank
            ),
        )

    def _factors(
        self, unit: int, head_start: int, alone: int, units: Units
    ) -> tuple[tuple[str, int], ...]:
        """Return the arguments of `set_period` for a switch that multiplies."""
        factor, shift = self._factor(unit, units.time)
        # The switch multiplies the tardiness counted from the earliest that it can tell.
        earliest = (1 << (units.key_bits - 1)) - 1
        zero = -(earliest * factor >> shift) - head_start
        return (
            ("factor", factor),
            ("factor_shift", shift),
            ("rank_at_zero", zero % (1 << _RANK_BITS)),
            (f"alone_tardiness_{units.time.suffix}", alone),
            ("idle", units.time.unsigned("idle time", self.idle_s, 32)),
        )

    def _factor(self, unit: int, time: TimeUnit) -> tuple[int, int]:
        """Return the largest factor that fits, and shift, so that factor / 2**shift units of rank
        pass in a unit of time."""
        in_one = unit * time.nanoseconds / (self.unit_s * 1_000_000_000)
        shift = _FACTOR_BITS - 1
        while in_one * (1 << shift) < 1 << (_FACTOR_BITS - 1):
            shift += 1
        while (factor := round(in_one * (1 << shift))) >= 1 << _FACTOR_BITS:
            shift -= 1
        return factor, shift


@lru_cache(maxsize=1024)
def _rank_shift(unit_s: Fraction, time: TimeUnit, shifts: RankShifts) -> int:
    """Return by how many bits a switch shifts a tardiness to the right to get a rank, to the left
    if negative.

    The unit of ranks is then at most a factor of the square root of 2 from the job's.
    """
    unit = Fraction(constants()["RANK_UNIT"])
    square = (time.exactly(unit_s) / unit) ** 2
    right = 0
    while square >= Fraction(2) ** (2 * right + 1):
        right += 1
    while square < Fraction(2) ** (2 * right - 1):
        right -= 1
    if not -shifts.most_left <= right <= shifts.most_right:
        one_s = unit * time.nanoseconds / 1_000_000_000
        least, most = (
            float(one_s * Fraction(2) ** bits) for bits in (-shifts.most_left, shifts.most_right)
        )
        raise ValueError(
            f"the unit of a relative ranking is {float(unit_s):g} s; the switch has {least:.3g} to"
            f" {most:.3g} s; change the length of the iteration"
        )
    return right


@dataclass(frozen=True, slots=True)
class Deadline:
    """The switch ranks each packet by its slack: reference time of `echelonflow` + `due_s` - now.

    `thresholds_s` are `highest - lowest` ascending tardiness values in seconds: a packet whose
    tardiness has reached k of them goes to queue `lowest + k`. If `relative` is given, it decides
    instead of them.
    """

    echelonflow: str
    offset_s: Fraction
    thresholds_s: tuple[Fraction, ...]
    lowest: int = 0
    highest: int = 7
    relative: Relative | None = None
    due: Fraction | None = None
    """The time after the reference when the flow should have finished, in seconds; None:
    `offset_s`.
    """
    left_shift: int | None = None
    """A flow of which n bytes are left ranks n / 2^`left_shift` microseconds lower, if `relative`
    is given; None: the bytes left do not count."""

    @property
    def due_s(self) -> Fraction:
        """Return the time after the reference when the flow should have finished, in seconds.

        `offset_s` is when its arrangement places that: switches learn the reference by it, and
        memory counts from it.
        """
        return self.offset_s if self.due is None else self.due

    @property
    def left_s(self) -> Fraction:
        """Return the seconds by which each byte left lowers the rank."""
        if self.left_shift is None:
            return Fraction(0)
        return Fraction(2) ** -self.left_shift / 1_000_000

    @property
    def queues(self) -> range:
        return range(self.lowest, self.highest + 1)

    def action(self, at: SwitchNumbers) -> RankingAction:
        units = at.units
        times = at.once(self, lambda: self._times(units, at.whole_bytes))
        # The flows of a job share thresholds, mostly as one object: comparing those is much cheaper
        # than making steps.
        profile = at.profile(
            ("deadline", self.thresholds_s, self.lowest, self.highest, self.relative),
            lambda: self.profile(units),
        )
        return RankingAction(
            "deadline",
            {"echelonflow": at.echelonflow(self.echelonflow), "profile": profile, **times},
        )

    def _times(self, units: Units, whole_bytes: int | None) -> dict[str, int]:
        """Return the arguments that say when a flow of that size is due."""
        time = units.time
        offset = time.unsigned("offset", self.offset_s, units.offset_bits)
        due_s = self.due_s
        if self.relative is None:
            left_shift = None
        else:
            left_shift = self.left_shift
        if left_shift is not None and whole_bytes is not None:
            due_s = due_s + whole_bytes * self.left_s
            left_shift = None
        due = time.unsigned("due time", due_s, units.offset_bits)
        if units.shifts is None:
            later = {f"due_{time.suffix}": due, "left_shift": units.left_shift(left_shift)}
        else:
            later = self._as_ranks(due - offset, left_shift, units, units.shifts)
        return {f"offset_{time.suffix}": offset, **later}

    def _as_ranks(
        self, later: int, left_shift: int | None, units: Units, shifts: RankShifts
    ) -> dict[str, int]:
        """Return the arguments for a flow that is due `later` than its offset, in the unit in which
        ranks are.
        """
        if self.relative is None:
            right = self._threshold_shift(units)
            sign = 1
        else:
            right = _rank_shift(self.relative.unit_s, units.time, shifts)
            sign = -1
            # Ticks count as microseconds here.
            if left_shift is None:
                left_shift = None
            else:
                left_shift = left_shift + right
        return {
            "handicap": shifts.rank(sign * later, right),
            "left_shift": units.left_shift(left_shift),
        }

    def profile(self, units: Units) -> LevelProfile:
        """Return what maps keys to queues.

        By thresholds, a key is a slack, biased so that keys order as slacks do. With `relative`, it
        is by how much the rank of the packet is behind that of the most urgent flow. Raise
        `ValueError` for thresholds that decrease.
        """
        if self.relative is not None:
            return _relative_profile(self.relative, self.lowest, self.highest, units)
        if any(a > b for a, b in pairwise(self.thresholds_s)):
            raise ValueError(
                f"EchelonFlow {self.echelonflow}: tardiness thresholds must not decrease"
            )
        at_zero = 1 << units.key_bits - 1
        counts = [units.time.count(threshold_s) for threshold_s in reversed(self.thresholds_s)]
        right = self._threshold_shift(units)
        # A slack of -threshold has reached it, one more has not.
        edges = [at_zero - shifted(count, right) + 1 for count in counts]
        queues = [min(self.lowest + reached, self.highest) for reached in range(len(edges), -1, -1)]
        return units.profile(steps(edges, queues, units.key_bits), right, at_zero)

    def _threshold_shift(self, units: Units) -> int:
        """Return by how many bits a switch shifts slacks to the right to compare them with the
        thresholds.
        """
        return units.right_shift(
            max(map(units.time.count, self.thresholds_s), default=0), units.key_bits - 1
        )

    def at_host(self) -> HostOrder:
        due_s = float(self.due_s)
        if self.relative is None:
            thresholds_s = tuple(map(float, self.thresholds_s))
            return HostOrder(
                Steps(thresholds_s, tuple(map(float, range(len(thresholds_s) + 1))), due_s)
            )
        unit_s = float(self.relative.unit_s)
        head_start = float(self.relative.head_start)
        return HostOrder(Overdue(due_s, float(self.left_s), unit_s, head_start))

    def in_engine(self) -> EngineRanking:
        times = {"offset_s": float(self.offset_s), "due_s": float(self.due_s)}
        relative = self.relative
        if relative is None:
            thresholds_s = tuple(map(float, self.thresholds_s))
            return EngineRanking(
                EngineKind.THRESHOLDS,
                self.lowest,
                self.highest,
                self.echelonflow,
                thresholds_s,
                times=times,
            )
        times |= {
            "slope": float(1 / relative.unit_s),
            "left_s": float(self.left_s),
            "head_start": float(relative.head_start),
            "alone_s": float(relative.alone_tardiness_s),
            "grain_s": float(relative.unit_s / GRAINS_OF_UNIT),
        }
        steps = tuple(map(float, relative.steps))
        return EngineRanking(
            EngineKind.RELATIVE, self.lowest, self.highest, self.echelonflow, steps, times=times
        )

    @staticmethod
    def execution(number: Callable[[Fraction], Number]) -> DeadlineExecution:
        return DeadlineExecution(number)


@lru_cache(maxsize=1 << 14)
def _relative_profile(relative: Relative, lowest: int, highest: int, units: Units) -> LevelProfile:
    # Every switch of every job asks, and many jobs are alike.
    return relative.profile(lowest, highest, units)


@dataclass(slots=True)
class Memory:
    """The memory of how late the network made a job in past iterations: E, in seconds.

    After each iteration, E becomes 3/4 (E + delay). The delay is the largest e - d of the job's
    flows in that iteration, less the same maximum of the job alone on the fabric. It is the delay
    in the network, not the change of the iteration time, so a wrong profile of compute times does
    not distort it.
    """

    delay_s: Number = 0
    """E."""
    iteration: int = 0
    latest_s: Number | None = None
    """The largest e - d so far in `iteration`."""

    def begin(self, iteration: int, alone_tardiness_s: Number) -> None:
        """Enter an iteration, unless it has begun before."""
        if iteration > self.iteration:
            if self.latest_s is not None:
                self.delay_s = (self.delay_s + self.latest_s - alone_tardiness_s) * 3 / 4
            self.iteration = iteration
            self.latest_s = None

    def finish(self, late_s: Number) -> None:
        """Note that a flow has finished `late_s` after its ideal finish time."""
        if self.latest_s is None or late_s > self.latest_s:
            self.latest_s = late_s


@dataclass(frozen=True, slots=True)
class GrowingRank:
    """A rank as a linear function of time: `value` now, growing by `slope` per second."""

    value: Number
    slope: Number


GRAINS = 10**9
"""Ranks closer than 1 / GRAINS count as equal, so that rounding cannot make a change of levels come
twice.
"""


def relative_levels(
    lines: Sequence[GrowingRank], steps: Sequence[Sequence[Number]]
) -> tuple[list[int], list[Number | None]]:
    """Return how many levels each flow is below the most urgent one at a port, and for how many
    seconds that holds.

    `lines` are the ranks of the flows, and `steps` the ascending steps of each. A flow is one level
    lower for each step by which it is behind the most urgent flow. None: the level holds for as
    long as the same flows are there. The levels are those from now on: a change that is due at this
    very moment has happened.
    """
    top = max(lines, key=lambda line: (line.value, line.slope))
    while near := [
        each for each in lines if each.slope > top.slope and (top.value - each.value) * GRAINS <= 1
    ]:
        top = max(near, key=lambda line: line.slope)
    overtaking = [
        (top.value - line.value) / (line.slope - top.slope)
        for line in lines
        if line.slope > top.slope
    ]
    levels: list[int] = []
    holds: list[Number | None] = []
    for line, own in zip(lines, steps, strict=True):
        behind = top.value - line.value
        widening = top.slope - line.slope
        changes = overtaking
        if widening > 0:
            reached = sum((step - behind) * GRAINS <= 1 for step in own)
            if reached < len(own):
                changes = [*overtaking, (own[reached] - behind) / widening]
        else:
            reached = sum((behind - step) * GRAINS > 1 for step in own)
            if reached and widening:
                changes = [*overtaking, (own[reached - 1] - behind) / widening]
        levels.append(reached)
        holds.append(min(changes, default=None))
    return levels, holds


@dataclass(slots=True)
class _Ranked:
    """The facts about a flow that do not change while it is under way, in numbers of the run."""

    arranged_s: Number
    """The time when its arrangement places its finish."""
    due_s: Number
    """The time when it should have finished."""
    slope: Number
    """The growth of its relative rank per second while it does not send, or 0 if its thresholds are
    fixed.
    """
    left_s: Number
    """The seconds by which each byte left lowers its relative rank."""
    handicap: Number
    """Its head start, in units of the rank."""
    steps: Sequence[Number]
    """Steps of the relative rank, or the times when it goes one queue up."""
    grain_s: Number
    """The shortest time for which a rank that depends on rates is valid."""


GRAINS_OF_UNIT = 2**20
"""A rank that depends on rates is valid for at least a unit divided by this, so that levels cannot
change for ever at one moment. Its error is then as small, compared with `STEPS` of policies."""


class DeadlineExecution:
    """The execution of `Deadline`: reference times and memories, which all switches share, and
    levels at each port.

    As on a switch, the reference time of an EchelonFlow in an iteration is the start of the first
    flow that is seen, less that flow's offset.
    """

    def __init__(self, number: Callable[[Fraction], Number]) -> None:
        self._number = number
        self._references: dict[tuple[str, str], tuple[int, Number, Number]] = {}
        """The iteration, the start of the first flow and its offset, by job and EchelonFlow."""
        self._memories: dict[str, Memory] = {}
        self._ranked: dict[ActiveFlow, _Ranked] = {}

    def started(self, now_s: Number, flow: ActiveFlow, ranking: Deadline) -> None:
        key = flow.job, ranking.echelonflow
        offset_s = self._number(ranking.offset_s)
        known = self._references.get(key)
        if known is None or (known[0], -known[1], -known[2]) < (
            flow.iteration,
            -flow.start_s,
            -offset_s,
        ):
            # Of flows that start at the same time, the one of the least offset counts.
            self._references[key] = flow.iteration, flow.start_s, offset_s
        if ranking.relative is not None:
            memory = self._memories.setdefault(flow.job, Memory())
            memory.begin(flow.iteration, self._number(ranking.relative.alone_tardiness_s))

    def finished(self, now_s: Number, flow: ActiveFlow, ranking: Deadline) -> None:
        if ranking.relative is not None:
            self._memories[flow.job].finish(now_s - self._ranked_of(flow, ranking).arranged_s)
        self._ranked.pop(flow, None)

    def ranks(
        self, now_s: Number, port: Link, flows: Sequence[tuple[ActiveFlow, Deadline]]
    ) -> list[Rank]:
        ranks: list[Rank] = []
        for flow, ranking in flows:
            ranked = self._ranked_of(flow, ranking)
            if ranking.relative is None:
                reached = bisect_right(ranked.steps, now_s)
                if reached < len(ranked.steps):
                    until_s = ranked.steps[reached]
                else:
                    until_s = None
                ranks.append(Rank(ranking.lowest + reached, until_s))
            else:
                ranks.append(Rank(ranking.highest))
        relative = [
            place for place, (_, ranking) in enumerate(flows) if ranking.relative is not None
        ]
        if len(relative) > 1:
            lines = [self._line(now_s, *flows[place]) for place in relative]
            steps = [self._ranked_of(*flows[place]).steps for place in relative]
            by_rates = any(self._ranked_of(*flows[place]).left_s for place in relative)
            for place, level, hold_s in zip(relative, *relative_levels(lines, steps), strict=True):
                ranking = flows[place][1]
                if hold_s is None or by_rates:
                    until_s = None
                else:
                    until_s = now_s + hold_s
                ranks[place] = Rank(
                    max(ranking.lowest, ranking.highest - level), until_s, by_rates=by_rates
                )
        return ranks

    def until_s(
        self,
        now_s: Number,
        flows: Sequence[tuple[ActiveFlow, Deadline]],
        rates_Bps: Sequence[Number],  # noqa: N803
    ) -> Number | None:
        """Return until when the ranks of flows at a port hold at these rates, if some of them
        depend on rates.
        """
        relative = [
            (flow, ranking, rate)
            for (flow, ranking), rate in zip(flows, rates_Bps, strict=True)
            if ranking.relative is not None
        ]
        lines = [self._line(now_s, flow, ranking, rate) for flow, ranking, rate in relative]
        ranked = [self._ranked_of(flow, ranking) for flow, ranking, _ in relative]
        _, holds = relative_levels(lines, [of.steps for of in ranked])
        hold_s = min((hold_s for hold_s in holds if hold_s is not None), default=None)
        if hold_s is None:
            return None
        return now_s + max(hold_s, min(of.grain_s for of in ranked))

    def _line(
        self,
        now_s: Number,
        flow: ActiveFlow,
        ranking: Deadline,
        rate_Bps: Number = 0,  # noqa: N803
    ) -> GrowingRank:
        ranked = self._ranked_of(flow, ranking)
        late_s = (
            now_s
            - ranked.due_s
            + self._memories[flow.job].delay_s
            - ranked.left_s * flow.remaining_bytes
        )
        return GrowingRank(
            late_s * ranked.slope - ranked.handicap, ranked.slope * (1 + ranked.left_s * rate_Bps)
        )

    def neighbourhood(self, flow: ActiveFlow, ranking: Deadline) -> None:
        return None

    def _ranked_of(self, flow: ActiveFlow, ranking: Deadline) -> _Ranked:
        known = self._ranked.get(flow)
        if known is None:
            number = self._number
            relative = ranking.relative
            _, start_s, offset_s = self._references[flow.job, ranking.echelonflow]
            begun_s = start_s - offset_s
            arranged_s = begun_s + number(ranking.offset_s)
            due_s = begun_s + number(ranking.due_s)
            if relative is None:
                times_s = [due_s + number(threshold_s) for threshold_s in ranking.thresholds_s]
                known = _Ranked(arranged_s, due_s, 0, 0, 0, times_s, 0)
            else:
                known = _Ranked(
                    arranged_s,
                    due_s,
                    number(1 / relative.unit_s),
                    number(ranking.left_s),
                    number(relative.head_start),
                    [number(step) for step in relative.steps],
                    number(relative.unit_s / GRAINS_OF_UNIT),
                )
            self._ranked[flow] = known
        return known
