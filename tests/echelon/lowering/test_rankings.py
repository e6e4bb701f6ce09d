"""Rankings as a switch executes them, against what the plan says, in exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.model.p4program import constants
from echelon.planning.policies.echelon.candidates import BLENDS, PlanCandidate
from echelon.planning.rankings.attained import Attained
from echelon.planning.rankings.deadline import Deadline, Relative
from echelon.planning.rankings.in_switches import TICKS, LevelProfile, RankShifts, Units
from echelon.planning.rankings.window import Window
from echelon_lab.scenarios.scenario import load_scenario

WIDE = Units(offset_bits=31, key_bits=32)
NARROW = Units(
    offset_bits=31,
    key_bits=20,
    time=TICKS,
    attained_bytes=4096,
    shifts=RankShifts(most_right=12, most_left=6),
    left_shift_bits=5,
    left_shift_bias=4,
)
BIAS = 1 << 31
UNIT = constants()["RANK_UNIT"]


class Numbers:
    """A switch that has numbers for everything."""

    def __init__(self, units: Units = WIDE, whole_bytes: int | None = None) -> None:
        self.units = units
        self.whole_bytes = whole_bytes
        self.profiles: list[LevelProfile] = []

    def echelonflow(self, name: str) -> int:
        return 1

    def group(self, name: str) -> int:
        return 2

    def once(self, ranking: object, make: Callable[[], Mapping[str, int]]) -> Mapping[str, int]:
        return make()

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
    for position in {
        0,
        period_us - 1,
        *(each % period_us for at in (begin, end) for each in (at - 1, at, at + 1)),
    }:
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
    numbers = dict(relative.profile(1, 7, WIDE).period)
    assert numbers["factor"] < 1 << 32
    for us in tardiness_us:
        # As the control Deadline has it: the slack's key, turned round, times the factor; two's
        # complement of 48 bits.
        key = BIAS - us
        rank = ((0xFFFFFFFF - key) * numbers["factor"] >> numbers["factor_shift"]) + numbers[
            "rank_at_zero"
        ]
        rank = (rank + (memory << constants()["MEMORY_SHIFT"])) % (1 << 48)
        rank -= (rank >> 47) << 48
        exact = (
            Fraction(us, 10**6) + Fraction(memory, constants()["MEMORY_UNIT"]) * unit_s
        ) / unit_s - head_start
        # A unit for each rounding, and the factor's own times the tardiness.
        assert abs(rank - exact * UNIT) <= 3 + Fraction(abs(us), 2 << numbers["factor_shift"])


@given(
    unit_s=periods,
    due_us=st.one_of(st.none(), st.integers(0, BIAS - 1)),
    left_shift=st.one_of(st.none(), st.integers(-16, 47)),
    late_us=st.integers(0, BIAS - 2_000_000),
    left_bytes=st.one_of(st.integers(0, 10**6), st.integers(0, (1 << 32) - 1)),
)
def test_ranks_count_from_the_due_time_and_fall_with_the_bytes_left(
    unit_s: Fraction, due_us: int | None, left_shift: int | None, late_us: int, left_bytes: int
) -> None:
    """`late_us` is how late the packet is by its offset, in a switch as control Deadline has it."""
    due = None if due_us is None else Fraction(due_us, 10**6)
    relative = Relative(unit_s, Fraction(0), Fraction(0), Fraction(1), (Fraction(1, 10),))
    at = Numbers()
    action = Deadline("e", Fraction(1), (), 1, 7, relative, due, left_shift).action(at)
    given, period = action.arguments, dict(at.profiles[0].period)
    assert given["left_shift"] < 1 << 6
    tardiness_us = late_us + given["offset_us"] - given["due_us"]
    left_us = min((left_bytes << 16) >> given["left_shift"], (1 << 32) - 1)
    key = min(BIAS + max(-tardiness_us, -BIAS), (1 << 32) - 1)
    rank = ((0xFFFFFFFF - key) * period["factor"] >> period["factor_shift"]) + period[
        "rank_at_zero"
    ]
    rank = (rank - (left_us * period["factor"] >> period["factor_shift"])) % (1 << 48)
    rank -= (rank >> 47) << 48
    exact_left_us = (
        0
        if left_shift is None
        else min(left_bytes / Fraction(2) ** left_shift, Fraction((1 << 32) - 1))
    )
    late_s = (late_us + 10**6 - (10**6 if due_us is None else due_us) - exact_left_us) / 10**6
    in_one = Fraction(UNIT, 10**6) / unit_s
    fault = 4 + in_one + (abs(tardiness_us) + exact_left_us) / Fraction(2 << period["factor_shift"])
    assert abs(rank - late_s / unit_s * UNIT) <= fault


def test_thresholds_count_from_the_due_time_and_no_bytes() -> None:
    at = Numbers()
    action = Deadline("e", Fraction(1), (Fraction(1),), due=Fraction(3), left_shift=0).action(at)
    assert action.arguments["offset_us"] == 1_000_000
    assert action.arguments["due_us"] == 3_000_000
    assert (1 << 32) - 1 << 16 >> action.arguments["left_shift"] == 0


@given(
    st.lists(st.fractions(0, 2, max_denominator=1000), max_size=8).map(sorted),
    st.integers(0, 7),
    st.lists(st.integers(0, 3 * UNIT), min_size=1, max_size=9),
)
def test_one_queue_lower_for_each_step(steps: list[Fraction], lowest: int, keys: list[int]) -> None:
    relative = Relative(Fraction(1), Fraction(0), Fraction(0), Fraction(1), tuple(steps))
    profile = LevelProfile(relative.ranges(lowest, 7, Fraction(UNIT), 32))
    for behind in [
        *keys,
        *(int(step * UNIT) for step in steps),
        *(int(step * UNIT) + 1 for step in steps),
    ]:
        expected = max(7 - sum(Fraction(behind, UNIT) > step for step in steps), lowest)
        assert queue_of(profile, behind) == expected
    assert queue_of(profile, (1 << 32) - 1) == max(7 - len(steps), lowest)


def test_a_relative_deadline_has_a_profile_of_its_own() -> None:
    relative = Relative(
        Fraction(8), Fraction(1, 5), Fraction(3, 10), Fraction(1, 2), (Fraction(1, 100),)
    )
    at = Numbers()
    thresholds = (Fraction(1, 10), Fraction(2, 10))
    for ranking in (
        Deadline("e", Fraction(1), thresholds),
        Deadline("e", Fraction(1), thresholds, relative=relative),
    ):
        ranking.action(at)
    by_threshold, by_rank = at.profiles
    assert by_threshold.period == ()
    numbers = dict(by_rank.period)
    assert (numbers["alone_tardiness_us"], numbers["idle"]) == (300_000, 500_000)
    # Its queues are in the order of ranks, and no step leads to one of them.
    assert by_rank.steps == ()
    assert (numbers["lowest"], numbers["highest"]) == (0, 7)
    assert numbers["factor"] / (1 << numbers["factor_shift"]) == pytest.approx(UNIT / 8e6, rel=1e-9)


@pytest.mark.parametrize(
    "ranking",
    [
        Deadline("e", Fraction(3000), ()),
        Deadline("e", Fraction(1), (Fraction(2), Fraction(1))),
        Deadline("e", Fraction(1), (), due=Fraction(-1)),
        Deadline("e", Fraction(1), (), due=Fraction(3000)),
        Deadline(
            "e",
            Fraction(1),
            (),
            relative=Relative(Fraction(1), Fraction(0), Fraction(0), Fraction(1), ()),
            left_shift=-17,
        ),
        Deadline(
            "e",
            Fraction(1),
            (),
            relative=Relative(Fraction(0), Fraction(0), Fraction(0), Fraction(1), ()),
        ),
        Deadline(
            "e",
            Fraction(1),
            (),
            relative=Relative(Fraction(1), Fraction(0), Fraction(-1), Fraction(1), ()),
        ),
        Window(Fraction(0), Fraction(0), Fraction(0), 1, 2),
        Window(Fraction(3000), Fraction(0), Fraction(1), 1, 2),
    ],
)
def test_what_does_not_fit_is_refused(ranking: Deadline | Window) -> None:
    with pytest.raises(ValueError):
        ranking.action(Numbers())


# -- a switch with narrow keys and other units -----------------------------------------------------


@given(
    st.lists(st.integers(0, 400_000), min_size=7, max_size=7).map(sorted),
    st.integers(-400_000, 400_000),
)
def test_levels_by_deadline_in_ticks_are_those_of_the_tardiness_in_ticks(
    ticks: list[int], slack: int
) -> None:
    """A Tofino counts 1.024 us and matches slacks of 20 bits."""
    thresholds_s = tuple(Fraction(count * 1024, 10**9) for count in ticks)
    profile = Deadline("e", Fraction(0), thresholds_s).profile(NARROW)
    assert (profile.steps[0].lowest, profile.steps[-1].highest) == (0, (1 << 20) - 1)
    (queue,) = (
        step.queue for step in profile.steps if step.lowest <= (1 << 19) + slack <= step.highest
    )
    assert queue == sum(-slack >= count for count in ticks)


def test_offsets_and_periods_are_named_and_counted_in_the_unit_of_the_switch() -> None:
    at = Numbers(NARROW)
    late = Deadline("e", Fraction(1024, 1_000_000), tuple(Fraction(n, 100) for n in range(1, 8)))
    assert late.action(at).arguments["offset_ticks"] == 1000
    window = Window(Fraction(2048, 10**6), Fraction(0), Fraction(1024, 10**6), 5, 3)
    assert window.action(at).arguments["period_ticks"] == 2000
    # A key is the time left: the window is the first half of the period.
    assert at.profiles[-1].steps == ((0, 1000, 3), (1001, 2000, 5), (2001, (1 << 20) - 1, 3))


@given(
    st.lists(st.integers(1, 1 << 31), max_size=7, unique=True).map(sorted),
    st.integers(0, (1 << 32) - 1),
)
def test_attained_bytes_are_coarser_where_a_switch_counts_coarser(
    thresholds: list[int], sent: int
) -> None:
    order = tuple(range(len(thresholds) + 1))
    at = Numbers(NARROW)
    Attained("g", tuple(thresholds), order).action(at)
    (queue,) = (
        step.queue for step in at.profiles[0].steps if step.lowest <= sent // 4096 <= step.highest
    )
    # Never early, and late by less than one unit.
    assert sum(sent >= threshold + 4095 for threshold in thresholds) <= queue
    assert queue <= sum(sent >= threshold for threshold in thresholds)


def signed(number: int) -> int:
    """Return 32 bits as two's complement."""
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


