"""The barrier and the records, driven by hand."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.execution import Completion, Span
from echelon_lab.hosts.workers.coordination import Coordination
from echelon_lab.hosts.workers.messages import (
    Begin,
    Connect,
    Failed,
    IterationDone,
    Lines,
    Message,
    StepFinished,
    StepStarted,
    WorkerReady,
    encode,
)
from tests.faults import naming

ONE = Fraction(1)


def pair(name: str, start_s: Fraction = Fraction(0)) -> Job:
    return Job(
        name,
        (ComputeUnit("a", "h1", ONE), ComputeUnit("b", "h2", ONE, ("f", "g"))),
        (Flow("f", "h1", "h2", 10, ("a",)), Flow("g", "h1", "h2", 10, ("a",))),
        (EchelonFlow("H", ("f", "g"), (Fraction(0), Fraction(0))),),
        start_s,
    )


def both_done(coordination: Coordination, job: str, iteration: int, now_ns: int) -> list[Begin]:
    assert coordination.worker_done(IterationDone("h2", job, iteration, 0, 0), now_ns) == []
    assert coordination.busy_workers(job) == {"h1"}
    return coordination.worker_done(IterationDone("h1", job, iteration, 0, 0), now_ns)


def test_iterations_follow_each_other_when_all_workers_are_done() -> None:
    seen: list[tuple[str, int]] = []
    coordination = Coordination(
        [pair("j", ONE / 2)],
        Completion("j", 2, "exactly"),
        lambda job, iteration: seen.append((job, iteration)),
    )
    assert coordination.start(1_000) == [Begin("j", 1, 500_001_000)]
    assert both_done(coordination, "j", 1, 7_000) == [Begin("j", 2, 7_000)]
    assert not coordination.done
    assert both_done(coordination, "j", 2, 9_000) == []
    assert coordination.done
    assert seen == [("j", 1), ("j", 2)]


@pytest.mark.parametrize(("until", "goes_on"), [("all-done", True), ("exactly", False)])
def test_load_stays_until_the_slowest_is_done(
    until: Literal["all-done", "exactly"], goes_on: bool
) -> None:
    coordination = Coordination(
        [pair("fast"), pair("slow")], Completion(("fast", "slow"), 1, until)
    )
    assert coordination.start(0) == [Begin("fast", 1, 0), Begin("slow", 1, 0)]
    assert both_done(coordination, "fast", 1, 5) == ([Begin("fast", 2, 5)] if goes_on else [])
    assert not coordination.done
    assert both_done(coordination, "slow", 1, 9) == []
    assert coordination.done


def test_records_are_assembled_from_both_ends_in_any_order() -> None:
    coordination = Coordination([pair("j")], Completion("j", 1, "exactly"))
    coordination.start(1_000_000_000)
    second = 1_000_000_000
    coordination.note(StepFinished("j", 1, "f", 4 * second))  # before its start is heard of
    coordination.note(StepStarted("j", 1, "g", 3 * second))
    coordination.note(StepStarted("j", 1, "f", 2 * second))
    coordination.note(StepStarted("j", 1, "a", second))
    coordination.note(StepFinished("j", 1, "a", 2 * second))
    unfinished = coordination.records["j"].iterations[0]
    assert (unfinished.start, unfinished.finish) == (0, None)
    coordination.note(StepFinished("j", 1, "g", 5 * second))
    coordination.note(StepStarted("j", 1, "b", 5 * second))
    coordination.note(StepFinished("j", 1, "b", 6 * second))
    coordination.worker_done(IterationDone("h1", "j", 1, 0, 3), 99 * second)
    coordination.worker_done(IterationDone("h2", "j", 1, 2, 0), 99 * second)
    (iteration,) = coordination.records["j"].finished
    assert (iteration.start, iteration.finish) == (0, 5)
    assert iteration.flows == {"f": Span(1, 3), "g": Span(2, 4)}
    assert iteration.computes == {"a": Span(0, 1), "b": Span(4, 5)}
    assert iteration.references == {"H": 1}
    assert coordination.reordered == {"j": 2}
    assert coordination.retransmitted == {"j": 3}
    assert coordination.end_s == 5


def test_a_worker_that_was_not_busy_is_refused() -> None:
    coordination = Coordination([pair("j")], Completion("j", 2, "exactly"))
    coordination.start(0)
    with pytest.raises(ValueError, check=naming("j", "h3", 1)):
        coordination.worker_done(IterationDone("h3", "j", 1, 0, 0), 0)
    with pytest.raises(ValueError, check=naming("j", "h1", 2)):
        coordination.worker_done(IterationDone("h1", "j", 2, 0, 0), 0)


MESSAGES = st.one_of(
    st.builds(WorkerReady, st.text()),
    st.builds(Failed, st.text(), st.text()),
    st.builds(StepStarted, st.text(), st.integers(1), st.text(), st.integers(0, 2**63)),
    st.builds(Begin, st.text(), st.integers(1), st.integers(0, 2**63)),
    st.builds(Connect),
)


@settings(deadline=None)
@given(st.lists(MESSAGES), st.integers(1, 50))
def test_messages_survive_a_stream_in_pieces(messages: list[Message], piece: int) -> None:
    stream = b"".join(map(encode, messages))
    lines = Lines()
    received = [
        m for at in range(0, len(stream), piece) for m in lines.feed(stream[at : at + piece])
    ]
    assert [(type(m), m) for m in received] == [(type(m), m) for m in messages]
