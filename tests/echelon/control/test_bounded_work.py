"""Jobs of more work than a controller does: refused before they are built, or set aside if they are
stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import pytest

from echelon.controller.changes import RegisterJob
from echelon.controller.machine.jobs import RegisteredJob, from_document, parse_job
from echelon.controller.machine.records import Changes
from echelon.controller.service.api.jobs import job_resource, job_summary
from echelon.model.documents import DocumentError
from echelon.model.jobs.free import FreeGraph
from tests.echelon.control.world import World, ring, two_by_two


def tensor(name: str, layers: int, ranks: int = 16, **more: Any) -> dict[str, Any]:
    """Return a small document of a large job."""
    section = {
        "layers": layers,
        "forward": 0,
        "backward": 0,
        "activation": "1B",
        "ranks_per_worker": ranks,
    }
    return {
        "job": name,
        "parallelism": "tensor",
        "workers": ["h1", "h2"],
        "tensor": {**section, **more},
    }


def gathers(name: str, layers: int) -> dict[str, Any]:
    """Return a document of few steps, each of which waits for very many."""
    nodes: list[dict[str, Any]] = []
    for number in range(layers):
        node = {
            "name": f"n{number}",
            "collective": "all-gather",
            "algorithm": "direct",
            "bytes": "1 MB",
            "group": "a",
        }
        nodes.append({**node, "after": [nodes[-1]["name"]] if nodes else []})
    graph = {"ranks_per_worker": 10, "groups": {"a": list(range(20))}, "nodes": nodes}
    return {"job": name, "parallelism": "graph", "workers": ["h1", "h2"], "graph": graph}


AGENT = {"recognition": {"by": "agent", "idle_gap": "1 s"}}
TOO_LARGE: Mapping[str, dict[str, Any]] = {
    "layers": tensor("large", 1000),
    "connections are counted": {**tensor("large", 1000, 100, collective="direct"), **AGENT},
    "ranks": tensor("large", 1, 1000),
    "workers": {
        "job": "large",
        "parallelism": "data",
        "workers": [f"h{number}" for number in range(1, 100)],
        "data": {
            "forward": 0,
            "backward": 0,
            "buckets": 1000,
            "gradient": "1 GB",
            "collective": "direct",
        },
    },
}


@pytest.fixture
def world() -> World:
    world = World(two_by_two())
    world.start()
    world.run()
    return world


@pytest.mark.parametrize("document", TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_what_would_take_long_is_refused_before_it_is_built(document: Mapping[str, Any]) -> None:
    with patch.object(FreeGraph, "__init__", side_effect=AssertionError("is built")):
        job = RegisteredJob("large", 1, 0.0, document, parse_job(document), {})
        with pytest.raises(DocumentError) as caught:
            _ = job.job
    assert (caught.value.code, caught.value.path) == ("limit-reached", document["parallelism"])


def test_the_client_of_a_job_that_is_too_large_is_told(world: World) -> None:
    document = tensor("large", 1000)
    asked = (
        world.register(document),
        world.dry_run(lambda n: RegisterJob(n, document, parse_job(document), True)),
    )
    world.run()
    for request in asked:
        with pytest.raises(DocumentError) as caught:
            world.answer(request)
        assert caught.value.code == "limit-reached"
    assert not world.machine.jobs.jobs


@pytest.mark.parametrize(("limit", "most"), [("MOST_WORK", 100_000), ("MOST_WAITS", 100)])
def test_few_steps_of_very_many_dependencies_are_given_up(limit: str, most: int) -> None:
    job = RegisteredJob("dense", 1, 0.0, {}, parse_job(gathers("dense", layers=3)), {})
    with (
        patch(f"echelon.controller.machine.jobs.{limit}", most),
        pytest.raises(DocumentError) as caught,
    ):
        _ = job.job
    assert (caught.value.code, caught.value.path) == ("too-large", "graph")
    with pytest.raises(DocumentError):
        _ = job.job
    assert job.is_judged, "each plan asks again, and it is not built again"


def test_a_stored_job_that_is_too_large_is_set_aside_and_can_be_removed(world: World) -> None:
    world.register(ring("small", "h1", "h3"))
    world.run()
    kept = world.store.load()["jobs"]["small"]
    for number, document in enumerate(TOO_LARGE.values()):
        stored = {
            **kept,
            "flows": 0,
            "number": 100 + number,
            "spec": {**document, "job": f"large{number}"},
        }
        world.store.commit(Changes({("jobs", f"large{number}"): stored}))
    world.crash()
    machine = world.machine
    assert machine.jobs.jobs["small"].graph is None, "nothing is built to show it"
    assert job_summary(machine.jobs.jobs["small"], machine).flow_count == 4, (
        "and it was counted before"
    )
    world.run()
    assert world.in_plan() == {"small"}
    for number in range(len(TOO_LARGE)):
        shown = job_resource(machine.jobs.jobs[f"large{number}"], machine)
        assert (shown.state, shown.flow_count, shown.echelonflows) == ("unplanned", 0, ())
        assert shown.problem is not None
    removed = world.remove("large0")
    world.run()
    assert world.answer(removed) == "large0"
    assert world.state("small") == "installed"


def test_the_flows_of_a_job_are_stored_with_it() -> None:
    document = ring("a", "h1", "h2", "h3")
    job = RegisteredJob("a", 1, 0.0, document, parse_job(document), {}).with_graph()
    assert job.flow_count == from_document(job.to_document()).flow_count == len(job.job.flows)
