"""The iterations of programs from what their ranks tell, driven by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest

from echelon.model.jobs.graph import Flow, Job
from echelon.planning.execution import Completion
from echelon_lab.scenarios.results import ObservedComputing, ObservedOperation
from echelon_torch.programs.iterations import ProgramIterations
from echelon_torch.programs.messages import (
    Hello,
    RankLines,
    RankOperation,
    RankReady,
    RankStep,
    begin,
)
from tests.faults import naming

S = 1_000_000_000


def job(name: str, start_s: int = 0) -> Job:
    return Job(name, (), (Flow("f", "h1", "h2", 1),), (), Fraction(start_s))


def started(
    *jobs: Job, iterations: int, until: str = "exactly"
) -> tuple[ProgramIterations, list[tuple[str, int]]]:
    """Return the iterations of jobs whose two ranks have all begun at 10 s, and a list of those
    that end.
    """
    ended: list[tuple[str, int]] = []
    completion = Completion([one.name for one in jobs], iterations, until)  # type: ignore[arg-type]
    made = ProgramIterations(
        jobs, completion, lambda *which: ended.append(which), lambda name: ended.append((name, 0))
    )
    for one in jobs:
        assert one.name in made.missing
        for rank, worker in enumerate(("h1", "h2")):
            made.note_rank(Hello(one.name, worker, rank, 2))
            made.note_ready(one.name, rank)
    assert made.missing == []
    assert made.begin(10 * S) == {one.name: 10 * S + round(one.start_s * S) for one in jobs}
    return made, ended


def test_an_iteration_ends_with_the_last_rank_though_the_first_is_ahead() -> None:
    made, ended = started(job("j", 1), iterations=2)
    made.note_step("j", 0, RankStep(1, 12 * S, [], []))
    made.note_step("j", 0, RankStep(2, 14 * S, [], []))
    assert ended == []
    made.note_step("j", 1, RankStep(1, 13 * S, [], []))
    assert ended == [("j", 1)]
    made.note_step("j", 1, RankStep(2, 15 * S, [], []))
    assert ended == [("j", 1), ("j", 2), ("j", 0)]
    assert [(of.start, of.finish) for of in made.records["j"].finished] == [(1, 3), (3, 5)]
    assert made.end_s == 5


def test_what_ranks_saw_has_the_names_of_their_hosts() -> None:
    made, _ = started(job("j"), iterations=1)
    operations = [
        RankOperation(0, "all-reduce", (0, 1), 0, 100, 11 * S, 13 * S),
        RankOperation(1, "receive", (0, 1), 1, 50, 11 * S, 12 * S),
        RankOperation(2, "send", (0, 1), 1, 70, 13 * S, 14 * S),
    ]
    made.note_step("j", 0, RankStep(1, 15 * S, operations, [(12 * S, 13 * S), (13 * S, 14 * S)]))
    made.note_step("j", 1, RankStep(1, 15 * S, [], [(9 * S, 15 * S)]))
    observed = made.observed["j"]
    assert observed.operations == (
        ObservedOperation("all-reduce-0-h1", 1, "h1", "h2", 100, Fraction(1), Fraction(3)),
        ObservedOperation("send-2-h1", 1, "h1", "h2", 70, Fraction(3), Fraction(4)),
    )
    assert observed.computing == (
        ObservedComputing("compute-1-h1", 1, "h1", Fraction(0), Fraction(2)),
        ObservedComputing("compute-2-h1", 1, "h1", Fraction(4), Fraction(5)),
    )


def test_a_job_goes_on_until_the_slowest_is_done() -> None:
    made, ended = started(job("fast"), job("slow"), iterations=1, until="all-done")
    for rank in (0, 1):
        made.note_step("fast", rank, RankStep(1, 11 * S, [], []))
    assert ended == [("fast", 1)]
    for rank in (0, 1):
        made.note_step("slow", rank, RankStep(1, 12 * S, [], []))
    assert ended == [("fast", 1), ("slow", 1), ("slow", 0)]


def test_ranks_that_the_run_does_not_have_are_refused() -> None:
    made, _ = started(job("j"), iterations=1)
    for hello in (Hello("x", "h1", 2, 2), Hello("j", "h3", 2, 2), Hello("j", "h1", 0, 2)):
        with pytest.raises(ValueError, check=naming(f"rank {hello.rank}", hello.job, hello.worker)):
            made.note_rank(hello)
    made.note_step("j", 0, RankStep(1, 11 * S, [], []))
    for step in (1, 3):
        with pytest.raises(ValueError, check=naming("rank 0", f"iteration {step}")):
            made.note_step("j", 0, RankStep(step, 11 * S, [], []))


def test_messages_are_read_from_any_pieces() -> None:
    text = b'["hello","j","h1",0,2]\n["ready"]\n["step",1,5,[[0,"all-reduce",[0,1],0,8,1,2]],[[1,2]]]\n'
    for size in (1, 7, len(text)):
        lines = RankLines()
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert [message for piece in pieces for message in lines.feed(piece)] == [
            Hello("j", "h1", 0, 2),
            RankReady(),
            RankStep(1, 5, [RankOperation(0, "all-reduce", [0, 1], 0, 8, 1, 2)], [(1, 2)]),
        ]
    assert begin(7) == b"7\n"


@pytest.mark.parametrize(
    "line", [b"x", b"[]", b'["ready",1]', b'["step",1,5,[[0]],[]]', b'["hello",1,2,3,4]', b"7"]
)
def test_other_lines_are_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        list(RankLines().feed(line + b"\n"))
