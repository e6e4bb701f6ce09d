"""Models of a `config.json` against the sizes that their authors publish."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from echelon.model.documents import DocumentError
from echelon_lab.models.catalogue import find_model
from echelon_lab.models.options import new_job_file
from tests.faults import coded

DENSE = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
LLAMA = {**DENSE, "model_type": "llama", "attention_bias": False, "mlp_bias": False}
CONFIGS: dict[str, tuple[dict[str, Any], int]] = {
    # Parameters as Hugging Face counts them in the safetensors of these models.
    "llama-3.1-8b": (LLAMA, 8_030_261_248),
    "llama-3.2-3b": (
        {
            **LLAMA,
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "num_attention_heads": 24,
            "num_hidden_layers": 28,
            "head_dim": 128,
            "tie_word_embeddings": True,
        },
        3_212_749_824,
    ),
    "mistral-7b": (
        {**DENSE, "model_type": "mistral", "vocab_size": 32000, "sliding_window": 4096},
        7_241_732_096,
    ),
    "qwen2.5-14b": (
        {
            **DENSE,
            "model_type": "qwen2",
            "hidden_size": 5120,
            "intermediate_size": 13824,
            "num_attention_heads": 40,
            "num_hidden_layers": 48,
            "vocab_size": 152064,
            "sliding_window": 131072,
            "use_sliding_window": False,
        },
        14_770_033_664,
    ),
    "mixtral-8x7b": (
        {
            **DENSE,
            "model_type": "mixtral",
            "vocab_size": 32000,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "sliding_window": None,
        },
        46_702_792_704,
    ),
}
CATALOGUE: dict[str, dict[str, Any]] = {
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "num_attention_heads": 32,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 151936,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3",
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "num_attention_heads": 128,
        "num_hidden_layers": 61,
        "vocab_size": 129280,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "first_k_dense_replace": 3,
        "moe_layer_freq": 1,
        "n_group": 8,
        "topk_group": 4,
    },
    "gpt-oss-20b": {
        "model_type": "gpt_oss",
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_attention_heads": 64,
        "num_hidden_layers": 24,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "vocab_size": 201088,
        "num_local_experts": 32,
        "num_experts_per_tok": 4,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 12,
    },
}


def written(directory: Path, config: dict[str, Any]) -> str:
    file = directory / "config.json"
    file.write_text(json.dumps(config))
    return str(file)


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_those_of_the_checkpoint(name: str, tmp_path: Path) -> None:
    config, parameters = CONFIGS[name]
    assert find_model(written(tmp_path, config), 4096).parameters == parameters


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_config_is_the_model_of_that_name(name: str, tmp_path: Path) -> None:
    model = find_model(written(tmp_path, CATALOGUE[name]), 4096)
    assert model.layers == find_model(name, 4096).layers


def test_a_window_takes_less_than_all_tokens(tmp_path: Path) -> None:
    config, _ = CONFIGS["mistral-7b"]
    with_window = find_model(written(tmp_path, config), 8192).forward_flops
    without = find_model(written(tmp_path, {**config, "sliding_window": None}), 8192)
    assert with_window < without.forward_flops


def test_a_window_that_qwen_names_and_does_not_use_is_none(tmp_path: Path) -> None:
    config, _ = CONFIGS["qwen2.5-14b"]
    config = {**config, "sliding_window": 128}
    del config["use_sliding_window"]
    without = find_model(written(tmp_path, {**config, "sliding_window": None}), 8192)
    assert find_model(written(tmp_path, config), 8192).layers == without.layers


def test_a_job_is_named_after_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "Tiny-1.5"
    folder.mkdir()
    text = new_job_file(written(folder, LLAMA), gpus=16, sequence=4096)
    assert "job: Tiny-1_5\n" in text
    assert "8,030,261,248 parameters" in text


@pytest.mark.parametrize(
    ("changes", "code", "facts"),
    [
        ({"model_type": "gemma2"}, "unknown-name", ("model_type", "gemma2", "llama")),
        ({"num_hidden_layers": None}, "invalid-value", ("num_hidden_layers", "missing")),
        ({"hidden_size": "4096"}, "invalid-value", ("hidden_size", "number")),
        ({"hidden_size": 4095}, "invalid-value", ("head_dim", "32", "4095")),
        ({"vocab_size": True}, "invalid-value", ("vocab_size",)),
        ({"mlp_bias": True}, "invalid-value", ("mlp_bias", "true")),
        ({"use_sliding_window": True}, "invalid-value", ("use_sliding_window",)),
        ({"tie_word_embeddings": 1}, "invalid-value", ("tie_word_embeddings",)),
    ],
)
def test_what_layers_here_have_not_is_refused(
    changes: dict[str, Any], code: str, facts: tuple[str, ...], tmp_path: Path
) -> None:
    file = written(tmp_path, {**LLAMA, **changes})
    with pytest.raises(DocumentError, check=coded(code, file, *facts)):
        find_model(file, 4096)


@pytest.mark.parametrize("text", ["[]", "{}", "{", '{"model_type"', "1"])
def test_files_of_other_kinds_are_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(DocumentError) as refused:
        find_model(str(file), 4096)
    assert "config.json" in str(refused.value)


def test_the_length_of_samples_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, check=coded("missing-key", "--sequence")):
        find_model(written(tmp_path, LLAMA))
    with pytest.raises(DocumentError, check=coded("unreadable-file", "none.json")):
        find_model("none.json", 4096)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "'qwen3-30b-a3b'"),
        ("meta-llama/Llama-3.1-8B", "'llama3.1-8b'"),
        ("deepseek-ai/DeepSeek-V3-0324", "'deepseek-v3'"),
        ("lama-7b", "'llama-7b'"),
        ("google/gemma-2-9b", "gpt2-small, gpt2-xl"),
        ("google/gemma-2-9b", "dlrm-dcnv2, dlrm"),
    ],
)
def test_a_publishers_name_leads_to_ours(name: str, nearest: str) -> None:
    with pytest.raises(DocumentError, check=coded("unknown-name", "MODEL", name, nearest)):
        find_model(name)
