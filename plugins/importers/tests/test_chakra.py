"""Chakra execution traces, encoded by the protobuf library and by others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToJson

from echelon.model.documents import DocumentError
from echelon.model.jobs.graph import CollectiveStep, ComputeUnit, Flow
from echelon_importers import Source, Workload, make_importer
from plugins.importers.tests.traces import NEW, delimited, node, old_node, split, two_ranks

DATA = Path(__file__).parent / "workloads"


def read(sources: Sequence[Source], **options: object) -> Workload:
    return make_importer("chakra", options).read(sources)


def test_a_published_trace_has_the_bytes_that_protobuf_reads() -> None:
    files = sorted(DATA.glob("*.et"))
    workload = read([Source(str(file), file.read_bytes()) for file in files])
    [said] = {
        attribute.int64_val
        for file in files
        for each in split(file.read_bytes())
        for attribute in each.attr
        if attribute.name == "comm_size"
    }
    [collective] = workload.nodes
    assert isinstance(collective, CollectiveStep)
    assert (collective.operation, collective.size_bytes) == ("all-reduce", said)
    assert collective.group == ("0", "1", "2", "3")


@pytest.mark.parametrize("packed", [False, True])
def test_two_ranks_compute_send_and_communicate(packed: bool) -> None:
    workload = read(two_ranks(packed=packed))
    by_kind: dict[type, list[object]] = {ComputeUnit: [], Flow: [], CollectiveStep: []}
    for each in workload.nodes:
        by_kind[type(each)].append(each)
    sends = [each for each in workload.nodes if isinstance(each, Flow)]
    assert [(each.src, each.dst, each.size_bytes, each.after) for each in sends] == [
        ("0", "1", 4096, ("n0-r0",))
    ]
    computes = {each.name: each for each in workload.nodes if isinstance(each, ComputeUnit)}
    assert computes["n0-r0"].duration_s == Fraction(1500, 10**6)
    assert set(computes["n2-r1"].after) == {"n0-r1", sends[0].name}
    reduced, gathered = (each for each in workload.nodes if isinstance(each, CollectiveStep))
    assert (reduced.operation, reduced.size_bytes, set(reduced.after)) == (
        "all-reduce",
        1_000_000,
        {"n2-r0", "n2-r1"},
    )
    assert (gathered.operation, gathered.size_bytes, gathered.after) == (
        "all-gather",
        2 * 500,
        (reduced.name,),
    )


def test_what_transfers_wait_for() -> None:
    """Two ranks send to each other, then receive and compute, and wait for what they sent."""
    traces = [
        delimited(
            NEW["GlobalMetadata"](version="0.0.4"),
            node(0, 4, us=5),
            node(1, 5, [0], comm_dst=1 - rank, comm_tag=0, comm_size=900),
            node(2, 6, [0], comm_src=1 - rank, comm_tag=0, comm_size=900),
            node(3, 4, [2], us=7),
            node(4, 4, [3, 1], us=9),
        )
        for rank in range(2)
    ]
    sources = [Source(f"a.{rank}.et", trace) for rank, trace in enumerate(traces)]
    waits = {
        transfers: {each.name: set(each.after) for each in read(sources, transfers=transfers).nodes}
        for transfers in ("eager", "rendezvous", "buffered")
    }
    one, other = "send-0-1-t0-0", "send-1-0-t0-0"
    assert (waits["eager"][one], waits["eager"]["n4-r0"]) == ({"n0-r0"}, {"n3-r0", one})
    both = waits["rendezvous"]
    assert (both[one], both[f"ready-{one}"], both["n4-r0"]) == (
        {f"ready-{one}"},
        {"n0-r0", "n0-r1"},
        {"n3-r0", one},
    )
    buffered = waits["buffered"]
    assert buffered["n4-r0"] == {"n3-r0", f"ready-{one}"}
    assert buffered[f"ready-{one}"] == buffered[f"ready-{other}"] == {"n0-r0", "n0-r1"}
    turns = [
        read(sources, transfers=transfers).in_turn
        for transfers in ("eager", "rendezvous", "buffered")
    ]
    assert turns == [False, False, True]


@pytest.mark.parametrize(("ranks", "described"), [(2, True), (16, True), (17, False)])
def test_collectives_of_gloo_are_described_message_by_message_in_small_groups(
    ranks: int, described: bool
) -> None:
    source = Source(
        "a.et",
        delimited(NEW["GlobalMetadata"](version="1"), node(1, 7, comm_type=0, comm_size=900)),
    )
    for transfers in ("eager", "buffered"):
        [step] = read([source], ranks=ranks, transfers=transfers).nodes
        assert isinstance(step, CollectiveStep)
        is_gloo = described and transfers == "buffered"
        assert (step.algorithm, step.rounds) == (("gloo", True) if is_gloo else (None, False))


def test_both_generations_of_the_schema_say_the_same() -> None:
    new = delimited(
        NEW["GlobalMetadata"](version="0.0.4"),
        node(0, 4, us=7),
        node(1, 7, [0], comm_type=6, comm_size=900),
    )
    old = delimited(old_node(0, 4, runtime=7), old_node(1, 7, [0], comm_type=1, comm_size=900))
    assert (
        read([Source("a.0.et", new)], ranks=3).nodes == read([Source("a.0.et", old)], ranks=3).nodes
    )


def test_json_says_the_same_as_protobuf() -> None:
    parts = [node(0, 4, us=7), node(1, 7, [0], comm_type=6, comm_size=900)]
    binary = read([Source("a.et", delimited(NEW["GlobalMetadata"](version="1"), *parts))], ranks=3)
    names = {4: "COMP_NODE", 7: "COMM_COLL_NODE"}
    documents = [json.loads(MessageToJson(part)) for part in parts]
    written = '{"version": "1"}' + "".join(
        json.dumps(each | {"type": names[each["type"]]}) for each in documents
    )
    assert read([Source("a.json", written.encode())], ranks=3).nodes == binary.nodes
    snake = [json.loads(MessageToJson(part, preserving_proto_field_name=True)) for part in parts]
    for text in (
        json.dumps(documents),
        json.dumps({"nodes": snake}),
        "\n".join(map(json.dumps, snake)),
    ):
        assert read([Source("a.json", text.encode())], ranks=3).nodes == binary.nodes
    feeder = {
        "workload_graph": [
            {"Id": 0, "Name": "a", "NodeType": 4, "data_deps": [], "runtime": 7},
            {
                "Id": 1,
                "Name": "b",
                "NodeType": 7,
                "data_deps": [0],
                "comm_type": 6,
                "comm_size": 900,
            },
        ]
    }
    assert read([Source("a.json", json.dumps(feeder).encode())], ranks=3).nodes == binary.nodes


def test_dependencies_that_follow_from_others_are_left_out() -> None:
    parts = [node(number, 4, range(number), us=1) for number in range(30)]
    workload = read([Source("a.et", delimited(NEW["GlobalMetadata"](), *parts))], ranks=2)
    assert sum(len(each.after) for each in workload.nodes) == 2 * 29


@pytest.mark.parametrize(
    ("parts", "place"),
    [
        ([node(0, 4, [9])], "node 0"),
        ([node(0, 4, [1]), node(1, 4, [0])], "node 0"),
        ([node(0, 4), node(0, 4)], "node 0"),
        ([node(0, 99)], "node 0"),
        ([node(0, 7, comm_type=0)], "node 0"),
        ([node(0, 7, comm_type=3, comm_size=8)], "node 0"),
        ([node(0, 7, comm_type=0, comm_size=-8)], "node 0"),
        ([node(0, 7, comm_type=0, comm_size=8, involved_dim=[True, False])], "node 0"),
        ([node(0, 5, comm_dst=1, comm_size=8)], "node 0"),
        ([node(0, 5, comm_dst=7, comm_size=8)], "node 0"),
    ],
)
def test_a_refusal_names_the_node(parts: list[object], place: str) -> None:
    data = delimited(NEW["GlobalMetadata"](version="1"), *parts)
    with pytest.raises(DocumentError) as refusal:
        read([Source("a.et", data)], ranks=2)
    assert (refusal.value.file, refusal.value.path) == ("a.et", place)


@pytest.mark.parametrize(
    "mistake",
    [
        {"dataDeps": [-1]},
        {"dataDeps": 3},
        {"type": "NO_NODE"},
        {"attr": [{"name": "comm_size", "int64Val": "much"}]},
    ],
)
def test_a_refusal_names_the_node_of_a_json_file_by_its_own_number(mistake: object) -> None:
    assert isinstance(mistake, dict)
    document = {"nodes": [{"id": 7, "type": "COMP_NODE", **mistake}]}
    with pytest.raises(DocumentError) as refusal:
        read([Source("a.json", json.dumps(document).encode())], ranks=2)
    assert refusal.value.path == "node 7"


def test_ranks_that_disagree_are_refused() -> None:
    traces = [
        Source(
            f"a.{rank}.et",
            delimited(NEW["GlobalMetadata"](), node(0, 7, comm_type=0, comm_size=size)),
        )
        for rank, size in enumerate((8, 16))
    ]
    with pytest.raises(DocumentError) as refusal:
        read(traces)
    assert (refusal.value.file, refusal.value.path) == ("a.1.et", "node 0")


def test_a_file_that_is_cut_off_is_refused() -> None:
    whole = two_ranks()[0].data
    for length in range(1, len(whole) - 1, 7):
        with pytest.raises(DocumentError):
            read([Source("a.et", whole[:length])], ranks=2)
