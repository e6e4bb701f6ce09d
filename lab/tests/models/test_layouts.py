"""What layouts send between hosts, against counts by hand from the formulas of their papers."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from echelon.cli import app
from echelon.model.documents import parse_document
from echelon.model.jobs import build_job
from echelon.model.jobs.graph import Job
from echelon.model.jobs.spec import JobSpec
from echelon_lab.models.catalogue import find_model
from echelon_lab.models.dispatching import copies
from echelon_lab.models.gpus import GPUS
from echelon_lab.models.placement import placement
from echelon_lab.models.sharded import layer_pass_s
from echelon_lab.models.times import pass_s
from echelon_lab.models.traffic import traffic
from echelon_lab.models.training import Training

BF16, FP32 = 2, 4
SEQUENCE = 4096


def described(arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["job", "new", *arguments.split()])
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = yaml.safe_load(result.stdout)
    return document


def job_of(arguments: str) -> Job:
    return build_job(parse_document(JobSpec, described(arguments), "printed"))


def sent_bytes(arguments: str) -> int:
    return sum(flow.size_bytes for flow in job_of(arguments).flows)


def all_reduced(size_bytes: float, ranks: int) -> float:
    """Return what a ring sends: 2 (n - 1) / n of the data, from each of n ranks."""
    return 2 * (ranks - 1) * size_bytes


def experts(name: str) -> int:
    return sum(layer.experts for layer in find_model(name).layers)


class TestExperts:
    """DeepSeek-V3, arXiv:2412.19437, section 3.2: 64 GPUs on 8 hosts share experts, tp is 1."""

    LAYOUT = "deepseek-v3 --gpus 128 --parallel pp=2,ep=64 --micro-batches 2 --gpu H200"

    def test_a_copy_for_each_expert_without_tensor_parallelism(self) -> None:
        """Each token goes to 8 experts and back, forward and backward, and 7 of 8 leave the host.

        Both stages have 8 hosts, each with other experts: they sum the rest.
        """
        dense = 671_026_404_352 - experts("deepseek-v3")
        tokens = 64 * SEQUENCE
        exchanged = 58 * 2 * 4 * tokens * 8 * 7168 * BF16 * 7 / 8
        crossing = 2 * 2 * tokens * 7168 * BF16
        summed = all_reduced(FP32 * dense, 8)
        assert sent_bytes(self.LAYOUT) == pytest.approx(exchanged + crossing + summed, rel=1e-6)

    def test_a_copy_for_each_host(self) -> None:
        """A token goes to 4 hosts at most. Routers draw 4 of 8 groups here, then 8 experts."""
        dice = Random(1)
        hosts = 0
        for _ in range(20_000):
            groups = dice.sample(range(8), 4)
            chosen = dice.sample([(group, each) for group in groups for each in range(32)], 8)
            hosts += len({group for group, _ in chosen})
        layer = find_model("deepseek-v3").layers[10]
        assert float(copies(layer, 8, "host")) == pytest.approx(hosts / 20_000, rel=0.005)
        each = described(self.LAYOUT)["mesh"]["exchanged"]
        once = described(f"{self.LAYOUT} --dispatch host")["mesh"]["exchanged"]
        ratio = int(each.removesuffix(" B")) / int(once.removesuffix(" B"))
        assert ratio == pytest.approx(8 * 20_000 / hosts, rel=0.005)
        # Without groups, 8 of 128 experts are on more hosts.
        qwen = find_model("qwen3-235b-a22b").layers[10]
        drawn = 0
        for _ in range(20_000):
            drawn += len({each // 16 for each in dice.sample(range(128), 8)})
        assert float(copies(qwen, 8, "host")) == pytest.approx(drawn / 20_000, rel=0.005)

    def test_across_a_tensor_group(self) -> None:
        """Whole experts on 16 consecutive ranks, 2 hosts: each rank sends its eighth of the tokens.

        64 ranks have all experts 4 times, so 4 pairs of hosts sum them, of which each host has
        half (Megatron-LM, core/parallel_state.py: expert_data_parallel_size = world / (etp ep pp)).
        """
        arguments = "qwen3-30b-a3b --gpus 64 --parallel tp=8,ep=16,etp=1 --sequence-parallel"
        routed = experts("qwen3-30b-a3b")
        dense = 30_532_122_624 - routed
        exchanged = 48 * 4 * 64 * (SEQUENCE // 8) * 8 * 2048 * BF16 / 2
        # Routers and norms are whole on each of 8 ranks.
        uncut = 48 * (2048 * 128 + 2 * 2048 + 2 * 128) + 2048
        dense += 7 * uncut
        summed = 2 * all_reduced(FP32 * routed / 2, 4) + all_reduced(FP32 * dense, 8)
        assert sent_bytes(arguments) == pytest.approx(exchanged + summed, rel=1e-6)
        training = Training(
            find_model("qwen3-30b-a3b"),
            GPUS["H100"],
            data=8,
            tensor=8,
            expert=16,
            folded=True,
            zero=1,
        )
        assert training.routed_to(training.model.layers) == routed // 16
        (ours,) = traffic(training)
        # Ranks sum only attention's output, and the embedding's: experts are not cut.
        assert ours.tensor_all_reduce == 2 * (48 + 1) * SEQUENCE * 2048 * BF16

    def test_a_tensor_group_that_cuts_experts_gathers_their_tokens(self) -> None:
        """Two experts have twice the tokens (Megatron-LM, core/transformer/moe)."""
        model = find_model("mixtral-8x7b")
        training = Training(model, GPUS["H100"], data=8, tensor=2, expert=8)
        layer = model.layers[1]
        output = SEQUENCE * 4096 * BF16
        assert training.tensor_bytes([layer]) == output + 2 * output

    def test_inside_a_host_nothing_is_exchanged_between_hosts(self) -> None:
        arguments = "qwen3-30b-a3b --gpus 32 --parallel ep=8 --gpu H100"
        summed = all_reduced(FP32 * 30_532_122_624, 4)
        assert sent_bytes(arguments) == pytest.approx(summed, rel=1e-6)


def test_ranks_of_a_tensor_group_have_latent_matrices_and_routers_whole() -> None:
    """The matrices are `linear_q_down_proj` and `linear_kv_down_proj`; routers are not parallel.

    Megatron-LM, core/transformer/multi_latent_attention.py.
    """
    model = find_model("deepseek-v3")
    hidden, layers, mixtures = 7168, 61, 58
    down = hidden * (1536 + 512 + 64) + 1536 + 512
    uncut = layers * (down + 2 * hidden) + mixtures * hidden * 256 + hidden
    training = Training(model, GPUS["H100"], data=8, tensor=8)
    cut = 671_026_404_352 - experts("deepseek-v3") - uncut
    assert training.dense(model.layers) == uncut + cut // 8


class TestShards:
    """Zhao et al., PyTorch FSDP, VLDB '23, section 3.2; ZeRO, SC '20, section 7."""

    P = 8_030_261_248

    @pytest.mark.parametrize("layout", ["", "--parallel cp=4", "--parallel tp=2,cp=2"])
    def test_fsdp_2_gathers_twice_and_scatters_once(self, layout: str) -> None:
        """A context inside a host shards as replicas do."""
        arguments = f"llama3.1-8b --gpus 64 --zero 3 --gpu H100 --micro-batches 2 {layout}"
        assert sent_bytes(arguments) == pytest.approx(2 * 3 * 7 * BF16 * self.P, rel=1e-6)

    def test_fsdp_2_with_experts_inside_a_host(self) -> None:
        arguments = "qwen3-30b-a3b --gpus 64 --zero 3 --gpu H100 --parallel ep=8"
        assert sent_bytes(arguments) == pytest.approx(3 * 7 * BF16 * 30_532_122_624, rel=1e-6)

    def test_hybrid_shards_inside_a_host_only_sum_across_hosts(self) -> None:
        arguments = "llama3.1-8b --gpus 64 --zero 3 --gpu H100 --parallel shard=8"
        assert sent_bytes(arguments) == pytest.approx(all_reduced(BF16 * self.P, 8), rel=1e-6)

    def test_hybrid_shards_on_several_hosts(self) -> None:
        """4 replicas of 2 hosts: each pair gathers twice and scatters, and 4 hosts sum a half."""
        arguments = "llama3.1-8b --gpus 64 --zero 3 --gpu H100 --parallel shard=16"
        inside = 4 * 3 * 1 * BF16 * self.P
        across = 2 * all_reduced(BF16 * self.P / 2, 4)
        assert sent_bytes(arguments) == pytest.approx(inside + across, rel=1e-6)
        model = find_model("llama3.1-8b")
        training = Training(model, GPUS["H100"], data=64, zero=3, shard=16)
        (ours,) = traffic(training)
        assert ours.shard_all_gather == 2 * BF16 * self.P
        assert ours.shard_reduce_scatter == BF16 * self.P
        assert ours.data_all_reduce == pytest.approx(BF16 * self.P / 16, abs=2)
        # 16 bytes of a parameter on 16 GPUs.
        assert training.state_bytes == pytest.approx(self.P, abs=1)

    def test_shards_inside_a_host_are_gathered_while_the_layer_before_is_computed(self) -> None:
        """7 of 8 parts of 1.05 GB at 370 GB/s, where a layer's own passes take longer."""
        model = find_model("llama3.1-8b")
        training = Training(model, GPUS["H100"], data=64, zero=3, shard=8)
        placed = placement(training, 8)
        embedding, first, *_ = model.layers
        took_s = 7 / 8 * BF16 * embedding.parameters / 370e9
        for seconds in layer_pass_s(training, embedding, placed):
            assert float(seconds) == pytest.approx(took_s, rel=0.03)
        assert layer_pass_s(training, first, placed) == pass_s(training, [first], placed.host)


