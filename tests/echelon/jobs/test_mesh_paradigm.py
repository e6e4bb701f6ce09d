"""3D and tensor parallelism: times alone in closed form, what is sent, and nested meshes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.documents import DocumentError, parse_document
from echelon.model.errors import Code
from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.jobs import build_job
from echelon.model.jobs.analysis import earliest_start_s
from echelon.model.jobs.graph import Job
from echelon.model.jobs.pipelines import SCHEDULES, gpipe, one_f_one_b
from echelon.model.jobs.spec import JobSpec
from echelon.planning.fluid import alone_iteration_s
from tests.drawing import examples
from tests.shared import refused

POSITIVE = st.integers(1, 50)


def document(
    parallelism: object, workers: int, section: str = "mesh", **keys: object
) -> dict[str, object]:
    return {
        "job": "j",
        "parallelism": parallelism,
        "workers": [f"h{i}" for i in range(workers)],
        section: keys,
    }


def job_of(parallelism: object, workers: int, section: str = "mesh", **keys: object) -> Job:
    return build_job(
        parse_document(JobSpec, document(parallelism, workers, section, **keys), "job")
    )


def alone_s(job: Job) -> Fraction:
    """Return the length of an iteration of h0 and h1 at a switch, at a kilobyte a second."""
    ends = [
        CableLink(LinkEnd(f"h{i}", 0), LinkEnd("s1", i + 1), 8000, Fraction(0)) for i in range(2)
    ]
    hosts = {
        f"h{i}": Host(f"h{i}", f"10.0.0.{i + 1}", f"02:00:00:00:00:{i + 1:02x}") for i in range(2)
    }
    return alone_iteration_s(job, Fabric("star", hosts, {"s1": Switch("s1", 1)}, tuple(ends)))


def makespan_s(job: Job) -> Fraction:
    """Return the length of an iteration on an infinitely fast network."""
    start_s = earliest_start_s(job, lambda _: Fraction(0))
    return max(start_s[unit.name] + unit.duration_s for unit in job.computes)


def sent(job: Job) -> Mapping[tuple[str, str], int]:
    out: Counter[tuple[str, str]] = Counter()
    for flow in job.flows:
        out[flow.src, flow.dst] += flow.size_bytes
    return out


def ms(values: list[int]) -> list[str]:
    return [f"{value} ms" for value in values]


@pytest.mark.parametrize(("blocking", "seconds"), [(False, 11), (True, 12)])
def test_a_stage_that_blocks_waits_for_what_it_sends(blocking: bool, seconds: int) -> None:
    """By hand: sends take 1 s. The second stage sends its first gradient from 5 s to 6 s; blocked,
    it begins its last forward pass then, and a second later all that follows.
    """
    job = job_of(
        "mesh",
        2,
        pipeline=2,
        micro_batches=2,
        forward="1 s",
        backward="2 s",
        activation="1 kB",
        blocking=blocking,
    )
    assert alone_s(job) == seconds
    assert makespan_s(job) == 9


@given(st.integers(2, 5), st.integers(1, 7), st.sampled_from(["gpipe", "1f1b"]), st.data())
@settings(max_examples=examples(40), deadline=None)
def test_a_mesh_of_one_axis_is_a_pipeline(
    stages: int, batches: int, schedule: str, data: st.DataObject
) -> None:
    forward, backward = (
        data.draw(st.lists(POSITIVE, min_size=stages, max_size=stages)) for _ in range(2)
    )
    keys: dict[str, Any] = {"schedule": schedule, "micro_batches": batches, "activation": "7 B"}
    job = job_of(
        "mesh", stages, pipeline=stages, forward=ms(forward), backward=ms(backward), **keys
    )
    build = {"gpipe": gpipe, "1f1b": one_f_one_b}[schedule]
    times = [[Fraction(value, 1000) for value in values] for values in (forward, backward)]
    alone = Job(
        "p",
        *build([f"h{i}" for i in range(stages)], batches, times[0], [7] * (stages - 1), times[1]),
    )
    assert makespan_s(job) == makespan_s(alone)
    assert sent(job) == sent(alone)


@given(st.integers(2, 6), st.integers(1, 3), POSITIVE, POSITIVE, st.integers(2, 4))
@settings(max_examples=examples(40), deadline=None)
def test_interleaving_shortens_the_bubble_by_the_number_of_chunks(
    stages: int, rounds: int, forward: int, backward: int, chunks: int
) -> None:
    """The bubbles are (p - 1)(F + B) / v (Megatron-LM, SC '21, section 2.2.2)."""
    batches = rounds * stages
    job = job_of(
        "mesh",
        stages,
        pipeline=stages,
        schedule="interleaved",
        chunks=chunks,
        micro_batches=batches,
        forward=f"{forward} ms",
        backward=f"{backward} ms",
        activation="1 B",
    )
    both = Fraction(forward + backward, 1000)
    assert makespan_s(job) == batches * both + (stages - 1) * both / chunks
    # Every boundary between two chunks is one between workers, in both directions.
    assert sum(sent(job).values()) == 2 * batches * (stages * chunks - 1)


@given(st.integers(2, 6), st.integers(0, 6), POSITIVE)
@settings(max_examples=examples(40), deadline=None)
def test_the_bubble_of_zb_h1(stages: int, more: int, unit: int) -> None:
    """The bubble is (p - 1)(F + B - W), here with F = B = W, and m >= p (Zero Bubble, ICLR '24,
    Table 2).
    """
    batches = stages + more
    job = job_of(
        "mesh",
        stages,
        pipeline=stages,
        schedule="zero-bubble",
        micro_batches=batches,
        forward=f"{unit} ms",
        backward=f"{2 * unit} ms",
        activation="1 B",
    )
    assert makespan_s(job) == Fraction(unit, 1000) * (3 * batches + stages - 1)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("stages", "batches", "chunks"), [(1, 2, 2), (2, 4, 2), (3, 6, 3), (4, 4, 2)]
)
def test_every_pass_is_done_once(schedule: str, stages: int, batches: int, chunks: int) -> None:
    of = SCHEDULES[schedule]
    chunks = chunks if of.chunked else 1
    directions = ["forward", "backward", *(["weights"] if of.splits_backward else [])]
    expected = {
        (direction, stage + 1, batch + 1)
        for direction in directions
        for stage in range(stages * chunks)
        for batch in range(batches)
    }
    passes = [tuple(each) for each in of.passes(stages, batches, chunks)]
    assert len(passes) == len(expected)
    assert set(passes) == expected


