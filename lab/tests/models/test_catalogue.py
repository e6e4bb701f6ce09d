"""The sizes of models against what their authors publish of them."""

from __future__ import annotations

from math import log10

import pytest

from echelon_lab.models.catalogue import MODELS, find_model
from echelon_lab.models.layers import Model

EXACT = {
    # Counted by their authors or Hugging Face in the checkpoints' safetensors.
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "llama3.1-405b": 405_853_388_800,
}
VISION = 0.87e9
"""Encoder and projector of Llama 4, of which nothing is here.

34 layers of 1408 with 5632 between, and 5632 x 4096 + 4096 x 4096 + 4096 x 5120 behind them
(config.json, `vision_config`).
"""
TOTALS = {
    # Model cards, and the tables of the technical reports that `models.yaml` cites, in billions.
    "deepseek-v3": "671",
    "deepseek-r1": "671",
    "qwen3-0.6b": "0.6",
    "qwen3-1.7b": "1.7",
    "qwen3-4b": "4.0",
    "qwen3-8b": "8.2",
    "qwen3-14b": "14.8",
    "qwen3-32b": "32.8",
    "qwen3-30b-a3b": "30.5",
    "qwen3-235b-a22b": "235",
    "qwen3-next-80b-a3b": "80",
    "llama3.1-8b": "8.03",
    "llama3.1-70b": "70.6",
    "llama3.1-405b": "405",
    "llama4-scout": "109",
    "llama4-maverick": "400",
    "gpt-oss-20b": "20.91",
    "gpt-oss-120b": "116.83",
    "mixtral-8x7b": "46.7",
    "mixtral-8x22b": "141",
}
WITHOUT_EMBEDDINGS = {
    # Qwen3's model cards: "Number of Parameters (Non-Embedding)".
    "qwen3-0.6b": 0.44,
    "qwen3-1.7b": 1.4,
    "qwen3-4b": 3.6,
    "qwen3-8b": 6.95,
    "qwen3-14b": 13.2,
    "qwen3-32b": 31.2,
    "qwen3-30b-a3b": 29.9,
    "qwen3-235b-a22b": 234,
    "qwen3-next-80b-a3b": 79,
}
ACTIVE = {
    # Whether the look-up of a token counts, and the published number, in billions and as printed.
    "deepseek-v3": (False, "37"),
    "qwen3-235b-a22b": (True, "22"),
    "llama4-scout": (True, "17"),
    "llama4-maverick": (True, "17"),
    # "Unembedding parameters are counted towards active, but not embeddings."
    "gpt-oss-20b": (False, "3.61"),
    "gpt-oss-120b": (False, "5.13"),
    "mixtral-8x7b": (True, "12.9"),
    "mixtral-8x22b": (True, "39"),
    # Both are printed with one digit: "3B activated" and "3.3B", which the config makes 3.35.
    "qwen3-30b-a3b": (True, "3.3"),
    "qwen3-next-80b-a3b": (False, "3"),
}
COARSE = {"qwen3-30b-a3b": 0.02, "qwen3-next-80b-a3b": 0.2}


def embedded(model: Model) -> int:
    return model.layers[0].parameters


@pytest.mark.parametrize("name", EXACT)
def test_parameters_are_those_of_the_checkpoint(name: str) -> None:
    assert find_model(name).parameters == EXACT[name]


def billions(printed: str, coarse: float = 0) -> object:
    """Return a printed number, within 1 % or what its last digit leaves open."""
    published = float(printed)
    digits = len(printed.partition(".")[2])
    tolerance = max(0.01 * published, 0.5 * 10**-digits, coarse * published)
    return pytest.approx(published, abs=tolerance)


@pytest.mark.parametrize("name", TOTALS)
def test_parameters_are_within_a_percent_of_the_published_ones(name: str) -> None:
    ours: float = find_model(name).parameters
    if name.startswith("llama4"):
        ours += VISION
    assert ours / 1e9 == billions(TOTALS[name])


