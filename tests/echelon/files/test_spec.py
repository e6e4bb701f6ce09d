"""What a job file says of its graph before it is built, against the graph."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.documents import parse_document
from echelon.jobs import build_job
from echelon.jobs.analysis import connections
from echelon.jobs.spec import JobSpec


@st.composite
def documents(draw: st.DrawFn) -> dict[str, object]:
    n = draw(st.integers(2, 9))
    document: dict[str, object] = {"job": "j", "workers": [f"h{i}" for i in range(n)]}
    if draw(st.booleans()):
        gradient = draw(st.integers(n, 10_000))
        return {**document, "parallelism": "data", "data": {"compute": "1 s", "gradient": f"{gradient} B"}}
    sizes = st.lists(st.integers(1, 99), min_size=n - 1, max_size=n - 1).map(lambda all_: [f"{b} B" for b in all_])
    section: dict[str, object] = {
        "micro_batches": draw(st.integers(1, 6)),
        "forward": "1 s",
        "activation": draw(st.one_of(sizes, st.just("7 B"))),
    }
    if draw(st.booleans()):
        section["backward"] = "1 s"
        if draw(st.booleans()):
            section["gradient"] = draw(sizes)
    return {**document, "parallelism": "pipeline", "pipeline": section}


@given(documents())
@settings(max_examples=100, deadline=None)
def test_flows_and_bytes_are_counted_without_the_graph(document: dict[str, object]) -> None:
    spec = parse_document(JobSpec, document, "job")
    job = build_job(spec)
    assert spec.flow_count == len(job.flows)
    most = max(sum(flow.size_bytes for flow in flows) for flows in connections(job).values())
    said = spec.paradigm.connection_bytes(len(spec.workers))
    # Chunks of a ring differ by a byte: the largest is counted for each of its steps.
    assert most <= said <= most + (2 * (len(spec.workers) - 1) if spec.data else 0)


def test_a_large_job_is_counted_at_once() -> None:
    workers = [f"h{i}" for i in range(1000)]
    data = {"compute": "1 s", "gradient": "1 GB"}
    spec = parse_document(JobSpec, {"job": "j", "parallelism": "data", "workers": workers, "data": data}, "job")
    assert spec.flow_count == 1_998_000
