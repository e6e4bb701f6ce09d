"""Bytes by collective and ranks in imported job files, against an independent count of the file
they come from.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf.json_format import MessageToJson
from hypothesis import example, given, settings
from hypothesis import strategies as st

from echelon_importers import Source
from echelon_importers.convert import convert
from plugins.importers.tests.traces import NEW, delimited, node, old_node, split
from tests.drawing import examples
from tests.reference.workload_bytes import Sent, of_text, of_traces

DATA = Path(__file__).parent / "workloads"
SIMAI = DATA / "G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1_A100.txt"
UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def imported(
    format_name: str, sources: Sequence[Source], *, merge: bool = False, **options: object
) -> Sent:
    """Return the bytes that the nodes of the job file send."""
    text = convert(format_name, sources, "job", merge=merge, options=options).text
    graph = yaml.load(text, yaml.CSafeLoader)["graph"]
    sent: Sent = Counter()
    for each in graph["nodes"]:
        if "compute" not in each:
            number, unit = each["bytes"].split()
            where = each["send"] if "send" in each else graph["groups"][each["group"]]
            sent[each.get("collective", "send"), tuple(where)] += int(Decimal(number) * UNITS[unit])
    return sent


@pytest.mark.parametrize("merge", [False, True])
def test_a_published_text_of_simai_has_the_bytes_that_it_says(merge: bool) -> None:
    text = SIMAI.read_text()
    counted = of_text(text, 16, gathers_input=False)
    groups = Counter((kind, len(ranks)) for kind, ranks in counted)
    assert groups == {
        ("all-reduce", 8): 2,
        ("all-gather", 8): 2,
        ("broadcast", 8): 2,
        ("reduce-scatter", 2): 8,
    }
    assert imported("simai", [Source("file", text.encode())], merge=merge, ranks=16) == counted


def test_published_traces_of_chakra_have_the_bytes_that_they_say() -> None:
    files = sorted(DATA.glob("*.et"))
    counted = of_traces([split(file.read_bytes()) for file in files], {})
    assert counted == {("all-reduce", (0, 1, 2, 3)): 2**20}
    assert (
        imported(
            "chakra", [Source(file.name, file.read_bytes()) for file in files], computing="0 s"
        )
        == counted
    )


LOOPS = (
    "DATA",
    "MODEL",
    "HYBRID_DATA_MODEL model_parallel_NPU_group: {}",
    "HYBRID_MODEL_DATA model_parallel_NPU_group: {}",
    "HYBRID_TRANSFORMER model_parallel_NPU_group: {}",
    (
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {} checkpoints: 2 0 2"
        " checkpoint_initiates: 2 1 3"
    ),
    "MICRO",
    "DISTRIBUTED_INFERENCE",
    "HYBRID_DLRM {}",
    "HYBRID_DLRM_ENHANCED DLRM_LAST_BOTTOM_LAYER: {}",
    "HYBRID_CUSTOMIZED model_parallel_NPU_group: {}",
)
LOOPS_OF_LAYERS = ("DATA", "MODEL", "HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA")
PARTS = st.one_of(
    st.just(("NONE", 0)),
    st.tuples(
        st.sampled_from(["ALLREDUCE", "ALLGATHER", "REDUCESCATTER", "ALLTOALL"]),
        st.integers(0, 10**10),
    ),
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    layers = draw(st.lists(st.tuples(PARTS, PARTS, PARTS), min_size=4, max_size=7))
    lines = [
        draw(st.sampled_from(LOOPS)).format(draw(st.sampled_from([1, 2, 4, 8]))),
        str(len(layers)),
    ]
    for number, parts in enumerate(layers):
        words = [f"{draw(st.integers(3, 10**6))} {kind} {size_bytes}" for kind, size_bytes in parts]
        own = (
            f" {draw(st.sampled_from(LOOPS_OF_LAYERS))}"
            if lines[0].startswith("HYBRID_CUSTOMIZED")
            else ""
        )
        lines.append(f"layer{number} -1 {' '.join(words)} 1{own}")
    # MICRO computes nothing, and a job has to do something.
    return "\n".join(lines).replace("NONE 0 1", "ALLREDUCE 7 1", 1 if lines[0] == "MICRO" else 0)


FORWARD_ALL_REDUCE = """HYBRID_DLRM 0
3
embedding -1 3 ALLTOALL 8 3 ALLTOALL 16 3 NONE 0 1
top -1 3 ALLREDUCE 32 3 ALLTOALL 64 3 ALLREDUCE 128 1
last -1 3 ALLTOALL 256 3 NONE 0 3 ALLREDUCE 512 1
"""


@example(text=FORWARD_ALL_REDUCE, of_simai=False, merge=False)
@given(text=texts(), of_simai=st.booleans(), merge=st.booleans())
@settings(max_examples=examples(100), deadline=None)
def test_any_text_has_the_bytes_that_it_says(text: str, of_simai: bool, merge: bool) -> None:
    format_name = "simai" if of_simai else "astra-sim"
    counted = of_text(text, 8, gathers_input=not of_simai)
    if not counted and text.startswith("MICRO"):
        return
    alone = {"computing": "0 s"} if text.startswith("MICRO") else {}
    assert (
        imported(format_name, [Source("file", text.encode())], merge=merge, ranks=8, **alone)
        == counted
    )


GROUPS = {"1": [0, 1], "2": [2, 3], "3": [0, 2, 3]}
SIZES = st.integers(0, 10**12)
STEPS = st.one_of(
    st.tuples(
        st.just("collective"),
        st.sampled_from([0, 1, 2, 5, 6, 7]),
        st.sampled_from(["", *GROUPS]),
        SIZES,
    ),
    st.tuples(st.just("send"), st.integers(0, 3), st.integers(1, 3), st.integers(1, 10**12)),
)
"""Collectives (type, communicator, bytes) and sends (source, distance of the destination, bytes) of
four ranks.
"""


def traces_of(steps: Sequence[tuple[Any, ...]], after: st.DataObject) -> list[list[Any]]:
    """The nodes of each rank, which computes and then takes part in the steps in their order."""
    traces: list[list[Any]] = [[node(0, 4, us=3)] for _ in range(4)]

    def add(rank: int, kind: int, **attributes: Any) -> None:
        trace = traces[rank]
        waits = after.draw(st.lists(st.integers(0, len(trace) - 1), unique=True, max_size=3))
        trace.append(node(len(trace), kind, waits, **attributes))

    for number, (what, first, second, size_bytes) in enumerate(steps):
        if what == "collective":
            named = {"pg_name": second} if second else {}
            for rank in GROUPS.get(second, range(4)):
                add(rank, 7, comm_type=first, comm_size=size_bytes, **named)
        else:
            other = (first + second) % 4
            add(first, 5, comm_dst=other, comm_tag=number, comm_size=size_bytes)
            add(other, 6, comm_src=first, comm_tag=number, comm_size=size_bytes)
    return traces


def jsonized(trace: Sequence[Any]) -> bytes:
    names = {4: "COMP_NODE", 5: "COMM_SEND_NODE", 6: "COMM_RECV_NODE", 7: "COMM_COLL_NODE"}
    documents = [json.loads(MessageToJson(each)) for each in trace]
    return (
        '{"version": "1"}'
        + "".join(json.dumps({**it, "type": names[it["type"]]}) for it in documents)
    ).encode()


@given(
    steps=st.lists(STEPS, max_size=12),
    form=st.sampled_from(["protobuf", "gzip", "json"]),
    after=st.data(),
)
@settings(max_examples=examples(100), deadline=None)
def test_any_traces_of_chakra_have_the_bytes_that_they_say(
    steps: Sequence[tuple[Any, ...]], form: str, after: st.DataObject
) -> None:
    traces = traces_of(steps, after)
    sources = [Source("groups.json", json.dumps(GROUPS).encode())]
    for rank, trace in enumerate(traces):
        if form == "json":
            sources.append(Source(f"a.{rank}.json", jsonized(trace)))
        else:
            data = delimited(NEW["GlobalMetadata"](version="0.0.4"), *trace)
            sources.append(Source(f"a.{rank}.et", gzip.compress(data) if form == "gzip" else data))
    assert imported("chakra", sources) == of_traces(traces, GROUPS)


@given(kinds=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 10**12)), max_size=12))
@settings(max_examples=examples(100), deadline=None)
def test_traces_of_the_first_generation_have_the_bytes_that_they_say(
    kinds: Sequence[tuple[int, int]],
) -> None:
    trace = [old_node(0, 4, runtime=3)]
    trace += [
        old_node(at, 7, [at - 1], comm_type=kind, comm_size=size)
        for at, (kind, size) in enumerate(kinds, 1)
    ]
    source = Source("a.0.et", delimited(*trace))
    assert imported("chakra", [source], ranks=3) == of_traces([trace] * 3, {}, generation=1)
