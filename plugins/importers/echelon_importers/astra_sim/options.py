"""The options of text workloads."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from echelon_importers.importer import ImportOptions, Span

Size = Annotated[int, Field(ge=1, le=10**6)]
"""A number of ranks, or of parts."""


class AstraSimOptions(ImportOptions):
    """The values that a text workload lacks, and the part of it to take."""

    layers: Span | None = None
    """The layers to take, counted from 1. None: all."""
    model: Size | None = None
    """Consecutive ranks of a group of model parallelism (HYBRID_MODEL_DATA: data parallelism)."""
    pp: Annotated[int, Field(ge=1, le=1)] | None = None
    """1: one stage of a pipeline alone. None: all stages that the file says."""
    vpp: Size | None = None
    """How often a micro-batch passes each stage of a pipeline. None: as the file says."""
    gpu: str | None = None
    """The GPU that computes, by its name in `echelon job new`: for formats with operations."""
