"""Shapes and fabrics: every row gives files that are valid, with the totals that were asked for."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest

from echelon.model.documents import parse_document
from echelon.model.fabric.load import build_fabric
from echelon.model.jobs import build_job
from echelon.model.jobs.paradigm import registered
from echelon.model.jobs.spec import JobSpec
from echelon_lab.evaluation.fabrics import FABRICS
from echelon_lab.evaluation.shapes import SHAPES

COMPUTE_S, SENT_BYTES = Fraction(3, 10), Fraction(96_000)
SPARE_BYTES = 64
"""The bytes by which a sum of sizes may fall short: sizes are whole bytes, and each has a least."""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", SHAPES)
def test_a_worker_computes_what_it_should(name: str, seed: int) -> None:
    random = Random(seed)
    for count in SHAPES[name].hosts:
        hosts = [f"h{n}" for n in range(count)]
        document = (
            SHAPES[name].draw(random, hosts).document("job", COMPUTE_S, SENT_BYTES, Fraction(1, 8))
        )
        job = build_job(parse_document(JobSpec, document, name))
        assert sorted(job.workers) == hosts
        assert job.start_s == Fraction(1, 8)
        for worker in document["workers"]:
            computed_s = sum(unit.duration_s for unit in job.computes if unit.worker == worker)
            # Each unit is rounded to a microsecond.
            assert abs(computed_s - COMPUTE_S) <= len(job.computes) * Fraction(1, 10**6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", SHAPES)
def test_bytes_grow_with_the_scale(name: str, seed: int) -> None:
    shape = SHAPES[name].draw(Random(seed), ["h0", "h1", "h2", "h3"][: max(SHAPES[name].hosts)])
    once, twice = (
        sum(flow.size_bytes for flow in build_job(parse_document(JobSpec, document, name)).flows)
        for document in (
            shape.document("job", COMPUTE_S, scale * SENT_BYTES, Fraction(0)) for scale in (1, 2)
        )
    )
    assert once >= SENT_BYTES - SPARE_BYTES
    assert twice == pytest.approx(2 * once, abs=200)


def test_every_paradigm_of_this_project_but_those_of_whole_clusters_has_a_shape() -> None:
    drawn = {
        kind.draw(Random(0), ["h0", "h1", "h2", "h3"][: max(kind.hosts)]).parallelism
        for kind in SHAPES.values()
    }
    own = {
        name
        for name, section in registered().sections.items()
        if section.__module__.startswith("echelon.")
    }
    # What trains large models on many hosts is not drawn: a scenario has at most a few hosts for
    # each job. PipeDream's pipeline came later, and another shape would change what every seed
    # draws.
    assert drawn == own - {"expert", "fsdp", "graph", "mesh", "pipedream", "tensor"}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", FABRICS)
def test_jobs_have_the_places_that_they_need(name: str, seed: int) -> None:
    random = Random(seed)
    sizes = [random.choice((2, 3, 4)) for _ in range(random.choice((2, 5, 8)))]
    placed = FABRICS[name](random, sizes)
    fabric = build_fabric(placed.fabric)
    assert [len(place) for place in placed.places] == sizes
    for place in placed.places:
        assert len(set(place)) == len(place)
        assert set(place) <= set(fabric.hosts)
