"""The options of AICB's files."""

from __future__ import annotations

from echelon_importers.astra_sim import AstraSimOptions, Size
from echelon_importers.importer import Span


class AicbOptions(AstraSimOptions):
    """The values that a list lacks, and the part of it to take.

    `layers` and `model` are for text workloads.
    """

    iterations: Span | None = None
    """The iterations to take from a list, counted from 1. None: the first."""
    tp: Size | None = None
    """Ranks of a tensor-parallel group."""
    dp: Size | None = None
    """Ranks of a data-parallel group."""
    ep: Size | None = None
    """Ranks of a group of experts."""
