"""What the policy `classes` plans is what a program can be given: a class for a communicator."""

from __future__ import annotations

from typing import Any

import pytest

from echelon.model.jobs import build_job
from echelon.model.jobs.communicators import communicators
from echelon.model.jobs.spec import make_job_spec
from echelon_torch.run_job.communicators import job_layout
from plugins.torch.tests.run_job.layouts import collective, graph, hosts, mesh

JOBS: dict[str, dict[str, Any]] = {
    "mesh, a rank a host": mesh(8),
    "mesh, two ranks a host": mesh(4, 2),
    "mesh with two micro-batches": mesh(8, micro_batches=2),
    "pipeline": {
        "parallelism": "pipeline",
        "workers": hosts(3),
        "pipeline": {
            "micro_batches": 2,
            "forward": "10 ms",
            "backward": "20 ms",
            "activation": "1 MB",
            "gradient": "1 MB",
        },
    },
    "free graph": graph(
        hosts(4), collective("a", [0, 1]), collective("b", [2, 3]), collective("c", [0, 1])
    ),
}


@pytest.mark.parametrize("name", JOBS)
def test_no_process_group_has_several_classes(name: str) -> None:
    spec = make_job_spec(job="gpt", **JOBS[name])
    names = communicators(build_job(spec))
    layout = job_layout(spec)
    assert layout.communicators
    for communicator in layout.communicators:
        classes = {names[traffic.echelonflow] for traffic in communicator.traffic}
        assert len(classes) == 1


def test_a_pipeline_and_its_replicas_have_communicators_of_their_own() -> None:
    names = communicators(build_job(make_job_spec(job="gpt", **mesh(8))))
    # Two pipelines for each of two places in a layer, and four pairs each of replicas and layers.
    assert len(set(names.values())) == 4 + 4 + 4
