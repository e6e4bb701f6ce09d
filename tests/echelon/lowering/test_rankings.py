"""Rankings as a switch executes them, against what the plan says, in exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.p4program import constants
from echelon.rankings.attained import Attained
from echelon.rankings.deadline import Deadline, Relative
from echelon.rankings.in_switches import MICROSECONDS, TICKS, LevelProfile, TimeUnit
from echelon.rankings.window import Window

BIAS = 1 << 31
UNIT = constants()["RANK_UNIT"]


class Numbers:
    """A switch that has numbers for everything."""

    def __init__(self, key_bits: int = 32, time: TimeUnit = MICROSECONDS, attained_bytes: int = 1) -> None:
        self.key_bits = key_bits
        self.offset_bits = 31
        self.time = time
        self.attained_bytes = attained_bytes
        self.profiles: list[LevelProfile] = []

    def echelonflow(self, name: str) -> int:
        return 1

    def group(self, name: str) -> int:
        return 2

    def profile(self, content: Hashable, make: Callable[[], LevelProfile]) -> int:
        self.profiles.append(make())
        return len(self.profiles) - 1


def queue_of(profile: LevelProfile, key: int) -> int:
    """Look a key up. Every key must be in one step."""
    lows = [step.lowest for step in profile.steps]
    assert lows[0] == 0
    assert profile.steps[-1].highest == (1 << 32) - 1
    assert all(a.highest + 1 == b.lowest for a, b in pairwise(profile.steps))
    (queue,) = (step.queue for step in profile.steps if step.lowest <= key <= step.highest)
    return queue


@given(
    st.lists(st.integers(1, 1 << 33), max_size=7, unique=True).map(sorted),
    st.permutations(range(8)),
    st.lists(st.integers(0, (1 << 32) - 1), max_size=9),
)
def test_attained_bytes(thresholds: list[int], queues: list[int], others: list[int]) -> None:
    order = tuple(queues[: len(thresholds) + 1])
    at = Numbers()
    action = Attained("g", tuple(thresholds), order).action(at)
    assert action == ("attained", {"group": 2, "profile": 0})
    for sent in [*others, *thresholds, *(each - 1 for each in thresholds)]:
        if sent < 1 << 32:
            assert queue_of(at.profiles[0], sent) == order[sum(each <= sent for each in thresholds)]


@given(st.integers(1, 10**7), st.data())
def test_windows(period_us: int, data: st.DataObject) -> None:
    begin, end = (data.draw(st.integers(0, period_us)) for _ in range(2))
    ranking = Window(*(Fraction(us, 10**6) for us in (period_us, begin, end)), inside=5, outside=2)
    at = Numbers()
    action = ranking.action(at)
    assert action == ("window", {"group": 2, "profile": 0, "period_us": period_us})
    for position in {0, period_us - 1, *(each % period_us for at in (begin, end) for each in (at - 1, at, at + 1))}:
        is_inside = begin <= position < end if begin <= end else position >= begin or position < end
        assert queue_of(at.profiles[0], period_us - position) == (5 if is_inside else 2)


periods = st.integers(100, 3_000_000_000).map(lambda us: Fraction(us, 10**6))


@given(
    unit_s=periods,
    head_start=st.fractions(0, 1, max_denominator=1000),
    tardiness_us=st.lists(st.integers(1 - BIAS, BIAS), min_size=2, max_size=2),
    memory=st.integers(0, (1 << 16) - 1),
)
def test_ranks_are_parts_of_the_unit(
    unit_s: Fraction, head_start: Fraction, tardiness_us: list[int], memory: int
) -> None:
    relative = Relative(unit_s, head_start, Fraction(0), Fraction(1), (Fraction(1, 10),))
    numbers = dict(relative.profile(1, 7, 32).period)
    assert numbers["factor"] < 1 << 32
    for us in tardiness_us:
        # As the control Deadline has it: the slack's key, turned round, times the factor; two's complement of 48 bits.
        key = BIAS - us
        rank = ((0xFFFFFFFF - key) * numbers["factor"] >> numbers["factor_shift"]) + numbers["rank_at_zero"]
        rank = (rank + (memory << constants()["MEMORY_SHIFT"])) % (1 << 48)
        rank -= (rank >> 47) << 48
        exact = (Fraction(us, 10**6) + Fraction(memory, constants()["MEMORY_UNIT"]) * unit_s) / unit_s - head_start
        # A unit for each rounding, and the factor's own times the tardiness.
        assert abs(rank - exact * UNIT) <= 3 + Fraction(abs(us), 2 << numbers["factor_shift"])


@given(
    st.lists(st.fractions(0, 2, max_denominator=1000), max_size=8).map(sorted),
    st.integers(0, 7),
    st.lists(st.integers(0, 3 * UNIT), min_size=1, max_size=9),
)
def test_one_queue_lower_for_each_step(steps: list[Fraction], lowest: int, keys: list[int]) -> None:
    profile = Relative(Fraction(1), Fraction(0), Fraction(0), Fraction(1), tuple(steps)).profile(lowest, 7, 32)
    for behind in [*keys, *(int(step * UNIT) for step in steps), *(int(step * UNIT) + 1 for step in steps)]:
        expected = max(7 - sum(Fraction(behind, UNIT) > step for step in steps), lowest)
        assert queue_of(profile, behind) == expected
    assert queue_of(profile, (1 << 32) - 1) == max(7 - len(steps), lowest)


def test_a_relative_deadline_has_a_profile_of_its_own() -> None:
    relative = Relative(Fraction(8), Fraction(1, 5), Fraction(3, 10), Fraction(1, 2), (Fraction(1, 100),))
    at = Numbers()
    thresholds = (Fraction(1, 10), Fraction(2, 10))
    for ranking in (Deadline("e", Fraction(1), thresholds), Deadline("e", Fraction(1), thresholds, relative=relative)):
        ranking.action(at)
    by_threshold, by_rank = at.profiles
    assert by_threshold.period == ()
    numbers = dict(by_rank.period)
    assert (numbers["alone_tardiness_us"], numbers["idle"]) == (300_000, 500_000)
    assert numbers["factor"] / (1 << numbers["factor_shift"]) == pytest.approx(UNIT / 8e6, rel=1e-9)


@pytest.mark.parametrize(
    "ranking",
    [
        Deadline("e", Fraction(3000), ()),
        Deadline("e", Fraction(1), (Fraction(2), Fraction(1))),
        Deadline("e", Fraction(1), (), relative=Relative(Fraction(0), Fraction(0), Fraction(0), Fraction(1), ())),
        Deadline("e", Fraction(1), (), relative=Relative(Fraction(1), Fraction(0), Fraction(-1), Fraction(1), ())),
        Window(Fraction(0), Fraction(0), Fraction(0), 1, 2),
        Window(Fraction(3000), Fraction(0), Fraction(1), 1, 2),
    ],
)
def test_what_does_not_fit_is_refused(ranking: Deadline | Window) -> None:
    with pytest.raises(ValueError):
        ranking.action(Numbers())


# -- a switch with narrow keys and other units -------------------------------------------------------------------------


@given(st.lists(st.integers(0, 400_000), min_size=7, max_size=7).map(sorted), st.integers(-400_000, 400_000))
def test_levels_by_deadline_in_ticks_are_those_of_the_tardiness_in_ticks(ticks: list[int], slack: int) -> None:
    """A Tofino counts 1.024 us and matches slacks of 20 bits."""
    thresholds_s = tuple(Fraction(count * 1024, 10**9) for count in ticks)
    profile = Deadline("e", Fraction(0), thresholds_s).profile(20, TICKS)
    assert (profile.steps[0].lowest, profile.steps[-1].highest) == (0, (1 << 20) - 1)
    (queue,) = (step.queue for step in profile.steps if step.lowest <= (1 << 19) + slack <= step.highest)
    assert queue == sum(-slack >= count for count in ticks)


def test_offsets_and_periods_are_named_and_counted_in_the_unit_of_the_switch() -> None:
    at = Numbers(20, TICKS, 4096)
    late = Deadline("e", Fraction(1024, 1_000_000), tuple(Fraction(n, 100) for n in range(1, 8)))
    assert late.action(at).arguments["offset_ticks"] == 1000
    window = Window(Fraction(2048, 10**6), Fraction(0), Fraction(1024, 10**6), 5, 3)
    assert window.action(at).arguments["period_ticks"] == 2000
    # A key is the time left: the window is the first half of the period.
    assert at.profiles[-1].steps == ((0, 1000, 3), (1001, 2000, 5), (2001, (1 << 20) - 1, 3))


@given(st.lists(st.integers(1, 1 << 31), max_size=7, unique=True).map(sorted), st.integers(0, (1 << 32) - 1))
def test_attained_bytes_are_coarser_where_a_switch_counts_coarser(thresholds: list[int], sent: int) -> None:
    order = tuple(range(len(thresholds) + 1))
    at = Numbers(20, attained_bytes=4096)
    Attained("g", tuple(thresholds), order).action(at)
    (queue,) = (step.queue for step in at.profiles[0].steps if step.lowest <= sent // 4096 <= step.highest)
    # Never early, and late by less than one unit.
    assert sum(sent >= threshold + 4095 for threshold in thresholds) <= queue
    assert queue <= sum(sent >= threshold for threshold in thresholds)
