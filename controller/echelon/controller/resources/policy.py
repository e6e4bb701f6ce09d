"""The policy that plans are made by."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from echelon.controller.resources.base import Resource
from echelon.model.documents import Section


class PolicySetting(Section):
    """A policy by name, with its parameters."""

    name: Annotated[
        str,
        Field(
            max_length=64,
            description="the policy, e.g. echelon",
        ),
    ]
    parameters: dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=64)]] = (
        Field(default_factory=dict)
    )


class PolicyResource(Resource):
    name: str
    parameters: dict[str, str]
    choices: dict[str, dict[str, tuple[str, ...]]]
    """Every policy with its parameters, each with its values, the default first, or a range."""
