"""Profiles that are wrong as a whole are found, and nothing else is taken for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.jobs.analysis import earliest_start_s, with_profile_error
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.model.jobs.pipelines import gpipe
from echelon.switches.telemetry.corrections import (
    AGREEING,
    MAX_FACTOR,
    TOLERANCE,
    Corrections,
    FlowStart,
    computed_distances_s,
)
from echelon.switches.telemetry.events import FlowEvent
from echelon.switches.telemetry.tracker import Tracker
from tests.drawing import examples

times = st.fractions(Fraction(1, 100), 2, max_denominator=100)


@st.composite
def pipelines(draw: st.DrawFn, stages: int | None = None) -> Job:
    count = stages or draw(st.integers(2, 4))
    forward = draw(st.lists(times, min_size=count, max_size=count))
    backward = draw(st.lists(times, min_size=count, max_size=count))
    graph = gpipe(
        [f"h{i}" for i in range(count)],
        draw(st.integers(2, 5)),
        forward,
        [1000] * (count - 1),
        backward,
    )
    return Job("j", graph.computes, graph.flows, graph.echelonflows)


@settings(max_examples=examples(40))
@given(pipelines(), st.data())
def test_computed_distances_hold_on_every_network(job: Job, data: st.DataObject) -> None:
    """The flows start that long after the head by the graph's own longest paths, whatever each flow
    takes.
    """
    takes = {flow.name: data.draw(times) for flow in job.flows}
    start_s = earliest_start_s(job, lambda flow: takes[flow.name])
    stages = len(job.workers)
    told = {}
    computes, after = (
        {unit.name: unit for unit in job.computes},
        {flow.name: flow.after for flow in job.flows},
    )
    for echelonflow in job.echelonflows:
        distances_s = computed_distances_s(computes, after, echelonflow)
        if distances_s is not None:
            head_s = start_s[echelonflow.flows[0]]
            assert distances_s == tuple(start_s[flow] - head_s for flow in echelonflow.flows)
            told[echelonflow.name] = distances_s
    assert set(told) == {"activation-s1", f"gradient-s{stages}"}


def test_where_other_things_decide_when_a_flow_starts() -> None:
    one = Fraction(1)

    def distances(computes: Sequence[ComputeUnit], flows: Mapping[str, tuple[str, ...]]) -> object:
        echelonflow = EchelonFlow("e", ("f0", "f1"), (Fraction(0), one))
        return computed_distances_s({unit.name: unit for unit in computes}, flows, echelonflow)

    first, second = ComputeUnit("c0", "h1", one), ComputeUnit("c1", "h1", 2 * one, ("c0",))
    assert distances([first, second], {"f0": ("c0",), "f1": ("c1",)}) == (0, 2)
    assert distances([first, second], {"f0": ("c0",), "f1": ("c0",)}) == (0, 0)
    assert distances([first, second], {"f0": ("c0",), "f1": ("f0",)}) is None, (
        "as long as a transfer takes"
    )
    assert distances([first, second], {"f0": ("c0",), "f1": ()}) is None, (
        "at the start of the iteration"
    )
    assert distances([first, second], {"f0": (), "f1": ("c1",)}) is None
    assert distances([first, second], {"f0": ("c0", "c1"), "f1": ("c1",)}) is None
    apart = ComputeUnit("c1", "h1", 2 * one)
    assert distances([first, apart], {"f0": ("c0",), "f1": ("c1",)}) is None, (
        "computing that does not wait for c0"
    )


def pipeline(forward: Fraction = Fraction(1), micro_batches: int = 4) -> Job:
    graph = gpipe(["h1", "h2"], micro_batches, [forward, forward], [1000])
    return Job("j", graph.computes, graph.flows, graph.echelonflows)


def seen(truth: Job, noise: Sequence[Fraction] = ()) -> dict[str, FlowStart]:
    """Return the starts of the first EchelonFlow when `truth` runs, each off by a share `noise` of
    a compute time.
    """
    start_s = earliest_start_s(truth, lambda _: Fraction(0))
    unit_s = truth.computes[0].duration_s
    flows = truth.echelonflows[0].flows
    shifts = [*noise, *[Fraction(0)] * len(flows)]
    return {
        flow: FlowStart(start_s[flow] + shift * unit_s)
        for flow, shift in zip(flows, shifts, strict=False)
    }


def offsets_s(job: Job) -> dict[str, tuple[Fraction, ...]]:
    return {one.name: one.offsets_s for one in job.echelonflows}


errors = st.fractions(Fraction(-9, 10), 3, max_denominator=50).filter(
    lambda error: abs(error) > Fraction(1, 8)
)


def noises(seed: int, count: int) -> list[list[Fraction]]:
    """Return the shift of each flow in each iteration, in parts of a compute time: computing varies
    by 2 %.
    """
    rng = Random(seed)
    return [[Fraction(rng.randint(-20, 20), 1000) for _ in range(4)] for _ in range(count)]


@settings(max_examples=examples(30))
@given(errors, st.integers(0, 10**6))
def test_a_wrong_profile_is_found_once_and_for_all(error: Fraction, seed: int) -> None:
    """The profiled times are `1 / (1 + error)` of the true ones."""
    profile = pipeline()
    truth = with_profile_error(profile, error)
    corrections = Corrections(profile)
    changes = [corrections.observe("activation-s1", seen(truth, one)) for one in noises(seed, 60)]
    assert changes.index(True) == AGREEING - 1
    assert sum(changes) == 1, "a plan must not flap"
    found, right = corrections.offsets_s["activation-s1"], offsets_s(truth)["activation-s1"]
    assert found[0] == 0
    assert list(found) == sorted(found)
    assert all(
        abs(a - b) <= Fraction(3, 100) * b + Fraction(1, 10**6)
        for a, b in zip(found, right, strict=True)
    )


@settings(max_examples=examples(20))
@given(
    st.fractions(-TOLERANCE * Fraction(7, 10), TOLERANCE * Fraction(7, 10), max_denominator=100),
    st.integers(0, 10**6),
)
def test_a_profile_that_is_nearly_right_stays(error: Fraction, seed: int) -> None:
    profile = pipeline()
    corrections = Corrections(profile)
    truth = with_profile_error(profile, error)
    assert not any(
        corrections.observe("activation-s1", seen(truth, one)) for one in noises(seed, 30)
    )
    assert corrections.offsets_s == {}


def test_it_follows_a_change_and_comes_back() -> None:
    profile = pipeline()
    corrections = Corrections(profile)
    slow = with_profile_error(profile, Fraction(1, 2))
    for truth in (slow, profile, slow):
        changes = [corrections.observe("activation-s1", seen(truth)) for _ in range(3 * AGREEING)]
        assert sum(changes) == 1
        assert corrections.offsets_s == (offsets_s(slow) if truth is slow else {})


@given(st.lists(st.sampled_from((Fraction(1), Fraction(3, 2))), min_size=60, max_size=60))
def test_iterations_that_do_not_agree_change_nothing(paces: list[Fraction]) -> None:
    profile = pipeline()
    corrections = Corrections(profile)
    for index, pace in enumerate(paces):
        # Never eight alike.
        one = pace if index % (AGREEING - 1) else Fraction(2) / pace
        changed = corrections.observe("activation-s1", seen(with_profile_error(profile, one - 1)))
        alike = len(set(corrections.evidence["activation-s1"].factors)) == 1
        assert not changed or alike


def serial(transfer_s: Fraction, compute_s: Fraction, count: int) -> dict[str, FlowStart]:
    """Return the starts on one connection: a flow starts when it is computed and the one before it
    has been sent.
    """
    out: dict[str, FlowStart] = {}
    end_s: Fraction | None = None
    for index in range(count):
        ready_s = compute_s * (index + 1)
        start_s = ready_s if end_s is None else max(ready_s, end_s)
        out[f"activation-s1-m{index + 1}"] = FlowStart(start_s, end_s)
        end_s = start_s + transfer_s
    return out


@given(st.fractions(Fraction(1, 10), 8, max_denominator=40))
def test_waiting_for_the_network_is_not_computing(transfer_s: Fraction) -> None:
    """Contention moves the starts of flows on a connection apart, as far as it likes; the profile
    is right.
    """
    profile = pipeline()
    corrections = Corrections(profile)
    changes = [
        corrections.observe("activation-s1", serial(transfer_s, Fraction(1), 4))
        for _ in range(3 * AGREEING)
    ]
    assert not any(changes)


def test_a_wrong_profile_is_found_on_a_connection_that_is_idle_between_flows() -> None:
    corrections = Corrections(pipeline())
    for _ in range(AGREEING):
        corrections.observe("activation-s1", serial(Fraction(1, 2), Fraction(5, 4), 4))
    assert corrections.offsets_s == offsets_s(pipeline(Fraction(5, 4)))


def test_unequal_workers_have_the_consumers_pace() -> None:
    """Offsets are the consumer's times: they must not become the producer's, which is all that a
    switch can see.
    """
    graph = gpipe(["h1", "h2"], 4, [Fraction(1), Fraction(3)], [1000])
    job = Job("j", graph.computes, graph.flows, graph.echelonflows)
    corrections = Corrections(job)
    for _ in range(2 * AGREEING):
        corrections.observe("activation-s1", seen(job))
    assert corrections.offsets_s == {}
    truth = with_profile_error(job, Fraction(1, 4))
    for _ in range(2 * AGREEING):
        corrections.observe("activation-s1", seen(truth))
    assert corrections.offsets_s == offsets_s(truth)


def test_echelonflows_that_contradict_each_other_change_nothing() -> None:
    """One slow worker is no wrong profile: forward passes take twice as long as profiled, backward
    passes as long.
    """
    graph = gpipe(["h1", "h2"], 4, [Fraction(1)] * 2, [1000], [Fraction(2)] * 2)
    job = Job("j", graph.computes, graph.flows, graph.echelonflows)
    corrections = Corrections(job)
    start_s = earliest_start_s(job, lambda _: Fraction(0))
    for _ in range(3 * AGREEING):
        for name, pace in (("activation-s1", 2), ("gradient-s2", 1)):
            flows = next(one.flows for one in job.echelonflows if one.name == name)
            assert not corrections.observe(
                name, {flow: FlowStart(pace * start_s[flow]) for flow in flows}
            )


def test_coflows_and_absurd_factors_are_left_alone() -> None:
    coflow = EchelonFlow("e", ("f0", "f1"), (Fraction(1), Fraction(1)))
    computes = (ComputeUnit("c0", "h1", Fraction(1)), ComputeUnit("c1", "h1", Fraction(1), ("c0",)))
    flows = (Flow("f0", "h1", "h2", 1, ("c0",)), Flow("f1", "h1", "h2", 1, ("c1",)))
    corrections = Corrections(Job("j", computes, flows, (coflow,)))
    for _ in range(2 * AGREEING):
        assert not corrections.observe(
            "e", {"f0": FlowStart(Fraction(0)), "f1": FlowStart(Fraction(9))}
        )
    corrections = Corrections(pipeline())
    absurd = with_profile_error(pipeline(), Fraction(MAX_FACTOR))
    for _ in range(2 * AGREEING):
        assert not corrections.observe("activation-s1", seen(absurd))


@pytest.mark.parametrize("clock_s", [Fraction(0), Fraction(10**6, 7)])
def test_from_events_to_offsets(clock_s: Fraction) -> None:
    """Events pass through the tracker: first switch, modulo 256, one flow after the other on a
    connection.
    """
    profile, truth = pipeline(), pipeline(Fraction(3, 2))
    tracker = Tracker()
    path = ("h1", "s1", "s2", "h2")
    tracker.add(profile, {flow.name: path for flow in profile.flows})
    start_s = earliest_start_s(truth, lambda _: Fraction(0))
    corrected = []
    for iteration in range(250, 250 + 2 * AGREEING):
        for flow in profile.flows:
            begin_s = clock_s + 10 * iteration + start_s[flow.name]
            for switch, passed_s, started in (
                ("s1", begin_s, True),
                ("s2", begin_s * 3, True),
                ("s1", begin_s + Fraction(1, 2), False),
                ("s2", begin_s * 3 + 1, False),
            ):
                event = FlowEvent(
                    switch,
                    "j",
                    flow.name,
                    iteration % 256,
                    passed_s,
                    Fraction(0),
                    started,
                    not started,
                )
                corrected.append(tracker.observe(event).corrected)
    assert sum(corrected) == 1
    assert tracker.corrections("j") == offsets_s(truth)
    # Another profile: what was found for the old one is gone.
    tracker.add(truth, {flow.name: path for flow in profile.flows})
    assert tracker.corrections("j") == {}
    assert tracker.view("j").iteration_times_s[-1] == 10
