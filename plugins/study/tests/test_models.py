"""Models by name: against published sizes, and against the communication lists of AICB."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import echelon
from echelon.cli import app
from echelon.documents import parse_document
from echelon.jobs import build_job
from echelon.jobs.spec import JobSpec
from echelon_study.models import GPUS, MODELS, Training, find_model, traffic

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
    # Twice the multiply-adds of the papers: He et al., table 1 (3.8 x 10^9 without the stride in 3x3); Simonyan and
    # Zisserman (15.5); Huang et al. (7.8 for DenseNet-161).
    "resnet-50": 8.2,
    "vgg-16": 31.0,
    "densenet-161": 15.5,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_the_published_ones(name: str) -> None:
    assert find_model(name).parameters == PARAMETERS[name]


@pytest.mark.parametrize("name", FORWARD_GFLOP)
def test_operations_are_the_published_ones(name: str) -> None:
    assert find_model(name).forward_flops / 1e9 == pytest.approx(FORWARD_GFLOP[name], rel=0.02)


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith(("gpt", "llama-"))])
def test_a_transformer_needs_about_two_operations_per_parameter_and_token(name: str) -> None:
    """Kaplan et al., arXiv:2001.08361, equation 2.2: 2 N, and 2 layers x tokens x width for attention."""
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


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8])
def test_stages_are_all_layers_in_order_and_about_equal(name: str, count: int) -> None:
    model = find_model(name)
    stages = model.stages(count)
    assert len(stages) == count
    assert all(stages)
    assert tuple(layer for stage in stages for layer in stage) == model.layers
    largest = max(layer.forward_flops for layer in model.layers)
    for stage in stages:
        assert abs(sum(layer.forward_flops for layer in stage) - model.forward_flops / count) <= 2 * largest


class TestAicb:
    """Bytes of one GPU in one iteration, against the lists in `aliyun/aicb`, workload/physical/model_workload."""

    def test_llama_7b_with_zero_3(self) -> None:
        """L7B-D1-C02_Llama7B_zero3_mbs1.csv, 128 GPUs: 291 gathers forward and as many backward, 7 scatters. (Besides
        these, 0.5 MB of norms are gathered in the optimiser's step.)"""
        (ours,) = traffic(Training(find_model("llama-7b"), GPUS["A100"], data=128, zero=3))
        assert ours.data_all_gather == 2 * 13_476_831_232
        assert ours.data_reduce_scatter == 11_866_161_152 + 1_610_670_080
        assert (ours.tensor_all_reduce, ours.pipeline_send, ours.data_all_reduce) == (0, 0, 0)

    def test_gpt_13b_with_tensor_parallelism(self) -> None:
        """G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1.csv: 81 all-reduces of 20,971,520 B forward, 81 backward; gradients
        of 6,422,958,080 B scattered, parameters of 3,211,479,040 B gathered.

        AICB has no position embedding, and pads the vocabulary to a multiple of 1024: together 0.06 %.
        """
        model = find_model("gpt-13b")
        (ours,) = traffic(Training(model, GPUS["A100"], data=16, tensor=8, micro_batches=1, zero=1))
        assert ours.tensor_all_reduce == 2 * 81 * 20_971_520
        assert ours.data_reduce_scatter == pytest.approx(6_422_958_080, rel=0.001)
        assert ours.data_all_gather == pytest.approx(3_211_479_040, rel=0.001)

    def test_llama_65b_with_tensor_and_pipeline_parallelism(self) -> None:
        """L65B-M1-C05_Llama65B_megatron_tp2_pp8_mbs1.csv: 8 micro-batches, sends of 33,554,432 B.

        AICB lists all 80 layers, and the embedding, in *each* of the 8 stages: 160 all-reduces a micro-batch forward,
        of 33,554,432 B, where a stage of 10 layers has 20. So an eighth of its list is what a GPU sends, and the
        embedding's is only on the first stage. The list has no step of the optimiser.
        """
        listed = 2 * 42_949_672_960
        stages = traffic(Training(find_model("llama-65b"), GPUS["A100"], data=8, tensor=2, pipeline=8, micro_batches=8))
        embedding = 2 * 268_435_456
        assert sum(of.tensor_all_reduce for of in stages) - embedding == listed
        assert [of.tensor_all_reduce for of in stages[1:]] == pytest.approx([listed / 8] * 7, rel=0.05)
        assert stages[0].tensor_all_reduce - embedding == pytest.approx(listed / 8, rel=0.05)
        assert [of.pipeline_send for of in stages] == [268_435_456] + [2 * 268_435_456] * 6 + [268_435_456]


def test_the_ring_of_a_tensor_group_takes_time() -> None:
    """A ring of 4 moves 2 x 3/4 of the bytes over NVLink, 300 GB/s in each direction on A100."""
    training = Training(find_model("gpt-13b"), GPUS["A100"], tensor=4, data=2)
    layer = training.model.layers[1]
    assert training.tensor_bytes([layer]) == 2 * 20_971_520
    assert training.tensor_s([layer]) == Fraction(3, 2) * 2 * 20_971_520 / (300 * 10**9)


COMMANDS = {
    "3d": ("llama-7b --gpus 64 --parallel dp=8,tp=4,pp=2 --micro-batches 16", "mesh", 8),
    "data": ("resnet-50 --gpus 64 --micro-batch-size 32 --gpu V100", "data", 8),
    "zero1": ("gpt-1.3b --gpus 32 --parallel tp=2 --zero 1", "mesh", 4),
    "zero3": ("gpt2-small --gpus 32 --zero 3", "fsdp", 4),
    "pipeline": ("bert-large --gpus 32 --parallel tp=8,pp=4 --micro-batches 8", "pipeline", 4),
    "thesis": ("vgg-16 --gpus 4 --gpus-per-host 1 --micro-batch-size 32", "data", 4),
}


def printed(arguments: str) -> str:
    result = CliRunner().invoke(app, ["job", "new", *arguments.split()])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("case", COMMANDS)
def test_the_printed_file_is_a_job_that_runs(case: str) -> None:
    arguments, paradigm, hosts = COMMANDS[case]
    text = printed(arguments)
    assert text.startswith("# ")
    spec = parse_document(JobSpec, yaml.safe_load(text), "printed")
    assert spec.parallelism == paradigm
    assert len(spec.workers) == hosts
    fabric = echelon.fabrics.leaf_spine(leaves=2, spines=2, hosts_per_leaf=hosts // 2, rate_bps=400 * 10**9)
    compared = echelon.simulate({"fabric": fabric, "jobs": [spec]}, ["echelon"])
    computed_s: dict[str, Fraction] = {}
    for unit in build_job(spec).computes:
        computed_s[unit.worker] = computed_s.get(unit.worker, Fraction(0)) + unit.duration_s
    assert compared.outcome("echelon", spec.job).mean_iteration_s >= float(max(computed_s.values()))


def test_a_3d_job_computes_and_sends_what_the_formulas_say() -> None:
    """Pipelines of 2 stages on 4 hosts of each stage, 16 micro-batches: 2 x 16 sends a host of a boundary, with the
    activations of 8 GPUs; each of the 4 hosts of a stage sends 2 x 3/4 of the gradients of a stage in FP32."""
    training = Training(find_model("llama-7b"), GPUS["A100"], data=8, tensor=4, pipeline=2, micro_batches=16)
    job = build_job(parse_document(JobSpec, yaml.safe_load(printed(COMMANDS["3d"][0])), "printed"))
    first = {f"h{n}" for n in range(1, 5)}
    crossing = [flow for flow in job.flows if (flow.src in first) != (flow.dst in first)]
    assert len(crossing) == 4 * 2 * 16
    assert {flow.size_bytes for flow in crossing} == {8 * 2048 * 4096 * 2}
    for stage, layers in enumerate(training.stages):
        hosts = {f"h{n}" for n in range(4 * stage + 1, 4 * stage + 5)}
        sums = sum(flow.size_bytes for flow in job.flows if flow.src in hosts and flow.dst in hosts)
        assert sums == pytest.approx(4 * Fraction(3, 2) * 4 * sum(layer.parameters for layer in layers), rel=1e-6)
    for host in job.workers:
        computed = sum(unit.duration_s for unit in job.computes if unit.worker == host)
        layers = training.stages[0 if int(host[1:]) <= 4 else 1]
        assert computed == pytest.approx(
            16 * (3 * training.forward_s(layers) + 2 * training.tensor_s(layers)), rel=1e-6
        )


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
        ("llama-7b --gpus 64 --parallel tp=4 --zero 3", "--zero"),
        ("llama-7b --gpus 64 --zero 2", "--zero"),
        ("llama-7b --gpus 64 --zero 3 --micro-batches 2", "--micro-batches"),
        ("llama-7b --gpus 8", "--gpus"),
        ("llama-7b --gpus 64 --parallel tp=16", "--gpus-per-host"),
        ("llama-7b --gpus 8 --parallel tp=2,pp=4", "--gpus-per-host"),
        ("llama-7b --gpus 64 --hosts h1,h2", "--hosts"),
        ("llama-7b --gpus 64 --efficiency 2", "--efficiency"),
        ("llama-7b --gpus 64 --name 1x", "--name"),
    ],
)
def test_a_wrong_option_is_one_line(arguments: str, named: str) -> None:
    result = CliRunner().invoke(app, ["job", "new", *arguments.split()])
    assert result.exit_code == 2
    assert len(result.output.splitlines()) == 1
    assert named in result.output


def test_from_a_model_to_a_table_of_policies(tmp_path: Path) -> None:
    """A new user needs two commands and a scenario's file."""
    (tmp_path / "llama.yaml").write_text(printed(COMMANDS["3d"][0]))
    (tmp_path / "scenario.yaml").write_text(
        "scenario: mine\nfabric: leaf_spine.yaml\njobs: [llama.yaml]\npolicies: [fair, echelon]\n"
    )
    commands = [
        ["fabric", "leaf-spine", "--leaves", "2", "--spines", "2", "--hosts-per-leaf", "4", "--rate", "100 Gbit/s"],
        ["run", str(tmp_path / "scenario.yaml"), "--target", "fluid", "--out", str(tmp_path / "out")],
    ]
    made = CliRunner().invoke(app, [*commands[0], "-o", str(tmp_path / "leaf_spine.yaml")])
    assert made.exit_code == 0, made.output
    run = CliRunner().invoke(app, commands[1])
    assert run.exit_code == 0, run.output
    assert (tmp_path / "out/report.md").exists()
