"""PipeDream's pipeline against an account step by step, closed forms, 1F1B and the bound of its
weight versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.documents import DocumentError
from echelon.model.errors import Code
from echelon.model.jobs import build_job
from echelon.model.jobs.graph import Job
from echelon.model.jobs.pipelines import one_f_one_b, versions
from echelon.model.jobs.spec import make_job_spec
from echelon.planning.fluid import alone_iteration_s
from tests.drawing import examples
from tests.echelon.fluid.conftest import build_star
from tests.faults import coded

RATE = 1_000_000
"""Bytes a second of every link of the star."""
MS = st.integers(1, 500)
STAGES = st.lists(st.integers(1, 3), min_size=1, max_size=4).filter(
    lambda stages: 2 <= sum(stages) <= 6
)


def job_of(
    stages: Sequence[int],
    mini_batches: int,
    forward_ms: Sequence[int],
    backward_ms: Sequence[int],
    **keys: object,
) -> Job:
    workers = [f"h{i + 1}" for i in range(sum(stages))]
    section = {
        "replicas": list(stages),
        "mini_batches": mini_batches,
        "forward": [f"{ms} ms" for ms in forward_ms],
        "backward": [f"{ms} ms" for ms in backward_ms],
        "activation": "1 B",
        "parameters": "1 B",
        **keys,
    }
    return build_job(
        make_job_spec(job="d", parallelism="pipedream", workers=workers, pipedream=section)
    )


def accounted_s(
    stages: Sequence[int],
    mini_batches: int,
    forward_s: Sequence[Fraction],
    backward_s: Sequence[Fraction],
    sent_s: Fraction,
    sum_s: Fraction,
) -> Fraction:
    """Return when the last worker is idle.

    Transfers take `sent_s` and do not meet; an all-reduce takes `sum_s`.

    Each worker does, whenever it is idle, what the paper says: a forward pass while it has fewer
    mini-batches in flight than weights to keep, or none is left to begin, and else the backward
    pass of its oldest.
    """
    last = len(stages) - 1
    done: dict[tuple[str, int, int], Fraction] = {}
    idle_s = [[Fraction(0)] * many for many in stages]
    begun = [[0] * many for many in stages]
    ended = [[0] * many for many in stages]
    waiting: dict[tuple[int, int], list[Fraction]] = {}
    moved = True
    while moved:
        moved = False
        for s, many in enumerate(stages):
            for w in range(many):
                own = range(w, mini_batches, many)
                most = -(-sum(stages[s:]) // many)
                at = ended[s][w]
                if at == len(own) or (
                    many > 1
                    and at
                    and len(waiting[s, at - 1]) < min(many, mini_batches - (at - 1) * many)
                ):
                    continue
                forward = begun[s][w] < len(own) and begun[s][w] - at < most
                batch = own[begun[s][w] if forward else at]
                came = ("forward", s - 1, batch) if forward else ("backward", s + 1, batch)
                needed = s > 0 if forward else s < last
                if needed and came not in done:
                    continue
                start_s = max(idle_s[s][w], done[came] + sent_s if needed else Fraction(0))
                idle_s[s][w] = start_s + (forward_s if forward else backward_s)[s]
                done["forward" if forward else "backward", s, batch] = idle_s[s][w]
                moved = True
                if forward:
                    begun[s][w] += 1
                    continue
                ended[s][w] += 1
                if many > 1:
                    in_round = waiting.setdefault((s, at), [])
                    in_round.append(idle_s[s][w])
                    if len(in_round) == min(many, mini_batches - at * many):
                        for each in range(many):
                            idle_s[s][each] = max(idle_s[s][each], max(in_round) + sum_s)
    assert all(
        ended[s][w] == len(range(w, mini_batches, many))
        for s, many in enumerate(stages)
        for w in range(many)
    )
    return max(each for of in idle_s for each in of)


@given(STAGES, st.integers(1, 12), st.data())
@settings(max_examples=examples(80), deadline=None)
def test_computing_takes_what_an_account_of_idle_workers_says(
    stages: list[int], mini_batches: int, data: st.DataObject
) -> None:
    """Transfers take no time that counts: the links are very fast."""
    forward_ms, backward_ms = (
        data.draw(st.lists(MS, min_size=len(stages), max_size=len(stages))) for _ in range(2)
    )
    forward_s, backward_s = (
        [Fraction(ms, 1000) for ms in each] for each in (forward_ms, backward_ms)
    )
    job = job_of(stages, mini_batches, forward_ms, backward_ms)
    took_s = alone_iteration_s(job, build_star(sum(stages), 10**15))
    expected_s = accounted_s(stages, mini_batches, forward_s, backward_s, Fraction(0), Fraction(0))
    assert expected_s <= took_s < expected_s + Fraction(1, 10**9)


@given(st.integers(1, 12), MS, MS, st.lists(MS, min_size=2, max_size=2), st.integers(1, 200_000))
@settings(max_examples=examples(60), deadline=None)
def test_on_one_link_a_chain_of_two_takes_what_an_account_says(
    mini_batches: int, forward_ms: int, backward_ms: int, second_ms: list[int], sent_bytes: int
) -> None:
    """Nothing meets on the link: a stage sends the next only when it has done another pass of at
    least that time.
    """
    least_ms = sent_bytes * 1000 // RATE + 1
    forward, backward = [forward_ms, second_ms[0]], [backward_ms, second_ms[1]]
    forward, backward = ([least_ms + ms for ms in each] for each in (forward, backward))
    job = job_of([1, 1], mini_batches, forward, backward, activation=f"{sent_bytes} B")
    forward_s, backward_s = ([Fraction(ms, 1000) for ms in each] for each in (forward, backward))
    expected_s = accounted_s(
        [1, 1], mini_batches, forward_s, backward_s, Fraction(sent_bytes, RATE), Fraction(0)
    )
    assert alone_iteration_s(job, build_star(2)) == expected_s


@given(st.integers(2, 5), st.integers(1, 9), MS, MS, st.integers(1, 300_000))
@settings(max_examples=examples(30), deadline=None)
def test_one_replicated_stage_sums_after_each_round(
    n: int, rounds: int, forward_ms: int, backward_ms: int, chunk_bytes: int
) -> None:
    """It is data parallelism: each round has a forward, a backward and 2(n - 1)/n of parameters."""
    job = job_of([n], n * rounds, [forward_ms], [backward_ms], parameters=f"{n * chunk_bytes} B")
    round_s = Fraction(forward_ms + backward_ms, 1000) + 2 * (n - 1) * Fraction(chunk_bytes, RATE)
    assert alone_iteration_s(job, build_star(n)) == rounds * round_s


@given(st.integers(2, 5), st.integers(1, 10), MS, MS)
@settings(max_examples=examples(30), deadline=None)
def test_without_replicas_the_order_is_that_of_1f1b(
    stages: int, mini_batches: int, forward: int, backward: int
) -> None:
    """PipeDream does between two pauses what 1F1B does with as many micro-batches."""
    workers = [f"h{i + 1}" for i in range(stages)]
    times = [[Fraction(ms, 1000)] * stages for ms in (forward, backward)]
    flushed = Job("d", *one_f_one_b(workers, mini_batches, times[0], [1] * (stages - 1), times[1]))
    job = job_of([1] * stages, mini_batches, [forward] * stages, [backward] * stages)
    fabric = build_star(stages, 10**15)
    assert alone_iteration_s(job, fabric) == alone_iteration_s(flushed, fabric)
    exact_s = (mini_batches + stages - 1) * Fraction(forward + backward, 1000)
    assert exact_s <= alone_iteration_s(job, fabric) < exact_s + Fraction(1, 10**9)


@given(STAGES, st.integers(1, 20))
@settings(max_examples=examples(60), deadline=None)
def test_no_worker_has_more_mini_batches_in_flight_than_versions(
    stages: list[int], mini_batches: int
) -> None:
    job = job_of(stages, mini_batches, [1] * len(stages), [1] * len(stages))
    flying: dict[str, int] = {}
    first = [sum(stages[:at]) for at in range(len(stages))]
    most = {
        f"h{first[at] + w + 1}": versions(stages, at + 1)
        for at, many in enumerate(stages)
        for w in range(many)
    }
    seen = dict.fromkeys(most, 0)
    for unit in job.computes:
        flying[unit.worker] = flying.get(unit.worker, 0) + (1 if unit.kind == "forward" else -1)
        assert 0 <= flying[unit.worker] <= most[unit.worker]
        seen[unit.worker] = max(seen[unit.worker], flying[unit.worker])
    assert not any(flying.values())
    if mini_batches >= sum(stages) * max(stages):
        assert seen == most


PIPE = {"mini_batches": 4, "forward": "1 s", "backward": "1 s", "activation": "1 MB"}


@pytest.mark.parametrize(
    ("section", "key", "code", "names"),
    [
        ({"replicas": [2, 2]}, "replicas", "wrong-length", ["4", "3 ranks"]),
        ({"replicas": [2, 1]}, "parameters", "missing-key", ["replicas"]),
        ({"forward": ["1 s"] * 2}, "forward", "wrong-length", ["2 values", "3 stages"]),
        ({"gradient": ["1 B"] * 3}, "gradient", "wrong-length", ["3 values", "2 stage"]),
        ({"mini_batches": 0}, "mini_batches", "too-small", ["0", "1"]),
        (
            {"replicas": [3], "parameters": "1 MB", "collective": "halving-doubling"},
            "collective",
            "not-allowed",
            ["'halving-doubling'", "3"],
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    section: dict[str, object], key: str, code: Code, names: list[str]
) -> None:
    unfit = coded(code, *names, file="job d", path=f"pipedream.{key}")
    with pytest.raises(DocumentError, check=unfit):
        make_job_spec(
            job="d",
            parallelism="pipedream",
            workers=["h1", "h2", "h3"],
            pipedream={**PIPE, **section},
        )
