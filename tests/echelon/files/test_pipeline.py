"""GPipe graphs against an independent account of the schedule, and the arrangement function against
its identity.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.jobs import build_job
from echelon.model.jobs.analysis import (
    topological_order,
)
from echelon.model.jobs.graph import Job
from echelon.model.jobs.pipelines import gpipe
from echelon.model.jobs.spec import JobSpec
from tests.drawing import examples

TIMES = st.fractions(0, 10, max_denominator=1000)


@st.composite
def pipelines(draw: st.DrawFn) -> dict[str, object]:
    stages = draw(st.integers(2, 5))

    def per(count: int, values: st.SearchStrategy[object]) -> list[object]:
        return draw(st.lists(values, min_size=count, max_size=count))

    backward = draw(st.booleans())
    return {
        "workers": [f"h{s}" for s in range(stages)],
        "micro_batches": draw(st.integers(1, 6)),
        "forward_s": per(stages, TIMES),
        "activation_bytes": per(stages - 1, st.integers(1, 10**6)),
        "backward_s": per(stages, TIMES) if backward else None,
        "gradient_bytes": per(stages - 1, st.integers(1, 10**6))
        if backward and draw(st.booleans())
        else None,
    }


def as_job(arguments: dict[str, object]) -> Job:
    return Job("p", *gpipe(**arguments))  # type: ignore[arg-type]


@given(pipelines())
@settings(max_examples=examples(60), deadline=None)
def test_dependencies(arguments: dict[str, object]) -> None:
    """The schedule is a table: what each stage does in which order, and what each piece of work
    must receive first.
    """
    job = as_job(arguments)
    stages, batches = len(arguments["workers"]), arguments["micro_batches"]  # type: ignore[arg-type]
    backward = arguments["backward_s"] is not None
    expected: dict[str, set[str]] = {}
    for s in range(1, stages + 1):
        lane = [f"forward-s{s}-m{m}" for m in range(1, batches + 1)]  # type: ignore[operator]
        lane += [f"backward-s{s}-m{m}" for m in range(batches, 0, -1)] if backward else []  # type: ignore[call-overload]
        for before, work in zip([None, *lane], lane, strict=False):
            expected[work] = {before} if before else set()
        for m in range(1, batches + 1):  # type: ignore[operator]
            if s > 1:
                expected[f"forward-s{s}-m{m}"].add(f"activation-s{s - 1}-m{m}")
                expected[f"activation-s{s - 1}-m{m}"] = {f"forward-s{s - 1}-m{m}"}
            if s < stages and backward:
                expected[f"backward-s{s}-m{m}"].add(f"gradient-s{s + 1}-m{m}")
                expected[f"gradient-s{s + 1}-m{m}"] = {f"backward-s{s + 1}-m{m}"}
    assert {node.name: set(node.after) for node in (*job.computes, *job.flows)} == expected
    order = topological_order(job)
    assert sorted(order) == sorted(expected)
    position = {name: index for index, name in enumerate(order)}
    assert all(
        position[before] < position[name] for name, needs in expected.items() for before in needs
    )


@given(pipelines())
@settings(max_examples=examples(60), deadline=None)
def test_who_computes_and_sends_what(arguments: dict[str, object]) -> None:
    job = as_job(arguments)
    workers: list[str] = arguments["workers"]  # type: ignore[assignment]
    for compute in job.computes:
        direction, stage, _ = compute.name.split("-")
        index = int(stage[1:]) - 1
        assert compute.worker == workers[index]
        assert compute.duration_s == arguments[f"{direction}_s"][index]  # type: ignore[index]
    for flow in job.flows:
        kind, stage, _ = flow.name.split("-")
        index = int(stage[1:]) - 1
        step = 1 if kind == "activation" else -1
        assert (flow.src, flow.dst) == (workers[index], workers[index + step])
        sizes = arguments[f"{kind}_bytes"] or arguments["activation_bytes"]
        assert flow.size_bytes == sizes[min(index, index + step)]  # type: ignore[index]


@given(pipelines())
@settings(max_examples=examples(60), deadline=None)
def test_arrangement_follows_the_consumer(arguments: dict[str, object]) -> None:
    """Distances between ideal finish times are the compute times of the units that consume the
    flows, in the order in which the consumer computes them; each flow is in exactly one
    EchelonFlow."""
    job = as_job(arguments)
    consumer = {
        flow.name: unit for unit in job.computes for flow in job.flows if flow.name in unit.after
    }
    assert sorted(name for h in job.echelonflows for name in h.flows) == sorted(
        flow.name for flow in job.flows
    )
    run = {
        unit.name: place
        for place, unit in enumerate(sorted(job.computes, key=lambda u: _turn(u.name)))
    }
    for h in job.echelonflows:
        assert h.offsets_s[0] == 0
        for (a, b), (early, late) in zip(pairwise(h.flows), pairwise(h.offsets_s), strict=True):
            assert late - early == consumer[a].duration_s
            assert run[consumer[a].name] < run[consumer[b].name]
            assert consumer[a].worker == consumer[b].worker


def _turn(unit: str) -> tuple[bool, int]:
    direction, _, batch = unit.split("-")
    return (direction == "backward", int(batch[1:]) if direction == "forward" else -int(batch[1:]))


def test_a_scalar_serves_every_stage_and_a_list_one_each() -> None:
    def job(**pipeline: object) -> Job:
        section = {"micro_batches": 1, "forward": "1 s", "activation": "1 MB", **pipeline}
        return build_job(
            JobSpec.model_validate(
                {
                    "job": "p",
                    "parallelism": "pipeline",
                    "workers": ["h1", "h2", "h3"],
                    "pipeline": section,
                }
            )
        )

    assert job() == job(forward=["1 s"] * 3, activation=["1 MB", "1000 kB"])
    both = job(backward=["2 s", "1 s", "3 s"], activation=["1 MB", "2 MB"])
    assert [c.duration_s for c in both.computes] == [1, 1, 1, 3, 1, 2]
    assert [(f.src, f.dst, f.size_bytes) for f in both.flows] == [
        ("h1", "h2", 10**6),
        ("h2", "h3", 2 * 10**6),
        ("h3", "h2", 2 * 10**6),
        ("h2", "h1", 10**6),
    ]
