"""Texts as AICB 2.0 writes them: inference, pipelines, and times that nothing has measured.

The bytes are counted anew here, from the rows alone: a stage runs all rows of a text for training,
and a send of ``pp_comm`` bytes goes between two of ``pp x vpp`` places, there and back, for each
rank and each of ``ga`` micro-batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import pytest

from echelon.model.documents import DocumentError
from echelon.model.jobs.graph import CollectiveStep, ComputeUnit, Flow
from echelon_importers import Source, Workload, make_importer
from echelon_importers.convert import convert
from tests.faults import coded

Bytes = Counter[tuple[str, int]]
"""Bytes of all groups by kind of collective and number of ranks; 2 ranks: sends."""
LOOP = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
KINDS = {
    "ALLREDUCE": "all-reduce",
    "ALLGATHER": "all-gather",
    "REDUCESCATTER": "reduce-scatter",
    "ALLTOALL": "all-to-all",
}


def text(settings: str, rows: Sequence[str]) -> str:
    return "\n".join([f"{LOOP} {settings}", str(len(rows)), *rows]) + "\n"


def read(document: str, **options: object) -> Workload:
    return make_importer("simai", options).read([Source("file", document.encode())])


def sent(workload: Workload) -> Bytes:
    count: Bytes = Counter()
    for node in workload.nodes:
        if isinstance(node, CollectiveStep):
            count[node.operation, len(node.group)] += node.size_bytes
        elif isinstance(node, Flow):
            count["send", 2] += node.size_bytes
    return count


def counted(document: str, ranks: int) -> Bytes:
    head, _, *rows = document.splitlines()
    words = head.replace(":", "").split()
    setting = {key: int(float(value)) for key, value in zip(words[1::2], words[2::2], strict=True)}
    model, experts = setting["model_parallel_NPU_group"], setting["ep"]
    stages, inference = setting["pp"], setting.get("mode", 0)
    sizes = {"TP": model, "EP": experts, "DP": ranks // stages // model}
    sizes["DP_EP"] = sizes["DP"] // experts
    count: Bytes = Counter()
    for row in rows:
        cells = row.split()
        for column, group in ((3, "TP"), (6, "TP"), (9, "DP")):
            name, _, scope = cells[column].partition("_")
            size = sizes[scope or group]
            if name != "NONE" and size > 1:
                groups = ranks // size // (stages if inference else 1)
                count[KINDS[name], size] += groups * int(cells[column + 1])
    ways = (1 if inference else 2) * (stages * setting["vpp"] - 1)
    count["send", 2] = setting["ga"] * ways * (ranks // stages) * setting["pp_comm"]
    return +count


def moe_layers(number: int, attention: str, route: int, expert: int, time: int = 1) -> list[str]:
    """Return rows of layers with experts in a text for inference."""
    return [
        f"attention_norm -1 {time} NONE 0 0 NONE 0 0 NONE 0 100",
        f"attention_layer -1 {time} {attention} 0 NONE 0 0 NONE 0 100",
        f"moe_norm -1 {time} NONE 0 0 NONE 0 0 NONE 0 100",
        f"moe_route -1 {time} ALLTOALL_EP {route} 1 NONE 0 1 NONE 0 100",
        f"moe_expert -1 {time} ALLTOALL_EP {expert} 1 NONE 0 1 NONE 0 100",
    ] * number


HEADER = (
    "model_parallel_NPU_group: {tp} ep: {ep} pp: {pp} all_gpus: {ranks} mode: 1 vpp: 1 ga: 1"
    " checkpoints: 0 checkpoint_initiates: 0 pp_comm: {pp_comm}"
)
DENSE = ["attention_layer -1 1 NONE 0 0 NONE 0 0 NONE 0 100", "dense_mlp -1 1 NONE 0 0 NONE 0 0"]
DEEPSEEK_PREFILL = text(
    HEADER.format(tp=1, ep=16, pp=1, ranks=16, pp_comm=0),
    [DENSE[0], f"{DENSE[1]} NONE 0 100"] * 3 + moe_layers(58, "NONE 0", 60_555_264, 117_440_512),
)


def test_a_prefill_of_deepseek_exchanges_tokens_in_58_layers() -> None:
    workload = read(DEEPSEEK_PREFILL, computing="0 s")
    assert sent(workload) == {("all-to-all", 16): 58 * (60_555_264 + 117_440_512)}
    assert all(node.name.startswith("fwd") for node in workload.nodes)
    assert workload.tally.ignored["backward passes (inference has none)"] == 296


@pytest.mark.parametrize(
    ("settings", "attention"),
    [
        ({"tp": 2, "ep": 8, "pp": 1, "ranks": 16, "pp_comm": 0}, "ALLREDUCE 16384"),
        ({"tp": 1, "ep": 4, "pp": 4, "ranks": 16, "pp_comm": 33_554_432}, "NONE 0"),
        ({"tp": 2, "ep": 2, "pp": 2, "ranks": 8, "pp_comm": 16_384}, "ALLREDUCE 16384"),
    ],
)
def test_inference_sends_what_its_rows_say(settings: dict[str, int], attention: str) -> None:
    document = text(HEADER.format(**settings), moe_layers(6, attention, 42_240, 81_920, time=2000))
    workload = read(document)
    assert sent(workload) == counted(document, settings["ranks"])
    computing = Fraction(6 * 5 * 2000, 10**9) * settings["ranks"] / settings["pp"]
    units = [node for node in workload.nodes if isinstance(node, ComputeUnit)]
    assert sum((unit.duration_s for unit in units), Fraction(0)) == computing


def test_the_layers_of_a_model_are_divided_among_stages() -> None:
    settings = {"tp": 1, "ep": 1, "pp": 4, "ranks": 4, "pp_comm": 64}
    document = text(HEADER.format(**settings), moe_layers(6, "NONE 0", 8, 8, time=2000))
    workload = read(document)
    by_rank: Counter[str] = Counter()
    for node in workload.nodes:
        if isinstance(node, ComputeUnit):
            by_rank[node.worker] += 1
    assert by_rank == {"0": 10, "1": 10, "2": 5, "3": 5}
    assert "2, 2, 1, 1 transformer layers" in workload.tally.notes[0]
    fewer = text(HEADER.format(**settings), moe_layers(3, "NONE 0", 8, 8))
    with pytest.raises(DocumentError, check=coded("out-of-range", "3 transformer layers for 4")):
        read(fewer)


def test_bytes_of_sends_that_differ_from_activations_are_named() -> None:
    settings = {"tp": 2, "ep": 1, "pp": 2, "ranks": 4, "pp_comm": 999}
    document = text(HEADER.format(**settings), moe_layers(2, "ALLREDUCE 64", 8, 8, time=2000))
    assert "pp_comm says 999 B, but a rank's activations in line 4 have 64 B" in "".join(
        read(document).tally.notes
    )


TRAINING = (
    "model_parallel_NPU_group: {tp} ep: 1 pp: {pp} vpp: {vpp} ga: {ga} all_gpus: {ranks}"
    " checkpoints: 0 checkpoint_initiates: 0 pp_comm: {pp_comm}"
)


def gpt(ga: int, layers: int, time: int, activations: int = 64) -> list[str]:
    """Return the rows of a stage of a GPT without sequence parallelism."""
    reduced = f"ALLREDUCE {activations}"
    row = f"-1 {time} {reduced} {time} {reduced} {time} NONE 0 100"
    return [
        f"grad_norm -1 1 ALLGATHER 512 {time} NONE 0 1 REDUCESCATTER 1024 100",
        "embedding_grads -1 1 NONE 0 1 NONE 0 1 NONE 0 100",
        *[f"embedding_layer {row}", *[f"attention_layer {row}", f"mlp_layer {row}"] * layers] * ga,
        "cross_entropy1 -1 0 ALLREDUCE 16 0 NONE 0 0 NONE 0 100",
    ]


@pytest.mark.parametrize(
    ("tp", "pp", "vpp", "ga", "layers"),
    [(2, 4, 1, 3, 2), (2, 2, 2, 4, 2), (1, 2, 4, 3, 4), (4, 2, 1, 1, 2), (2, 1, 2, 2, 2)],
)
@pytest.mark.parametrize("replicas", [1, 2])
def test_stages_send_what_the_first_line_says(
    tp: int, pp: int, vpp: int, ga: int, layers: int, replicas: int
) -> None:
    ranks = tp * pp * replicas
    pp_comm = "0" if pp == 1 else "64.0"
    settings = TRAINING.format(tp=tp, pp=pp, vpp=vpp, ga=ga, ranks=ranks, pp_comm=pp_comm)
    document = text(settings, gpt(ga, layers, 2000))
    workload = read(document)
    assert sent(workload) == counted(document, ranks)
    in_stage = ranks // pp
    for node in workload.nodes:
        if isinstance(node, CollectiveStep):
            assert len({int(rank) // in_stage for rank in node.group}) == 1
        elif isinstance(node, Flow):
            assert (int(node.dst) - int(node.src)) % in_stage == 0


def test_one_stage_alone_is_taken_if_that_is_meant() -> None:
    document = text(TRAINING.format(tp=2, pp=4, vpp=2, ga=2, ranks=16, pp_comm=64), gpt(2, 2, 2000))
    workload = read(document, pp=1)
    assert workload.ranks == 4
    assert sent(workload) == counted(document.replace("pp: 4", "pp: 1").replace(": 64", ": 0"), 4)
    assert "one stage alone (--set pp=1): no sends between stages" in workload.tally.notes


def finish_s(workload: Workload) -> Fraction:
    """Return when everything has finished, if nothing but computing takes time."""
    finished: dict[str, Fraction] = {}
    for node in workload.nodes:
        start_s = max((finished[name] for name in node.after), default=Fraction(0))
        computing_s = node.duration_s if isinstance(node, ComputeUnit) else Fraction(0)
        finished[node.name] = start_s + computing_s
    return max(finished.values())


@pytest.mark.parametrize(("pp", "vpp", "ga"), [(4, 1, 8), (4, 2, 8), (2, 4, 4), (3, 2, 6)])
def test_a_pipeline_has_the_bubble_that_simai_counts(pp: int, vpp: int, ga: int) -> None:
    """Its bubble is ``(pp - 1) / (ga x vpp)`` of the computing (SimAI's `Layer.cc`)."""
    layers = [
        "embedding_layer -1 0 NONE 0 0 NONE 0 0 NONE 0 100",
        *[
            "attention_layer -1 3000 NONE 0 2000 NONE 0 4000 NONE 0 100",
            "mlp_layer -1 0 NONE 0 0 NONE 0 0 NONE 0 100",
        ]
        * 4,
    ]
    settings = TRAINING.format(tp=1, pp=pp, vpp=vpp, ga=ga, ranks=pp, pp_comm=64)
    computing_s = Fraction(4 * ga * 9000, 10**9)
    bubble = Fraction(pp - 1, ga * vpp)
    assert finish_s(read(text(settings, layers * ga))) == computing_s * (1 + bubble)


SEVEN_BILLION = TRAINING.format(tp=4, pp=4, vpp=9, ga=2, ranks=128, pp_comm=33_554_432)
"""A GPT of 36 layers on four stages, as SimAI's issue 271 has it, with fewer micro-batches."""


def test_four_stages_send_32_mib_between_them() -> None:
    document = text(SEVEN_BILLION, gpt(2, 9, 1, 33_554_432))
    source = Source("file", document.encode())
    hosts = [f"h{number}" for number in range(1, 5)]

    def converted(**options: object) -> Workload:
        settings = {"layers": "1:21", **options}
        return convert(
            "simai", [source], "job", hosts=hosts, ranks_per_host=4, options=settings
        ).workload

    with pytest.raises(DocumentError, check=coded("missing-key", "times of computing are place")):
        converted()
    workload = converted(computing="300 ms")
    sends = [node for node in workload.nodes if isinstance(node, Flow)]
    assert {send.size_bytes for send in sends} == {33_554_432}
    assert len(sends) == 2 * (4 * 9 - 1) * 4
    assert len([send for send in sends if (int(send.src), int(send.dst)) == (0, 4)]) == 9
    notes = "\n".join(workload.tally.notes)
    assert "16 ranks, the file says 128: fewer data-parallel replicas" in notes
    assert "1 micro-batch, 9 times through each of 4 stages" in notes

    plain = converted(computing="0 s", vpp=1)
    sends = [node for node in plain.nodes if isinstance(node, Flow)]
    assert len(sends) == 2 * 3 * 4
    assert not any(node.duration_s for node in plain.nodes if isinstance(node, ComputeUnit))


def test_computing_takes_the_place_of_placeholders() -> None:
    document = text(SEVEN_BILLION, gpt(2, 9, 1))
    workload = read(document, ranks=16, computing="300 ms")
    by_rank: Counter[str] = Counter()
    for node in workload.nodes:
        if isinstance(node, ComputeUnit):
            by_rank[node.worker] += node.duration_s  # type: ignore[assignment]
    assert by_rank == {str(rank): Fraction(3, 10) for rank in range(16)}
    assert workload.tally.derived["equal parts of --computing"] == 3 * (2 + 2 * 19)


def test_placeholders_among_measured_times_are_counted() -> None:
    settings = "model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 2 ga: 1"
    document = text(settings, gpt(1, 2, 2000))
    workload = read(document, ranks=2)
    assert workload.tally.notes == [
        "of 24 times of computing 5 are placeholders (1 or 2 ns) and 3 are 0"
    ]
    with pytest.raises(DocumentError, check=coded("conflicting-key", "--gpu")):
        read(document, ranks=2, gpu="A100")
    source = Source("file", document.encode())
    with pytest.raises(DocumentError, check=coded("conflicting-key", "has times of computing")):
        convert("simai", [source], "job", hosts=["a", "b"], options={"computing": "1 s"})


def test_none_sends_nothing_whatever_its_size() -> None:
    settings = "model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 2 ga: 1 pp_comm: 0"
    rows = [
        "embedding_layer -1 2000 NONE 33554432 1 NONE 33554432 1 NONE 0 100",
        "moe_grad_norm1 -1 1 NONE 0 1 NONE 0 1 ALLGATHER 0 100",
    ]
    workload = read(text(settings, rows), ranks=2)
    assert not sent(workload)
    ignored = workload.tally.ignored
    assert ignored["sizes of NONE, which is not sent"] == 2
    assert ignored["collectives of no bytes"] == 1
    assert ignored["settings that change nothing here (vpp, ga, pp_comm)"] == 3


PIPELINE = TRAINING.format(tp=1, pp=2, vpp=2, ga=2, ranks=2, pp_comm=64)


@pytest.mark.parametrize(
    ("before", "after", "code", "words"),
    [
        ("pp_comm: 64", "pp_comm: 64 zero: 1", "bad-syntax", "take it out if it changes nothing"),
        ("pp_comm: 64", "pp_comm: 64.5", "bad-syntax", "not a number for pp_comm"),
        ("pp_comm: 64", "pp_comm: 0", "bad-syntax", "pp_comm has no bytes"),
        ("pp_comm: 64", "pp_comm: 64 pp_comm: 8", "bad-syntax", "pp_comm is 64 and 8"),
        ("pp_comm: 64", "pp_comm: 64 mode: 2", "bad-syntax", "mode 2 is not known"),
        ("pp_comm: 64", "pp_comm: 64 mode: 1", "bad-syntax", "mode 1 is inference"),
        (LOOP, "DATA", "bad-syntax", "DATA has no pipelines"),
        ("checkpoint_initiates: 0", "checkpoint_initiates: 1 3", "bad-syntax", "checkpoints"),
        ("ga: 2", "ga: 3", "conflicting-key", "2 micro-batches"),
        ("vpp: 2", "vpp: 3", "conflicting-key", "--set vpp=1"),
        ("ALLREDUCE 64", "ALLREDUCE_EP 64", "", ""),
        ("ep: 1 ", "", "", ""),
        ("all_gpus: 2", "all_gpus: 3", "wrong-length", "3 ranks are not a multiple of 2 (stages)"),
    ],
)
def test_a_contradiction_is_refused_with_a_remedy(
    before: str, after: str, code: str, words: str
) -> None:
    document = text(PIPELINE, gpt(2, 2, 2000)).replace(before, after, 1)
    if not code:
        read(document)
        return
    with pytest.raises(DocumentError, check=coded(code, words)):
        read(document)


def test_experts_without_their_number_are_refused() -> None:
    document = text(PIPELINE, gpt(2, 2, 2000)).replace("ep: 1 ", "")
    document = document.replace("ALLREDUCE 64", "ALLTOALL_EP 64", 1)
    with pytest.raises(DocumentError, check=coded("bad-syntax", "add ep:", path="line 5")):
        read(document)


def test_rows_of_other_names_are_equal_parts_of_micro_batches() -> None:
    rows = ["layer -1 10000 ALLREDUCE 8 20000 NONE 0 5000 NONE 0 100"] * 8
    document = text(PIPELINE.replace("vpp: 2", "vpp: 1").replace("ga: 2", "ga: 4"), rows)
    workload = read(document)
    assert sent(workload) == counted(document, 2)
    with pytest.raises(DocumentError, check=coded("missing-key", "3 micro-batches (ga) begin")):
        read(document.replace("ga: 4", "ga: 3"))