@dataclass
class NarrowSwitch:
    """The TNA program's controls Unit, Top and Level, for one profile, in exact integers."""

    profile: LevelProfile
    handicap: int = 0
    """The handicap of the flow that sends."""
    top: int = -0x4000_0000

    def __post_init__(self) -> None:
        self.period = dict(self.profile.period)

    def rank(self, ticks: int) -> int:
        """Return a time in the profile's unit."""
        right = self.period["right"]
        return ticks >> right if right < 16 else signed(ticks << right - 16)

    def queue(self, key: int) -> int:
        if key >> 20:
            return self.period["lowest"]
        return next(step.queue for step in self.profile.steps if step.lowest <= key <= step.highest)

    def by_slack(self, tardiness: int) -> int:
        return self.queue(
            max(0, signed(self.period["head_start"] + self.handicap - self.rank(tardiness)))
        )

    def behind(self, tardiness: int, memory: int = 0, left: int = 0) -> int:
        """Return the queue of a packet, and remember its rank if it is the most urgent."""
        rank = self.rank(tardiness) + signed(
            memory + self.period["head_start"] + self.handicap - left
        )
        self.top, behind = max(self.top, rank), max(0, self.top - rank)
        return self.queue(behind)


TICK_S = Fraction(1024, 10**9)


