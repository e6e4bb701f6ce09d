"""Ranking by deadline, the finish that an arrangement asks for (EchelonFlow, HotNets '22)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
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
    ToNumber,
    UncoupledExecution,
)
from echelon.planning.rankings.in_switches import (
    KeyRange,
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


def deadline_rank(
    now_s: Number,
    due_s: Number,
    memory_s: Number,
    left_s: Number,
    slope: Number,
    head_start: Number,
) -> Number:
    """Return the rank of a flow; the largest goes first.

        rank = (now - d + E - c left / line) / U - h

    d (`due_s`) is when the flow should have finished, E (`memory_s`) what its job has lost in past
    iterations (`Memory`), and c left / line (`left_s`) a multiple of the time that the bytes left
    of the flow take. U is the unit of the job's tardiness, of which `slope` is the inverse, and h
    its head start, in units. The paper (EchelonFlow, HotNets '22, sections 3 and 4) has now - d
    alone; the rest is ours.

    The same is computed by `fluid/engine/ranking.c`; by switches (`rankings/deadline.p4` of each
    architecture), whose numbers `Relative.profile` and `Deadline.action` make; and by hosts
    (`Overdue`, `echelon_lab.endhosts`).
    """
    return (now_s - due_s + memory_s - left_s) * slope - head_start


@dataclass(frozen=True, slots=True)
class Relative:
    """Queues in the order of `deadline_rank` at the port.

    Most switches put a flow between those that are more urgent and those that are less
    (`p4src/v1model/include/control/order.p4`). For the fluid engine, and for switches that cannot,
    the most urgent flow at a port is in queue `highest`, and others are one queue lower for each of
    the ascending `steps` by which their rank is behind. `Deadline` has the time when a flow is due,
    and what its bytes left count.
    """

    unit_s: Fraction
    head_start: Fraction
    alone_tardiness_s: Fraction
    """The largest e - d of the job's flows in an iteration alone, with e the actual finish time."""
    idle_s: Fraction
    """The time after which a flow that has not sent has left the port.

    It counts only where the queues are outside the switch.
    """
    steps: tuple[Fraction, ...]
    apart: Fraction = Fraction(0)
    """The part of `head_start` that tells the job apart from copies; 0: it has none."""

    def __hash__(self) -> int:
        """Return a hash of what differs from job to job.

        Hashes of all the fractions take longer than the profile.
        """
        return hash((*self.unit_s.as_integer_ratio(), *self.head_start.as_integer_ratio()))

    def profile(
        self,
        lowest: int,
        highest: int,
        units: Units,
    ) -> LevelProfile:
        """Return what switches with these units need for the queues from `lowest` to `highest`.

        A switch that multiplies keeps its queues in order, and needs no steps. Raise `ValueError`
        for steps that decrease, and for a unit that is not positive or that the switch cannot make.
        """
        if self.unit_s <= 0 or _decrease((Fraction(0), *self.steps)):
            raise ValueError(
                "the unit of a relative ranking must be positive, and its steps must not decrease"
            )
        alone = units.time.unsigned("tardiness alone", self.alone_tardiness_s, 32)
        shifts = units.shifts
        if shifts is None:
            factors = self._factors(alone, units)
            return LevelProfile((), (*factors, ("lowest", lowest), ("highest", highest)))

        right = _rank_shift(self.unit_s, units.time, shifts)
        part = Fraction(2) ** right
        # The unit becomes a power of two, and everything that is compared with ranks keeps its
        # time.
        unit = units.time.exactly(self.unit_s) / part
        ranges = self.ranges(lowest, highest, unit, units.key_bits)
        period = shifts.period(
            right,
            max(highest - len(self.steps), lowest),
            is_relative=True,
            head_start=-round(self.head_start * unit),
            alone=min(round(alone / part), (1 << 32) - 1),
        )
        return LevelProfile(ranges, period)

    def ranges(
        self,
        lowest: int,
        highest: int,
        unit: Fraction,
        key_bits: int,
    ) -> tuple[KeyRange, ...]:
        """Return the queue by how much a rank, of which `unit` is one unit, is behind another."""
        edges = [int(step * unit) + 1 for step in self.steps]
        queues = [max(highest - level, lowest) for level in range(len(edges) + 1)]
        return steps(edges, queues, key_bits)

    def _factors(self, alone: int, units: Units) -> tuple[tuple[str, int], ...]:
        """Return the arguments of `set_period` that make ranks in a switch that multiplies."""
        unit = constants()["RANK_UNIT"]
        head_start = round(self.head_start * unit)
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
        """Return factor and shift: factor / 2**shift units of rank pass in a unit of time.

        The factor is the largest that fits.
        """
        exact = unit * time.nanoseconds / (self.unit_s * 1_000_000_000)
        # The factor gets all its bits; rounding may then give it one too many.
        shift = _FACTOR_BITS - 1
        while exact * (1 << shift) < 1 << (_FACTOR_BITS - 1):
            shift += 1
        while round(exact * (1 << shift)) >= 1 << _FACTOR_BITS:
            shift -= 1
        return round(exact * (1 << shift)), shift


def _decrease(values: Sequence[Fraction]) -> bool:
    return any(following < value for value, following in pairwise(values))


@lru_cache(maxsize=1024)
def _rank_shift(
    unit_s: Fraction,
    time: TimeUnit,
    shifts: RankShifts,
) -> int:
    """Return the bits by which a switch shifts a tardiness right to a rank; negative: left.

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
        unshifted_s = unit * time.nanoseconds / 1_000_000_000
        least = float(unshifted_s / Fraction(2) ** shifts.most_left)
        most = float(unshifted_s * Fraction(2) ** shifts.most_right)
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
        if self.due is None:
            return self.offset_s
        return self.due

    @property
    def left_s(self) -> Fraction:
        """Return the seconds by which each byte left lowers the rank."""
        if self.left_shift is None:
            return Fraction(0)
        return Fraction(2) ** -self.left_shift / 1_000_000

    @property
    def queues(self) -> range:
        return range(self.lowest, self.highest + 1)

    def action(self, switch: SwitchNumbers) -> RankingAction:
        units = switch.units
        times = switch.once(self, lambda: self._times(units, switch.whole_bytes))
        # The flows of a job share thresholds, mostly as one object: comparing those is much cheaper
        # than making steps.
        content = "deadline", self.thresholds_s, self.lowest, self.highest, self.relative
        profile = switch.profile(content, lambda: self.profile(units))
        echelonflow = switch.echelonflow(self.echelonflow)
        arguments = {"echelonflow": echelonflow, "profile": profile, **times}
        return RankingAction("deadline", arguments)

    def _times(self, units: Units, whole_bytes: int | None) -> dict[str, int]:
        """Return the arguments that say when a flow of that size is due."""
        time = units.time
        offset = time.unsigned("offset", self.offset_s, units.offset_bits)
        due_s = self.due_s
        left_shift = self.left_shift
        if self.relative is None:
            left_shift = None
        if left_shift is not None and whole_bytes is not None:
            # The switch cannot count bytes, so that the flow is due as if all were left for ever.
            due_s += whole_bytes * self.left_s
            left_shift = None
        due = time.unsigned("due time", due_s, units.offset_bits)
        if units.shifts is None:
            later = {f"due_{time.suffix}": due, "left_shift": units.left_shift(left_shift)}
        else:
            later = self._as_ranks(due - offset, left_shift, units, units.shifts)
        return {f"offset_{time.suffix}": offset, **later}

    def _as_ranks(
        self,
        later: int,
        left_shift: int | None,
        units: Units,
        shifts: RankShifts,
    ) -> dict[str, int]:
        """Return the arguments for a flow due `later` than its offset, in units of ranks."""
        if self.relative is None:
            right = self._threshold_shift(units)
            sign = 1
        else:
            right = _rank_shift(self.relative.unit_s, units.time, shifts)
            sign = -1
            if left_shift is not None:
                left_shift += right  # ticks count as microseconds here
        handicap = shifts.rank(sign * later, right)
        return {"handicap": handicap, "left_shift": units.left_shift(left_shift)}

    def profile(self, units: Units) -> LevelProfile:
        """Return what maps keys to queues.

        By thresholds, a key is a slack, biased so that keys order as slacks do. With `relative`, it
        is by how much the rank of the packet is behind that of the most urgent flow, if the switch
        maps keys at all. Raise `ValueError` for thresholds that decrease.
        """
        if self.relative is not None:
            return _relative_profile(self.relative, self.lowest, self.highest, units)
        if _decrease(self.thresholds_s):
            raise ValueError(
                f"EchelonFlow {self.echelonflow}: tardiness thresholds must not decrease"
            )
        at_zero = 1 << units.key_bits - 1
        right = self._threshold_shift(units)
        edges = []
        queues = []
        for threshold_s in reversed(self.thresholds_s):
            count = units.time.count(threshold_s)
            # A slack of -threshold has reached it, one more has not.
            edges.append(at_zero - shifted(count, right) + 1)
        for reached in range(len(edges), -1, -1):
            queues.append(min(self.lowest + reached, self.highest))
        ranges = steps(edges, queues, units.key_bits)
        return units.profile(ranges, right, at_zero)

    def _threshold_shift(self, units: Units) -> int:
        """Return the bits by which a switch shifts slacks right to compare them with thresholds."""
        largest = max(map(units.time.count, self.thresholds_s), default=0)
        return units.right_shift(largest, units.key_bits - 1)

    def at_host(self) -> HostOrder:
        due_s = float(self.due_s)
        if self.relative is None:
            thresholds_s = tuple(map(float, self.thresholds_s))
            urgencies = tuple(map(float, range(len(thresholds_s) + 1)))
            return HostOrder(Steps(thresholds_s, urgencies, due_s))
        unit_s = float(self.relative.unit_s)
        head_start = float(self.relative.head_start)
        return HostOrder(Overdue(due_s, float(self.left_s), unit_s, head_start))

    def in_engine(self) -> EngineRanking:
        times = {"offset_s": float(self.offset_s), "due_s": float(self.due_s)}
        kind = EngineKind.THRESHOLDS
        numbers = self.thresholds_s
        relative = self.relative
        if relative is not None:
            kind = EngineKind.RELATIVE
            numbers = relative.steps
            times["slope"] = float(1 / relative.unit_s)
            times["left_s"] = float(self.left_s)
            times["head_start"] = float(relative.head_start)
            times["alone_s"] = float(relative.alone_tardiness_s)
            times["grain_s"] = float(relative.unit_s / GRAINS_OF_UNIT)
        floats = tuple(map(float, numbers))
        return EngineRanking(kind, self.lowest, self.highest, self.echelonflow, floats, times=times)

    @staticmethod
    def execution(number: ToNumber) -> DeadlineExecution:
        return DeadlineExecution(number)


@lru_cache(maxsize=1 << 14)
def _relative_profile(
    relative: Relative,
    lowest: int,
    highest: int,
    units: Units,
) -> LevelProfile:
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
        if iteration <= self.iteration:
            return
        if self.latest_s is not None:
            delay_s = self.latest_s - alone_tardiness_s
            self.delay_s = (self.delay_s + delay_s) * 3 / 4
        self.iteration = iteration
        self.latest_s = None

    def finish(self, late_s: Number) -> None:
        """Note that a flow has finished `late_s` after its deadline."""
        if self.latest_s is None or late_s > self.latest_s:
            self.latest_s = late_s


@dataclass(frozen=True, slots=True)
class GrowingRank:
    """A rank as a linear function of time: `value` now, growing by `slope` per second."""

    value: Number
    slope: Number


GRAINS = 10**9
"""Ranks closer than 1 / GRAINS count as equal.

So rounding cannot make a change of levels come twice.
"""


def relative_levels(
    lines: Sequence[GrowingRank], steps: Sequence[Sequence[Number]]
) -> tuple[list[int], list[Number | None]]:
    """Return the levels of each flow below the most urgent, and the seconds for which they hold.

    `lines` are the ranks of the flows, and `steps` the ascending steps of each. A flow is one level
    lower for each step by which it is behind the most urgent flow. None: the level holds for as
    long as the same flows are there. The levels are those from now on: a change that is due at this
    very moment has happened.
    """
    top = _most_urgent(lines)
    overtaking_s: Number | None = None
    """The time until the first flow becomes as urgent as the top one."""
    for line in lines:
        if line.slope > top.slope:
            time_s = (top.value - line.value) / (line.slope - top.slope)
            if overtaking_s is None or time_s < overtaking_s:
                overtaking_s = time_s

    levels = []
    holds = []
    for line, line_steps in zip(lines, steps, strict=True):
        distance = top.value - line.value
        widening = top.slope - line.slope
        hold_s = overtaking_s
        step: Number | None = None
        """The next step that the distance reaches."""
        if widening > 0:
            reached = sum((step - distance) * GRAINS <= 1 for step in line_steps)
            if reached < len(line_steps):
                step = line_steps[reached]
        else:
            reached = sum((distance - step) * GRAINS > 1 for step in line_steps)
            if reached and widening:
                step = line_steps[reached - 1]
        if step is not None:
            change_s = (step - distance) / widening
            if hold_s is None or change_s < hold_s:
                hold_s = change_s
        levels.append(reached)
        holds.append(hold_s)
    return levels, holds


def _most_urgent(lines: Sequence[GrowingRank]) -> GrowingRank:
    """Return the most urgent line from now on: of those that are equal, the fastest."""
    top = max(lines, key=lambda line: (line.value, line.slope))
    # A line within a grain of the top has overtaken it already, and so may the next one after it.
    while True:
        faster = [line for line in lines if line.slope > top.slope]
        near = [line for line in faster if (top.value - line.value) * GRAINS <= 1]
        if not near:
            return top
        top = max(near, key=lambda line: line.slope)


@dataclass(slots=True)
class _Ranked:
    """The facts about a flow that do not change while it is under way, in numbers of the run."""

    deadline_s: Number
    """The finish that its arrangement asks for."""
    due_s: Number
    """The time when it should have finished: its deadline, or another time (`Deadline.due`)."""
    slope: Number
    """The growth of its relative rank per second while it does not send; 0: thresholds are fixed.
    """
    left_s: Number
    """The seconds by which each byte left lowers its relative rank."""
    head_start: Number
    """The units that are taken off its relative rank."""
    steps: Sequence[Number]
    """Steps of the relative rank, or the times when it goes one queue up."""
    grain_s: Number
    """The shortest time for which a rank that depends on rates is valid."""


GRAINS_OF_UNIT = 2**9
"""A rank that depends on rates is valid for at least a unit divided by this.

Two flows that count bytes left overtake each other again and again, as whoever sends becomes more
urgent faster. Switches tell them apart by whole packets and microseconds, so this is as fine as
they are. With 2^20 runs take up to three times as long, and mean slowdowns differ by 0.1 to 0.5 %.
"""


class DeadlineExecution(UncoupledExecution):
    """The execution of `Deadline`: references and memories of all switches, levels by port.

    As on a switch, the reference time of an EchelonFlow in an iteration is the start of the first
    flow that is seen, less that flow's offset.
    """

    def __init__(self, number: ToNumber) -> None:
        self._number = number
        self._references: dict[tuple[str, str], tuple[int, Number, Number]] = {}
        """The iteration, the start of the first flow and its offset, by job and EchelonFlow."""
        self._memories: dict[str, Memory] = {}
        self._ranked: dict[ActiveFlow, _Ranked] = {}

    def started(
        self,
        now_s: Number,
        flow: ActiveFlow,
        ranking: Deadline,
    ) -> None:
        key = flow.job, ranking.echelonflow
        offset_s = self._number(ranking.offset_s)
        reference = flow.iteration, flow.start_s, offset_s
        if _replaces(reference, self._references.get(key)):
            self._references[key] = reference
        if ranking.relative is not None:
            memory = self._memories.setdefault(flow.job, Memory())
            memory.begin(flow.iteration, self._number(ranking.relative.alone_tardiness_s))

    def finished(
        self,
        now_s: Number,
        flow: ActiveFlow,
        ranking: Deadline,
    ) -> None:
        if ranking.relative is not None:
            deadline_s = self._ranked_flow(flow, ranking).deadline_s
            self._memories[flow.job].finish(now_s - deadline_s)
        self._ranked.pop(flow, None)

    def ranks(
        self,
        now_s: Number,
        port: Link,
        flows: Sequence[tuple[ActiveFlow, Deadline]],
    ) -> list[Rank]:
        ranks = []
        relative = []
        """Indices in `flows` of the flows that are ranked relative to others."""
        for place, (flow, ranking) in enumerate(flows):
            if ranking.relative is None:
                times_s = self._ranked_flow(flow, ranking).steps
                reached = bisect_right(times_s, now_s)
                until_s = None
                if reached < len(times_s):
                    until_s = times_s[reached]
                ranks.append(Rank(ranking.lowest + reached, until_s))
            else:
                relative.append(place)
                ranks.append(Rank(ranking.highest))
        if len(relative) < 2:
            return ranks

        ranked = [self._ranked_flow(*flows[place]) for place in relative]
        lines = [self._line(now_s, *flows[place]) for place in relative]
        levels, holds = relative_levels(lines, [flow.steps for flow in ranked])
        by_rates = any(flow.left_s for flow in ranked)
        for place, level, hold_s in zip(relative, levels, holds, strict=True):
            _, ranking = flows[place]
            queue = max(ranking.lowest, ranking.highest - level)
            until_s = None
            if hold_s is not None and not by_rates:
                until_s = now_s + hold_s
            ranks[place] = Rank(queue, until_s, by_rates=by_rates)
        return ranks

    def until_s(
        self,
        now_s: Number,
        flows: Sequence[tuple[ActiveFlow, Deadline]],
        rates_Bps: Sequence[Number],  # noqa: N803
    ) -> Number | None:
        """Return until when ranks that depend on rates hold at these rates."""
        lines = []
        ranked = []
        for (flow, ranking), rate_Bps in zip(flows, rates_Bps, strict=True):  # noqa: N806
            if ranking.relative is not None:
                lines.append(self._line(now_s, flow, ranking, rate_Bps))
                ranked.append(self._ranked_flow(flow, ranking))
        _, holds = relative_levels(lines, [flow.steps for flow in ranked])
        limits_s = [hold_s for hold_s in holds if hold_s is not None]
        if not limits_s:
            return None
        grain_s = min(flow.grain_s for flow in ranked)
        return now_s + max(min(limits_s), grain_s)

    def urgency(
        self,
        now_s: Number,
        flow: ActiveFlow,
        ranking: Deadline,
    ) -> Number:
        """Return the urgency of a flow at its host, among flows of its job."""
        if ranking.relative is None:
            return bisect_right(self._ranked_flow(flow, ranking).steps, now_s)
        return self._line(now_s, flow, ranking).value

    def _line(
        self,
        now_s: Number,
        flow: ActiveFlow,
        ranking: Deadline,
        rate_Bps: Number = 0,  # noqa: N803
    ) -> GrowingRank:
        ranked = self._ranked_flow(flow, ranking)
        memory_s = self._memories[flow.job].delay_s
        left_s = ranked.left_s * flow.remaining_bytes
        rank = deadline_rank(now_s, ranked.due_s, memory_s, left_s, ranked.slope, ranked.head_start)
        return GrowingRank(rank, ranked.slope * (1 + ranked.left_s * rate_Bps))

    def _ranked_flow(self, flow: ActiveFlow, ranking: Deadline) -> _Ranked:
        ranked = self._ranked.get(flow)
        if ranked is None:
            ranked = self._ranked[flow] = self._rank(flow, ranking)
        return ranked

    def _rank(self, flow: ActiveFlow, ranking: Deadline) -> _Ranked:
        number = self._number
        relative = ranking.relative
        _, start_s, offset_s = self._references[flow.job, ranking.echelonflow]
        reference_s = start_s - offset_s
        deadline_s = reference_s + number(ranking.offset_s)
        due_s = reference_s + number(ranking.due_s)
        if relative is None:
            times_s = [due_s + number(threshold_s) for threshold_s in ranking.thresholds_s]
            return _Ranked(deadline_s, due_s, 0, 0, 0, times_s, 0)
        slope = number(1 / relative.unit_s)
        left_s = number(ranking.left_s)
        head_start = number(relative.head_start)
        relative_steps = [number(step) for step in relative.steps]
        grain_s = number(relative.unit_s / GRAINS_OF_UNIT)
        return _Ranked(deadline_s, due_s, slope, left_s, head_start, relative_steps, grain_s)


def _replaces(
    reference: tuple[int, Number, Number], before: tuple[int, Number, Number] | None
) -> bool:
    """Return whether a flow (iteration, start, offset) gives the reference time instead.

    The first flow of an iteration does. Of flows that start at the same time, that is the one of
    the least offset.
    """
    if before is None or before[0] < reference[0]:
        return True
    return before[0] == reference[0] and reference[1:] < before[1:]
