"""The paths of `least_loaded` against all placements, and against what connections may expect of
it.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.documents import parse_document
from echelon.model.fabric.load import FabricSpec, build_fabric
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import NoRouteError, Routes
from echelon.model.jobs.graph import Flow, Job
from echelon.planning.plan import CONTROL_QUEUE, PlanError
from echelon.planning.rankings.fixed import Fixed
from echelon_example_plugins.least_loaded import LeastLoaded, LeastLoadedPaths, connection_bytes
from tests.drawing import examples

SPINES = 3


def fabric_of(hosts: int) -> Fabric:
    """Return two leaves with as many hosts each, joined by spines."""
    left, right = ([f"{side}{n}" for n in range(hosts)] for side in "ab")
    spines = [f"spine{n}" for n in range(SPINES)]
    pairs = [
        *((host, "leaf_a") for host in left),
        *((host, "leaf_b") for host in right),
        *((leaf, spine) for leaf in ("leaf_a", "leaf_b") for spine in spines),
    ]
    document = {
        "fabric": "leaves",
        "hosts": [*left, *right],
        "switches": ["leaf_a", "leaf_b", *spines],
        "links": [{"between": list(pair), "rate": "1 Gbit/s"} for pair in pairs],
    }
    return build_fabric(parse_document(FabricSpec, document, "fabric"))


FABRIC = fabric_of(7)


def job_of(name: str, sizes: list[int], first: int = 0) -> Job:
    """Return a job that sends so many bytes on each of its connections from leaf to leaf."""
    flows = tuple(
        Flow(f"f{n}", f"a{n}", f"b{n}", size) for n, size in enumerate(sizes, start=first)
    )
    return Job(name, (), flows, ())


def loads(routes: Routes, sizes: list[int]) -> list[int]:
    """Return the bytes of each spine."""
    load = Counter({f"spine{n}": 0 for n in range(SPINES)})
    for path, size in zip(routes.values(), sizes, strict=True):
        load[path[2]] += size
    return list(load.values())


@given(st.lists(st.integers(1, 100), min_size=1, max_size=7))
@settings(max_examples=examples(60), deadline=None)
def test_the_busiest_path_is_within_grahams_bound_of_the_best_of_all_placements(
    sizes: list[int],
) -> None:
    routes = LeastLoadedPaths().route(FABRIC, [job_of("j", sizes)])["j"]
    best = min(
        max(
            sum(size for size, at in zip(sizes, placed, strict=True) if at == spine)
            for spine in range(SPINES)
        )
        for placed in product(range(SPINES), repeat=len(sizes))
    )
    assert max(loads(routes, sizes)) <= (Fraction(4, 3) - Fraction(1, 3 * SPINES)) * best


@given(
    st.lists(st.integers(1, 100), min_size=1, max_size=3),
    st.lists(st.integers(1, 100), min_size=1, max_size=4),
)
@settings(max_examples=examples(60), deadline=None)
def test_connections_stay_where_they_are_while_jobs_come_and_go(
    first: list[int], second: list[int]
) -> None:
    chooser = LeastLoadedPaths()
    one, other = job_of("one", first), job_of("other", second, first=3)
    alone = dict(chooser.route(FABRIC, [one]))
    both = dict(chooser.route(FABRIC, [other, one]))
    # The same object, so that nothing is planned anew for the job.
    assert both["one"] is alone["one"]
    assert list(both) == ["other", "one"]
    after = chooser.route(FABRIC, [other])
    assert after["other"] is both["other"]


def test_a_drained_link_moves_only_what_used_it() -> None:
    chooser = LeastLoadedPaths()
    job = job_of("j", [5, 4, 3, 2])
    before = dict(chooser.route(FABRIC, [job])["j"])
    drained = FABRIC.without([("leaf_a", "spine0")])
    after = dict(chooser.route(drained, [job])["j"])
    moved = {ends for ends in before if before[ends] != after[ends]}
    assert moved == {ends for ends, path in before.items() if path[2] == "spine0"} != set()
    assert not any(path[2] == "spine0" for path in after.values())


def test_what_has_no_route_is_named_and_changes_nothing() -> None:
    chooser = LeastLoadedPaths()
    job = job_of("j", [5, 4])
    before = chooser.route(FABRIC, [job])["j"]
    lost = Job("lost", (), (Flow("f", "a0", "nowhere", 1),), ())
    with pytest.raises(NoRouteError) as caught:
        chooser.route(FABRIC, [job, lost])
    assert caught.value.job == "lost"
    assert chooser.route(FABRIC, [job])["j"] is before
    with pytest.raises(PlanError) as refused:
        LeastLoaded().plan([job, lost], FABRIC)
    assert refused.value.job == "lost"


@pytest.mark.parametrize("queues", [1, 3, CONTROL_QUEUE])
def test_a_plan_uses_as_many_queues_as_it_may(queues: int) -> None:
    job = job_of("j", [1] * 7)
    plan = LeastLoaded(LeastLoaded.Parameters(queues=queues)).plan([job], FABRIC)
    assert {flow.flow: flow.path for flow in plan.flows}.keys() == {flow.name for flow in job.flows}
    assert {flow.ranking for flow in plan.flows} <= {Fixed(queue) for queue in range(queues)}
    assert {queue.level for queue in plan.default_schedule[:CONTROL_QUEUE]} == {0}
    assert plan.default_schedule[CONTROL_QUEUE].level == 1


def test_bytes_of_a_connection_are_those_of_all_its_flows() -> None:
    flows = (Flow("a", "h1", "h2", 3), Flow("b", "h2", "h1", 5), Flow("c", "h1", "h2", 4))
    assert connection_bytes(Job("j", (), flows, ())) == {("h1", "h2"): 7, ("h2", "h1"): 5}
