"""The rounds of a search, in which fewer and fewer candidates are simulated for longer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

LEAST_KEPT = 4
"""The candidates that are compared at least, if there are as many."""


@dataclass(frozen=True, slots=True)
class Round:
    """A comparison of candidates."""

    kept: float
    """The part of all candidates that goes through it."""
    iterations: int
    """The length of a simulation, in iterations of the slowest job alone."""
    draws: float
    """The part of the other draws in which plans are simulated, beside the exact one."""
    lives: int
    """The iterations that faster jobs do in one of the slowest, at least (`grain`)."""
    has_rounds: bool
    """Whether rings are simulated round by round (`grain`)."""
    work: float
    """The part of all work that is spent after it, at most."""


ROUNDS = (
    Round(1, 4, 0, 20, has_rounds=False, work=0.45),
    Round(1, 8, 1 / 4, 20, has_rounds=False, work=0.65),
    Round(1 / 2, 16, 1 / 2, 20, has_rounds=False, work=0.8),
    # What is chosen is checked at a finer grain.
    Round(1 / 4, 32, 1, 40, has_rounds=True, work=1),
)


@dataclass(frozen=True, slots=True)
class Length:
    """The length of the simulations of a candidate."""

    iterations: int
    """The length in iterations of the slowest job alone."""
    draws: int

    def added(self, before: Length) -> int:
        """Return the iterations that are simulated if those of `before` have been."""
        return self.iterations * self.draws - before.iterations * before.draws

    def shorter(self, before: Length) -> list[Length]:
        """Return this and shorter lengths that add to `before`, the longest first."""
        lengths = []
        for draws in range(before.draws, self.draws + 1):
            for part in (1, 0.75, 0.5):
                iterations = max(before.iterations, round(part * self.iterations))
                lengths.append(Length(iterations, draws))
        adding = [length for length in dict.fromkeys(lengths) if length.added(before)]
        return sorted(adding, key=lambda length: -length.added(before))


PRICING = Length(2, 1)
"""The length of the first simulations, which tell what others take."""


def kept(candidates: int, round_: Round) -> int:
    """Return how many of so many candidates go through a round because they look best."""
    return min(candidates, max(LEAST_KEPT, round(candidates * round_.kept)))


def length_in(round_: Round, other_draws: int) -> Length:
    """Return the length of simulations in a round, if there is work enough."""
    return Length(round_.iterations, 1 + ceil(round_.draws * other_draws))


def added_iterations(
    rounds: Sequence[Round],
    number: int,
    other_draws: int,
) -> int:
    """Return the iterations that a round simulates of one candidate, beside those before."""
    before = Length(0, 0)
    if number:
        before = length_in(rounds[number - 1], other_draws)
    return length_in(rounds[number], other_draws).added(before)


def simulated_iterations(
    rounds: Sequence[Round],
    candidates: int,
    other_draws: int,
    always: int,
) -> int:
    """Return about how many iterations a search simulates if it is not too much work.

    `always` candidates go through all rounds.
    """
    iterations = 0
    for number, round_ in enumerate(rounds):
        count = kept(candidates, round_)
        if number:
            count = min(candidates, count + always)
        iterations += count * added_iterations(rounds, number, other_draws)
    return iterations
