"""Text workloads and communication lists: bytes against an independent count, order, refusals."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from echelon.model.documents import DocumentError
from echelon.model.jobs.graph import CollectiveStep, ComputeUnit
from echelon_importers import Source, Workload, make_importer
from tests.faults import coded

DATA = Path(__file__).parent / "workloads"
LIST = DATA / "G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1.csv"
TEXT = DATA / "G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1_A100.txt"


def read(format_name: str, data: str | Path, **options: object) -> Workload:
    raw = data.read_bytes() if isinstance(data, Path) else data.encode()
    return make_importer(format_name, options).read([Source("file", raw)])


def counted(workload: Workload) -> Counter[tuple[str, str]]:
    """Return the bytes of all collectives by kind and kind of group."""
    count: Counter[tuple[str, str]] = Counter()
    for node in workload.nodes:
        if isinstance(node, CollectiveStep):
            count[node.operation, workload.groups[node.group].rstrip("0123456789")] += (
                node.size_bytes
            )
    return count


def test_a_list_has_the_bytes_of_its_rows() -> None:
    expected: Counter[tuple[str, str]] = Counter()
    epoch = 0
    for line in LIST.read_text().splitlines()[2:]:
        kind, group, size, size_bytes, *_ = line.split(",")
        epoch += kind.endswith("epoch_end")
        if epoch == 1 and not kind.endswith("epoch_end"):
            name = kind.removeprefix("CommType.").replace("_", "-")
            expected[name, group.removeprefix("CommGroup.").removesuffix("_group")] += (
                int(size_bytes) * 128 // int(size)
            )
    assert counted(read("aicb", LIST)) == +expected


def test_a_text_has_the_bytes_of_its_layers() -> None:
    names = {
        "ALLREDUCE": "all-reduce",
        "ALLGATHER": "all-gather",
        "REDUCESCATTER": "reduce-scatter",
    }
    expected: Counter[tuple[str, str]] = Counter()
    time_s = Fraction(0)
    for line in TEXT.read_text().splitlines()[2:]:
        words = line.split()
        for at, group, groups in ((2, "model", 2), (5, "model", 2), (8, "others", 8)):
            time_s += 16 * Fraction(int(words[at]), 10**9)
            if words[at + 1] != "NONE":
                expected[names.get(words[at + 1], words[at + 1].lower()), group] += groups * int(
                    words[at + 2]
                )
    workload = read("simai", TEXT, ranks=16)
    assert counted(workload) == expected
    assert (
        sum(
            (node.duration_s for node in workload.nodes if isinstance(node, ComputeUnit)),
            Fraction(0),
        )
        == time_s
    )


def test_with_fewer_hosts_a_list_has_fewer_replicas() -> None:
    whole, part = read("aicb", LIST), read("aicb", LIST, ranks=16)
    for key, size_bytes in counted(whole).items():
        assert size_bytes == counted(part)[key] * (8 if key[1] == "tp" else 1)
    assert "16 ranks, the file says 128: fewer data-parallel replicas" in part.tally.notes[0]
    assert "256 ranks, the file says 128: more" in read("aicb", LIST, ranks=256).tally.notes[0]


HEAD = "{}\n2\n"
LAYERS = (
    "one -1 10 ALLGATHER 100 20 ALLREDUCE 200 30 ALLREDUCE 300 1\n"
    "two -1 40 ALLGATHER 400 50 ALLREDUCE 500 60 ALLREDUCE 600 1\n"
)


def order(loop: str, **options: object) -> list[str]:
    """Return the nodes of rank 0 and of the groups that it is in."""
    workload = read("astra-sim", HEAD.format(loop) + LAYERS, ranks=4, **options)
    return [node.name for node in workload.nodes if node.name.endswith(("-r0", "-g0"))]


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("DATA", "fwd-1-r0 fwd-2-r0 wg-2-r0 wg-2-g0 ig-2-r0 wg-1-r0 wg-1-g0"),
        ("MODEL", "fwd-1-r0 fwd-1-g0 fwd-2-r0 fwd-2-g0 ig-2-r0 ig-2-g0 wg-2-r0 ig-1-r0 wg-1-r0"),
        (
            "HYBRID_TRANSFORMER model_parallel_NPU_group: 2",
            (
                "fwd-1-r0 fwd-1-g0 fwd-2-r0 fwd-2-g0 ig-2-r0 ig-2-g0 wg-2-r0 wg-2-g0 ig-1-r0"
                " ig-1-g0 wg-1-r0 wg-1-g0"
            ),
        ),
        ("MICRO", "wg-1-g0 wg-2-g0"),
        ("DISTRIBUTED_INFERENCE", "fwd-1-r0 fwd-1-g0 fwd-2-r0 fwd-2-g0"),
    ],
)
def test_loops_run_what_astra_sim_runs(loop: str, expected: str) -> None:
    assert order(loop) == expected.split()


@pytest.mark.parametrize(
    ("loop", "waits"),
    [
        ("HYBRID_DATA_MODEL model_parallel_NPU_group: 2", False),
        ("HYBRID_TRANSFORMER model_parallel_NPU_group: 2", True),
        ("HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2", True),
    ],
)
def test_a_transformer_waits_for_the_gradients_of_its_inputs(loop: str, waits: bool) -> None:
    """`issue_input_grad_comm` blocks in `iterate_hybrid_parallel_Transformer` alone."""
    workload = read("astra-sim", HEAD.format(loop) + LAYERS, ranks=4)
    [weights] = [node for node in workload.nodes if node.name == "wg-2-r0"]
    assert weights.after == (("ig-2-g0",) if waits else ("ig-2-r0",))


def test_a_checkpoint_repeats_forward_passes() -> None:
    loop = (
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 checkpoints: 1 0"
        " checkpoint_initiates: 1 1"
    )
    names = order(loop)
    assert names[4:7] == ["fwd-1-again-r0", "fwd-1-again-g0", "ig-2-r0"]


def test_an_all_gather_of_astra_sim_names_the_bytes_before_it() -> None:
    text = HEAD.format("MODEL") + LAYERS
    assert counted(read("astra-sim", text, ranks=4))["all-gather", "all"] == 4 * 500
    assert counted(read("simai", text, ranks=4))["all-gather", "all"] == 500


MATRICES = """\
comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time
CommType.computation,None,None,"((2048, 2, 5120), (5120, 640))",forward.Linear,None,None,,None
CommType.all_reduce,CommGroup.tp_group,8,41943040,forward,None,None,,None
CommType.computation,None,None,"((4096, 5120), (5120, 640))",forward.Linear,None,None,,0.25
"""


def test_a_list_computes_what_a_gpu_needs_for_its_matrices() -> None:
    """86.9 % of 312 TFLOP/s multiply 4096 x 5120 by 5120 x 640; measured times stay."""
    workload = read("aicb", MATRICES, ranks=8, gpu="A100")
    times_s = [
        node.duration_s
        for node in workload.nodes
        if isinstance(node, ComputeUnit) and node.worker == "0"
    ]
    assert times_s == [
        Fraction(2 * 4096 * 5120 * 640, 312 * 10**12) / Fraction("0.869"),
        Fraction(1, 4000),
    ]
    with pytest.raises(DocumentError, check=coded("bad-syntax", "--gpu A100", path="line 2")):
        read("aicb", MATRICES, ranks=8)
    with pytest.raises(DocumentError, check=coded("unknown-name", "'A1000'", file="--gpu")):
        read("aicb", MATRICES, ranks=8, gpu="A1000")
    computed = read("aicb", MATRICES, ranks=8, gpu="peak=312,local=300,memory=2039")
    first = next(node for node in computed.nodes if isinstance(node, ComputeUnit))
    assert first.duration_s == times_s[0] * Fraction("0.869"), "one's own reaches its peak"


PIPELINE = """\
[ pp_stage0: [rank0, rank1] ]
comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional
CommType.irecv,CommGroup.pp_group,1,64,forward,None,None,recv_next
CommType.isend,CommGroup.pp_group,1,32,forward,None,None,send_next
[ pp_stage1: [rank2, rank3] ]
comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional
CommType.isend,CommGroup.pp_group,1,64,forward,None,None,send_prev
CommType.irecv,CommGroup.pp_group,1,32,forward,None,None,recv_prev
CommType.all_reduce,CommGroup.tp_group,2,8,step,None,None,
"""


def test_stages_exchange_what_their_lists_say() -> None:
    workload = read("aicb", PIPELINE)
    assert sorted(
        (node.name, node.src, node.dst)
        for node in workload.nodes
        if not isinstance(node, CollectiveStep)
    ) == [
        ("l4-r0", "0", "2"),
        ("l4-r1", "1", "3"),
        ("l7-r2", "2", "0"),
        ("l7-r3", "3", "1"),
    ]
    [reduced] = [node for node in workload.nodes if isinstance(node, CollectiveStep)]
    assert set(reduced.after) == {"l4-r0", "l4-r1"}


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        ("all_reduce", "all_shrink", "line 9"),
        ("tp_group", "tq_group", "line 9"),
        (",8,step", ",x,step", "line 9"),
        (",64,forward,None,None,send_prev", ",63,forward,None,None,send_prev", "line 3"),
        ("CommType.isend,CommGroup.pp_group,1,64,forward,None,None,send_prev\n", "", "line 3"),
        ("recv_prev", "recv_next", "line 8"),
        ("comm_type,comm_group", "comm_kind,comm_group", "line 2"),
        (",None,recv_next", "", "line 3"),
        ("[rank0, rank1]", "[rank0, rankl]", "line 1"),
    ],
)
def test_a_refusal_of_a_list_names_the_line(before: str, after: str, place: str) -> None:
    with pytest.raises(DocumentError) as refusal:
        read("aicb", PIPELINE.replace(before, after))
    assert refusal.value.path == place


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        ("DATA", "DATAS", "line 1"),
        ("2\n", "3\n", "line 2"),
        ("ALLREDUCE 600", "ALLREDUCED 600", "line 4"),
        ("600", "-600", "line 4"),
        ("two -1", "two", "line 4"),
        ("one -1 10", "one -1 ten", "line 3"),
    ],
)
def test_a_refusal_of_a_text_names_the_line(before: str, after: str, place: str) -> None:
    text = HEAD.format("DATA") + LAYERS
    with pytest.raises(DocumentError) as refusal:
        read("astra-sim", text.replace(before, after, 1), ranks=4)
    assert refusal.value.path == place
