"""Models by name: what they consist of by their published formulas, and the jobs that train them."""

from __future__ import annotations

from collections.abc import Mapping

from echelon.documents import DocumentError, suggestion
from echelon.jobs.models import bert, densenet, gpt, llama, moe, resnet, vgg
from echelon.jobs.models.model import Model

__all__ = ["MODELS", "find_model"]

MODELS: Mapping[str, Model] = {
    model.name: model for family in (gpt, llama, bert, moe, resnet, vgg, densenet) for model in family.MODELS
}
"""All models by name, family by family."""


def find_model(name: str) -> Model:
    """Return the model of that name. Raises `DocumentError`."""
    if name not in MODELS:
        raise DocumentError("MODEL", "", f"unknown model '{name}' ({suggestion(name, MODELS)})", code="unknown-name")
    return MODELS[name]
