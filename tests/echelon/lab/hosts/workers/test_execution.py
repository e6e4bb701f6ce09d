"""One worker's part of a job, against the execution of the whole job."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.jobs.graph import ComputeUnit, Flow, IterationGraph, Job
from echelon.model.jobs.paradigms.data import all_reduce, bucketed_all_reduce
from echelon.model.jobs.paradigms.parameter_server import parameter_server
from echelon.model.jobs.pipelines import gpipe, one_f_one_b
from echelon.planning.execution import IterationFinished, JobExecution, StartCompute, StartFlow
from echelon_lab.hosts.workers.worker import WorkerExecution, WorkerFinished, WorkerInstruction
from tests.faults import naming

MS = Fraction(1, 1000)


def job_of(graph: IterationGraph) -> Job:
    return Job("job", graph.computes, graph.flows, graph.echelonflows)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    n = draw(st.integers(2, 5))
    workers = [f"h{i}" for i in range(n)]
    m = draw(st.integers(1, 5))
    kind = draw(st.sampled_from(["data", "buckets", "gpipe", "1f1b", "server"]))
    forward, backward, sizes = [MS] * n, [2 * MS] * n, [100] * (n - 1)
    match kind:
        case "data":
            graph = all_reduce(workers, MS, 1000)
        case "buckets":
            graph = bucketed_all_reduce(workers, MS, 2 * MS, m, 1000)
        case "gpipe":
            graph = gpipe(workers, m, forward, sizes, draw(st.sampled_from([None, backward])))
        case "1f1b":
            graph = one_f_one_b(workers, m, forward, sizes, backward)
        case _:
            graph = parameter_server(workers[1:], "h0", MS, 1000, MS)
    return replace(job_of(graph), in_turn=draw(st.booleans()))


class Together:
    """All workers of a job, driven by hand: what was started goes on until it is finished here."""

    def __init__(self, job: Job, delays: dict[tuple[str, int], Fraction]) -> None:
        self.job = job
        self.workers = {
            worker: WorkerExecution(
                job, worker, delays={i: d for (w, i), d in delays.items() if w == worker}
            )
            for worker in job.workers
        }
        self.computing: dict[str, str] = {}
        self.flying: dict[str, Flow] = {}
        self.done: set[str] = set()
        self.started: list[tuple[str, Fraction | None]] = []

    def obey(self, worker: str, instructions: Sequence[WorkerInstruction]) -> None:
        for instruction in instructions:
            match instruction:
                case StartCompute(name, of, duration_s):
                    assert of == worker
                    self.computing[name] = worker
                    self.started.append((name, duration_s))
                case StartFlow(flow, iteration):
                    assert flow.src == worker
                    assert iteration == self.workers[worker].iteration
                    self.flying[flow.name] = flow
                    self.started.append((flow.name, None))
                case WorkerFinished():
                    self.done.add(worker)

    def finish_compute(self, name: str) -> None:
        worker = self.computing.pop(name)
        self.obey(worker, self.workers[worker].compute_finished(name))

    def finish_flow(self, name: str, iteration: int) -> None:
        flow = self.flying.pop(name)
        self.obey(flow.dst, self.workers[flow.dst].flow_received(name, iteration))
        self.obey(flow.src, self.workers[flow.src].flow_sent(name))


@settings(deadline=None)
@given(
    jobs(),
    st.integers(0, 2**32),
    st.dictionaries(st.sampled_from(["h0", "h1"]), st.sampled_from([1, 2]), max_size=2),
)
def test_workers_together_start_what_the_whole_job_starts(
    job: Job, seed: int, late: dict[str, int]
) -> None:
    """The workers start the same units and flows in any order of events, and the iteration ends at
    the same time.
    """
    delays = dict.fromkeys(late.items(), 5 * MS)
    whole: JobExecution[int] = JobExecution(job, delays=delays, more=lambda i: i <= 2)
    together = Together(job, delays)
    rng = random.Random(seed)
    expected = whole.start(0)
    for iteration in (1, 2):
        together.done.clear()
        together.started.clear()
        for worker in rng.sample(job.workers, len(job.workers)):
            together.obey(worker, together.workers[worker].begin(iteration))
        steps = 0
        while True:
            wanted = [i for i in expected if not isinstance(i, IterationFinished)]
            assert sorted(together.started) == sorted(
                (i.name, i.duration_s) if isinstance(i, StartCompute) else (i.flow.name, None)
                for i in wanted
            )
            together.started.clear()
            running = sorted([*together.computing, *together.flying])
            if not running:
                break
            assert together.done < set(job.workers)
            name = rng.choice(running)
            steps += 1
            if name in together.computing:
                together.finish_compute(name)
                expected = whole.compute_finished(name, steps)
            else:
                together.finish_flow(name, iteration)
                expected = whole.flow_finished(name, steps)
            finished = [i for i in expected if isinstance(i, IterationFinished)]
            if finished:
                # The next iteration starts in the same breath there, and with the barrier's consent
                # here.
                assert together.done == set(job.workers)
                assert not together.started
                expected = expected[1:]
                break
        assert steps == len(job.computes) + len(job.flows)
    assert expected == []


COMPUTES = (ComputeUnit("a", "h1", MS), ComputeUnit("b", "h2", MS, ("f",)))
PAIR = Job("pair", COMPUTES, (Flow("f", "h1", "h2", 10, ("a",)),), ())


def test_a_flow_may_arrive_before_its_receiver_was_told_to_begin() -> None:
    receiver = WorkerExecution(PAIR, "h2")
    assert receiver.flow_received("f", 1) == []
    assert receiver.begin(1) == [StartCompute("b", "h2", MS)]
    assert receiver.compute_finished("b") == [WorkerFinished(1)]
    assert receiver.flow_received("f", 2) == []
    assert receiver.begin(2) == [StartCompute("b", "h2", MS)]


def test_a_sender_waits_for_the_acknowledgement() -> None:
    sender = WorkerExecution(PAIR, "h1")
    sender.begin(1)
    assert sender.compute_finished("a") == [StartFlow(PAIR.flows[0], 1)]
    assert not sender.finished
    assert sender.flow_sent("f") == [WorkerFinished(1)]
    assert sender.finished


def test_what_cannot_be_is_refused() -> None:
    receiver = WorkerExecution(PAIR, "h2")
    with pytest.raises(ValueError, check=naming("pair", "h2", 2)):
        receiver.begin(2)
    receiver.begin(1)
    with pytest.raises(ValueError, check=naming("pair", "h2", 2)):
        receiver.begin(2)
    with pytest.raises(ValueError, check=naming("pair", "b", "h2")):
        receiver.compute_finished("b")
    with pytest.raises(ValueError, check=naming("pair", "f", 2, "h2", 1)):
        receiver.flow_received("f", 2)
    receiver.flow_received("f", 1)
    with pytest.raises(ValueError, check=naming("pair", "f", 1, "h2")):
        receiver.flow_received("f", 1)
    with pytest.raises(ValueError, check=naming("pair", "h3")):
        WorkerExecution(PAIR, "h3")
    remote = Job("remote", (*COMPUTES, ComputeUnit("c", "h3", MS, ("a",))), PAIR.flows, ())
    with pytest.raises(ValueError, check=naming("remote", "c", "a", "h3")):
        WorkerExecution(remote, "h3")
