"""Trees among several hosts: their links against an independent search, and how they are chosen,
kept and refused.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric.builders import fat_tree, leaf_spine, rail_optimised
from echelon.model.fabric.load import build_fabric
from echelon.model.fabric.model import BREAK, Fabric, NoRouteError, Path, root_of
from echelon.model.fabric.routing import Router
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.model.jobs.spec import make_job_spec
from echelon.planning.fluid import simulate
from echelon.planning.paths import FlowPaths, links_of
from echelon.planning.policies.registry import make_policy
from echelon.switches.lowering.capabilities import LoweringError
from echelon.switches.lowering.identity import identities_of, number_shims
from tests.drawing import examples
from tests.faults import coded

FABRICS = {
    "leaf-spine": build_fabric(leaf_spine(3, 2, 3)),
    "fat-tree": build_fabric(fat_tree(4)),
    "rails": build_fabric(rail_optimised(3, 3, 2)),
}


def summed(name: str, *hosts: str, size_bytes: int = 1000) -> Job:
    """Return a job of a flow that switches add up."""
    flow = Flow(
        "sum",
        hosts[0],
        hosts[0],
        size_bytes,
        tuple(f"c-{host}" for host in hosts),
        among=(*hosts, hosts[0]),
    )
    computes = tuple(ComputeUnit(f"c-{host}", host, Fraction(1)) for host in hosts)
    return Job(name, computes, (flow,), (EchelonFlow.coflow("sum", ["sum"]),))


def graph_of(fabric: Fabric) -> networkx.Graph[str]:
    return networkx.Graph([(cable.a.node, cable.b.node) for cable in fabric.cables])


def trees(fabric: Fabric, *ends: str) -> list[Path]:
    return [(ends[0], *inner, ends[-1]) for inner in fabric.shortest_paths.switches(*ends)]


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(sorted(FABRICS)), st.data())
def test_each_link_of_a_tree_is_there_once_and_each_host_is_as_near_to_the_root_as_can_be(
    name: str, data: st.DataObject
) -> None:
    fabric = FABRICS[name]
    hosts = data.draw(
        st.lists(st.sampled_from(sorted(fabric.hosts)), min_size=2, max_size=8, unique=True)
    )
    graph = graph_of(fabric)
    farthest = {
        switch: max(networkx.shortest_path_length(graph, switch, host) for host in hosts)
        for switch in fabric.switches
    }
    found = trees(fabric, *hosts, hosts[0])
    roots = [root_of(path) for path in found]
    assert roots == sorted(
        switch for switch, hops in farthest.items() if hops == min(farthest.values())
    )
    for path, root in zip(found, roots, strict=True):
        links = links_of(path)
        assert path[0] == path[-1] == hosts[0]
        assert max(Counter(links).values()) == 1
        assert {(b, a) for a, b in links} == set(links)
        inside = networkx.Graph(links)
        assert networkx.is_tree(inside)
        assert {node for node, degree in inside.degree if degree == 1} - set(hosts) <= {root}
        for host in hosts:
            hops = networkx.shortest_path_length(inside, host, root)
            assert hops == networkx.shortest_path_length(graph, host, root)
        # Up first: in this order, each sender's contribution and then each receiver's result is
        # there in time.
        up, down = links[: len(links) // 2], links[len(links) // 2 :]
        assert all(
            networkx.shortest_path_length(inside, b, root) < hops_of(inside, a, root) for a, b in up
        )
        assert all(
            networkx.shortest_path_length(inside, b, root) > hops_of(inside, a, root)
            for a, b in down
        )


def hops_of(graph: networkx.Graph[str], node: str, root: str) -> int:
    return int(networkx.shortest_path_length(graph, node, root))


@pytest.mark.parametrize("name", sorted(FABRICS))
def test_a_broadcast_goes_up_from_its_source_alone(name: str) -> None:
    fabric = FABRICS[name]
    hosts = sorted(fabric.hosts)[::2]
    for path in trees(fabric, *hosts):
        sent = links_of(path)
        way = networkx.DiGraph(sent)
        assert len(sent) == len(set(sent))
        assert [node for node in hosts if way.in_degree(node) == 0] == hosts[:1]
        assert all(networkx.has_path(way, hosts[0], host) for host in hosts)
        assert way.out_degree(hosts[0]) == 1
        assert (path[0], path[-1]) == (hosts[0], hosts[-1])


def test_breaks_are_no_links() -> None:
    (path,) = trees(FABRICS["leaf-spine"], "h1", "h2", "h3", "h1")
    assert path == ("h1", "leaf1", BREAK, "h2", "leaf1", BREAK, "h3", "leaf1", *path[8:])
    assert links_of(path)[:3] == (("h1", "leaf1"), ("h2", "leaf1"), ("h3", "leaf1"))
    plain = ("h1", "leaf1", "h2")
    assert links_of(plain) == tuple(pairwise(plain))


def test_new_trees_have_the_root_of_the_fewest_and_stay_there() -> None:
    fabric, router = FABRICS["leaf-spine"], Router()
    jobs = [summed("a", "h1", "h4"), summed("b", "h2", "h7"), summed("c", "h3", "h5", "h8")]
    routed = router.route(fabric, jobs)
    roots = [root_of(path) for job in jobs for path in routed[job.name].values()]
    assert roots == ["spine1", "spine2", "spine1"]
    again = router.route(fabric, jobs[1:])
    assert all(again[job.name] is routed[job.name] for job in jobs[1:])
    drained = fabric.without([("leaf3", "spine1")])
    moved = router.route(drained, jobs[1:])
    assert [root_of(path) for job in jobs[1:] for path in moved[job.name].values()] == [
        "spine2",
        "spine2",
    ]
    cut = fabric.without([("leaf3", "spine1"), ("leaf3", "spine2")])
    with pytest.raises(NoRouteError, check=coded("no-route", "'h2'", "'h7'", job="b")):
        router.route(cut, jobs[1:])
    with pytest.raises(NoRouteError, check=coded("unknown-node", "'h77'", job="x")):
        Router().route(fabric, [summed("x", "h1", "h2", "h77")])


@pytest.mark.parametrize("policy", ["fair", "echelon", "aalo", "crux", "mltcp"])
def test_flows_over_trees_share_links_with_others(policy: str) -> None:
    """Two jobs whose trees share one link at most: exact times by hand, and the same ones of both
    engines.
    """
    fabric = build_fabric(leaf_spine(2, 1, 2, rate_bps=8000))
    # The uplinks carry 2,000 B/s each and the hosts' links 1,000 B/s: nobody waits for the other.
    jobs = [summed("a", "h1", "h3"), summed("b", "h2", "h4", size_bytes=3000)]
    for observe in (None, lambda *_: None):
        result = simulate(jobs, fabric, make_policy(policy), 1, observe=observe)
        assert [record.iterations[0].finish for record in result.jobs.values()] == pytest.approx(
            [2, 4]
        )
    # One host's link for both: each gets half of it until the smaller has finished.
    jobs = [summed("a", "h1", "h3"), summed("b", "h1", "h2")]
    result = simulate(jobs, fabric, make_policy("fair"), 1)
    assert [record.iterations[0].finish for record in result.jobs.values()] == pytest.approx([3, 3])


def test_switches_do_not_recognise_a_flow_over_a_tree_by_its_bytes() -> None:
    job, fabric = summed("a", "h1", "h4"), FABRICS["leaf-spine"]
    data = {"compute": "1 s", "gradient": "1 MB"}
    spec = make_job_spec(job="a", parallelism="data", workers=["h1", "h4"], data=data)
    assert identities_of(job, 1, spec, fabric)["sum"] == number_shims([job])["a", "sum"]
    by_bytes = {"by": "bytes", "source_port": 1, "destination_port": 2, "idle_gap": "1 s"}
    spec = make_job_spec(
        job="a", parallelism="data", workers=["h1", "h4"], data=data, recognition=by_bytes
    )
    unfit = coded("does-not-fit", "job a", "'sum'", "{by: shim}", job="a")
    with pytest.raises(LoweringError, check=unfit):
        identities_of(job, 1, spec, fabric)


def test_the_hosts_of_a_flow_are_workers_of_its_job() -> None:
    job = Job("a", (), (Flow("f", "h1", "h3", 1, among=("h1", "h2", "h3")),), ())
    assert job.workers == ("h1", "h2", "h3")
    assert set(FlowPaths().update([job], FABRICS["leaf-spine"])["a"]) == {"f"}