class TestContext:
    """Llama 3, arXiv:2407.21783, section 3.3.2; ring attention, arXiv:2310.01889, section 3."""

    def test_a_gather_sends_what_a_ring_sends(self) -> None:
        """A ring passes blocks of keys and values cp - 1 times forward; and backward these again,
        with their gradients.
        """
        cp, tp, s = 8, 4, 131072
        model = find_model("llama3.1-8b", s)
        (ours,) = traffic(Training(model, GPUS["H100"], tensor=tp, context=cp))
        block = 2 * (s // cp) * 8 * 128 * BF16 // tp
        ring = 32 * (cp - 1) * block * 3
        assert (ours.context_all_gather + ours.context_reduce_scatter) * (cp - 1) / cp == ring

    def test_latent_attention_exchanges_all_heads(self) -> None:
        """128 heads of 128 + 64 elements for keys and 128 for values, and not the latent vector."""
        model = find_model("deepseek-v3")
        training = Training(model, GPUS["H100"], data=4, context=2)
        assert training.context_bytes(model.layers[1]) == SEQUENCE * 128 * 320 * BF16

    def test_a_tensor_group_larger_than_its_key_value_heads_has_copies(self) -> None:
        model = find_model("qwen3-30b-a3b")
        training = Training(model, GPUS["H100"], data=4, tensor=8, context=2)
        assert training.context_bytes(model.layers[1]) == 2 * SEQUENCE * 128 * BF16


def test_bytes_of_a_recommender() -> None:
    """A batch of 65536: 26 vectors of 128 in FP32 there and their gradients back, and 214 numbers
    of rows of 8 bytes; replicas sum all that is in no table (Mudigere et al., arXiv:2104.05158).
    """
    arguments = "dlrm-dcnv2 --gpus 64 --micro-batch-size 1024 --gpu H100"
    job = job_of(arguments)
    exchanged = 65536 * (2 * 26 * 128 * FP32 + 214 * 8) * 7 / 8
    dense = find_model("dlrm-dcnv2").parameters - 204_184_588 * 128
    summed = all_reduced(FP32 * dense, 8)
    total = sum(flow.size_bytes for flow in job.flows)
    assert total == pytest.approx(exchanged + summed, rel=1e-5)
    (ours,) = traffic(Training(find_model("dlrm-dcnv2"), GPUS["H100"], data=64))
    assert ours.table_all_to_all == 2 * 26 * 128 * FP32 + 214 * 8
    assert ours.data_all_reduce == FP32 * dense


@pytest.mark.parametrize(
    ("arguments", "hosts"),
    [
        ("llama3.1-8b --gpus 144 --gpu GB200", 2),
        ("llama3.1-8b --gpus 144 --gpu B200", 18),
        ("llama3.1-8b --gpus 512 --gpu TPU-v6e --gpus-per-host 256 --zero 3", 2),
    ],
)
def test_a_host_is_what_local_links_join(arguments: str, hosts: int) -> None:
    assert len(described(arguments)["workers"]) == hosts