@given(
    st.permutations(["data", "pipeline", "tensor"]),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 3),
)
@settings(max_examples=examples(30), deadline=None)
def test_what_a_mesh_sends_whatever_the_nesting(
    order: list[str], data: int, pipeline: int, tensor: int
) -> None:
    """The bytes have closed forms: 2 all-reduces forward and 2 backward for each layer; activations
    and gradients; replicas' sums.
    """
    batches, layers, activation, gradient = 3, 2, 3600, 7200
    if data * pipeline * tensor == 1:
        return
    job = job_of(
        order,
        data * pipeline * tensor,
        data=data,
        pipeline=pipeline,
        tensor=tensor,
        micro_batches=batches,
        layers=layers,
        forward="4 ms",
        backward="8 ms",
        activation=f"{activation} B",
        gradient=f"{gradient} B",
    )
    ranks = data * pipeline * tensor
    tensor_bytes = ranks * batches * layers * 4 * 2 * (tensor - 1) * activation // tensor
    pipeline_bytes = 2 * batches * data * (pipeline - 1) * tensor * activation
    data_bytes = ranks * 2 * (data - 1) * gradient // data
    assert sum(sent(job).values()) == tensor_bytes + pipeline_bytes + data_bytes
    assert makespan_s(job) == (batches + pipeline - 1) * Fraction(12, 1000)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_tensor_parallelism_in_closed_form(sequence_parallel: bool) -> None:
    """Both variants send 8 (n-1)/n of the activations for each rank and layer."""
    ranks, layers, activation = 4, 3, 1000
    job = job_of(
        "tensor",
        2,
        "tensor",
        ranks_per_worker=2,
        layers=layers,
        forward="6 ms",
        backward="12 ms",
        activation=f"{activation} B",
        sequence_parallel=sequence_parallel,
    )
    # On a ring of 0, 1 | 2, 3, two of the four ranks send to the other worker.
    assert sum(sent(job).values()) == 2 * layers * 8 * (ranks - 1) * activation // ranks
    assert makespan_s(job) == Fraction(18, 1000)
    assert all(h.is_coflow for h in job.echelonflows)
    assert len(job.echelonflows) == layers * 4 * (2 if sequence_parallel else 1)


