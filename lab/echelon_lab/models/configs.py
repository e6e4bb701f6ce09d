"""Models by the `config.json` that stands beside weights on Hugging Face.

Keys are those of the configurations in `transformers`. What a file has and the layers of `decoders`
have not, such as a window of some layers, is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echelon.model.documents import DocumentError

_LARGEST = 10**9
_DENSE = ("llama", "mistral", "qwen2", "qwen3")
_WINDOWED = ("mistral", "mixtral")
_EXPERTS = ("mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss")
MODEL_TYPES = (*_DENSE, *_EXPERTS)
"""The kinds of decoders that are read."""

# The keys of sizes, by their names here.
_COMMON = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "vocabulary": "vocab_size",
}
_LATENT = {
    "heads": "num_attention_heads",
    "query_rank": "q_lora_rank",
    "key_value_rank": "kv_lora_rank",
    "head": "qk_nope_head_dim",
    "rotary": "qk_rope_head_dim",
    "value": "v_head_dim",
}
_DEEPSEEK = {
    "feed_forward": "intermediate_size",
    "dense_layers": "first_k_dense_replace",
}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder of a file."""

    name: str
    source: str
    sizes: Mapping[str, Any]
    """Arguments of `decoders.decoder`."""


class _Keys:
    """The keys of a file, checked as they are read."""

    def __init__(self, file: Path, values: Mapping[str, object]) -> None:
        self.file = file
        self.values = values

    def fault(self, key: str, reason: str) -> DocumentError:
        return DocumentError(str(self.file), key, reason)

    def size(self, key: str, default: int | None = None) -> int:
        """Return a positive number, which must be there if there is no default."""
        value = self.values.get(key)
        if value is None:
            value = default
        if value is None:
            raise self.fault(key, "is missing (give the model's own config.json, all of it)")
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _LARGEST:
            raise self.fault(key, f"is not a number from 1 to {_LARGEST} (correct it)")
        return value

    def sizes(self, names: Mapping[str, str]) -> dict[str, Any]:
        """Return the numbers of some keys by other names."""
        return {name: self.size(key) for name, key in names.items()}

    def is_set(self, key: str, default: bool = False) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.fault(key, "is neither true nor false (correct it)")
        return value

    def must_be(self, key: str, *allowed: object) -> None:
        """Refuse what layers here do not have. They have the default of an absent key."""
        if key in self.values and self.values[key] not in allowed:
            reason = f"{json.dumps(self.values[key])[:40]} is not known here (known: {allowed[0]})"
            raise self.fault(key, reason)


def is_config(name: str) -> bool:
    """Return whether a model is given as a file."""
    return name.endswith(".json")


def load_config(name: str, sequence: int | None) -> ModelConfig:
    """Return the model of a `config.json`, for samples of so many tokens.

    Raises `DocumentError`.
    """
    file = Path(name)
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        reason = f"{error.strerror or error} (check the path)"
        raise DocumentError(name, "", reason, code="unreadable-file") from None
    except (ValueError, RecursionError):
        raise DocumentError(name, "", "is not JSON (give a model's config.json)") from None
    if not isinstance(values, dict) or "model_type" not in values:
        reason = "has no model_type (give a model's config.json, as Hugging Face keeps it)"
        raise DocumentError(name, "", reason, code="missing-key")
    keys = _Keys(file, values)
    kind = str(values["model_type"])
    if kind not in MODEL_TYPES:
        reason = f"unknown kind '{kind}' (known: {', '.join(MODEL_TYPES)})"
        raise DocumentError(name, "model_type", reason, code="unknown-name")
    # The longest that a model takes is not the length of its pre-training.
    if sequence is None:
        reason = f"is missing (give the tokens of a sample: {name} does not say them)"
        raise DocumentError("--sequence", "", reason, code="missing-key")
    sizes = {**_common(keys, sequence), **_particular(keys, kind)}
    title = file.stem
    if title == "config":
        title = file.absolute().parent.name
    return ModelConfig(title, f"{file} ({kind})", sizes)


