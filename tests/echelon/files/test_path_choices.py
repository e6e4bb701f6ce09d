"""The ways to choose paths: what each promises, and what runs make of them."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.documents import DocumentError
from echelon.model.fabric.builders import dragonfly, fat_tree, leaf_spine, line, torus
from echelon.model.fabric.load import build_fabric, fabric_text, load_fabric, load_fabric_spec
from echelon.model.fabric.model import Fabric, NoRouteError
from echelon.model.fabric.routing import ChosenByFabric, chooser, equal_cost_paths
from echelon.model.jobs.graph import Flow, Job
from echelon.planning.policies import make_policy
from echelon_lab.hosts.serving import fabric_document
from echelon_lab.run import simulate
from tests.drawing import examples
from tests.faults import coded

FABRICS = [
    build_fabric(spec)
    for spec in (torus((4, 4)), torus((3, 3, 2)), dragonfly(), fat_tree(4), leaf_spine(4, 3))
]
RATE = 20_000_000


def job(name: str, *pairs: tuple[str, str]) -> Job:
    return Job(name, (), tuple(Flow(f"{a}-{b}", a, b, 10**6) for a, b in pairs), ())


@st.composite
def sending(draw: st.DrawFn) -> tuple[Fabric, list[Job]]:
    fabric = draw(st.sampled_from(FABRICS))
    pairs = st.tuples(*2 * [st.sampled_from(sorted(fabric.hosts))]).filter(
        lambda ends: ends[0] != ends[1]
    )
    return fabric, [
        job(f"j{n}", *draw(st.sets(pairs, min_size=1, max_size=5)))
        for n in range(draw(st.integers(1, 3)))
    ]


@settings(max_examples=examples(80), deadline=None)
@given(drawn=sending())
def test_a_hash_takes_a_shortest_path_whatever_others_do(drawn: tuple[Fabric, list[Job]]) -> None:
    fabric, jobs = drawn
    together = chooser("hash").route(fabric, jobs)
    for one in jobs:
        assert chooser("hash").route(fabric, [one])[one.name] == together[one.name]
        for ends, path in together[one.name].items():
            assert path in equal_cost_paths(fabric, *ends)


@settings(max_examples=examples(80), deadline=None)
@given(drawn=sending())
def test_by_address_all_that_goes_from_a_switch_to_a_host_takes_one_shortest_path(
    drawn: tuple[Fabric, list[Job]],
) -> None:
    fabric, jobs = drawn
    following: dict[tuple[str, str], str] = {}
    for routes in chooser("address").route(fabric, jobs).values():
        for ends, path in routes.items():
            assert path in equal_cost_paths(fabric, *ends)
            for switch, then in pairwise(path[1:]):
                assert following.setdefault((switch, path[-1]), then) == then


@settings(max_examples=examples(80), deadline=None)
@given(drawn=sending())
def test_valiant_goes_over_another_switch_with_hosts_and_visits_none_twice(
    drawn: tuple[Fabric, list[Job]],
) -> None:
    fabric, jobs = drawn
    edges = {switch for host in fabric.hosts for switch in fabric.ports[host].values()}
    for routes in chooser("valiant").route(fabric, jobs).values():
        for ends, path in routes.items():
            assert (path[0], path[-1]) == ends
            assert all(link in fabric.rate_bps for link in pairwise(path))
            assert len({*path}) == len(path)
            if path in equal_cost_paths(fabric, *ends):
                continue
            legs = [
                (path[: at + 1], path[at:]) for at in range(2, len(path) - 2) if path[at] in edges
            ]
            assert any(
                len(there) - 2 == len(equal_cost_paths(fabric, there[1], there[-1])[0]) - 1
                and len(on) - 2 == len(equal_cost_paths(fabric, on[0], on[-2])[0]) - 1
                for there, on in legs
            )


def busiest(fabric: Fabric, how: str, pairs: list[tuple[str, str]]) -> int:
    """Return the most connections on a link between switches."""
    routes = chooser(how).route(fabric, [job("j", *pairs)])["j"]
    return max(Counter(link for path in routes.values() for link in pairwise(path[1:-1])).values())


def test_valiant_evens_out_what_shortest_paths_put_on_one_link() -> None:
    """All hosts of a group of a dragonfly send to the next group: over the one link between them
    (Kim et al.).
    """
    fabric = build_fabric(dragonfly(9, 4, 2))
    pairs = [(f"h{n}", f"h{n + 8}") for n in range(1, 9)]
    assert busiest(fabric, "kept", pairs) == 8
    assert busiest(fabric, "valiant", pairs) <= 4


def test_hashes_of_many_jobs_are_even() -> None:
    fabric = build_fabric(leaf_spine(2, 4))
    routes = chooser("hash").route(fabric, [job(f"job{n}", ("h1", "h5")) for n in range(400)])
    counts = Counter(of["h1", "h5"][2] for of in routes.values())
    assert len(counts) == 4
    assert min(counts.values()) > 70


def test_paths_stay_the_same_objects_and_a_copy_goes_on() -> None:
    fabric, one, two = FABRICS[0], job("one", ("h1", "h6")), job("two", ("h2", "h7"))
    for how in ("address", "hash", "valiant", "kept"):
        chosen = ChosenByFabric()
        of = replace(fabric, paths=how)
        first = dict(chosen.route(of, [one]))
        twin = deepcopy(chosen)
        assert chosen.route(of, [one, two])["one"] is first["one"]
        assert twin.route(of, [one])["one"] is first["one"]
        drained = of.without(list(pairwise(first["one"]["h1", "h6"][1:3])))
        assert chosen.route(drained, [one, two])["one"] != first["one"]


def test_jobs_that_meet_on_longer_paths_are_planned_together() -> None:
    """`echelon` plans groups of jobs that share links.

    These two share none of their shortest paths.
    """
    fabric = replace(build_fabric(torus((6, 6))), paths="valiant")
    names = [f"n{n}" for n in range(40)]
    routes = {
        name: chooser("valiant").route(fabric, [job(name, ("h1", "h3"))])[name]["h1", "h3"]
        for name in names
    }
    other = job("other", ("h13", "h15"))
    path = chooser("valiant").route(fabric, [other])["other"]["h13", "h15"]
    meeting = next(name for name, way in routes.items() if {*pairwise(way)} & {*pairwise(path)})
    policy = make_policy("echelon")
    policy.plan([job(meeting, ("h1", "h3")), other], fabric)
    assert [{*group} for group in policy.choices] == [{meeting, "other"}]  # type: ignore[attr-defined]
    policy.plan([job(meeting, ("h1", "h3")), other], replace(fabric, paths="kept"))
    assert len(policy.choices) == 2  # type: ignore[attr-defined]


def test_runs_follow_the_fabric() -> None:
    """Two jobs between two switches that have a direct link: both share it, or each goes around."""
    data = {"compute": "50 ms", "gradient": "400 kB"}
    jobs = [
        {"job": name, "parallelism": "data", "workers": hosts, "data": data}
        for name, hosts in (("a", ["h1", "h3"]), ("d", ["h2", "h4"]))
    ]
    mean = {}
    for paths in ("kept", "valiant"):
        spec = torus((3, 3), 2, RATE).model_copy(update={"paths": paths})
        compared = {
            target: simulate(
                {"fabric": spec, "jobs": jobs, "iterations": 2, "transport": {"window": 32}},
                ["fair"],
                target=target,
            )
            for target in ("fluid", "softswitch")
        }
        used = {target: found.runs["fair"].paths for target, found in compared.items()}
        assert used["softswitch"] == used["fluid"]
        lengths = {len(path) for of in used["fluid"].values() for path in of.values()}
        assert lengths == {4} if paths == "kept" else min(lengths) > 4
        times = {
            target: compared[target].outcome("fair", "a").mean_iteration_s for target in compared
        }
        assert times["softswitch"] == pytest.approx(times["fluid"], rel=0.12)
        mean[paths] = times["fluid"]
    assert mean["valiant"] < mean["kept"]


def test_the_file_has_the_choice(tmp_path: Path) -> None:
    file = tmp_path / "fabric.yaml"
    text = fabric_text(line(2), "A line.")
    file.write_text(text)
    assert load_fabric(file).paths == "kept"
    file.write_text(text.replace("hosts:", "paths: valiant\nhosts:"))
    assert load_fabric(file).paths == fabric_document(load_fabric(file))["paths"] == "valiant"
    assert "paths: valiant\n" in fabric_text(load_fabric_spec(file), "A line.")
    for word, names in (("spray", ["packets"]), ("hashed", ["'hashed'", "'hash'"])):
        file.write_text(text + f"paths: {word}\n")
        unknown = coded("unknown-name", *names, file=str(file), path="paths")
        with pytest.raises(DocumentError, check=unknown):
            load_fabric(file)


def test_a_host_without_a_path_is_named() -> None:
    fabric = build_fabric(line(2)).without([("s1", "s2")])
    for how in ("hash", "valiant", "kept"):
        with pytest.raises(NoRouteError, check=coded("no-route", "'h1'", "'h2'", job="j")):
            chooser(how).route(fabric, [job("j", ("h1", "h2"))])