@given(
    st.lists(st.fractions(0, 1800, max_denominator=10**6), min_size=1, max_size=7).map(sorted),
    st.data(),
)
def test_any_thresholds_fit_narrow_keys(thresholds_s: list[Fraction], data: st.DataObject) -> None:
    at = Numbers(NARROW)
    Deadline("e", Fraction(0), tuple(thresholds_s)).action(at)
    switch = NarrowSwitch(at.profiles[0])
    # The largest threshold takes 19 bits, so one unit is at most 2^-18 of it, or one tick.
    fault = max(TICK_S, thresholds_s[-1] / (1 << 18)) + TICK_S
    near = data.draw(st.sampled_from(thresholds_s)) / TICK_S
    for tardiness in (0, -5_000_000, int(near), data.draw(st.integers(-(10**9), 10**9))):
        late_s = tardiness * TICK_S
        reached = [
            sum(late_s >= threshold_s + error for threshold_s in thresholds_s)
            for error in (fault, -fault)
        ]
        assert reached[0] <= switch.by_slack(tardiness) <= reached[1]


@given(st.integers(2000, 2 * 10**9), st.data())
def test_windows_of_any_period_fit_narrow_keys(period_us: int, data: st.DataObject) -> None:
    begin, end = (Fraction(data.draw(st.integers(0, period_us)), 10**6) for _ in range(2))
    at = Numbers(NARROW)
    Window(Fraction(period_us, 10**6), begin, end, inside=5, outside=2).action(at)
    switch = NarrowSwitch(at.profiles[0])
    period_s = Fraction(period_us, 10**6)
    fault_s = max(TICK_S, period_s / (1 << 19)) + 2 * TICK_S
    position_s = period_s * data.draw(st.fractions(0, 1, max_denominator=1000))
    if min(abs(position_s - edge_s) for edge_s in (begin, end, Fraction(0), period_s)) > fault_s:
        is_inside = (
            begin <= position_s < end if begin <= end else position_s >= begin or position_s < end
        )
        left = switch.rank(int((period_s - position_s) / TICK_S))
        assert switch.queue(left) == (5 if is_inside else 2)


