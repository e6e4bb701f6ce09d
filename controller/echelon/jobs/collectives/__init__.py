"""Collective operations: an algorithm, the group of ranks that runs it, and the bytes it moves.

An algorithm is a class of `published`. It cuts the data into chunks and says, round by round, which rank sends which
chunks to which other. `Collective` turns that into flows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from echelon.jobs.collectives.algorithm import Algorithm, AllReduce, Collective
from echelon.jobs.collectives.published import (
    AllReduceHalf,
    AllToAll,
    Chain,
    Direct,
    Gloo,
    HalvingDoubling,
    Hierarchical,
    Ring,
    Tree,
)

__all__ = ["ALL_REDUCES", "OPERATIONS", "AllReduceName", "Collective"]

AllReduceName = Literal["ring", "halving-doubling", "tree", "direct"]

ALL_REDUCES: Mapping[AllReduceName, AllReduce] = {
    "ring": Ring(),
    "halving-doubling": HalvingDoubling(),
    "tree": Tree(),
    "direct": Direct(),
}
"""The all-reduce algorithms by the name that a job file gives them."""


def _halves(adds: bool) -> Mapping[str, Algorithm]:
    return {name: AllReduceHalf(whole, adds) for name, whole in ALL_REDUCES.items() if name != "tree"}


OPERATIONS: Mapping[str, Mapping[str, Algorithm]] = {
    "all-reduce": {
        **{str(name): algorithm for name, algorithm in ALL_REDUCES.items()},
        "hierarchical": Hierarchical(),
        "gloo": Gloo(adds=True),
    },
    "all-gather": {**_halves(adds=False), "gloo": Gloo(adds=False)},
    "reduce-scatter": _halves(adds=True),
    "all-to-all": {"direct": AllToAll()},
    "broadcast": {"ring": Chain(), "tree": AllReduceHalf(Tree(), adds=False)},
    "reduce": {"tree": AllReduceHalf(Tree(), adds=True)},
    "barrier": {"tree": Tree()},
}
"""The algorithms of each collective operation by name; the first is the default.

Sizes are those of NCCL's performance tests. S is, for an all-reduce, a broadcast and a reduce, the buffer that every
rank has before and after; for an all-gather, what every rank has *after*; for a reduce-scatter and an all-to-all, what
every rank has *before*. Of n ranks, each sends 2(n-1)/n S in an all-reduce (ring, halving and doubling, direct) and
(n-1)/n S in an all-gather, a reduce-scatter and an all-to-all. A barrier is an all-reduce of one byte.
"""