def test_micro_batches_of_different_sizes_take_their_share() -> None:
    keys: dict[str, Any] = {
        "forward": "4 ms",
        "backward": "8 ms",
        "activation": "100 B",
        "schedule": "gpipe",
    }
    job = job_of("mesh", 2, pipeline=2, micro_batches=[1, 0.5, 2], **keys)
    sizes = {flow.name: flow.size_bytes for flow in job.flows}
    assert [sizes[f"activation-s1-d1-m{m}-t1"] for m in (1, 2, 3)] == [100, 50, 200]
    (forward,) = (h for h in job.echelonflows if h.name.startswith("activation"))
    assert forward.offsets_s == (Fraction(0), Fraction(4, 1000), Fraction(6, 1000))


@given(st.integers(1, 5), POSITIVE, POSITIVE, st.integers(1, 200), st.booleans())
@settings(max_examples=examples(30), deadline=None)
def test_sums_behind_parts_of_the_backward_pass_overlap_as_those_of_data_parallelism(
    buckets: int, forward: int, backward: int, units: int, several: bool
) -> None:
    """One stage is data parallelism, for which `test_bucketed_all_reduce` has a closed form."""
    times: dict[str, Any] = {
        "backward": f"{backward} s",
        "gradient": f"{units * buckets} kB",
        "buckets": buckets,
    }
    data = job_of(
        "data", 2, "data", forward=f"{forward + several * (forward + backward)} s", **times
    )
    mesh = job_of(
        "mesh",
        2,
        data=2,
        micro_batches=1 + several,
        forward=f"{forward} s",
        activation="1 B",
        **times,
    )
    assert sent(mesh) == sent(data)
    assert alone_s(mesh) == alone_s(data)


@pytest.mark.parametrize(("buckets", "chunks"), [(1, None), (4, None), (1, 2), (2, 2)])
def test_parts_of_gradients_and_gathered_parameters_add_up(
    buckets: int, chunks: int | None
) -> None:
    """A reduce-scatter and an all-gather send (n - 1) / n of their bytes each (ZeRO, SC '20,
    section 7).
    """
    keys: dict[str, Any] = {"schedule": "interleaved", "chunks": chunks} if chunks else {}
    times = {"forward": "4 ms", "backward": "8 ms", "activation": "6 B"}
    sizes: dict[str, Any] = {"gradient": ["480 B", "960 B"], "parameters": ["240 B", "480 B"]}
    job = job_of(
        "mesh", 6, data=3, pipeline=2, micro_batches=2, buckets=buckets, **keys, **times, **sizes
    )
    crossings = 2 * 3 * 2 * (1 if chunks is None else 3) * 6
    assert sum(sent(job).values()) == 2 * (480 + 240 + 960 + 480) + crossings


