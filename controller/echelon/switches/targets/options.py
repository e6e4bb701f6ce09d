"""The options that targets of the v1model program share."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from echelon.model.documents import Section
from echelon.switches.targets.programs import RANKING, known_program


class V1modelOptions(Section):
    """The choice of the program that a switch runs."""

    program: Annotated[
        str,
        AfterValidator(known_program),
        Field(
            description=(
                "ranking, or a program of a plug-in, such as aggregation, which also adds up what"
                " workers send (docs/aggregation.md)"
            )
        ),
    ] = RANKING