def _common(keys: _Keys, sequence: int) -> dict[str, Any]:
    sizes = keys.sizes(_COMMON)
    sizes["sequence"] = sequence
    sizes["tied"] = keys.is_set("tie_word_embeddings")
    return sizes


def _particular(keys: _Keys, kind: str) -> dict[str, Any]:
    """Return the sizes of attention and feed-forward layers."""
    if kind == "deepseek_v3":
        return _deepseek(keys)
    attention = _grouped(keys, kind)
    if kind == "gpt_oss":
        return _gpt_oss(keys, attention)
    sizes: dict[str, Any] = {"attention": attention}
    if kind == "mixtral":
        width = keys.size("intermediate_size")
        sizes["experts"] = _experts(keys, "num_local_experts", width)
    elif kind == "qwen3_moe":
        keys.must_be("mlp_only_layers", [], None)
        keys.must_be("decoder_sparse_step", 1)
        width = keys.size("moe_intermediate_size")
        sizes["experts"] = _experts(keys, "num_experts", width)
    else:
        keys.must_be("mlp_bias", False)
        sizes["feed_forward"] = keys.size("intermediate_size")
    return sizes


def _experts(keys: _Keys, count_key: str, width: int) -> dict[str, Any]:
    count = keys.size(count_key)
    active = keys.size("num_experts_per_tok")
    if active > count:
        reason = f"{active} is more than {count_key} (correct it)"
        raise keys.fault("num_experts_per_tok", reason)
    return {
        "count": count,
        "active": active,
        "width": width,
    }


def _grouped(keys: _Keys, kind: str) -> dict[str, Any]:
    heads = keys.size("num_attention_heads")
    hidden = keys.size("hidden_size")
    if keys.values.get("head_dim") is None and hidden % heads:
        raise keys.fault(
            "head_dim", f"is missing, and {heads} heads do not divide {hidden} (give it)"
        )
    default = max(hidden // heads, 1)
    attention: dict[str, Any] = {"heads": heads}
    attention["head"] = keys.size("head_dim", default)
    attention["key_value_heads"] = keys.size("num_key_value_heads", heads)
    if kind == "qwen2":
        attention["input_biases"] = True
    elif keys.is_set("attention_bias", default=kind == "gpt_oss"):
        attention["biases"] = True
    if kind in ("qwen3", "qwen3_moe"):
        attention["head_norms"] = True
    # Qwen's files name a window that is not used unless they say so.
    keys.must_be("use_sliding_window", False)
    if kind in _WINDOWED and keys.values.get("sliding_window") is not None:
        attention["window"] = keys.size("sliding_window")
    return attention


def _gpt_oss(keys: _Keys, attention: dict[str, Any]) -> dict[str, Any]:
    width = keys.size("intermediate_size")
    experts = _experts(keys, "num_local_experts", width)
    experts["biases"] = True
    attention["sinks"] = True
    # Layers alternate, from one with a window on.
    layers = keys.size("num_hidden_layers")
    both = ["sliding_attention", "full_attention"] * layers
    keys.must_be("layer_types", both[:layers])
    windowed = {**attention, "window": keys.size("sliding_window")}
    return {
        "attention": attention,
        "every": 2,
        "between": windowed,
        "experts": experts,
    }


def _deepseek(keys: _Keys) -> dict[str, Any]:
    keys.must_be("moe_layer_freq", 1)
    keys.must_be("attention_bias", False)
    width = keys.size("moe_intermediate_size")
    experts = _experts(keys, "n_routed_experts", width)
    experts["shared"] = width * keys.size("n_shared_experts")
    experts["groups"] = keys.size("n_group", 1)
    experts["chosen_groups"] = keys.size("topk_group", 1)
    sizes = keys.sizes(_DEEPSEEK)
    sizes["attention"] = {"kind": "latent", **keys.sizes(_LATENT)}
    sizes["experts"] = experts
    return sizes
