"""What a paradigm makes: the graph of one iteration, not yet anybody's job."""

from __future__ import annotations

from typing import NamedTuple

from echelon.jobs.graph import ComputeUnit, EchelonFlow, Flow


class IterationGraph(NamedTuple):
    """Names are unique within it; `flows` are in the order in which each connection (src, dst) carries them."""

    computes: tuple[ComputeUnit, ...]
    flows: tuple[Flow, ...]
    echelonflows: tuple[EchelonFlow, ...]
