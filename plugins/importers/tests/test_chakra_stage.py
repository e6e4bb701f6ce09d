"""Traces of STAGE (astra-sim/stage), and attributes of all types, with values and without."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from echelon.model.documents import DocumentError
from echelon.model.jobs.graph import CollectiveStep, ComputeUnit
from echelon_importers import Source, Workload, make_importer
from echelon_importers.chakra.wire import read_trace
from echelon_importers.convert import convert
from plugins.importers.tests.traces import NEW, SCALARS, delimited, node, split, traces

DATA = Path(__file__).parent / "workloads"
TRACES = [DATA / f"stage_dp2_tp2.{rank}.et.gz" for rank in range(4)]
GROUPS = DATA / "stage_dp2_tp2.json"
KINDS = {0: "all-reduce", 2: "all-gather", 6: "all-to-all", 7: "reduce-scatter"}


def sources(*files: Path) -> list[Source]:
    return [Source(file.name, file.read_bytes()) for file in files]


def read(files: Sequence[Source], **options: object) -> Workload:
    return make_importer("chakra", options).read(files)


def attributes(message: Any) -> dict[str, Any]:
    """Return the attributes that protobuf finds in a node."""
    return {
        each.name: getattr(each, each.WhichOneof("value"))
        for each in message.attr
        if each.WhichOneof("value")
    }


@pytest.mark.parametrize("element_bytes", [1, 2])
def test_bytes_and_computing_are_those_that_protobuf_reads(element_bytes: int) -> None:
    """The A100 reaches 86.9 % of 312 TFLOP/s, and its memory has 2039 GB/s."""
    workload = read(sources(*TRACES, GROUPS), gpu="A100", element_bytes=element_bytes)
    groups = json.loads(GROUPS.read_text())
    computing_s = Counter[str]()
    moved = Counter[tuple[str, tuple[str, ...]]]()
    for rank, file in enumerate(TRACES):
        for message in split(gzip.decompress(file.read_bytes())):
            values = attributes(message)
            if message.type == 4:
                computing_s[str(rank)] += max(
                    values["num_ops"] / (312 * 10**12 * Fraction("0.869")),
                    Fraction(values["tensor_size"] * element_bytes, 2039 * 10**9),
                )
            elif rank == groups[values["pg_name"]][0] and len(groups[values["pg_name"]]) > 1:
                ranks = tuple(map(str, groups[values["pg_name"]]))
                kind = KINDS[values["comm_type"]]
                times = len(ranks) if kind == "all-gather" else 1
                moved[kind, ranks] += values["comm_size"] * times * element_bytes
    imported_s = Counter[str]()
    imported = Counter[tuple[str, tuple[str, ...]]]()
    for step in workload.nodes:
        if isinstance(step, ComputeUnit):
            imported_s[step.worker] += step.duration_s
        elif isinstance(step, CollectiveStep):
            imported[step.operation, step.group] += step.size_bytes
    assert imported == moved
    assert imported_s == computing_s
    assert len(computing_s) == 4
    assert {kind for kind, _ in moved} == {"all-reduce", "all-gather", "reduce-scatter"}


def test_the_gpu_computes_one_node_at_a_time() -> None:
    """A rank computes no two nodes at once: each waits for the one before it, in the end."""
    workload = read(sources(*TRACES, GROUPS), gpu="A100")
    before: dict[str, set[str]] = {}
    last: dict[str, str] = {}
    for step in workload.nodes:
        before[step.name] = set(step.after).union(*(before[name] for name in step.after))
        if isinstance(step, ComputeUnit) and step.duration_s:
            assert last.get(step.worker, step.name) in {*before[step.name], step.name}
            last[step.worker] = step.name


def test_what_is_missing_beside_traces_of_stage_is_named() -> None:
    with pytest.raises(
        DocumentError, match=r"process group '[0-9]', but .* as stage_dp2_tp2\.json"
    ):
        read(sources(*TRACES), gpu="A100")
    with pytest.raises(DocumentError, match=r"operations and [0-9]+ bytes.*give --gpu A100"):
        read(sources(*TRACES, GROUPS))
    alone = convert(
        "chakra", sources(*TRACES, GROUPS), "job", options={"computing": "0 s"}
    ).workload
    assert not any(isinstance(step, ComputeUnit) and step.duration_s for step in alone.nodes)
    assert alone.tally.ignored["nodes with operations and no times"] > 0


def test_a_trace_says_what_stage_counts() -> None:
    [note] = read(sources(*TRACES, GROUPS), gpu="A100").tally.notes
    assert "STAGE counts elements" in note
    [note] = read(sources(*TRACES, GROUPS), gpu="A100", element_bytes=2).tally.notes
    assert note == "sizes are counted as elements of 2 bytes each"


def test_stage_says_the_same_in_json() -> None:
    """Our own encoding of what `json_backend.py` of STAGE writes."""
    kinds = {4: "comp_node", 5: "comm_send_node", 6: "comm_recv_node", 7: "coll_comm_node"}
    collectives = {number: name.upper().replace("-", "_") for number, name in KINDS.items()}
    encoded = []
    for rank, file in enumerate(TRACES):
        nodes = []
        for message in split(gzip.decompress(file.read_bytes())):
            values = attributes(message)
            said = {key: value for key, value in values.items() if isinstance(value, int)}
            if message.type == 7:
                said["comm_type"] = collectives[values["comm_type"]]
                said["comm_group"] = int(values["pg_name"])
            deps = {"data_deps": list(message.data_deps), "ctrl_deps": []}
            nodes.append({"id": message.id, "node_type": kinds[message.type], **deps, **said})
        encoded.append(Source(f"w.{rank}.json", json.dumps({"nodes": nodes}).encode()))
    binary = read(sources(*TRACES, GROUPS), gpu="A100")
    assert read([*encoded, *sources(GROUPS)], gpu="A100").nodes == binary.nodes
    text = encoded[0].data.decode()
    for before, after in (("comp_node", "compute_node"), ("ALL_GATHER", "GATHER")):
        broken = Source("w.0.json", text.replace(before, after).encode())
        with pytest.raises(DocumentError, match=r"w\.0\.json: node "):
            read([broken, *encoded[1:], *sources(GROUPS)], gpu="A100")


def test_ones_own_gpu_reaches_its_peak_and_measured_times_stay() -> None:
    """10^12 operations or 2 x 10^9 bytes a second, as ASTRA-sim is configured."""
    nodes = [
        node(1, 4, num_ops=3 * 10**9, tensor_size=10**6),
        node(2, 4, [1], num_ops=10**6, tensor_size=8 * 10**6),
        node(3, 4, [2], us=5, num_ops=10**9, tensor_size=10**6),
        node(4, 4, [3], tensor_size=2 * 10**6),
        node(5, 4, [4], is_cpu_op=True, num_ops=10**9),
    ]
    workload = read(traces(nodes, nodes), gpu="peak=1,local=1,memory=2")
    times_s = [
        step.duration_s
        for step in workload.nodes
        if isinstance(step, ComputeUnit) and step.worker == "0"
    ]
    assert times_s == [Fraction(us, 10**6) for us in (3000, 4000, 5, 1000, 0)]
    with pytest.raises(DocumentError, match="leave out --gpu"):
        read(traces(nodes[2:3], nodes[2:3]), gpu="A100")


SAMPLES = {
    "double": 1.25,
    "float": -2.5,
    "sint32": -12345,
    "sint64": -(10**12),
    "int32": -7,
    "int64": -(10**15),
    "sfixed32": -9,
    "sfixed64": -(10**13),
    "bool": True,
    "string": "text",
    "bytes": b"bytes",
}


def test_attributes_of_all_types_have_their_values() -> None:
    message = node(1, 1)
    expected: dict[str, object] = {}
    for kind in SCALARS:
        value = SAMPLES.get(kind, 12345)
        read_value = value.decode() if isinstance(value, bytes) else value
        scalar = message.attr.add(name=kind, doc_string="said")
        setattr(scalar, f"{kind}_val", value)
        listed = message.attr.add(name=f"{kind}s")
        getattr(listed, f"{kind}_list").values.extend([value, value])
        expected |= {kind: read_value, f"{kind}s": (read_value, read_value)}
    message.attr.add(name="nothing")
    data = delimited(NEW["GlobalMetadata"](version="1.0.0"), message)
    [wire] = read_trace(Source("a.et", data))
    assert dict(wire.attributes) == {**expected, "nothing": None}


def test_an_attribute_without_a_value_is_refused_where_it_is_needed() -> None:
    unused = [node(1, 7, comm_type=0, comm_size=8, inputs=None, outputs=None)]
    assert len(read(traces(unused, unused)).nodes) == 1
    for key in ("comm_type", "comm_size", "pg_name", "involved_dim"):
        nodes = [node(1, 7, **{"comm_type": 0, "comm_size": 8, key: None})]
        with pytest.raises(DocumentError, match=f"the attribute '{key}' has no value"):
            read(traces(nodes, nodes))


def test_dimensions_may_be_a_list_of_any_whole_numbers() -> None:
    message = node(1, 7, comm_type=0, comm_size=8)
    message.attr.add(name="involved_dim").int64_list.values.extend([1, 0])
    with pytest.raises(DocumentError, match="some dimensions only"):
        read(traces([message], [message]))
