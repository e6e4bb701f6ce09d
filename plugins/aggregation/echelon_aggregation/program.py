"""The P4 program of switches that aggregate: its build, its numbers, and what it can carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from echelon.model.p4program import constants, parse_constants
from echelon.switches.lowering.capabilities import Capabilities, TreeMemory
from echelon.switches.targets.programs import SwitchProgram

P4SRC = Path(__file__).parent / "p4src"
BUILDS = P4SRC / "build"


@cache
def numbers(architecture: str = "v1model") -> Mapping[str, int]:
    """Return the numbers of the protocol and the sizes of the program, by name.

    They come with those of the ranking program for `architecture`.
    """
    protocol = (P4SRC / "shared" / "aggregation.h").read_text()
    sizes = (P4SRC / architecture / "sizes.h").read_text()
    return {
        **constants(architecture),
        **parse_constants(protocol),
        **parse_constants(sizes),
    }


def with_trees(ranking: Capabilities) -> Capabilities:
    sizes = numbers()
    memory = TreeMemory(sizes["PLACES"], sizes["AGGREGATION_TREES"])
    return replace(ranking, trees=memory)


PROGRAM = SwitchProgram(BUILDS, with_trees)
