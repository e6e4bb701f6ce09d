"""The search, its parallelisations, ports by tardiness, and the networks of equal cost."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations, combinations_with_replacement

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.documents import DocumentError
from echelon.model.fabric.load import build_fabric
from echelon.model.jobs.graph import ComputeUnit
from echelon.model.jobs.paradigms.mesh import MeshOfRanks
from echelon.model.jobs.spec import JobSpec, make_job_spec
from echelon_topoopt.direct import direct_fabric
from echelon_topoopt.parallelisations import job_of, parallelisations
from echelon_topoopt.rings import over_rings
from echelon_topoopt.rivals import best_on, expander, rivals
from echelon_topoopt.search import Judge, optimise, run, topologies
from echelon_topoopt.tardiness import by_tardiness, due_s, tardiness_of, weights_of
from echelon_topoopt.topology_finder import Topology, find_topology
from echelon_topoopt.traffic import Traffic, traffic_of
from plugins.topoopt.tests.jobs import expert, mesh
from tests.drawing import examples
from tests.faults import coded, mentions

RATE = 10**9


@pytest.mark.parametrize("given_as", [{}, {"data": 2, "pipeline": 2}, {"data": 1, "tensor": 4}])
def test_parallelisations_train_the_same_model_on_the_same_batch(given_as: dict[str, int]) -> None:
    found = parallelisations(mesh(4, **given_as))
    assert len({one.label for one in found}) == len(found) >= 5

    def totals(of: MeshOfRanks) -> tuple[object, ...]:
        ranks = of.pipeline * of.tensor
        return (
            of.data * ranks,
            of.data * int(str(of.micro_batches)),
            Fraction(str(of.forward)) * ranks,
            Fraction(str(of.backward)) * ranks,
            int(str(of.gradient)) * ranks,
            of.layers * of.pipeline,
            of.activation,
        )

    assert (
        len({totals(one.paradigm) for one in found if isinstance(one.paradigm, MeshOfRanks)}) == 1
    )
    # All that there are: products of 4 that divide batch and layers.
    batch, layers = totals(found[0].paradigm)[1], totals(found[0].paradigm)[5]  # type: ignore[arg-type]
    shapes = [(d, p, 4 // d // p) for d in (1, 2, 4) for p in (1, 2, 4) if 4 % (d * p) == 0]
    assert len(found) == sum(batch % d == 0 and layers % p == 0 for d, p, _ in shapes)  # type: ignore[operator]


def test_only_axes_of_the_order_are_lengthened_and_orders_are_placements() -> None:
    assert {one.label for one in parallelisations(mesh(4, order=["data", "pipeline"]))} == {
        "data 4",
        "data 2 x pipeline 2",
        "pipeline 4",
    }
    orders = {one.label for one in parallelisations(mesh(4), orders=True)}
    assert {"data 2 x pipeline 2", "pipeline 2 x data 2"} <= orders


def test_groups_of_experts_divide_them_anew() -> None:
    found = {one.label: one.paradigm for one in parallelisations(expert(8))}
    assert set(found) == {"expert 8", "expert 4", "expert 2"}
    assert {of.group * of.gradient for of in found.values()} == {8 * 4_000_000}  # type: ignore[attr-defined]


@settings(max_examples=examples(24), deadline=None)
@given(
    st.sampled_from(
        [{}, {"data": 2, "pipeline": 2}, {"schedule": "gpipe", "data": 1, "pipeline": 4}]
    ),
    st.data(),
)
def test_no_iteration_is_faster_than_the_least(
    given_as: dict[str, object], data: st.DataObject
) -> None:
    spec = mesh(4, **given_as)
    one = data.draw(st.sampled_from(parallelisations(spec)))
    degree = data.draw(st.sampled_from([2, 4]))
    topology = data.draw(st.sampled_from(topologies(one, degree)))
    assert Judge(spec, RATE).candidate(one, topology).iteration_s >= one.least_s(
        degree * RATE / 8
    ) * (1 - 1e-9)


def every_topology(hosts: int, degree: int) -> list[Topology]:
    pairs = list(combinations(range(hosts), 2))
    out = []
    for laid in combinations_with_replacement(pairs, hosts * degree // 2):
        ports = Counter(host for pair in laid for host in pair)
        graph = networkx.Graph(laid)
        if max(ports.values()) <= degree and len(graph) == hosts and networkx.is_connected(graph):
            out.append(Topology(hosts, degree, dict(Counter(laid))))
    return out


@pytest.mark.parametrize(
    "spec",
    [
        mesh(4),
        mesh(4, activation="40 MB"),
        mesh(4, gradient="400 MB", layers=2),
        expert(4),
        expert(4, tokens="1 MB"),
    ],
    ids=["mesh", "large activations", "large gradients", "experts", "few tokens"],
)
def test_the_search_finds_what_brute_force_over_all_topologies_finds(spec: JobSpec) -> None:
    judge = Judge(spec, RATE)
    every = [
        judge.candidate(one, of).iteration_s
        for one in parallelisations(spec)
        for of in every_topology(4, 2)
    ]
    found = optimise(spec, 2, RATE, starts=6)
    assert min(every) <= found.best.iteration_s <= 1.02 * min(every)
    assert found.best.iteration_s <= found.as_published.iteration_s
    assert found.judged < len(every)


def test_the_search_gives_the_same_twice_and_a_run_of_its_result_takes_as_long() -> None:
    spec = expert(8)
    one, two = (optimise(spec, 4, RATE, seed=5) for _ in range(2))
    assert one.best.topology == two.best.topology
    assert (one.best.parallelisation.label, one.judged, one.turns) == (
        two.best.parallelisation.label,
        two.judged,
        two.turns,
    )
    fabric = build_fabric(direct_fabric([one.best.topology], RATE))
    steps = over_rings(one.best.parallelisation.steps, one.best.topology)
    record = run(job_of(steps, spec, list(fabric.hosts)), fabric)
    assert record.finish == one.best.iteration_s


def two_kinds() -> JobSpec:
    """Return a job that sends much that nobody waits for, while a chain of transfers between other
    pairs is waited for.

    Hosts 0 and 1, as 2 and 3, exchange 50 MB. Hosts 0 and 2, as 1 and 3, send 10 MB to and fro, and
    compute on each.
    """
    nodes: list[dict[str, object]] = []
    for number, (a, b) in enumerate([(0, 1), (2, 3)]):
        nodes += [
            {"name": f"bulk-{number}-{src}", "send": [src, dst], "bytes": "50 MB"}
            for src, dst in [(a, b), (b, a)]
        ]
    for a, b in [(0, 2), (1, 3)]:
        before: list[str] = []
        for turn in range(8):
            src, dst = (a, b) if turn % 2 == 0 else (b, a)
            nodes.append(
                {"name": f"ask-{a}-{turn}", "send": [src, dst], "bytes": "10 MB", "after": before}
            )
            nodes.append(
                {
                    "name": f"work-{a}-{turn}",
                    "rank": dst,
                    "compute": "50 ms",
                    "after": [f"ask-{a}-{turn}"],
                }
            )
            before = [f"work-{a}-{turn}"]
    return make_job_spec(
        job="two",
        parallelism="graph",
        workers=["h1", "h2", "h3", "h4"],
        graph={"nodes": nodes, "sends": "together"},
    )


@pytest.mark.parametrize(
    "spec", [mesh(4, data=2, pipeline=2), expert(4), two_kinds()], ids=["mesh", "moe", "two"]
)
def test_flows_are_due_by_the_longest_path_that_follows(spec: JobSpec) -> None:
    judge = Judge(spec, RATE)
    first = parallelisations(spec)[0]
    record, job = judge.record(first, topologies(first, 2)[0])
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    for step in (*job.computes, *job.flows):
        # The length of what leads to a step is that of the step before.
        graph.add_edge(
            step.name,
            "end",
            length=float(step.duration_s) if isinstance(step, ComputeUnit) else 0.0,
        )
    for step in (*job.computes, *job.flows):
        for other in step.after:
            graph.add_edge(other, step.name, length=graph.edges[other, "end"]["length"])
    whole = networkx.dag_longest_path_length(graph, weight="length")
    late = tardiness_of(job, record)
    for flow in job.flows:
        follows = graph.subgraph({flow.name, *networkx.descendants(graph, flow.name)})
        due = whole - networkx.dag_longest_path_length(follows, weight="length")
        span = record.flows[flow.name]
        assert due_s(job)[flow.name] == pytest.approx(due, abs=1e-12)
        assert span.finish is not None
        expected = min(span.finish - record.start - due, span.finish - span.start)
        assert late[flow.name] == pytest.approx(max(0.0, expected), abs=1e-12)
    weights = weights_of(first.steps, late)
    assert max(weights.values()) == 1.0
    assert set(weights) <= {step.name for step in first.steps if not isinstance(step, ComputeUnit)}


@pytest.mark.parametrize(
    "spec", [two_kinds(), mesh(4, data=2, pipeline=2), expert(4)], ids=["two kinds", "mesh", "moe"]
)
def test_ports_by_tardiness_are_never_worse_than_by_bytes(spec: JobSpec) -> None:
    judge = Judge(spec, RATE)
    first = parallelisations(spec)[0]
    by_bytes = judge.candidate(first, topologies(first, 2)[0])
    assert by_tardiness(judge, by_bytes).iteration_s <= by_bytes.iteration_s


def test_networks_cost_as_much_port_by_port() -> None:
    for price in (Fraction(1), Fraction(1, 2)):
        paid = 16 * 4 * RATE * (1 + price)
        for rival in rivals(16, 4, RATE, price)[:2]:
            ports = sum(2 * cable.rate_bps for cable in rival.fabric.cables)
            assert ports == pytest.approx(float(paid), rel=1e-6), rival.name
    drawn = expander(16, 4, seed=2)
    assert Counter(host for pair in drawn.cables for host in pair) == dict.fromkeys(range(16), 4)
    assert len(expander(4, 5).cables) == 6


def test_the_ideal_switch_bounds_all_networks_for_rings() -> None:
    spec = mesh(8, micro_batches=1, order=["data"])
    times = {rival.name: best_on(rival, spec)[1] for rival in rivals(8, 4, RATE)}
    ideal = times["ideal switch"]
    assert all(lasts_s >= ideal * (1 - 1e-9) for lasts_s in times.values())
    # Two rings, both ways, at full rate: a topology for it is as fast as the ideal switch.
    assert optimise(spec, 4, RATE).best.iteration_s == pytest.approx(ideal, rel=1e-4)


@pytest.mark.parametrize(
    ("spec", "path", "facts"),
    [
        (
            mesh(4, ranks_per_worker=2, data=8),
            "mesh.ranks_per_worker",
            (1, "one rank"),
        ),
        (
            make_job_spec(
                job="d",
                parallelism="data",
                workers=["h1", "h2"],
                data={"compute": "1 s", "gradient": "1 MB"},
            ),
            "parallelism",
            ("'data'", "mesh", "expert", "tensor", "fsdp", "graph"),
        ),
    ],
)
def test_jobs_that_do_not_fit_are_refused(
    spec: JobSpec, path: str, facts: tuple[object, ...]
) -> None:
    with pytest.raises(DocumentError, check=coded("invalid-value", path=path)) as caught:
        optimise(spec, 2, RATE)
    assert mentions(caught.value.reason, *facts), caught.value


def test_find_topology_follows_weights() -> None:
    light, heavy = {(0, 1): 1.0, (2, 3): 1.0}, {(0, 2): 9.0, (1, 3): 9.0}
    assert find_topology(Traffic(4, {}, {**light, **heavy}), 3, 0).between(0, 2) == 2


@pytest.mark.parametrize(
    "spec", [mesh(8), expert(8), two_kinds()], ids=["mesh", "moe", "two kinds"]
)
def test_the_first_topology_has_the_papers_share(spec: JobSpec) -> None:
    one = parallelisations(spec)[0]
    assert topologies(one, 4)[0] == find_topology(traffic_of(one.steps, one.hosts), 4)


def test_ports_go_to_what_is_waited_for() -> None:
    """The third port of each host goes to what nobody waits for if bytes decide, and to the chain
    if tardiness does.
    """
    judge = Judge(two_kinds(), RATE)
    first = parallelisations(two_kinds())[0]
    by_bytes = judge.candidate(first, topologies(first, 3)[0])
    found = by_tardiness(judge, by_bytes)
    assert by_bytes.topology.between(0, 1) == 2
    assert found.topology.between(0, 2) == 2
    assert found.iteration_s < by_bytes.iteration_s
    # 8 transfers of a chain one after the other, each over two cables at once.
    assert found.iteration_s == pytest.approx(8 * (0.05 + 0.04))
