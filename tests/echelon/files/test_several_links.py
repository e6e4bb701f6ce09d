"""Hosts with several links: their paths against networkx, and a run in both network models."""

from __future__ import annotations

from pathlib import Path

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.documents import DocumentError, parse_document
from echelon.model.errors import RunError
from echelon.model.fabric.builders import multi_rail, rail_optimised
from echelon.model.fabric.load import FabricSpec, build_fabric
from echelon.model.fabric.model import Fabric, NoRouteError
from echelon.model.fabric.routing import Router, equal_cost_paths
from echelon.model.jobs.graph import Flow, Job
from echelon.switches.targets.virtual import CONNECTION, Interfaces
from echelon_lab.hosts.run import check
from echelon_lab.run import simulate
from echelon_lab.scenarios.scenario import scenario_of
from tests.drawing import examples
from tests.faults import coded
from tests.reference.routes import next_hops

RAILS = multi_rail(4, 2, rate_bps=20_000_000)


@st.composite
def several_homes(draw: st.DrawFn) -> Fabric:
    """Draw hosts with one to three links to five switches in a random tree with some more links."""
    switches = [f"s{n}" for n in range(5)]
    links = {(f"s{draw(st.integers(0, n - 1))}", f"s{n}") for n in range(1, 5)}
    links |= set(
        draw(
            st.lists(
                st.tuples(*2 * [st.sampled_from(switches)]).filter(lambda ends: ends[0] < ends[1])
            )
        )
    )
    hosts = [f"h{n}" for n in range(4)]
    for host in hosts:
        links |= {
            (host, edge)
            for edge in draw(st.sets(st.sampled_from(switches), min_size=1, max_size=3))
        }
    document = {
        "fabric": "drawn",
        "hosts": hosts,
        "switches": switches,
        "links": [{"between": list(ends), "rate": "1 Gbit/s"} for ends in sorted(links)],
    }
    return build_fabric(parse_document(FabricSpec, document, "drawn"))


@settings(max_examples=examples(80), deadline=None)
@given(fabric=several_homes())
def test_paths_are_all_shortest_ones_that_go_through_no_host(fabric: Fabric) -> None:
    for src in fabric.hosts:
        for dst in fabric.hosts.keys() - {src}:
            graph = networkx.Graph(
                [(a, b) for a, b in fabric.port_to if {a, b} <= {src, dst, *fabric.switches}]
            )
            expected = sorted(map(tuple, networkx.all_shortest_paths(graph, src, dst)))
            assert [
                (src, *inner, dst) for inner in fabric.shortest_paths.switches(src, dst)
            ] == expected
            assert list(equal_cost_paths(fabric, src, dst)) == expected
    for (switch, host), hops in fabric.next_hops.items():
        assert hops == next_hops(fabric, switch, host)


def test_connections_of_two_servers_take_the_rails_in_turn() -> None:
    fabric = build_fabric(RAILS)
    jobs = [Job(name, (), (Flow("f", "h1", "h2", 1),), ()) for name in "ab"]
    routes = Router().route(fabric, jobs)
    assert [routes[name]["h1", "h2"] for name in "ab"] == [
        ("h1", "rail1", "h2"),
        ("h1", "rail2", "h2"),
    ]
    without = fabric.without([("h2", "rail1")])
    assert without.shortest_paths.switches("h1", "h2") == (("rail2",),)
    with pytest.raises(NoRouteError, check=coded("no-route", "'h1'", "tree")):
        fabric.shortest_paths.switches("h1", "h2", "h3", "h1")


def test_the_same_fabric_as_that_of_nics() -> None:
    nics, servers = rail_optimised(4, 2), RAILS
    assert [link.between[1] for link in servers.links] == [link.between[1] for link in nics.links]
    assert {
        name: len(build_fabric(servers).ports[name]) for name in servers.hosts
    } == dict.fromkeys(servers.hosts, 2)
    assert build_fabric(servers).port_to["h1", "rail2"] == 1


def test_frames_leave_by_the_assigned_interface_and_others_always_by_the_same() -> None:
    class Heard:
        def __init__(self) -> None:
            self.frames: list[bytes] = []

        def send(self, data: bytes, urgency: object = None, /) -> None:
            self.frames.append(data)

    a, b = Heard(), Heard()
    nic = Interfaces({"a": a, "b": b})
    frames = [bytes(26) + bytes([number]) * 12 for number in range(64)]
    for frame in frames[:2]:
        nic.assign(frame[CONNECTION], "b")
    for _ in range(2):
        for frame in frames:
            nic.send(frame)
    assert b.frames.count(frames[0]) == b.frames.count(frames[1]) == 2
    assert all(of.count(frame) in (0, 2) for of in (a.frames, b.frames) for frame in frames)
    assert len(a.frames) > 20
    assert len(b.frames) > 20


@pytest.mark.parametrize(
    "by",
    [
        {"by": "shim"},
        {
            "by": "bytes",
            "protocol": "tcp",
            "source_port": 5000,
            "destination_port": 6000,
            "idle_gap": "50 ms",
        },
    ],
)
def test_two_jobs_of_the_same_servers_share_no_link(by: dict[str, object]) -> None:
    """Each sends 400 kB over links of its own at 20 Mbit/s, after 100 ms of computing: 260 ms, and
    headers.
    """
    data = {"compute": "100 ms", "gradient": "400 kB"}
    both = [
        {
            "job": name,
            "parallelism": "data",
            "workers": ["h1", "h2"],
            "data": data,
            "recognition": {**by, **({"source_port": port} if "source_port" in by else {})},
        }
        for name, port in (("one", 5000), ("two", 5001))
    ]
    scenario = {"fabric": RAILS, "jobs": both, "iterations": 2}
    for target in ("fluid", "softswitch"):
        for outcome in simulate(scenario, ["fair"], target=target):
            # A packet passes one link more, after each of two rounds.
            assert outcome.alone_iteration_s == pytest.approx(0.26 + 2 * 0.000502)
            assert outcome.mean_iteration_s == pytest.approx(0.26, rel=0.09), target


def test_real_hosts_have_one() -> None:
    job = {
        "job": "one",
        "parallelism": "data",
        "workers": ["h1", "h2"],
        "data": {"compute": "1 s", "gradient": "1 MB"},
    }
    scenario = scenario_of(
        {"scenario": "rails", "fabric": RAILS, "jobs": [job], "policies": ["fair"]}, "rails"
    )
    names = ("fabric multi_rail_4_2_1", "host h1", "2 links")
    with pytest.raises(RunError, check=coded("run-failed", *names)):
        check(scenario)


def test_two_links_between_the_same_nodes_are_refused(tmp_path: Path) -> None:
    document = RAILS.model_dump(mode="json")
    again = {"between": ["h1", "rail1"], "rate": "1 Gbit/s"}
    links = [{"between": list(link.between), "rate": "1 Gbit/s"} for link in RAILS.links]
    names = ("'h1'", "'rail1'", "links[2]")
    twice = coded("duplicate", *names, file="fabric.yaml", path="links[10].between")
    with pytest.raises(DocumentError, check=twice):
        parse_document(FabricSpec, {**document, "links": [*links, again]}, "fabric.yaml")