@pytest.mark.parametrize("name", WITHOUT_EMBEDDINGS)
def test_parameters_without_embeddings_are_the_published_ones(name: str) -> None:
    model = find_model(name)
    matrices = 1 if model.layers[-1].parameters < embedded(model) else 2
    inner = model.parameters - matrices * embedded(model)
    assert inner == pytest.approx(WITHOUT_EMBEDDINGS[name] * 1e9, rel=0.01)


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_are_the_published_ones(name: str) -> None:
    model = find_model(name)
    with_look_up, printed = ACTIVE[name]
    ours = model.active_parameters
    if not with_look_up:
        ours -= embedded(model)
    assert ours / 1e9 == billions(printed, COARSE.get(name, 0))


def test_deepseek_is_counted_by_hand() -> None:
    """arXiv:2412.19437, section 4.2, has 3 dense layers, and 58 of 256 + 1 experts."""
    hidden, heads = 7168, 128
    queries = hidden * 1536 + 1536 * heads * (128 + 64)
    keys = hidden * (512 + 64) + 512 * heads * (128 + 128)
    attention = queries + keys + heads * 128 * hidden + 1536 + 512
    dense = 3 * hidden * 18432
    expert = 3 * hidden * 2048
    mixture = 257 * expert + 256 * hidden
    total = 61 * (attention + 2 * hidden) + 3 * dense + 58 * mixture
    total += 2 * 129280 * hidden + hidden
    model = find_model("deepseek-v3")
    assert model.parameters == total
    assert model.active_parameters == total - 58 * 248 * expert
    # Each token needs two operations for each weight that it passes, and its norms are no products.
    norms = 61 * (2 * hidden + 1536 + 512) + hidden
    passed = model.active_parameters - embedded(model) - norms
    # Half of 4096 keys are seen by the average token; 192 elements for its score, 128 for values.
    seen = 61 * 4096**2 * heads * (192 + 128) * 2
    assert model.forward_flops == 2 * 4096 * passed + seen


def test_windows_and_states_are_cheaper_than_all_pairs() -> None:
    """gpt-oss sees 128 tokens in every second layer; Qwen3-Next has a state in three of four."""
    windowed, full = find_model("gpt-oss-20b").layers[1:3]
    by_hand = sum(min(token + 1, 128) for token in range(4096)) / sum(range(1, 4097))
    assert windowed.attention_flops / full.attention_flops == pytest.approx(by_hand, rel=0.01)
    layers = find_model("qwen3-next-80b-a3b").layers[1:-1]
    full_layers = [number for number, layer in enumerate(layers, start=1) if layer.key_values]
    assert full_layers == list(range(4, 49, 4))
    # Twice as long a sequence has twice the operations of a state, and four times those of pairs.
    longer = find_model("qwen3-next-80b-a3b", 8192).layers[1:-1]
    assert longer[0].attention_flops == 2 * layers[0].attention_flops
    assert longer[3].attention_flops == 4 * layers[3].attention_flops


def test_every_second_layer_of_maverick_has_experts() -> None:
    layers = find_model("llama4-maverick").layers[1:-1]
    assert [layer.expert_count for layer in layers] == 24 * [0, 128]
    assert find_model("llama4-scout").layers[1].expert_count == 16


@pytest.mark.parametrize("name", MODELS)
def test_products_are_the_operations_of_a_layer(name: str) -> None:
    """A layer has more operations for its states, and for its router, whose products are small."""
    for layer in find_model(name).layers:
        if layer.products:
            products = sum(product.flops for product in layer.products)
            assert 0.96 * layer.forward_flops <= products <= 1.0001 * layer.forward_flops


def test_a_recommender_is_mostly_tables() -> None:
    """26 tables of 204,184,588 rows of 128: 25+ billion parameters, about 100 GB in FP32."""
    model = find_model("dlrm-dcnv2")
    assert model.tables == 204_184_588 * 128
    assert model.tables * 4 / 2**30 == pytest.approx(97.4, rel=0.01)
    # The layers: 13-512-256-128, 3 crosses of rank 512 of 27 x 128, and 3456-1024-1024-512-256-1.
    bottom = 13 * 512 + 512 + 512 * 256 + 256 + 256 * 128 + 128
    cross = 3 * (2 * 3456 * 512 + 3456)
    top = 3456 * 1024 + 1024 * 1024 + 1024 * 512 + 512 * 256 + 256 + 2 * 1024 + 512 + 256 + 1
    assert model.parameters - model.tables == bottom + cross + top
    assert log10(model.parameters / (bottom + cross + top)) > 3