@given(
    st.fractions(Fraction(1, 1000), 300, max_denominator=10**4).filter(bool),
    st.fractions(0, Fraction(1, 2), max_denominator=100),
    st.lists(st.fractions(Fraction(1, 1000), 2, max_denominator=1000), min_size=1, max_size=6).map(
        sorted
    ),
    st.lists(st.fractions(-1, 3, max_denominator=10**4), min_size=2, max_size=9),
)
def test_levels_behind_the_most_urgent_are_those_of_the_job_s_own_unit(
    unit_s: Fraction, head_start: Fraction, steps: list[Fraction], lates: list[Fraction]
) -> None:
    """Ranks in units that are a power of two of ticks, but the steps of one job are as long as the
    job's unit says.
    """
    at = Numbers(NARROW)
    relative = Relative(unit_s, head_start, unit_s / 10, Fraction(1), tuple(steps))
    Deadline("e", Fraction(0), (), 1, 7, relative).action(at)
    switch = NarrowSwitch(at.profiles[0])
    right = switch.period["right"]
    rank_s = TICK_S * Fraction(2) ** (right if right < 16 else 16 - right)
    unit = rank_s * UNIT / unit_s
    assert unit**2 <= 2
    assert unit**2 >= Fraction(1, 2)
    assert abs(signed(switch.period["head_start"]) * rank_s + head_start * unit_s) <= rank_s
    assert abs(switch.period["alone"] * rank_s - unit_s / 10) <= rank_s + TICK_S
    most = -Fraction(10)
    for late in lates:
        most = max(most, late)
        found = switch.behind(int(late * unit_s / TICK_S))
        fault = (2 * rank_s + 2 * TICK_S) / unit_s
        expected = [
            max(1, 7 - sum(most - late + error > step for step in steps))
            for error in (fault, -fault)
        ]
        assert expected[0] <= found <= expected[1]


