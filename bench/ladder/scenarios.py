"""The scenarios of a ladder: files, or drawn ones that no policy was chosen on."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import count
from pathlib import Path
from random import Random

from bench.ladder.laboratory import (
    HALVES,
    Drawn,
    Half,
    Origin,
    Scenario,
    draw,
    load_scenario,
    scenario_of,
)

FIRST_SEED = 510_000
"""`echelon evaluate` counts its seeds from 0, and does not come this far."""
ONE_LINK = "one link"
FABRICS = ("leaf-spine", "fat-tree", "rail-optimised")
"""The kinds of `echelon_lab.evaluation.fabrics` in which flows pass several switches."""
FABRICS_TO_A_LINK = 2
MOST_MOVED_US = 40_000
"""The time by which the start of a job moves at most. Closed loops are chaotic: it is enough for
figures that differ by 2 %."""


@cache
def drawn(seed: int) -> Drawn:
    """Return the drawing of a seed."""
    return draw(seed)


def seeds(half: Half, scenarios: int) -> list[int]:
    """Return the first seeds of the half: two with a fabric, then one with a single link.

    Even seeds are for those who change the data plane, odd ones for who reports what it costs.
    """
    step = len(HALVES)
    candidates = count(FIRST_SEED + HALVES.index(half), step)
    fabrics: list[int] = []
    links: list[int] = []
    links_wanted = scenarios // (1 + FABRICS_TO_A_LINK)
    fabrics_wanted = scenarios - links_wanted
    while len(fabrics) < fabrics_wanted or len(links) < links_wanted:
        seed = next(candidates)
        fabric = drawn(seed).kind.fabric
        # Those with one switch are left out: they are neither.
        if fabric == ONE_LINK:
            links.append(seed)
        elif fabric in FABRICS:
            fabrics.append(seed)
    return [*fabrics[:fabrics_wanted], *links[:links_wanted]]


def name_of(origin: Origin) -> str:
    """Return the name of a scenario in tables."""
    if isinstance(origin, str):
        return Path(origin).stem
    return str(origin - FIRST_SEED)


def is_one_link(scenario: Scenario) -> bool:
    """Return whether no flow can pass more than one link between switches."""
    return len(scenario.fabric.switches) <= 2


def scenario_in_draw(origin: Origin, draw_number: int) -> Scenario:
    """Return a scenario in a draw, counted from 0; the first is the scenario as it is.

    In the others, the start of each job is moved. Raise `DocumentError` for a file.
    """
    if isinstance(origin, str):
        file = Path(origin)
        scenario = load_scenario(file)
    else:
        document = drawn(origin).document(["fair"], iterations=1)
        # Windows are one of the limits: senders have those of the product.
        document.pop("transport", None)
        scenario = scenario_of(document, f"seed {origin}")
    if not draw_number:
        return scenario
    random = Random(f"ladder {name_of(origin)} {draw_number}")
    jobs = []
    for job in scenario.jobs:
        moved_us = random.randrange(MOST_MOVED_US + 1)
        start_s = job.start_s + Fraction(moved_us, 1_000_000)
        moved = replace(job, start_s=start_s)
        jobs.append(moved)
    return replace(scenario, jobs=tuple(jobs))
