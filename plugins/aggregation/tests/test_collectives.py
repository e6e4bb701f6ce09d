"""Collectives by switches: flows, bytes, refusals, and exact times on small fabrics."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from echelon.model.documents import DocumentError
from echelon.model.errors import Code
from echelon.model.fabric.builders import leaf_spine, one_tor
from echelon.model.fabric.load import build_fabric
from echelon.model.jobs import build_job
from echelon.model.jobs.algorithms import OPERATIONS
from echelon.model.jobs.spec import make_job_spec
from echelon.planning.fluid import alone_iteration_s
from echelon_aggregation import wire
from echelon_aggregation.collectives import VALUES, InNetwork, wire_bytes
from echelon_lab.endhosts.shim import HEADER_BYTES
from tests.faults import coded

RATE_BPS = 8_000_000
HOSTS = ("h1", "h2", "h3", "h4")


def spec(**section: Any) -> Any:
    return make_job_spec(
        job="a", parallelism="data", workers=["h1", "h2", "h3"], data={"compute": "1 s", **section}
    )


@pytest.mark.parametrize(("size", "packets"), [(1, 1), (128, 1), (129, 2), (1_000_000, 7813)])
def test_bytes_on_the_wire_are_those_of_whole_packets(size: int, packets: int) -> None:
    block = wire.Packet(wire.Kind.CONTRIBUTION, 1, 1, 0, 1, values=bytes(4 * VALUES))
    headers = HEADER_BYTES + len(block.encode()) - 4 * VALUES
    assert wire_bytes(size) == size + packets * headers


def test_the_registered_ones_are_found() -> None:
    found = {
        (operation, name)
        for operation, of in OPERATIONS.items()
        for name in of
        if name.startswith("in-network")
    }
    assert found == {
        *(("all-reduce", name) for name in ("in-network", "in-network-2", "in-network-4")),
        ("broadcast", "in-network"),
        ("reduce-scatter", "in-network"),
    }


def test_an_iteration_takes_as_long_as_one_link_does_whatever_the_number_of_workers() -> None:
    for workers in (2, 5, 12):
        fabric = build_fabric(one_tor(workers, RATE_BPS))
        job = build_job(
            spec(gradient="1 MB", collective="in-network").model_copy(
                update={"workers": tuple(fabric.hosts)}
            )
        )
        assert [flow.among for flow in job.flows] == [(*fabric.hosts, "h1")]
        assert alone_iteration_s(job, fabric) == 1 + Fraction(8 * wire_bytes(1_000_000), RATE_BPS)


def test_several_trees_carry_parts_of_the_data_over_several_spines() -> None:
    # Each uplink has a quarter of a host's rate: four trees are four times as fast as one.
    fabric = build_fabric(leaf_spine(2, 4, 2, 2, rate_bps=RATE_BPS))
    times_s = {}
    for trees in (1, 2, 4):
        block = InNetwork(trees).block("sum", HOSTS, 1_000_000)
        assert len(block.flows) == trees == InNetwork(trees).flow_count(4)
        assert len({step.ends for step in block.steps.values()}) == trees  # type: ignore[union-attr]
        made = make_job_spec(
            job="a",
            parallelism="data",
            workers=list(HOSTS),
            data={
                "compute": "1 s",
                "gradient": "1024 kB",
                "collective": f"in-network-{trees}".removesuffix("-1"),
            },
        )
        times_s[trees] = alone_iteration_s(build_job(made), fabric) - 1
    assert (
        times_s[1]
        == 2 * times_s[2]
        == 4 * times_s[4]
        == Fraction(8 * wire_bytes(1_024_000), RATE_BPS // 4)
    )


def test_ranks_of_a_graph_sum_scatter_and_broadcast() -> None:
    def node(name: str, operation: str, **others: object) -> dict[str, object]:
        return {
            "name": name,
            "collective": operation,
            "group": [0, 1, 2, 3],
            "bytes": "1 MB",
            "algorithm": "in-network",
            **others,
        }

    nodes = [
        node("sum", "all-reduce"),
        node("part", "reduce-scatter", after=["sum"]),
        node("copy", "broadcast", after=["part"], steps="rounds"),
        {"name": "work", "rank": 3, "compute": "1 s", "after": ["copy"]},
    ]
    job = build_job(
        make_job_spec(job="g", parallelism="graph", workers=list(HOSTS), graph={"nodes": nodes})
    )
    around, along = (*HOSTS, "h1"), HOSTS
    assert [(flow.name, flow.among) for flow in job.flows] == [
        ("sum-k1-w1", around),
        ("part-k1-w1", around),
        ("copy-k1-w1", along),
    ]
    fabric = build_fabric(leaf_spine(2, 1, 2, rate_bps=RATE_BPS))
    assert alone_iteration_s(job, fabric) == 1 + 3 * Fraction(8 * wire_bytes(1_000_000), RATE_BPS)


@pytest.mark.parametrize(
    ("document", "code", "path", "facts"),
    [
        (
            {"workers": [f"h{i}" for i in range(33)]},
            "not-allowed",
            "data.collective",
            ("32", "33", "'ring'"),
        ),
        (
            {
                "parallelism": "graph",
                "graph": {
                    "ranks_per_worker": 2,
                    "nodes": [
                        {
                            "name": "n",
                            "collective": "all-reduce",
                            "group": [0, 1, 2],
                            "bytes": "1 MB",
                            "algorithm": "in-network",
                        }
                    ],
                },
            },
            "not-allowed",
            "graph.nodes[0].algorithm",
            ("'hierarchical'", "node 'n'"),
        ),
        (
            {
                "parallelism": "graph",
                "graph": {
                    "sends": "in-turn",
                    "nodes": [
                        {
                            "name": "n",
                            "collective": "all-reduce",
                            "group": [0, 1],
                            "bytes": "1 MB",
                            "algorithm": "in-network",
                        }
                    ],
                },
            },
            "invalid-value",
            "graph.nodes[0].algorithm",
            ("'sends: together'",),
        ),
        (
            {
                "parallelism": "tensor",
                "tensor": {
                    "layers": 1,
                    "forward": "1 s",
                    "backward": "1 s",
                    "activation": "1 MB",
                    "sequence_parallel": True,
                    "collective": "in-network",
                },
            },
            "not-allowed",
            "tensor.collective",
            ("'ring'",),
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    document: dict[str, object], code: Code, path: str, facts: tuple[str, ...]
) -> None:
    data = {"compute": "1 s", "gradient": "1 MB", "collective": "in-network"}
    whole = {"job": "a", "parallelism": "data", "workers": ["h1", "h2"], **document}
    if whole["parallelism"] == "data":
        whole["data"] = data
    with pytest.raises(DocumentError, check=coded(code, "'in-network'", *facts, path=path)):
        make_job_spec(**whole)
