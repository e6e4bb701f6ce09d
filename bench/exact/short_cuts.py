"""The short cuts: each has a way to run without it, or jobs that are simplified by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from unittest import mock

from bench.exact.engines import (
    JOINT_ACKNOWLEDGEMENTS,
    WHOLE_NEIGHBOURHOODS,
    edited_engine,
    finest_grain,
)
from echelon.model.jobs.graph import Job
from echelon.planning.fluid import simulator
from echelon.planning.policies.echelon.grain import coarse, grains, whole_rings
from echelon.planning.policies.echelon.layers import with_fewer_layers

Simplified = tuple[Sequence[Job], Mapping[str, int]]
"""Jobs, and how many of their iterations are one, by name."""


@dataclass(frozen=True, slots=True)
class ShortCut:
    """A short cut, and what does without it."""

    name: str
    exactly: Callable[[], AbstractContextManager[None]] = nullcontext
    """Runs inside are exact."""
    simplified: Callable[[Sequence[Job], Mapping[str, Fraction]], Simplified] | None = None
    """Returns the jobs that it runs instead, from jobs and the seconds of their iterations alone.

    None: it runs the same jobs.
    """


@contextmanager
def _unfolded() -> Iterator[None]:
    with mock.patch.object(simulator, "folded_jobs", _as_they_are):
        yield


def _as_they_are(jobs: Sequence[Job], _plan: object, *, streams: bool = False) -> list[Job]:
    return list(jobs)


def _with_whole_rings(
    jobs: Sequence[Job],
    _alone_s: Mapping[str, Fraction],
) -> Simplified:
    simple = list(map(whole_rings, jobs))
    return simple, {}


def _with_half_the_layers(
    jobs: Sequence[Job],
    _alone_s: Mapping[str, Fraction],
) -> Simplified:
    simple = []
    for job in jobs:
        half = max(1, len(job.flows) // 2)
        simple.append(with_fewer_layers(job, half))
    return simple, {}


def _with_fewer_iterations(
    lives: int,
    jobs: Sequence[Job],
    alone_s: Mapping[str, Fraction],
) -> Simplified:
    """Return jobs of which the faster ones do `lives` iterations in one of the slowest."""
    periods_s = []
    for job in jobs:
        periods_s.append(float(alone_s[job.name]))
    sizes = grains(periods_s, lives)
    together = {}
    simple = []
    for job, size in zip(jobs, sizes, strict=True):
        together[job.name] = size
        simple.append(coarse(job, size))
    return simple, together


ACKNOWLEDGEMENTS = ShortCut(
    "acknowledgements lazily",
    exactly=partial(edited_engine, JOINT_ACKNOWLEDGEMENTS),
)
GRAIN_OF_RANKS = ShortCut(
    "grain of ranks",
    exactly=finest_grain,
)
FILLING = ShortCut(
    "incremental filling",
    exactly=partial(edited_engine, WHOLE_NEIGHBOURHOODS),
)
FOLDING = ShortCut(
    "folding of equal flows",
    exactly=_unfolded,
)
RINGS = ShortCut(
    "whole rings",
    simplified=_with_whole_rings,
)
LAYERS = ShortCut(
    "two layers in one",
    simplified=_with_half_the_layers,
)
ITERATIONS = ShortCut(
    "several iterations in one",
    simplified=partial(_with_fewer_iterations, 1),
)
"""No run and no search is as coarse: they leave faster jobs at least 4 and 20 of their iterations,
more than any drawn scenario has."""

SHORT_CUTS = (
    ACKNOWLEDGEMENTS,
    GRAIN_OF_RANKS,
    FILLING,
    FOLDING,
    RINGS,
    LAYERS,
    ITERATIONS,
)
