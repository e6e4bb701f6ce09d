"""Objects made for each job, kept for as long as the job is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar, TypeVarTuple

T = TypeVar("T")
Of = TypeVarTuple("Of")


class Kept(Generic[*Of, T]):
    """A maker of one object for each job, which keeps it until the job goes or its inputs change."""

    def __init__(self, make: Callable[[*Of], T]) -> None:
        self._make = make
        self._made: dict[str, tuple[tuple[*Of], T]] = {}

    def update(self, of: Mapping[str, tuple[*Of]]) -> dict[str, T]:
        """Return, by job, the object made of `of[job]`: the same object as at the last call if the inputs are equal.

        Objects of other jobs are forgotten. Raise what the maker raises; then nothing has changed.
        """
        made: dict[str, tuple[tuple[*Of], T]] = {}
        for job, inputs in of.items():
            known = self._made.get(job)
            # A tuple compares its items by identity first.
            made[job] = known if known is not None and known[0] == inputs else (inputs, self._make(*inputs))
        self._made = made
        return {job: thing for job, (_, thing) in made.items()}
