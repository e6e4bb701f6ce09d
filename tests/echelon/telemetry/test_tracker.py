"""The tracker against a brute force that keeps every event and sorts it out at the end."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.jobs.graph import EchelonFlow, Flow, Job
from echelon.plan import Fixed, FlowPlan, Plan, QueuePlan
from echelon.telemetry.events import FlowEvent
from echelon.telemetry.tracker import SMOOTHING, Tracker

NAMES = ("f0", "f1", "f2")
NAME = ("j", "e")


def job(*flows: str) -> Job:
    echelonflow = EchelonFlow("e", flows, tuple(Fraction(i) for i in range(len(flows))))
    return Job("j", (), tuple(Flow(name, "h1", "h2", 1000) for name in (*flows, "alone")), (echelonflow,))


def tracker(last_switches: dict[str, str]) -> Tracker:
    flows = [FlowPlan("j", name, Fixed(1), ("h1", "s0", last, "h2")) for name, last in last_switches.items()]
    flows.append(FlowPlan("j", "alone", Fixed(1), ("h1", "s0", "s1", "h2")))
    return Tracker([job(*last_switches)], Plan("test", tuple(flows), (QueuePlan(0),) * 8))


def event(
    flow: str,
    iteration: int,
    time_s: Fraction | int = 0,
    tardiness_s: Fraction | int = 0,
    kind: str = "both",
    switch: str = "s1",
) -> FlowEvent:
    return FlowEvent(
        switch,
        "j",
        flow,
        iteration % 256,
        Fraction(time_s),
        Fraction(tardiness_s),
        kind in ("start", "both"),
        kind in ("finish", "both"),
    )


instants = st.fractions(0, 50, max_denominator=8)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, FlowEvent]]:
    """Iterations from a random one on (across the wrap of the epoch), with losses, repetitions and strangers."""
    first = draw(st.integers(0, 600))
    out: list[tuple[int, FlowEvent]] = []
    for iteration in range(first, first + draw(st.integers(1, 5))):
        base = Fraction(100 * (iteration - first))
        for name in draw(st.permutations(NAMES)):
            start, finish = sorted((base + draw(instants), base + draw(instants)))
            tardiness = draw(st.fractions(-5, 5, max_denominator=8))
            for one in (event(name, iteration, start, 0, "start"), event(name, iteration, finish, tardiness, "finish")):
                # 0: the digest is lost. 2: it comes twice; what comes later changes nothing.
                out.extend([(iteration, one)] * draw(st.sampled_from((0, 1, 1, 1, 1, 1, 2))))
        if draw(st.booleans()):
            out.append((iteration, event("f0", iteration, 1, 99, switch="s0")))
            out.append((iteration, event("alone", iteration, 1, 99)))
    return out


@settings(max_examples=100)
@given(histories())
def test_like_brute_force(history: list[tuple[int, FlowEvent]]) -> None:
    observed = tracker(dict.fromkeys(NAMES, "s1"))
    for _, one in history:
        observed.observe(one)
    by_iteration: dict[int, dict[tuple[str, str], FlowEvent]] = defaultdict(dict)
    for iteration, one in history:
        if one.switch == "s1" and one.flow in NAMES:
            by_iteration[iteration].setdefault((one.flow, "start" if one.started else "finish"), one)
    tardiness, smoothed = [], None
    for _, seen in sorted(by_iteration.items()):
        if any((name, "finish") not in seen for name in NAMES):
            continue
        tardiness.append(max(seen[name, "finish"].tardiness_s for name in NAMES))
        if all((name, "start") in seen for name in NAMES):
            now = [seen[name, "start"].time_s - seen["f0", "start"].time_s for name in NAMES]
            if smoothed is None:
                smoothed = now
            smoothed = [(1 - SMOOTHING) * old + SMOOTHING * new for old, new in zip(smoothed, now, strict=True)]
    assert observed.tardiness_s.get(NAME, []) == tardiness
    assert observed.distances_s.get(NAME) == (None if smoothed is None else tuple(smoothed))


@settings(max_examples=100)
@given(st.integers(0, 255), st.integers(2, 6), st.data())
def test_switches_may_report_an_iteration_apart(first: int, count: int, data: st.DataObject) -> None:
    """Flows that end at two switches, one of which is heard up to an iteration later than the other."""
    ends = {"f0": "s1", "f1": "s2"}
    observed = tracker(ends)
    tardiness = {(name, i): data.draw(st.integers(-9, 9)) for name in ends for i in range(count)}
    queues = {
        name: [event(name, first + i, i, tardiness[name, i], switch=switch) for i in range(count)]
        for name, switch in ends.items()
    }
    while queues["f0"] or queues["f1"]:
        ahead = len(queues["f1"]) - len(queues["f0"])
        possible = [name for name in ends if queues[name] and (ahead if name == "f0" else -ahead) <= 1]
        observed.observe(queues[data.draw(st.sampled_from(possible))].pop(0))
    assert observed.tardiness_s[NAME] == [max(tardiness["f0", i], tardiness["f1", i]) for i in range(count)]
    assert observed.distances_s == {}, "clocks of two switches must not be compared"


def test_a_lost_finish_does_not_fill_up_256_iterations_later() -> None:
    observed = tracker(dict.fromkeys(NAMES, "s1"))
    for iteration in range(300):
        for name in NAMES:
            if (iteration, name) not in {(3, "f1"), (3 + 256, "f0")}:
                observed.observe(event(name, iteration, iteration, iteration))
    complete = [iteration for iteration in range(300) if iteration not in (3, 259)]
    assert observed.tardiness_s[NAME] == complete


def test_an_echelonflow_of_one_flow_counts_a_repeated_finish_once() -> None:
    observed = tracker({"f0": "s1"})
    for iteration, tardiness in ((0, 2), (0, 5), (1, 3), (0, 7), (1, 9)):
        observed.observe(event("f0", iteration, 0, tardiness))
    assert observed.tardiness_s[NAME] == [2, 3]
    assert observed.distances_s[NAME] == (0,)


def test_events_of_unknown_jobs_are_ignored() -> None:
    observed = tracker({"f0": "s1"})
    observed.observe(FlowEvent("s1", "other", "f0", 0, Fraction(0), Fraction(0), True, True))
    assert observed.tardiness_s == {}