@pytest.mark.parametrize(("exchange", "times"), [("experts", 4), ("context", 3)])
def test_what_is_exchanged_in_layers(exchange: str, times: int) -> None:
    """Experts: two all-to-alls forward and two backward.

    Context: keys and values are gathered forward and backward, and their gradients scattered. Each
    rank sends (n - 1) / n of the bytes; all ranks of a stage sum what they share.
    """
    data, ranks, batches, layers, size = 2, 3, 4, 5, 300
    sizes = {
        "exchanged": f"{size} B",
        "gradient": "80 B",
        "shared_gradient": "600 B",
        "activation": "7 B",
    }
    lengths: dict[str, Any] = {
        "data": data,
        "pipeline": 2,
        "tensor": ranks,
        "layers": layers,
        "micro_batches": batches,
    }
    job = job_of(
        "mesh", 12, **lengths, forward="10 ms", backward="20 ms", exchange=exchange, **sizes
    )
    exchanged = 12 * batches * layers * times * (ranks - 1) * size // ranks
    summed = 12 * 2 * (data - 1) * 80 // data + 2 * 2 * (data * ranks - 1) * 600
    assert sum(sent(job).values()) == exchanged + summed + 2 * batches * data * ranks * 7
    assert makespan_s(job) == (batches + 1) * Fraction(30, 1000)


GOOD: dict[str, Any] = {
    "data": 2,
    "pipeline": 2,
    "micro_batches": 2,
    "forward": "1 s",
    "backward": "1 s",
    "activation": "8 B",
    "gradient": "8 B",
}


@pytest.mark.parametrize(
    ("parallelism", "changes", "path", "code"),
    [
        ("mesh", {"data": 3}, "mesh", "wrong-length"),
        ("mesh", {"gradient": None}, "mesh.gradient", "missing-key"),
        ("mesh", {"forward": ["1 s"] * 3}, "mesh.forward", "wrong-length"),
        ("mesh", {"activation": ["8 B", "8 B"]}, "mesh.activation", "wrong-length"),
        ("mesh", {"schedule": "interleaved"}, "mesh.chunks", "missing-key"),
        ("mesh", {"chunks": 2}, "mesh.chunks", "conflicting-key"),
        (
            "mesh",
            {"schedule": "interleaved", "chunks": 2, "micro_batches": 3},
            "mesh.micro_batches",
            "invalid-value",
        ),
        ("mesh", {"weights": "1 s"}, "mesh.weights", "conflicting-key"),
        ("mesh", {"schedule": "zero-bubble", "weights": "2 s"}, "mesh.weights", "too-large"),
        (
            "mesh",
            {"collective": "halving-doubling", "data": 3, "pipeline": 1},
            "mesh",
            "wrong-length",
        ),
        ("mesh", {"buckets": 2, "schedule": "zero-bubble"}, "mesh.buckets", "invalid-value"),
        ("mesh", {"buckets": 2, "pipeline": 1, "tensor": 2}, "mesh.buckets", "invalid-value"),
        ("mesh", {"exchange": "experts"}, "mesh.exchange", "missing-key"),
        ("mesh", {"exchanged": "8 B"}, "mesh.exchange", "missing-key"),
        (
            "mesh",
            {"exchange": "experts", "exchanged": "8 B", "sequence_parallel": True},
            "mesh.sequence_parallel",
            "conflicting-key",
        ),
        ("mesh", {"shared_gradient": "8 B"}, "mesh.shared_gradient", "conflicting-key"),
        ("mesh", {"parameters": "8 B", "collective": "tree"}, "mesh.collective", "not-allowed"),
        ("mesh", {"order": ["data"]}, "mesh.pipeline", "invalid-value"),
        ("mesh", {"order": ["data", "data"]}, "mesh.order", "duplicate"),
        (["data"], {}, "mesh.pipeline", "invalid-value"),
        (["data", "expert"], {}, "parallelism", "not-allowed"),
        ([], {}, "parallelism", "not-allowed"),
        (["data", "pipeline"], {"order": ["data", "pipeline"]}, "mesh.order", "conflicting-key"),
    ],
)
def test_what_is_refused(
    parallelism: object, changes: dict[str, object], path: str, code: Code
) -> None:
    keys = {key: value for key, value in {**GOOD, **changes}.items() if value is not None}
    with refused(code, path, DocumentError):
        parse_document(JobSpec, document(parallelism, 4, **keys), "job")


def test_a_list_of_axes_is_short_for_their_order() -> None:
    spec = parse_document(JobSpec, document(["pipeline", "data"], 4, **GOOD), "job")
    named = parse_document(JobSpec, document("mesh", 4, **GOOD, order=["pipeline", "data"]), "job")
    assert spec == named
