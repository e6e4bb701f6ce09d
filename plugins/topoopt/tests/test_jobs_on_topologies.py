"""Jobs on topologies: bytes are conserved, routes are shortest, and links of a stride carry the
same.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric.builders import leaf_spine
from echelon.model.fabric.load import build_fabric
from echelon.model.fabric.model import Fabric
from echelon.model.jobs import build_job
from echelon.model.jobs.free import FreeGraph
from echelon.model.jobs.graph import Job
from echelon.planning.policies.fair import Fair
from echelon_topoopt.direct import NIC, direct_fabric, forwards, strides_of
from echelon_topoopt.parallelisations import job_of
from echelon_topoopt.policy import Forwarded, TopoOpt
from echelon_topoopt.rings import over_rings
from echelon_topoopt.topology_finder import Topology, find_topology
from echelon_topoopt.traffic import traffic_of
from plugins.topoopt.tests.jobs import expert, mesh
from tests.drawing import examples

SPECS = {
    "replicas": mesh(8),
    "mesh": mesh(8, data=2, pipeline=2, tensor=2),
    "halves": mesh(8, data=4, tensor=2, sequence_parallel=True),
    "experts": expert(8),
    "two groups": expert(8, group=4),
}


def circulant(hosts: int, *strides: int) -> Topology:
    cables = Counter(
        tuple(sorted((at, (at + stride) % hosts))) for at in range(hosts) for stride in strides
    )
    return Topology(
        hosts, 2 * len(strides), {(pair[0], pair[1]): count for pair, count in cables.items()}
    )


def moved(job: Job) -> Counter[tuple[str, str]]:
    out: Counter[tuple[str, str]] = Counter()
    for flow in job.flows:
        out[flow.src, flow.dst] += flow.size_bytes
    return out


@pytest.mark.parametrize("name", SPECS)
def test_traffic_is_that_of_the_jobs_flows(name: str) -> None:
    spec = SPECS[name]
    job = build_job(spec)
    traffic = traffic_of(spec.paradigm.steps([str(rank) for rank in range(8)]), 8)
    total = sum(flow.size_bytes for flow in job.flows)
    # Chunks of a ring differ by a byte.
    assert traffic.total_reduced + traffic.total_sent == pytest.approx(total, abs=len(job.flows))
    assert sum(traffic.exchanged.values()) == traffic.total_sent


@pytest.mark.parametrize("degree", [2, 4, 6])
@pytest.mark.parametrize("name", SPECS)
def test_rings_move_the_same_bytes_and_keep_all_dependencies(name: str, degree: int) -> None:
    spec = SPECS[name]
    steps = spec.paradigm.steps([str(rank) for rank in range(8)])
    topology = find_topology(traffic_of(steps, 8), degree)
    cut = over_rings(steps, topology)
    FreeGraph(cut).check(8)
    before, after = job_of(steps, spec, spec.workers), job_of(cut, spec, spec.workers)
    assert sum(moved(after).values()) == pytest.approx(
        sum(moved(before).values()), abs=len(after.flows)
    )
    assert {unit.name for unit in after.computes} == {unit.name for unit in before.computes}


def test_an_all_reduce_over_all_rings_takes_a_part_of_the_time() -> None:
    spec = mesh(8, micro_batches=1, forward="1 us", backward="1 us")
    steps = spec.paradigm.steps([str(rank) for rank in range(8)])
    one, two = circulant(8, 1), circulant(8, 1, 3)
    sent = [moved(job_of(over_rings(steps, of), spec, spec.workers)) for of in (one, two)]
    assert len(sent[0]) == 16
    assert len(sent[1]) == 32
    assert max(sent[0].values()) == pytest.approx(2 * max(sent[1].values()), rel=1e-6)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(3, 16), st.sets(st.integers(1, 8), min_size=1, max_size=3))
def test_strides_of_a_fabric_are_found_and_routes_are_as_short_as_any(
    hosts: int, strides: set[int]
) -> None:
    strides = {stride for stride in strides if 0 < stride <= hosts // 2} | {1}
    fabric = build_fabric(direct_fabric([circulant(hosts, *strides)], 10**9))
    found = strides_of(fabric)
    assert forwards(fabric)
    assert found is not None
    assert found[1] == {*strides, *(hosts - stride for stride in strides)}
    job = build_job(expert(hosts))
    routes = Forwarded().route(fabric, [job])["moe"]
    graph = networkx.Graph([(one, other) for one, other in fabric.usable_links])
    carried: Counter[tuple[int, int]] = Counter()
    for (src, dst), path in routes.items():
        assert path[0] == src
        assert path[-1] == dst
        assert all(graph.has_edge(*hop) for hop in pairwise(path))
        assert len(path) - 1 == networkx.shortest_path_length(graph, src, dst)
        for one, other in pairwise(path[1:-1]):
            at = list(fabric.hosts).index(one.removesuffix(NIC))
            carried[at, (list(fabric.hosts).index(other.removesuffix(NIC)) - at) % hosts] += 1
    # All links of a stride carry as many connections.
    for stride in found[1]:
        assert len({carried[at, stride] for at in range(hosts)}) == 1


def paths(fabric: Fabric, job: Job, policy: Fair) -> dict[str, tuple[str, ...]]:
    return dict(policy.plan([job], fabric).paths[job.name])


def test_the_policy_is_fair_where_hosts_do_not_forward() -> None:
    fabric = build_fabric(leaf_spine(2, 2, 2))
    job = build_job(expert(4))
    assert not forwards(fabric)
    assert paths(fabric, job, TopoOpt()) == paths(fabric, job, Fair())


def test_a_job_keeps_its_routes_while_others_come_and_go() -> None:
    chooser = Forwarded()
    fabric = build_fabric(direct_fabric([circulant(8, 1, 3)], 10**9))
    one, two = build_job(expert(8)), build_job(mesh(8))
    first = chooser.route(fabric, [one])["moe"]
    assert chooser.route(fabric, [one, two])["moe"] is first
    assert chooser.route(fabric, [two, one])["moe"] is first


def test_parts_of_a_panel_share_no_cable() -> None:
    spec = direct_fabric([circulant(4, 1), circulant(5, 1)], 10**9)
    fabric = build_fabric(spec)
    assert list(fabric.hosts) == [f"h{number}" for number in range(1, 10)]
    across = [
        link
        for link in spec.links
        if len({int(node[1:].removesuffix(NIC)) > 4 for node in link.between}) == 2
    ]
    assert [(link.between, link.rate) for link in across] == [(("h1-nic", "h5-nic"), 10**7)]
    assert strides_of(fabric) is None


def test_a_group_without_cables_of_its_own_goes_the_shortest_way() -> None:
    topology = circulant(9, 1)
    ((order, width),) = topology.rings((0, 4, 1, 5, 2))
    hops = sum(
        topology.hops(one)[other] for one, other in zip(order, (*order[1:], order[0]), strict=True)
    )
    assert width == 1
    assert hops == min(
        sum(topology.hops(of[at])[of[(at + 1) % 5]] for at in range(5))
        for stride in (1, 2)
        for of in [[(0, 4, 1, 5, 2)[at * stride % 5] for at in range(5)]]
    )
