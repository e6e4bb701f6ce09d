"""The counts that a job file gives before its graph is built, against the graph."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from echelon.model.documents import DocumentError, parse_document
from echelon.model.jobs import build_job
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.spec import JobSpec, make_job_spec
from tests.drawing import examples
from tests.echelon.jobs.documents import job_documents
from tests.faults import coded
from tests.shared import refused


@given(job_documents(most_workers=9))
@settings(max_examples=examples(100), deadline=None)
def test_flows_and_bytes_are_counted_without_the_graph(document: dict[str, object]) -> None:
    spec = parse_document(JobSpec, document, "job")
    job = build_job(spec)
    assert spec.flow_count == len(job.flows)
    most = max(sum(flow.size_bytes for flow in flows) for flows in connections(job).values())
    said = spec.paradigm.connection_bytes(len(spec.workers))
    # Chunks of a collective differ by a byte: the largest is counted for each that is sent, in each
    # bucket.
    section = document[spec.parallelism]
    assert isinstance(section, dict)
    rounding = (
        2 * (len(spec.workers) - 1) * section.get("buckets", 1) if spec.parallelism == "data" else 0
    )
    assert most <= said <= most + rounding


def test_a_large_job_is_counted_at_once() -> None:
    workers = [f"h{i}" for i in range(1000)]
    data = {"compute": "1 s", "gradient": "1 GB"}
    spec = parse_document(
        JobSpec, {"job": "j", "parallelism": "data", "workers": workers, "data": data}, "job"
    )
    assert spec.flow_count == 1_998_000


def test_of_very_many_unknown_keys_the_first_are_named() -> None:
    many = coded("unknown-key", "60000", "'k0', 'k1', 'k2', 'k3', 'k4'", "59995", path="")
    with pytest.raises(DocumentError, check=many):
        make_job_spec(**{f"k{number}": 1 for number in range(60_000)})
    nodes = [{f"k{number}": 1} for number in range(60_000)]
    with refused("unknown-key", "graph.nodes[0].k0", DocumentError) as caught:
        make_job_spec(job="a", parallelism="graph", workers=["h1", "h2"], graph={"nodes": nodes})
    assert isinstance(caught.value, DocumentError)
    assert len(caught.value.other_faults) == 1
