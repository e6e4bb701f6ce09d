"""The tracker against brute force over all that switches reported, and against the times that
really passed.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.plan import FlowPlan
from echelon.planning.rankings.fixed import Fixed
from echelon.switches.telemetry.events import FlowEvent
from echelon.switches.telemetry.tracker import HISTORY, NOTHING, SMOOTHING, Tracker, paths_of
from tests.drawing import examples
from tests.echelon.telemetry.training import Passage, reports

FIRST = ("f0", "f1", "f2")
SECOND = ("g0", "g1")
SWITCHES = ("s0", "s1", "s2")


def job(*formations: Sequence[str], name: str = "j") -> Job:
    echelonflows = tuple(
        EchelonFlow(f"e{index}", tuple(flows), tuple(Fraction(i) for i in range(len(flows))))
        for index, flows in enumerate(formations)
    )
    flows = tuple(Flow(flow, "h1", "h2", 1000) for flows in formations for flow in (*flows,))
    return Job(name, (), (*flows, Flow("alone", "h1", "h2", 1000)), echelonflows)


def through(*switches: str) -> tuple[str, ...]:
    return ("h1", *switches, "h2")


def event(
    flow: str, epoch: int, time_s: Fraction | int = 0, tardiness_s: int = 0, switch: str = "s1"
) -> FlowEvent:
    """Return an event of a flow of one packet."""
    return FlowEvent(
        switch, "j", flow, epoch % 256, Fraction(time_s), Fraction(tardiness_s), True, True
    )


@dataclass(frozen=True)
class History:
    """The true events, and those that were heard."""

    first_epoch: int
    starts_s: Sequence[Mapping[str, Fraction]]
    """The true times by iteration and flow."""
    tardiness_s: Sequence[Mapping[str, Fraction]]
    heard: Sequence[FlowEvent]
    lost: frozenset[tuple[str, int, str, bool]]
    """Switch, iteration, flow, whether it was the start."""


@st.composite
def histories(draw: st.DrawFn, lossy: bool = True, count: int = 8) -> History:
    """Draw the history of two EchelonFlows whose flows enter at s0 and leave at s1 or s2.

    Each switch has its own clock; digests are lost and come twice; reports of different switches
    are up to two iterations out of order.
    """
    iterations, starts, lateness = [], [], []
    first_epoch = draw(st.integers(0, 255))
    now_s = Fraction(0)
    for index in range(draw(st.integers(3, count))):
        passages, starts_s, tardiness_s = [], {}, {}
        for position, flow in enumerate((*FIRST, *SECOND, "alone")):
            begin_s = (
                now_s
                + Fraction(position, 4)
                + draw(st.fractions(0, Fraction(1, 5), max_denominator=9))
            )
            end_s = begin_s + draw(st.fractions(Fraction(1, 9), 3, max_denominator=9))
            late_s = draw(st.fractions(-3, 3, max_denominator=9))
            passages.append(Passage("s0", flow, begin_s, end_s, late_s + 100))
            passages.append(Passage(last_switch(flow), flow, begin_s + 1, end_s + 1, late_s))
            starts_s[flow], tardiness_s[flow] = begin_s, late_s
        iterations.append(((first_epoch + index) % 256, passages))
        starts.append(starts_s)
        lateness.append(tardiness_s)
        now_s += 6 + draw(st.fractions(0, 3, max_denominator=9))
    clocks_s = {name: draw(st.fractions(0, 10**6, max_denominator=9)) for name in SWITCHES}
    queues = reports(iterations, clocks_s)
    number = {epoch: index for index, (epoch, _) in enumerate(iterations)}
    lost = set()
    for name, events in queues.items():
        kept = []
        for one in events:
            if lossy and draw(st.integers(0, 19)) == 0:
                lost.add((name, number[one.epoch], one.flow, one.started))
                continue
            kept += [one] * (2 if lossy and draw(st.integers(0, 9)) == 0 else 1)
        queues[name] = kept
    heard = []
    while any(queues.values()):
        oldest = min(number[events[0].epoch] for events in queues.values() if events)
        near = sorted(
            name
            for name, events in queues.items()
            if events and number[events[0].epoch] <= oldest + 2
        )
        events = queues[draw(st.sampled_from(near))]
        burst = draw(st.integers(1, 12))
        heard += events[:burst]
        del events[:burst]
    return History(first_epoch, starts, lateness, heard, frozenset(lost))


def last_switch(flow: str) -> str:
    return "s2" if flow in ("f2", "g1") else "s1"


def followed() -> Tracker:
    out = Tracker()
    out.add(
        job(FIRST, SECOND),
        {flow: through("s0", last_switch(flow)) for flow in (*FIRST, *SECOND, "alone")},
    )
    return out


@settings(max_examples=examples(25))
@given(histories())
def test_like_brute_force(history: History) -> None:
    tracker = followed()
    observations = [tracker.observe(one) for one in history.heard]
    view = tracker.view("j")

    def gone(index: int, flow: str, started: bool) -> bool:
        return ("s0" if started else last_switch(flow), index, flow, started) in history.lost

    count = len(history.starts_s)
    heads = [index for index in range(count) if not gone(index, "f0", started=True)]
    times = [
        history.starts_s[b]["f0"] - history.starts_s[a]["f0"]
        for a, b in pairwise(heads[1:])
        if b == a + 1
    ]
    assert list(view.iteration_times_s) == times
    assert [one.iteration_s for one in observations if one.iteration_s is not None] == times
    whole: dict[int, list[Fraction]] = defaultdict(list)
    for name, flows in (("e0", FIRST), ("e1", SECOND)):
        complete = [
            i for i in range(count) if not any(gone(i, flow, started=False) for flow in flows)
        ]
        tardiness_s = [max(history.tardiness_s[i][flow] for flow in flows) for i in complete]
        assert list(view.echelonflows[name].tardiness_s) == tardiness_s
        for index, late_s in zip(complete, tardiness_s, strict=True):
            whole[index].append(late_s)
        begun = min(
            (i for i in range(count) if not all(gone(i, flow, started=True) for flow in flows)),
            default=count,
        )
        smoothed: list[Fraction] | None = None
        for i in range(begun + 1, count):
            if not any(gone(i, flow, started=True) for flow in flows):
                seen = [history.starts_s[i][flow] - history.starts_s[i][flows[0]] for flow in flows]
                old = smoothed or seen
                smoothed = [
                    (1 - SMOOTHING) * o + SMOOTHING * n for o, n in zip(old, seen, strict=True)
                ]
        assert view.echelonflows[name].distances_s == (
            None if smoothed is None else tuple(smoothed)
        )
    newest = max((index for index, late in whole.items() if len(late) == 2), default=None)
    assert view.tardiness_s == (None if newest is None else max(whole[newest]))
    assert [one.tardiness_s for one in observations if one.tardiness_s is not None][-1:] == (
        [] if newest is None else [view.tardiness_s]
    )


@settings(max_examples=examples(10))
@given(histories(lossy=False), st.lists(st.integers(), min_size=3, max_size=3))
def test_clocks_do_not_matter(history: History, shifts_s: list[int]) -> None:
    shift = dict(zip(SWITCHES, shifts_s, strict=True))
    one, other = followed(), followed()
    for heard in history.heard:
        one.observe(heard)
        other.observe(replace(heard, time_s=heard.time_s + shift[heard.switch]))
    assert one.view("j") == other.view("j")


@settings(max_examples=examples(10))
@given(histories(count=5), st.data())
def test_other_jobs_make_no_difference(history: History, data: st.DataObject) -> None:
    """Jobs come and go, flows of theirs have the same names, and unknown ones are reported."""
    alone, among = followed(), followed()
    for heard in history.heard:
        alone.observe(heard)
        match data.draw(st.sampled_from(("add", "remove", "event", "stranger", "nothing"))):
            case "add":
                among.add(
                    job(FIRST, name="k"), {flow: through("s0", "s1") for flow in (*FIRST, "alone")}
                )
            case "remove":
                among.remove("k")
            case "event":
                among.observe(replace(heard, job="k"))
            case "stranger":
                assert among.observe(replace(heard, flow="none of its flows")) is NOTHING
                assert among.observe(replace(heard, switch="s9")) is NOTHING
        among.observe(heard)
    assert alone.view("j") == among.view("j")


def test_a_lost_finish_does_not_fill_up_256_iterations_later() -> None:
    tracker = Tracker()
    tracker.add(job(FIRST), dict.fromkeys((*FIRST, "alone"), through("s1")))
    for iteration in range(300):
        for name in FIRST:
            if (iteration, name) not in {(280, "f1"), (280 - 256, "f0")}:
                tracker.observe(event(name, iteration, iteration, iteration))
    complete = [float(iteration) for iteration in range(300 - HISTORY - 1, 300) if iteration != 280]
    assert list(tracker.view("j").echelonflows["e0"].tardiness_s) == complete


def test_memory_does_not_grow_with_time() -> None:
    """The serialised tracker, which is all that it holds, does not grow, whatever is lost."""
    tracker = Tracker()
    tracker.add(
        job(FIRST, SECOND), {f: through("s0", last_switch(f)) for f in (*FIRST, *SECOND, "alone")}
    )
    sizes = []
    for iteration in range(3000):
        for number, name in enumerate((*FIRST, *SECOND)):
            if (iteration * 7 + number * 3) % 11:
                tracker.observe(event(name, iteration, 100 + iteration, switch="s0"))
                tracker.observe(event(name, iteration, 200 + iteration, switch=last_switch(name)))
        if iteration in (499, 2999):
            sizes.append(len(pickle.dumps(tracker)))
    assert sizes[1] < 1.05 * sizes[0]
    assert len(tracker.view("j").iteration_times_s) == HISTORY


def test_iterations_that_end_in_disorder_are_listed_in_order() -> None:
    tracker = Tracker()
    tracker.add(job(FIRST[:2]), {"f0": through("s1"), "f1": through("s2"), "alone": through("s1")})
    for iteration in (1, 2, 3):
        tracker.observe(event("f0", iteration, iteration, iteration))
    for iteration in (2, 3, 1):
        tracker.observe(event("f1", iteration, 900, -1, switch="s2"))
    assert list(tracker.view("j").echelonflows["e0"].tardiness_s) == [1, 2, 3]
    assert tracker.view("j").tardiness_s == 3, "the newest, not the one heard of last"
    assert tracker.view("j").echelonflows["e0"].distances_s is None, (
        "clocks of two switches must not be compared"
    )


def test_switches_that_count_for_themselves_are_not_put_together() -> None:
    """The same epoch of senders without a shim is another iteration at another switch."""
    tracker = Tracker()
    paths = {
        "f0": through("s1"),
        "f1": through("s2"),
        "g0": through("s0", "s1"),
        "g1": through("s0", "s1"),
    }
    tracker.add(job(FIRST[:2], SECOND), paths | {"alone": through("s1")}, numbered_by_sender=False)
    for iteration in range(1, 5):
        for flow in ("f0", "f1", *SECOND):
            for switch, ahead in zip(paths[flow][1:-1], (0, 40), strict=False):
                tracker.observe(
                    event(flow, iteration + ahead, 10 * iteration, iteration, switch=switch)
                )
    view = tracker.view("j")
    assert view.echelonflows["e0"].tardiness_s == ()
    assert list(view.echelonflows["e1"].tardiness_s) == [1, 2, 3, 4]
    assert view.echelonflows["e1"].distances_s == (0, 0)
    assert view.tardiness_s is None
    assert list(view.iteration_times_s) == [10, 10]


def run(tracker: Tracker, iterations: range, first: str = "s1", late_s: int = 0) -> None:
    for iteration in iterations:
        for position, name in enumerate(FIRST):
            tracker.observe(event(name, iteration, 10 * iteration + position, late_s, switch=first))


ONE_SWITCH = dict.fromkeys((*FIRST, "alone"), through("s1"))
OTHER_SWITCH = dict.fromkeys((*FIRST, "alone"), through("s2"))


def test_a_change_of_path_mixes_nothing() -> None:
    tracker = Tracker()
    tracker.add(job(FIRST), ONE_SWITCH)
    run(tracker, range(1, 4), "s1", 1)
    tracker.observe(event("f0", 4, 40, 5))
    before = tracker.view("j")
    assert list(before.iteration_times_s) == [10, 10]
    tracker.add(job(FIRST), OTHER_SWITCH)
    for name in FIRST[1:]:
        tracker.observe(event(name, 4, 10**6, 7, switch="s2"))
    assert tracker.view("j") == before
    run(tracker, range(5, 8), "s1", 99)
    assert tracker.view("j") == before, "not followed there now"
    run(tracker, range(5, 8), "s2", 2)
    after = tracker.view("j")
    assert list(after.iteration_times_s) == [10, 10, 10]
    assert list(after.echelonflows["e0"].tardiness_s) == [1, 1, 1, 2, 2, 2]


def test_the_same_job_again_keeps_its_history_and_another_of_its_name_does_not() -> None:
    tracker = Tracker()
    tracker.add(job(FIRST), ONE_SWITCH)
    run(tracker, range(1, 5))
    before = tracker.view("j")
    tracker.add(job(FIRST), {name: list(path) for name, path in ONE_SWITCH.items()})
    assert tracker.view("j") == before
    tracker.observe(event("f0", 5, 50))
    assert list(tracker.view("j").iteration_times_s) == [10, 10, 10]
    other = replace(job(FIRST).echelonflows[0], offsets_s=(Fraction(0), Fraction(0), Fraction(9)))
    tracker.add(replace(job(FIRST), echelonflows=(other,)), ONE_SWITCH)
    assert list(tracker.view("j").iteration_times_s) == [10, 10, 10], (
        "the same flows with other deadlines"
    )
    assert tracker.view("j").echelonflows["e0"].tardiness_s == ()
    tracker.observe(event("f0", 6, 60))
    assert list(tracker.view("j").iteration_times_s) == [10, 10, 10, 10]
    tracker.add(job(FIRST[:2]), ONE_SWITCH)
    assert tracker.view("j").iteration_times_s == ()
    tracker.remove("j")
    tracker.remove("j")
    assert list(tracker.jobs) == []
    assert tracker.observe(event("f0", 6, 60)) is NOTHING
    with pytest.raises(KeyError):
        tracker.view("j")


def test_a_new_session_ends_what_was_under_way_at_that_switch_alone() -> None:
    tracker = Tracker()
    tracker.add(job(FIRST, SECOND), ONE_SWITCH | dict.fromkeys(SECOND, through("s2")))
    for iteration in (1, 2, 3):
        for name in (*FIRST, *SECOND):
            if (name, iteration) in (("f2", 3), ("g1", 3)):
                tracker.reconnected("s1")
            tracker.observe(
                event(name, iteration, iteration, iteration, switch="s1" if name in FIRST else "s2")
            )
    assert list(tracker.view("j").echelonflows["e0"].tardiness_s) == [1, 2]
    assert list(tracker.view("j").echelonflows["e1"].tardiness_s) == [1, 2, 3]
    run(tracker, range(4, 7), late_s=4)
    assert list(tracker.view("j").iteration_times_s) == [1, 10], (
        "none from 3 to 4, none from 4, which may be cut"
    )


def test_a_job_started_anew_counts_its_iterations_from_one() -> None:
    """The job starts again after 40 iterations: all of the new run is seen, and no figure spans the
    two runs.
    """
    tracker = Tracker()
    tracker.add(job(FIRST), ONE_SWITCH)
    run(tracker, range(1, 41))
    tracker.observe(event("f0", 41, 410, 5))
    for iteration in range(1, 50):
        for position, name in enumerate(FIRST):
            tracker.observe(event(name, iteration, 1000 + 20 * iteration + position, 3))
    view = tracker.view("j")
    assert list(view.iteration_times_s) == [10] * (HISTORY - 48) + [20] * 48
    assert list(view.echelonflows["e0"].tardiness_s) == [0] * (HISTORY - 49) + [3] * 49


def test_jobs_without_echelonflows_or_flows() -> None:
    tracker = Tracker()
    tracker.add(Job("none", (ComputeUnit("c", "h1", Fraction(1)),), (), ()), {})
    tracker.add(job(), {"alone": through("s1")})
    for iteration in (1, 2, 3):
        tracker.observe(event("alone", iteration, 10 * iteration))
    assert list(tracker.view("j").iteration_times_s) == [10]
    assert tracker.view("none").iteration_times_s == ()


def test_a_flow_without_a_path_is_refused() -> None:
    with pytest.raises(KeyError, match="alone"):
        Tracker().add(job(FIRST), {name: through("s1") for name in FIRST})


def test_paths_by_job() -> None:
    flows = [
        FlowPlan(name, flow, Fixed(0), through(switch))
        for name, flow, switch in ("afx", "agy", "bfz")
    ]
    assert paths_of(flows) == {
        "a": {"f": through("x"), "g": through("y")},
        "b": {"f": through("z")},
    }
