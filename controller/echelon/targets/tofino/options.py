"""The options of a Tofino."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from echelon.documents import Section


class TofinoOptions(Section):
    """The options of a switch that serves BF Runtime at the switch's one address."""

    device: Annotated[
        int,
        Field(strict=True, ge=0, le=255, description="number of the chip in the switch, as its server counts chips"),
    ] = 0
