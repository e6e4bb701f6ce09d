"""The models by name, of the sizes in `models.yaml`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from echelon.model.documents import DocumentError, suggestion
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


def find_model(name: str, sequence: int | None = None) -> Model:
    """Return the model of that name, for sequences of that length if it is given.

    Raises `DocumentError`.
    """
    if name not in MODELS:
        raise DocumentError(
            "MODEL", "", f"unknown model '{name}' ({suggestion(name, MODELS)})", code="unknown-name"
        )
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
