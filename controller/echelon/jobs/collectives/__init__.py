"""Collective operations: an algorithm, the group of ranks that runs it, and the bytes it moves.

An algorithm is one module. It cuts the data into chunks and says, round by round, which rank sends which chunks to
which other. `Collective` turns that into flows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from echelon.jobs.collectives.algorithm import AllReduce, Collective
from echelon.jobs.collectives.halving_doubling import HalvingDoubling
from echelon.jobs.collectives.ring import Ring
from echelon.jobs.collectives.tree import Tree

__all__ = ["ALL_REDUCES", "AllReduceName", "Collective"]

AllReduceName = Literal["ring", "halving-doubling", "tree"]

ALL_REDUCES: Mapping[AllReduceName, AllReduce] = {
    "ring": Ring(),
    "halving-doubling": HalvingDoubling(),
    "tree": Tree(),
}
"""The all-reduce algorithms by the name that a job file gives them."""
