"""The options that targets of the v1model program share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from echelon.model.documents import Section


class V1modelOptions(Section):
    """The choice of the program that a switch runs, of those that come with Echelon."""

    program: Annotated[
        Literal["ranking", "aggregation"],
        Field(
            description=(
                "aggregation: the program that also adds up what workers send (docs/aggregation.md)"
            )
        ),
    ] = "ranking"
