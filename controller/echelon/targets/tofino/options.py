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
    depth: Annotated[
        int, Field(strict=True, ge=1, le=100_000, description="full packets that each queue of a port holds at most")
    ] = 700
    mtu: Annotated[int, Field(strict=True, ge=68, le=65_521, description="the MTU of the links in bytes")] = 1500
