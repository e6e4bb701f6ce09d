"""The options of a Tofino."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from echelon.model.documents import Section


def _check_binary(path: Path | None) -> Path | None:
    if path is None:
        return None
    for file in (path, path.with_name("context.json")):
        if not file.is_absolute():
            raise ValueError(f"{file} is not an absolute path (write it from / on)")
        if not file.is_file():
            raise ValueError(
                f"{file} does not exist (name the tofino.bin that bfas made, with context.json"
                " beside it)"
            )
    return path


class TofinoOptions(Section):
    """The options of a switch that serves BF Runtime at the switch's one address."""

    device: Annotated[
        int,
        Field(
            strict=True,
            ge=0,
            le=255,
            description="number of the chip in the switch, as its server counts chips",
        ),
    ] = 0
    depth: Annotated[
        int,
        Field(
            strict=True,
            ge=1,
            le=100_000,
            description="full packets that each queue of a port holds at most",
        ),
    ] = 700
    mtu: Annotated[
        int,
        Field(
            strict=True,
            ge=68,
            le=65_521,
            description="the MTU of the links in bytes",
        ),
    ] = 1500
    binary: Annotated[
        Path | None,
        AfterValidator(_check_binary),
        Field(
            description=(
                "absolute path of the tofino.bin that a chip loads; without it, softswitch's"
                " assembly"
            )
        ),
    ] = None
