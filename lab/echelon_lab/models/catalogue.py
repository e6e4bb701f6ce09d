"""The models by name, of the sizes in `models.yaml`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from echelon.model.documents import DocumentError
from echelon_lab.models.configs import is_config, load_config
from echelon_lab.models.convolutions import densenet, resnet, vgg
from echelon_lab.models.decoders import decoder
from echelon_lab.models.layers import Layer, Model
from echelon_lab.models.recommenders import dlrm
from echelon_lab.models.transformers import transformer

_KINDS: Mapping[str, Callable[..., Iterator[Layer]]] = {
    "transformer": transformer,
    "decoder": decoder,
    "resnet": resnet,
    "vgg": vgg,
    "densenet": densenet,
    "dlrm": dlrm,
}


_SAMPLES: Mapping[str, str] = {"dlrm": "an impression"}


@dataclass(frozen=True, slots=True)
class _Entry:
    """A model of the file."""

    name: str
    kind: str
    source: str
    sizes: Mapping[str, Any]

    def model(self, **changes: int) -> Model:
        sizes = {**self.sizes, **changes}
        layers = tuple(_KINDS[self.kind](**sizes))
        sample = _SAMPLES.get(self.kind, "an image")
        parameter_bytes = 4
        if "sequence" in sizes:
            sample = f"a sequence of {sizes['sequence']} tokens"
            parameter_bytes = 2
        return Model(self.name, self.source, layers, sample, parameter_bytes)


def _entries() -> Iterator[_Entry]:
    file = Path(__file__).with_name("models.yaml")
    families: list[dict[str, Any]] = yaml.safe_load(file.read_text(encoding="utf-8"))
    for family in families:
        for name, own_sizes in family["models"].items():
            sizes = {**family.get("all", {}), **own_sizes}
            yield _Entry(name, family["kind"], family["source"], sizes)


_ENTRIES = {entry.name: entry for entry in _entries()}
MODELS: Mapping[str, Model] = {name: entry.model() for name, entry in _ENTRIES.items()}
"""All models by name, family by family."""


def _choice(name: str) -> str:
    """Return what to write instead: the model of the same name at its publisher, or all."""
    wanted = _letters(name.rpartition("/")[2])
    # The longest first, so that a model of experts is not taken for one without.
    alike = [model for model in MODELS if _letters(model) in wanted]
    nearest = sorted(alike, key=len, reverse=True) or get_close_matches(name, MODELS, n=1)
    if nearest:
        return f"did you mean '{nearest[0]}'? or give its config.json"
    return f"known: {', '.join(MODELS)}; or give its config.json"


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def find_model(name: str, sequence: int | None = None) -> Model:
    """Return the model of that name, for sequences of that length if it is given.

    A name that ends with ``.json`` is that of a model's file (`configs`). Raises `DocumentError`.
    """
    if is_config(name):
        config = load_config(name, sequence)
        return _Entry(config.name, "decoder", config.source, config.sizes).model()
    if name not in MODELS:
        reason = f"unknown model '{name}' ({_choice(name)})"
        raise DocumentError("MODEL", "", reason, code="unknown-name")
    if sequence is None:
        return MODELS[name]
    entry = _ENTRIES[name]
    if "sequence" not in entry.sizes:
        reason = f"{name} has no sequences (leave it out)"
        raise DocumentError("--sequence", "", reason)
    positions = entry.sizes.get("positions")
    if positions is not None and sequence > positions:
        reason = f"{sequence} is more than the {positions} positions of {name} (give fewer)"
        raise DocumentError("--sequence", "", reason, code="too-large")
    return entry.model(sequence=sequence)
