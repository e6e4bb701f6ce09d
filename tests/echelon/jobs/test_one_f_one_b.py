"""1F1B graphs against independent accounts of the schedule: the rule that makes it, a simulation,
closed forms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.jobs.analysis import earliest_start_s
from echelon.model.jobs.graph import IterationGraph, Job
from echelon.model.jobs.pipelines import gpipe, one_f_one_b, one_f_one_b_passes
from echelon.planning.fluid import simulate
from echelon.planning.policies import make_policy
from tests.drawing import examples
from tests.echelon.fluid.conftest import build_star

TIMES = st.fractions(0, 10, max_denominator=100)
POSITIVE = st.fractions(Fraction(1, 100), 10, max_denominator=100)
RATE = 1_000_000
"""Bytes a second of every link of the star."""


def hosts(stages: int) -> list[str]:
    return [f"h{s + 1}" for s in range(stages)]


def equal(
    stages: int, micro_batches: int, forward_s: Fraction, backward_s: Fraction, size_bytes: int = 1
) -> Job:
    sizes = [size_bytes] * (stages - 1)
    return Job(
        "p",
        *one_f_one_b(
            hosts(stages), micro_batches, [forward_s] * stages, sizes, [backward_s] * stages
        ),
    )


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[int, int, list[Fraction], list[Fraction]]:
    """Draw stages, micro-batches, and forward and backward times of each stage."""
    stages = draw(st.integers(2, 5))
    times = st.lists(TIMES, min_size=stages, max_size=stages)
    return stages, draw(st.integers(1, 8)), draw(times), draw(times)


def unequal(drawn: tuple[int, int, list[Fraction], list[Fraction]]) -> Job:
    stages, micro_batches, forward_s, backward_s = drawn
    return Job(
        "p", *one_f_one_b(hosts(stages), micro_batches, forward_s, [1] * (stages - 1), backward_s)
    )


def lane(rank: int, stages: int, batches: int) -> list[tuple[str, int]]:
    """Return the published program of one rank (from 0), phase by phase."""
    warm_up = min(stages - rank - 1, batches)
    forwards, backwards = list(range(1, batches + 1)), list(range(1, batches + 1))
    out = [("forward", forwards.pop(0)) for _ in range(warm_up)]
    while forwards:
        out += [("forward", forwards.pop(0)), ("backward", backwards.pop(0))]
    return out + [("backward", m) for m in backwards]


Arrival = Callable[[str, int, int, Fraction], Fraction]
"""(direction, sending rank, micro-batch, when it is computed) -> when the neighbour has it."""


def run(
    stages: int,
    batches: int,
    forward_s: Sequence[Fraction],
    backward_s: Sequence[Fraction],
    arrival: Arrival,
) -> dict[tuple[str, int, int], tuple[Fraction, Fraction]]:
    """Return start and finish of each (direction, rank, micro-batch): each rank starts its next
    unit once it can.
    """
    programs = [lane(rank, stages, batches) for rank in range(stages)]
    free = [Fraction(0)] * stages
    times: dict[tuple[str, int, int], tuple[Fraction, Fraction]] = {}
    arrived: dict[tuple[str, int, int], Fraction] = {}
    while any(programs):
        for rank, program in enumerate(programs):
            while program:
                direction, m = program[0]
                first = rank == (0 if direction == "forward" else stages - 1)
                if not first and (direction, rank, m) not in arrived:
                    break
                program.pop(0)
                start = max(free[rank], arrived.get((direction, rank, m), Fraction(0)))
                free[rank] = start + (forward_s if direction == "forward" else backward_s)[rank]
                times[direction, rank, m] = start, free[rank]
                towards = rank + (1 if direction == "forward" else -1)
                if 0 <= towards < stages:
                    arrived[direction, towards, m] = arrival(direction, rank, m, free[rank])
    return times


def at_once(direction: str, rank: int, micro_batch: int, computed_s: Fraction) -> Fraction:
    return computed_s


@given(pipelines())
@settings(max_examples=examples(60), deadline=None)
def test_units_start_as_in_the_simulation(
    drawn: tuple[int, int, list[Fraction], list[Fraction]],
) -> None:
    start_s = earliest_start_s(unequal(drawn), lambda _: Fraction(0))
    times = run(*drawn, arrival=at_once)
    assert {
        name: at for name, at in start_s.items() if name.startswith(("forward", "backward"))
    } == {
        f"{direction}-s{rank + 1}-m{m}": start for (direction, rank, m), (start, _) in times.items()
    }


@given(st.integers(2, 6), st.integers(1, 12), TIMES, TIMES)
@settings(max_examples=examples(60), deadline=None)
def test_bubbles_and_what_is_kept(
    stages: int, batches: int, forward_s: Fraction, backward_s: Fraction
) -> None:
    job = equal(stages, batches, forward_s, backward_s)
    start_s = earliest_start_s(job, lambda _: Fraction(0))
    iteration_s = max(start_s[c.name] + c.duration_s for c in job.computes)
    work_s = batches * (forward_s + backward_s)
    assert iteration_s == (batches + stages - 1) * (forward_s + backward_s)
    assert (iteration_s - work_s) * (batches + stages - 1) == iteration_s * (
        stages - 1
    )  # the bubble fraction
    for stage in range(1, stages + 1):
        kept, most = 0, 0
        for each in one_f_one_b_passes(stage, stages, batches):
            kept += 1 if each.direction == "forward" else -1
            most = max(most, kept)
        assert (kept, most) == (0, min(stages - stage + 1, batches))


def received(graph: IterationGraph) -> dict[str, set[str]]:
    """Return the flows that each unit needs."""
    flows = {flow.name for flow in graph.flows}
    return {unit.name: flows.intersection(unit.after) for unit in graph.computes}


@given(pipelines())
@settings(max_examples=examples(40), deadline=None)
def test_the_work_is_that_of_gpipe_in_another_order(
    drawn: tuple[int, int, list[Fraction], list[Fraction]],
) -> None:
    stages, batches, forward_s, backward_s = drawn
    sizes, back = list(range(5, 4 + stages)), list(range(50, 49 + stages))
    ours = one_f_one_b(hosts(stages), batches, forward_s, sizes, backward_s, back)
    theirs = gpipe(hosts(stages), batches, forward_s, sizes, backward_s, back)
    assert {(c.name, c.worker, c.duration_s) for c in ours.computes} == {
        (c.name, c.worker, c.duration_s) for c in theirs.computes
    }
    assert set(ours.flows) == set(theirs.flows)
    assert {h.name: set(h.flows) for h in ours.echelonflows} == {
        h.name: set(h.flows) for h in theirs.echelonflows
    }
    assert received(ours) == received(theirs)


@given(pipelines())
@settings(max_examples=examples(60), deadline=None)
def test_arrangement_is_when_consumers_need_the_flows(
    drawn: tuple[int, int, list[Fraction], list[Fraction]],
) -> None:
    job = unequal(drawn)
    times = run(*drawn, arrival=at_once)
    for h in job.echelonflows:
        kind, stage = h.name.split("-s")
        direction, towards = (
            ("forward", int(stage)) if kind == "activation" else ("backward", int(stage) - 2)
        )
        needed = [times[direction, towards, m][0] for m in range(1, drawn[1] + 1)]
        assert h.flows == tuple(f"{h.name}-m{m}" for m in range(1, drawn[1] + 1))
        assert list(h.offsets_s) == [at - needed[0] for at in needed]


@given(pipelines(), st.randoms(use_true_random=False))
@settings(max_examples=examples(60), deadline=None)
def test_an_iteration_is_late_by_no_more_than_its_latest_flow(
    drawn: tuple[int, int, list[Fraction], list[Fraction]], random: Random
) -> None:
    job = unequal(drawn)
    sending_s = {f.name: Fraction(random.randint(0, 3000), 1000) for f in job.flows}
    ideal_s = earliest_start_s(job, lambda _: Fraction(0))
    real_s = earliest_start_s(job, lambda flow: sending_s[flow.name])
    needed_s = {
        need: ideal_s[c.name] for c in job.computes for need in c.after if need in sending_s
    }
    latest_s = max(real_s[name] + sending_s[name] - needed_s[name] for name in sending_s)
    late_s = max(real_s[c.name] - ideal_s[c.name] for c in job.computes)
    assert late_s <= max(latest_s, Fraction(0))


@given(
    batches=st.integers(1, 9),
    forward_s=POSITIVE,
    backward_s=POSITIVE,
    share=st.tuples(st.fractions(0, 1, max_denominator=9), st.fractions(0, 1, max_denominator=9)),
    policy=st.sampled_from(["fair", "varys", "fifo", "echelon"]),
)
@settings(max_examples=examples(40), deadline=None)
def test_two_stages_pay_for_every_second_round_trip(
    batches: int,
    forward_s: Fraction,
    backward_s: Fraction,
    share: tuple[Fraction, Fraction],
    policy: str,
) -> None:
    """Two micro-batches are under way.

    Where flows take less time than what computes meanwhile, each waits for a round trip of the
    network once, and half of them wait at the same time as the others.
    """
    activation = max(1, int(share[0] * forward_s * RATE))
    gradient = max(1, int(share[1] * backward_s * RATE))
    graph = one_f_one_b(
        hosts(2), batches, [forward_s] * 2, [activation], [backward_s] * 2, [gradient]
    )
    result = simulate(
        [Job("p", *graph)], build_star(2), make_policy(policy), 1, until="exactly", ideal=True
    )
    computing_s = (batches + 1) * (forward_s + backward_s)
    trips = -(-batches // 2)
    assert result.iteration_times_s("p") == pytest.approx(
        [computing_s + trips * Fraction(activation + gradient, RATE)], rel=1e-9
    )


@given(
    batches=st.integers(1, 8),
    times=st.tuples(POSITIVE, POSITIVE, POSITIVE, POSITIVE),
    sizes=st.tuples(st.integers(1, 20 * RATE), st.integers(1, 20 * RATE)),
    policy=st.just("echelon"),
)
@settings(max_examples=examples(40), deadline=None)
def test_two_stages_with_a_link_that_sends_one_flow_after_the_other(
    batches: int, times: tuple[Fraction, ...], sizes: tuple[int, int], policy: str
) -> None:
    """Every unit takes time, so no two flows are due together: those would share the link."""
    forward_s, backward_s = list(times[:2]), list(times[2:])
    link_free = {"forward": Fraction(0), "backward": Fraction(0)}

    def sent(direction: str, rank: int, micro_batch: int, computed_s: Fraction) -> Fraction:
        size = sizes[0] if direction == "forward" else sizes[1]
        link_free[direction] = max(link_free[direction], computed_s) + Fraction(size, RATE)
        return link_free[direction]

    expected = max(finish for _, finish in run(2, batches, forward_s, backward_s, sent).values())
    graph = one_f_one_b(hosts(2), batches, forward_s, [sizes[0]], backward_s, [sizes[1]])
    result = simulate(
        [Job("p", *graph)], build_star(2), make_policy(policy), 1, until="exactly", ideal=True
    )
    assert result.iteration_times_s("p") == pytest.approx([expected], rel=1e-9)
