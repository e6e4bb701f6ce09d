"""The closed loop of a job, driven by hand with integer times."""

from __future__ import annotations

from array import array
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.errors import Code
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.execution import (
    Instruction,
    IterationFinished,
    IterationRecord,
    JobExecution,
    RecordedSteps,
    Span,
    StartCompute,
    StartFlow,
    tardiness_s,
)
from tests.drawing import examples
from tests.faults import naming

ONE = Fraction(1)
FLOW = Flow("f", "h1", "h2", 10, ("c1",))
JOB = Job(
    "job",
    (
        ComputeUnit("c1", "h1", ONE),
        ComputeUnit("c2", "h1", ONE, ("c1",)),
        ComputeUnit("d", "h2", ONE, ("f", "c2")),
    ),
    (FLOW,),
    (EchelonFlow("H", ("f",), (Fraction(0),)),),
)


def run_one(execution: JobExecution[int], begin: int) -> list[Instruction[int]]:
    assert execution.compute_finished("c1", begin + 1) == [
        StartCompute("c2", "h1", ONE),
        StartFlow(FLOW, begin // 10 + 1),
    ]
    assert execution.flow_finished("f", begin + 4) == []
    assert execution.compute_finished("c2", begin + 5) == [StartCompute("d", "h2", ONE)]
    return execution.compute_finished("d", begin + 10)


def test_the_next_iteration_begins_when_all_is_finished() -> None:
    execution: JobExecution[int] = JobExecution(JOB, more=lambda iteration: iteration <= 2)
    assert execution.start(0) == [StartCompute("c1", "h1", ONE)]
    assert run_one(execution, 0) == [IterationFinished(1, 0, 10), StartCompute("c1", "h1", ONE)]
    assert run_one(execution, 10) == [IterationFinished(2, 10, 20)]
    record = execution.record
    assert [(i.iteration, i.start, i.finish) for i in record.iterations] == [
        (1, 0, 10),
        (2, 10, 20),
    ]
    assert record.iterations[1].flows == {"f": Span(11, 14)}
    assert record.iterations[1].computes == {
        "c1": Span(10, 11),
        "c2": Span(11, 15),
        "d": Span(15, 20),
    }
    assert record.iterations[1].references == {"H": 11}
    assert record.finished == record.iterations


def test_more_is_asked_before_each_further_iteration() -> None:
    asked: list[int] = []
    execution: JobExecution[int] = JobExecution(
        JOB, more=lambda i: asked.append(i) is None and i < 2
    )
    execution.start(0)
    assert run_one(execution, 0) == [IterationFinished(1, 0, 10)]
    assert asked == [2]


def test_a_delay_lengthens_the_workers_first_unit_of_that_iteration() -> None:
    execution: JobExecution[int] = JobExecution(
        JOB, delays={("h1", 2): Fraction(7), ("h2", 1): Fraction(3)}
    )
    assert execution.start(0) == [StartCompute("c1", "h1", ONE)]
    execution.compute_finished("c1", 1)
    execution.flow_finished("f", 2)
    assert execution.compute_finished("c2", 2) == [StartCompute("d", "h2", Fraction(4))]
    assert execution.compute_finished("d", 6)[1:] == [StartCompute("c1", "h1", Fraction(8))]
    assert execution.compute_finished("c1", 14)[0] == StartCompute("c2", "h1", ONE)


def test_a_host_that_sends_in_turn_starts_a_flow_when_the_one_before_has_arrived() -> None:
    flows = [Flow(name, src, "h3", 10, after) for name, src, after in [
        ("late", "h1", ("c1",)), ("first", "h1", ()), ("second", "h1", ()), ("other", "h2", ("c1",)),
    ]]  # fmt: skip
    job = Job("job", (ComputeUnit("c1", "h1", ONE),), tuple(flows), (), in_turn=True)
    execution: JobExecution[int] = JobExecution(job, more=lambda iteration: iteration <= 2)
    late, first, second, other = flows

    def started(instructions: list[Instruction[int]]) -> list[Flow]:
        return [each.flow for each in instructions if isinstance(each, StartFlow)]

    begin = 0
    instructions = execution.start(begin)
    for begin in (0, 10):
        assert started(instructions) == [first]
        assert started(execution.compute_finished("c1", begin + 1)) == [other]
        assert started(execution.flow_finished("first", begin + 2)) == [second]
        assert execution.flow_finished("other", begin + 3) == []
        assert started(execution.flow_finished("second", begin + 4)) == [late]
        instructions = execution.flow_finished("late", begin + 10)
    spans = execution.record.iterations[1].flows
    assert spans == {
        "first": Span(10, 12),
        "other": Span(11, 13),
        "second": Span(12, 14),
        "late": Span(14, 20),
    }


def test_what_does_not_run_cannot_finish() -> None:
    execution: JobExecution[int] = JobExecution(JOB)
    with pytest.raises(ValueError, check=naming("job job", "started")):
        execution.compute_finished("c1", 0)
    execution.start(0)
    with pytest.raises(ValueError, check=naming("job job", "started")):
        execution.start(1)
    with pytest.raises(ValueError, check=naming("job job", "f")):
        execution.flow_finished("f", 1)
    execution.compute_finished("c1", 1)
    with pytest.raises(ValueError, check=naming("job job", "c1")):
        execution.compute_finished("c1", 2)
    with pytest.raises(ValueError, check=naming("job job", "f")):
        execution.compute_finished("f", 2)


@pytest.mark.parametrize(
    ("job", "code", "names"),
    [
        (Job("j", (), (), ()), None, ["compute units", "flows"]),
        (
            Job(
                "j",
                (ComputeUnit("a", "h", ONE, ("b",)), ComputeUnit("b", "h", ONE, ("a",))),
                (),
                (),
            ),
            "cycle",
            ["a -> b"],
        ),
        (Job("j", (ComputeUnit("a", "h", ONE, ("b",)),), (), ()), "unknown-name", ["'b'"]),
        (Job("j", (ComputeUnit("f", "h", ONE),), (FLOW,), ()), "duplicate", ["'f'"]),
        (
            Job("j", (ComputeUnit("a", "h", ONE),), (), (EchelonFlow("H", ("a",), (ONE,)),)),
            None,
            ["EchelonFlow H", "flow a"],
        ),
        (
            Job(
                "j",
                (ComputeUnit("c1", "h", ONE),),
                (FLOW,),
                (EchelonFlow("H", ("f",), (ONE,)), EchelonFlow("I", ("f",), (ONE,))),
            ),
            None,
            ["flow f", "EchelonFlows"],
        ),
    ],
)
def test_jobs_that_could_never_run_are_refused(
    job: Job, code: Code | None, names: list[str]
) -> None:
    with pytest.raises(ValueError, check=naming("job j", *names)) as caught:
        JobExecution(job)
    assert getattr(caught.value, "code", None) == code


def test_the_reference_is_the_first_flow_to_start() -> None:
    """A head flow whose producer is late does not take the others' lateness away."""
    flows = (Flow("head", "h1", "h2", 1, ("slow",)), Flow("next", "h3", "h2", 1, ("fast",)))
    computes = (ComputeUnit("slow", "h1", ONE), ComputeUnit("fast", "h3", ONE))
    echelonflow = EchelonFlow("H", ("head", "next"), (Fraction(0), Fraction(0)))
    execution: JobExecution[Fraction] = JobExecution(
        Job("j", computes, flows, (echelonflow,)), more=lambda _: False
    )
    execution.start(Fraction(0))
    execution.compute_finished("fast", Fraction(1))
    execution.compute_finished("slow", Fraction(5))
    execution.flow_finished("next", Fraction(6))
    record = execution.record.iterations[0]
    with pytest.raises(ValueError, check=naming("flow head", "iteration 1")):
        tardiness_s(echelonflow, record)
    execution.flow_finished("head", Fraction(8))
    assert record.references == {"H": 1}
    assert tardiness_s(echelonflow, record) == 7


@settings(max_examples=examples(50), deadline=None)
@given(data=st.data(), size=st.integers(1, 12))
def test_any_order_of_finishing_respects_the_graph(data: st.DataObject, size: int) -> None:
    """Everything starts exactly once, as soon as all that it waits for is finished, whatever
    finishes first.
    """
    names = [f"u{k}" for k in range(size)]
    after = [
        tuple(data.draw(st.lists(st.sampled_from(names[:k]), max_size=3, unique=True))) if k else ()
        for k in range(size)
    ]
    job = Job(
        "j", tuple(ComputeUnit(n, "h", ONE, a) for n, a in zip(names, after, strict=True)), (), ()
    )
    execution: JobExecution[int] = JobExecution(job, more=lambda _: False)
    running = [i.name for i in execution.start(0) if isinstance(i, StartCompute)]
    started, finished = set(running), set[str]()
    for now in range(1, size + 1):
        assert started == {n for n, a in zip(names, after, strict=True) if finished.issuperset(a)}
        name = running.pop(data.draw(st.integers(0, len(running) - 1)))
        instructions = execution.compute_finished(name, now)
        finished.add(name)
        new = [i.name for i in instructions if isinstance(i, StartCompute)]
        assert started.isdisjoint(new)
        started.update(new)
        running += new
    assert instructions == [IterationFinished(1, 0, size)]


def test_recorded_times_are_those_of_an_iteration_that_was_followed() -> None:
    """An engine records a start and a finish for each step, -1 for what has not happened."""
    flows = (Flow("a", "h1", "h2", 1, ("u",)), Flow("b", "h1", "h2", 1), Flow("c", "h1", "h2", 1))
    formation = EchelonFlow("f", ("c", "b", "a"), (Fraction(0), Fraction(0), Fraction(1, 3)))
    job = Job("j", (ComputeUnit("u", "h1", Fraction(1)),), flows, (formation,))
    steps = RecordedSteps.from_job(job, (flows[1], job.computes[0], flows[0], flows[2]))
    running = steps.iteration(1, 0.5, None, array("d", [1, 2, 0.5, 0.75, 1.5, -1, -1, -1]))
    spans = {"b": Span(1.0, 2.0), "a": Span(1.5)}
    expected = IterationRecord(1, 0.5, None, spans, {"u": Span(0.5, 0.75)}, {"f": 1.0})
    assert running == expected
    assert expected == running
    assert len(running.flows) == 2
    assert "c" not in running.flows
    for record in (running, expected):
        with pytest.raises(ValueError, match="c has not finished"):
            tardiness_s(formation, record)

    finished = steps.iteration(1, 0.5, 4.0, array("d", [1, 2, 0.5, 0.75, 1.5, 3, 0.75, 4]))
    followed = IterationRecord(
        1, 0.5, 4.0, dict(finished.flows), dict(finished.computes), {"f": 0.75}
    )
    assert finished == followed
    assert tardiness_s(formation, finished) == tardiness_s(formation, followed) == 4 - 0.75
    assert not steps.iteration(2, 4.0, None, array("d", [-1] * 8)).references