def test_memory_and_head_start_are_ranks_of_the_same_unit() -> None:
    unit_s = UNIT * TICK_S * 8
    at = Numbers(NARROW)
    relative = Relative(unit_s, Fraction(1, 4), Fraction(0), Fraction(1), (Fraction(1, 8),))
    Deadline("e", Fraction(0), (), 1, 7, relative).action(at)
    switch = NarrowSwitch(at.profiles[0])
    assert (switch.period["right"], signed(switch.period["head_start"])) == (3, -UNIT // 4)
    # A quarter of a unit late, or a quarter of memory: the same rank.
    assert switch.behind(UNIT * 8 // 4) == 7
    assert switch.behind(0, memory=UNIT // 4) == 7
    assert (switch.behind(0, memory=UNIT // 8), switch.behind(0, memory=UNIT // 8 - 1)) == (7, 6)


@given(
    st.lists(st.fractions(0, 10, max_denominator=10**6), min_size=1, max_size=7).map(sorted),
    st.fractions(0, 20, max_denominator=10**6),
    st.data(),
)
def test_thresholds_count_from_the_due_time_where_slacks_are_shifted(
    thresholds_s: list[Fraction], due_s: Fraction, data: st.DataObject
) -> None:
    at, offset_s = Numbers(NARROW), Fraction(5)
    given = Deadline("e", offset_s, tuple(thresholds_s), due=due_s).action(at).arguments
    switch = NarrowSwitch(at.profiles[0], signed(given["handicap"]))
    fault = 2 * max(TICK_S, thresholds_s[-1] / (1 << 18)) + 2 * TICK_S
    late_s = data.draw(st.sampled_from(thresholds_s)) + data.draw(
        st.fractions(-1, 1, max_denominator=10**4)
    )
    reached = [
        sum(late_s >= threshold_s + error for threshold_s in thresholds_s)
        for error in (fault, -fault)
    ]
    assert reached[0] <= switch.by_slack(int((late_s + due_s - offset_s) / TICK_S)) <= reached[1]


@given(
    unit_s=st.fractions(Fraction(1, 1000), 250, max_denominator=10**4).filter(bool),
    later=st.fractions(-1, 1, max_denominator=1000),
    left_shift=st.one_of(st.none(), st.integers(2, 20)),
    left_s=st.fractions(0, 3, max_denominator=1000),
)
def test_ranks_that_are_shifted_count_from_the_due_time_and_fall_with_the_bytes_left(
    unit_s: Fraction, later: Fraction, left_shift: int | None, left_s: Fraction
) -> None:
    """`later` is in units of the job, and `left_s` what the bytes left count."""
    offset_s = 2 * unit_s
    at = Numbers(NARROW)
    relative = Relative(unit_s, Fraction(1, 4), Fraction(0), Fraction(1), (Fraction(1, 8),))
    ranking = Deadline("e", offset_s, (), 1, 7, relative, offset_s + later * unit_s, left_shift)
    left_bytes = (
        0 if left_shift is None else int(left_s * unit_s * 10**6 * Fraction(2) ** left_shift)
    )
    if left_bytes >= 1 << 32:
        return
    given = ranking.action(at).arguments
    right = dict(at.profiles[0].period)["right"]
    rank_s = TICK_S * Fraction(2) ** (right if right < 16 else 16 - right)
    assert abs(signed(given["handicap"]) * rank_s + later * unit_s) <= rank_s + TICK_S
    code = given["left_shift"]
    left = 0 if code == 31 else left_bytes << 4 >> code
    # Ticks count as microseconds, so bytes left count up to 2.4 % more.
    exact_s = left_bytes * ranking.left_s
    assert exact_s - rank_s <= left * rank_s <= exact_s * Fraction(1024, 1000) + rank_s


def test_all_bytes_of_a_flow_count_where_a_switch_does_not_know_what_is_left() -> None:
    relative = Relative(UNIT * TICK_S, Fraction(0), Fraction(0), Fraction(1), (Fraction(1, 8),))
    ranking = Deadline("e", Fraction(0), (), 1, 7, relative, TICK_S * 100, left_shift=3)
    # 1024 us are 1000 ticks.
    narrow = ranking.action(Numbers(NARROW, whole_bytes=8 * 1024)).arguments
    assert (signed(narrow["handicap"]), narrow["left_shift"]) == (-1100, NARROW.left_shift(None))
    wide = ranking.action(Numbers(whole_bytes=8 * 1024)).arguments
    assert (wide["due_us"], wide["left_shift"]) == (102 + 1024, WIDE.left_shift(None))
    # Without bytes that count, nothing changes.
    ranking = Deadline("e", Fraction(0), (), 1, 7, relative)
    assert ranking.action(Numbers(NARROW, whole_bytes=1000)) == ranking.action(Numbers(NARROW))


def test_bytes_that_count_more_than_a_switch_can_shift_are_refused() -> None:
    relative = Relative(UNIT * TICK_S, Fraction(0), Fraction(0), Fraction(1), (Fraction(1, 8),))
    at = Numbers(NARROW)
    assert (
        Deadline("e", Fraction(0), (), 1, 7, relative, left_shift=-4)
        .action(at)
        .arguments["left_shift"]
        == 0
    )
    with pytest.raises(ValueError):
        Deadline("e", Fraction(0), (), 1, 7, relative, left_shift=-5).action(at)


@pytest.mark.parametrize("unit_s", [Fraction(1, 2000), Fraction(500)])
def test_a_unit_that_no_shift_makes_is_refused(unit_s: Fraction) -> None:
    relative = Relative(unit_s, Fraction(0), Fraction(0), Fraction(1), (Fraction(1, 10),))
    with pytest.raises(ValueError):
        Deadline("e", Fraction(0), (), relative=relative).action(Numbers(NARROW))


@pytest.mark.parametrize("rule", BLENDS)
def test_every_rule_can_be_carried_for_jobs_that_send_words_beside_long_flows(rule: str) -> None:
    """Gloo's words of one byte are due together with gradients."""
    scenario = load_scenario(
        Path(__file__).parents[3] / "topologies" / "scenarios" / "torch_programs.yaml"
    )
    candidate = PlanCandidate(rule)
    plan = candidate.plan(candidate.new_policy(), scenario.jobs, scenario.fabric, None, {})
    ranked = [flow.ranking for flow in plan.flows if isinstance(flow.ranking, Deadline)]
    assert len(ranked) > 100
    for ranking in ranked:
        for units in (WIDE, NARROW):
            assert ranking.action(Numbers(units)).arguments["left_shift"] >= 0
