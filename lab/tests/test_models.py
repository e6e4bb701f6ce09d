"""Models by name: against published sizes, and against the communication lists of AICB."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import echelon
from echelon.cli import app
from echelon.model.documents import parse_document
from echelon.model.jobs import build_job
from echelon.model.jobs.spec import JobSpec
from echelon_lab.models.catalogue import MODELS, find_model
from echelon_lab.models.gpus import GPUS
from echelon_lab.models.hosts import Host
from echelon_lab.models.layers import Layer, Model
from echelon_lab.models.times import pass_s
from echelon_lab.models.traffic import traffic
from echelon_lab.models.training import Training, Zero
from echelon_lab.models.transformers import transformer
from tests.faults import mentions

PARAMETERS = {
    # Counted in the authors' checkpoints, or torchvision's.
    "gpt2-small": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-65b": 65_285_660_672,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "resnet-50": 25_557_032,
    "resnet-101": 44_549_160,
    "resnet-152": 60_192_808,
    "vgg-16": 138_357_544,
    "vgg-19": 143_667_240,
    "densenet-121": 7_978_856,
    "densenet-161": 28_681_000,
}
FORWARD_GFLOP = {
    # Twice the multiply-adds of the papers: He et al., table 1 (3.8 x 10^9 without the stride in
    # 3x3); Simonyan and Zisserman (15.5); Huang et al. (7.8 for DenseNet-161).
    "resnet-50": 8.2,
    "vgg-16": 31.0,
    "densenet-161": 15.5,
}


EQUATIONS = {
    (False, False): "10 + 24/t + 5as/ht",
    (True, False): "34/t + 5as/ht",
    (False, True): "10 + 24/t",
    (True, True): "34/t",
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_the_published_ones(name: str) -> None:
    assert find_model(name).parameters == PARAMETERS[name]


@pytest.mark.parametrize("name", FORWARD_GFLOP)
def test_operations_are_the_published_ones(name: str) -> None:
    assert find_model(name).forward_flops / 1e9 == pytest.approx(FORWARD_GFLOP[name], rel=0.02)


@pytest.mark.parametrize(
    "name", [name for name in MODELS if name.startswith(("gpt2", "gpt-1", "gpt-6", "llama-"))]
)
def test_a_transformer_needs_about_two_operations_per_parameter_and_token(name: str) -> None:
    """Kaplan et al., arXiv:2001.08361, equation 2.2: 2 N, and 2 layers x tokens x width for
    attention.
    """
    model = find_model(name)
    tokens = model.layers[-1].output
    width = model.layers[1].output // tokens
    embedded = model.layers[0].parameters + (
        model.layers[-1].parameters if model.layers[-1].parameters > width * 4 else 0
    )
    inner = model.parameters - embedded
    layers = len(model.layers) - 2
    blocks = sum(layer.forward_flops for layer in model.layers[1:-1])
    expected = tokens * (2 * inner + 4 * layers * tokens * width)
    assert blocks == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("name", [name for name in MODELS if not name.startswith("dlrm")])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8])
def test_stages_are_all_layers_in_order_and_about_equal(name: str, count: int) -> None:
    model = find_model(name)
    stages = model.stages(count)
    assert len(stages) == count
    assert all(stages)
    assert tuple(layer for stage in stages for layer in stage) == model.layers
    largest = max(layer.forward_flops for layer in model.layers)
    for stage in stages:
        assert (
            abs(sum(layer.forward_flops for layer in stage) - model.forward_flops / count)
            <= 2 * largest
        )


class TestAicb:
    """Bytes of one GPU in one iteration, against the lists in `aliyun/aicb`,
    workload/physical/model_workload.
    """

    def test_llama_7b_with_zero_3(self) -> None:
        """L7B-D1-C02_Llama7B_zero3_mbs1.csv, 128 GPUs: 291 gathers forward and as many backward, 7
        scatters. (Besides these, 0.5 MB of norms are gathered in the optimiser's step.)"""
        (ours,) = traffic(Training(find_model("llama-7b"), GPUS["A100"], data=128, zero=3))
        assert ours.data_all_gather == 2 * 13_476_831_232
        assert ours.data_reduce_scatter == 11_866_161_152 + 1_610_670_080
        assert (ours.tensor_all_reduce, ours.pipeline_send, ours.data_all_reduce) == (0, 0, 0)

    def test_gpt_13b_with_tensor_parallelism(self) -> None:
        """G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1.csv: 81 all-reduces of 20,971,520 B forward, 81
        backward; gradients of 6,422,958,080 B scattered, parameters of 3,211,479,040 B gathered.

        AICB has no position embedding, and pads the vocabulary to a multiple of 1024: together 0.06
        %.
        """
        model = find_model("gpt-13b")
        (ours,) = traffic(Training(model, GPUS["A100"], data=16, tensor=8, micro_batches=1, zero=1))
        assert ours.tensor_all_reduce == 2 * 81 * 20_971_520
        assert ours.data_reduce_scatter == pytest.approx(6_422_958_080, rel=0.001)
        assert ours.data_all_gather == pytest.approx(3_211_479_040, rel=0.001)

    def test_llama_65b_with_tensor_and_pipeline_parallelism(self) -> None:
        """L65B-M1-C05_Llama65B_megatron_tp2_pp8_mbs1.csv: 8 micro-batches, sends of 33,554,432 B.

        AICB lists all 80 layers, and the embedding, in *each* of the 8 stages: 160 all-reduces a
        micro-batch forward, of 33,554,432 B, where a stage of 10 layers has 20. So an eighth of its
        list is what a GPU sends, and the embedding's is only on the first stage. The list has no
        step of the optimiser.
        """
        listed = 2 * 42_949_672_960
        stages = traffic(
            Training(
                find_model("llama-65b"), GPUS["A100"], data=8, tensor=2, pipeline=8, micro_batches=8
            )
        )
        embedding = 2 * 268_435_456
        assert sum(of.tensor_all_reduce for of in stages) - embedding == listed
        assert [of.tensor_all_reduce for of in stages[1:]] == pytest.approx(
            [listed / 8] * 7, rel=0.05
        )
        assert stages[0].tensor_all_reduce - embedding == pytest.approx(listed / 8, rel=0.05)
        assert [of.pipeline_send for of in stages] == [268_435_456] + [2 * 268_435_456] * 6 + [
            268_435_456
        ]


@pytest.mark.parametrize(
    ("hidden", "layers", "vocabulary"), [(2304, 24, 51200), (12288, 80, 51200)]
)
def test_operations_of_a_gpt_are_equation_3_of_megatron_lm(
    hidden: int, layers: int, vocabulary: int
) -> None:
    """96 s l h^2 (1 + s / 6h + V / 16lh) a sequence, with all but the output layer computed twice
    forward.
    """
    s = 2048
    made = tuple(transformer(layers, hidden, 24, vocabulary, s, positions=s))
    head = made[-1].forward_flops
    ours = 4 * (sum(layer.forward_flops for layer in made) - head) + 3 * head
    assert ours == 96 * s * layers * hidden**2 * (
        1 + Fraction(s, 6 * hidden) + Fraction(vocabulary, 16 * layers * hidden)
    )


@pytest.mark.parametrize(("ways", "factor"), EQUATIONS.items())
def test_what_a_layer_keeps_is_korthikantis(ways: tuple[bool, bool], factor: str) -> None:
    """Equations 1 to 4 of V. Korthikanti et al., arXiv:2205.05198, with s = 2048, h = 12288, a = 96
    and t = 8.
    """
    parallel, flash = ways
    s, h, a, t, b = 2048, 12288, 96, 8, 3
    keys: dict[str, Any] = {"sequence_parallel": parallel, "flash": flash, "micro_batch_samples": b}
    training = Training(find_model("gpt-175b"), GPUS["A100"], tensor=t, **keys)
    expected = {
        "10 + 24/t + 5as/ht": 10 + Fraction(24, t) + Fraction(5 * a * s, h * t),
        "34/t + 5as/ht": Fraction(34, t) + Fraction(5 * a * s, h * t),
        "10 + 24/t": 10 + Fraction(24, t),
        "34/t": Fraction(34, t),
    }[factor]
    assert training.kept_bytes(training.model.layers[1]) == s * b * h * expected


@pytest.mark.parametrize(("zero", "gigabytes"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_the_state_of_a_model_is_that_of_the_zero_paper(zero: Zero, gigabytes: float) -> None:
    """Figure 1 of S. Rajbhandari et al., arXiv:1910.02054: 7.5 billion parameters on 64 GPUs."""
    model = Model("7.5B", "", (Layer("all", 75 * 10**8, 1, 1),), "a sequence")
    assert float(
        Training(model, GPUS["V100"], data=64, zero=zero).state_bytes
    ) / 1e9 == pytest.approx(gigabytes, abs=0.05)


def test_experts_are_sharded_over_the_replicas_that_have_them() -> None:
    """Eight groups of 8 of the 64 replicas have the same experts: ZeRO-1 divides 12 of 16 bytes by
    8, or by 64.
    """
    training = Training(find_model("mixtral-8x7b"), GPUS["H100"], data=64, expert=8, zero=1)
    experts = 32 * 8 * 3 * 4096 * 14336
    assert training.state_bytes == (46_702_792_704 - experts) * (
        4 + Fraction(12, 64)
    ) + experts // 8 * Fraction(11, 2)


def test_bytes_of_a_context_and_of_experts() -> None:
    """Llama 3 has 8 heads of 128 for keys and as many for values; Mixtral sends a token to 2
    experts.
    """
    llama = Training(find_model("llama3-405b"), GPUS["H100"], tensor=8, context=4, micro_batches=3)
    (ours,) = traffic(llama)
    gathered = 3 * 126 * 2 * 8192 * 2 * 1024 // 8
    assert (ours.context_all_gather, ours.context_reduce_scatter) == (2 * gathered, gathered)
    mixtral = Training(
        find_model("mixtral-8x7b"), GPUS["H100"], data=8, expert=8, tensor=2, micro_batches=3
    )
    (ours,) = traffic(mixtral)
    assert ours.expert_all_to_all == 3 * 32 * 4 * 2 * 4096 * 2 * 4096 // 2
    experts = 32 * 8 * 3 * 4096 * 14336
    assert (
        mixtral.parameters(mixtral.model.layers) == (46_702_792_704 - experts) // 2 + experts // 16
    )


def test_sends_of_interleaved_stages() -> None:
    """Narayanan et al., SC '21, section 2.2.2: v times those of one stage, but for both ends of the
    model; and section 4.2.2 of Korthikanti et al.: ranks of a tensor group send their part with
    sequence parallelism."""
    plain = Training(find_model("gpt-175b"), GPUS["A100"], tensor=8, pipeline=4, micro_batches=8)
    chunked = replace(plain, chunks=3, sequence_parallel=True)
    size = 8 * 2048 * 12288 * 2
    assert [of.pipeline_send for of in traffic(plain)] == [size, 2 * size, 2 * size, size]
    assert [of.pipeline_send for of in traffic(chunked)] == [n * size // 8 for n in (5, 6, 6, 5)]


COMMANDS = {
    "3d": ("llama-7b --gpus 64 --parallel dp=8,tp=4,pp=2 --micro-batches 16", "mesh", 8),
    "data": ("resnet-50 --gpus 64 --micro-batch-size 32 --gpu V100", "data", 8),
    "zero1": ("gpt-1.3b --gpus 32 --parallel tp=2 --zero 1", "mesh", 4),
    "zero3": ("gpt2-small --gpus 32 --zero 3", "fsdp", 4),
    "pipeline": ("bert-large --gpus 32 --parallel tp=8,pp=4 --micro-batches 8", "pipeline", 4),
    "zero2": ("gpt-6.7b --gpus 32 --parallel tp=2 --zero 2 --global-batch 32", "fsdp", 4),
    "stages": (
        "gpt-6.7b --gpus 32 --parallel tp=8,pp=2 --interleave 2 --recompute full --zero 2",
        "mesh",
        4,
    ),
    "context": (
        "llama3-8b --gpus 64 --parallel tp=4,cp=4,pp=2 --sequence-parallel --gpu H200",
        "mesh",
        8,
    ),
    "experts": ("mixtral-8x7b --gpus 64 --parallel tp=4,ep=8 --zero 1 --gpu B200", "mesh", 8),
    "one host of experts": (
        "mixtral-8x7b --gpus 32 --parallel ep=8 --gpu MI300X --no-overlap",
        "mesh",
        4,
    ),
    "own": (
        "llama-13b --gpus 16 --gpu peak=275,local=300,memory=1200 --efficiency 70% --no-flash",
        "data",
        2,
    ),
    "thesis": ("vgg-16 --gpus 4 --gpus-per-host 1 --micro-batch-size 32", "data", 4),
}


def printed(arguments: str) -> str:
    result = CliRunner().invoke(app, ["job", "new", *arguments.split()])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("case", COMMANDS)
def test_the_printed_file_is_a_job_that_runs(case: str) -> None:
    arguments, paradigm, hosts = COMMANDS[case]
    text = printed(arguments)
    assert text.startswith("# ")
    spec = parse_document(JobSpec, yaml.safe_load(text), "printed")
    assert spec.parallelism == paradigm
    assert len(spec.workers) == hosts
    fabric = echelon.fabrics.leaf_spine(
        leaves=2, spines=2, hosts_per_leaf=hosts // 2, rate_bps=400 * 10**9
    )
    compared = echelon.simulate({"fabric": fabric, "jobs": [spec]}, ["echelon"])
    computed_s: dict[str, Fraction] = {}
    for unit in build_job(spec).computes:
        computed_s[unit.worker] = computed_s.get(unit.worker, Fraction(0)) + unit.duration_s
    assert compared.outcome("echelon", spec.job).mean_iteration_s >= float(max(computed_s.values()))


def test_a_3d_job_computes_and_sends_what_the_formulas_say() -> None:
    """Pipelines of 2 stages on 4 hosts of each stage, 16 micro-batches: 2 x 16 sends a host of a
    boundary, with the activations of 8 GPUs; each of the 4 hosts of a stage sends 2 x 3/4 of the
    gradients of a stage in FP32."""
    gpu = GPUS["A100"]
    assert gpu.efficiency is not None
    keys: dict[str, Any] = {
        "data": 8,
        "tensor": 4,
        "pipeline": 2,
        "micro_batches": 16,
        "efficiency": gpu.efficiency,
    }
    training = Training(find_model("llama-7b"), gpu, **keys)
    job = build_job(parse_document(JobSpec, yaml.safe_load(printed(COMMANDS["3d"][0])), "printed"))
    first = {f"h{n}" for n in range(1, 5)}
    crossing = [flow for flow in job.flows if (flow.src in first) != (flow.dst in first)]
    assert len(crossing) == 4 * 2 * 16
    assert {flow.size_bytes for flow in crossing} == {8 * 2048 * 4096 * 2}
    for stage, layers in enumerate(training.stages):
        hosts = {f"h{n}" for n in range(4 * stage + 1, 4 * stage + 5)}
        sums = sum(flow.size_bytes for flow in job.flows if flow.src in hosts and flow.dst in hosts)
        assert sums == pytest.approx(
            4 * Fraction(3, 2) * 4 * sum(layer.parameters for layer in layers), rel=1e-6
        )
    for host in job.workers:
        computed = sum(unit.duration_s for unit in job.computes if unit.worker == host)
        layers = training.stages[0 if int(host[1:]) <= 4 else 1]
        assert computed == pytest.approx(16 * sum(pass_s(training, layers, Host(8))), rel=1e-6)


def sent_bytes(arguments: str) -> int:
    job = build_job(parse_document(JobSpec, yaml.safe_load(printed(arguments)), "printed"))
    return sum(flow.size_bytes for flow in job.flows)


def test_bytes_between_hosts_that_share_experts() -> None:
    """2 replicas of 4 hosts with 8 groups of experts. An all-to-all moves 3/4 of what a host has: 8
    GPUs with half a sequence each of 4096 tokens, for 2 experts, 2 times in each pass. Experts are
    summed by 2 hosts, all else by 8.
    """
    tokens = 8 * 2 * 2 * 4096 * 4096 // 4
    experts = 32 * 8 * 3 * 4096 * 14336
    dense = 46_702_792_704 - experts
    exchanged = 8 * 32 * 4 * tokens * 3 // 4
    # Each host has a quarter of the experts: FP32 is scattered, and 16 bits are gathered.
    summed = 8 * (4 + 2) * experts // 4 // 2
    every = 2 * 7 * dense * 3
    assert sent_bytes(COMMANDS["experts"][0]) == pytest.approx(exchanged + summed + every, rel=1e-6)


def test_bytes_between_hosts_of_a_context() -> None:
    """2 stages of 2 replicas of 2 hosts. Each host sends half of all keys and values of a layer:
    forward, backward, and their gradients. Its 8 GPUs send a quarter of a quarter of the
    activations. 4 hosts sum a stage."""
    micro_batches = 8
    exchanged = 8 // 2 * 3 * 32 * micro_batches * 2 * 8192 * 2 * 1024 // 2
    crossing = 2 * 4 * micro_batches * 8 * 2 * 8192 * 4096 // 16
    summed = 2 * 3 * 4 * 8_030_261_248
    assert sent_bytes(COMMANDS["context"][0]) == pytest.approx(
        exchanged + crossing + summed, rel=1e-6
    )


def test_bytes_of_zero_2_with_and_without_a_pipeline() -> None:
    """Without, each of 2 micro-batches is scattered in 16 bits (ZeRO); with one, FP32 adds up
    (torchtitan).
    """
    parameters = find_model("gpt-6.7b").parameters
    assert sent_bytes(COMMANDS["zero2"][0]) == pytest.approx(3 * (2 * 2 + 2) * parameters, rel=1e-6)
    crossing = 3 * 2 * 2 * 8 * 8 * 2 * 2048 * 4096
    assert sent_bytes(COMMANDS["stages"][0]) == pytest.approx(
        (4 + 2) * parameters + crossing, rel=1e-6
    )


def test_micro_batches_follow_from_the_global_batch() -> None:
    text = printed(
        "gpt-6.7b --gpus 64 --parallel dp=4,tp=8,pp=2 --global-batch 64 --micro-batch-size 2"
    )
    assert yaml.safe_load(text)["mesh"]["micro_batches"] == 8
    assert "of an iteration: 64." in " ".join(text.split())


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (
            "gpt-6.7b --gpus 16 --parallel tp=8,pp=2 --micro-batches 1",
            ["2 stages", "1 micro-batch", "50%", "--global-batch"],
        ),
        ("gpt-6.7b --gpus 64 --parallel tp=8,pp=4 --interleave 2", []),
        (
            "gpt-6.7b --gpus 64 --parallel tp=8,pp=4 --interleave 2 --micro-batches 4",
            ["8 stages", "4 micro-batches"],
        ),
        ("gpt-175b --gpus 64 --parallel tp=8,pp=2", ["175 GB", "80 GB", "tp, pp or --zero"]),
        ("gpt-6.7b --gpus 16 --parallel tp=8,pp=2 --zero 1", ["--zero 1", "dp=2"]),
        ("gpt-6.7b --gpus 16 --parallel tp=8", []),
    ],
)
def test_a_warning_of_what_no_one_trains_like(arguments: str, names: list[str]) -> None:
    result = CliRunner().invoke(app, ["job", "new", *arguments.split()])
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: ") == bool(names)
    assert mentions(result.stderr, *names)
    assert ("# Warning: " in result.stdout) == bool(names)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("llama-8b --gpus 64", "MODEL"),
        ("llama-7b --gpus 64 --gpu B9000", "--gpu"),
        ("llama-7b --gpus 64 --parallel dp=8,tp=4", "--parallel"),
        ("llama-7b --gpus 64 --parallel xp=8", "--parallel"),
        ("llama-7b --gpus 64 --parallel tp=2,tp=2", "--parallel"),
        ("llama-7b --gpus 64 --parallel pp=64", "--parallel"),
        ("resnet-50 --gpus 64 --parallel tp=4", "--parallel"),
        ("llama-7b --gpus 64 --parallel pp=4 --zero 3", "--zero"),
        ("llama-7b --gpus 64 --zero 4", "--zero"),
        ("mixtral-8x7b --gpus 64 --parallel ep=8 --zero 2 --gpus-per-host 4", "--zero"),
        ("llama-7b --gpus 64 --zero 3 --no-overlap", "--no-overlap"),
        ("llama-7b --gpus 64 --global-batch 100", "--global-batch"),
        ("llama-7b --gpus 64 --parallel dp=32,tp=2 --global-batch 16", "--global-batch"),
        ("llama-7b --gpus 64 --global-batch 64 --micro-batches 2", "--micro-batches"),
        ("llama-7b --gpus 64 --parallel ep=8", "ep"),
        ("mixtral-8x7b --gpus 64 --parallel ep=5", "ep"),
        ("resnet-50 --gpus 64 --parallel cp=4", "cp"),
        ("llama-7b --gpus 64 --parallel cp=3,dp=16", "--parallel"),
        ("mixtral-8x7b --gpus 256 --parallel tp=4,cp=4,ep=4", "ep"),
        ("llama-7b --gpus 96 --parallel tp=4,cp=3", "--gpus-per-host"),
        ("llama-7b --gpus 64 --sequence-parallel", "--sequence-parallel"),
        ("llama-7b --gpus 64 --interleave 2", "--interleave"),
        ("llama-7b --gpus 64 --parallel pp=4 --interleave 9", "--interleave"),
        ("llama-7b --gpus 64 --parallel pp=4 --interleave 2 --micro-batches 6", "--interleave"),
        ("llama-7b --gpus 64 --recompute some", "--recompute"),
        ("llama-7b --gpus 64 --gpu peak=275", "--gpu"),
        ("llama-7b --gpus 64 --gpu peak=275,local=0,memory=1200", "--gpu"),
        ("llama-7b --gpus 64 --gpu TPU-v5p", "--gpus-per-host"),
        ("llama-7b --gpus 64 --gpu peak=275,local=300,memory=1200", "--efficiency"),
        ("llama-7b --gpus 8", "--gpus"),
        ("llama-7b --gpus 64 --parallel tp=16", "--gpus-per-host"),
        ("llama-7b --gpus 8 --parallel tp=2,pp=4", "--gpus-per-host"),
        ("llama-7b --gpus 64 --hosts h1,h2", "--hosts"),
        ("llama-7b --gpus 16 --hosts ,h2", "--hosts"),
        ("llama-7b --gpus 64 --efficiency 2", "--efficiency"),
        ("llama-7b --gpus 64 --name 1x", "--name"),
    ],
)
def test_a_wrong_option_is_one_line(arguments: str, named: str) -> None:
    result = CliRunner().invoke(app, ["job", "new", *arguments.split()])
    assert result.exit_code == 2
    assert len(result.output.splitlines()) == 1
    assert mentions(result.output, named)


def test_from_a_model_to_a_table_of_policies(tmp_path: Path) -> None:
    """A new user needs two commands and a scenario's file."""
    (tmp_path / "llama.yaml").write_text(printed(COMMANDS["3d"][0]))
    (tmp_path / "scenario.yaml").write_text(
        "scenario: mine\nfabric: leaf_spine.yaml\njobs: [llama.yaml]\npolicies: [fair, echelon]\n"
    )
    commands = [
        [
            "fabric",
            "leaf-spine",
            "--leaves",
            "2",
            "--spines",
            "2",
            "--hosts-per-leaf",
            "4",
            "--rate",
            "100 Gbit/s",
        ],
        [
            "run",
            str(tmp_path / "scenario.yaml"),
            "--target",
            "fluid",
            "--out",
            str(tmp_path / "out"),
        ],
    ]
    made = CliRunner().invoke(app, [*commands[0], "-o", str(tmp_path / "leaf_spine.yaml")])
    assert made.exit_code == 0, made.output
    run = CliRunner().invoke(app, commands[1])
    assert run.exit_code == 0, run.output
    assert (tmp_path / "out/report.md").exists()
