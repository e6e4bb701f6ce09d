"""Objects made for each job, kept for as long as the job is there, and copies of what keeps them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy, deepcopy
from typing import Any, Generic, Self, TypeVar, TypeVarTuple

T = TypeVar("T")
Of = TypeVarTuple("Of")


def altered(thing: T, **attributes: Any) -> T:
    """Return a shallow copy of an object, with other values of some attributes."""
    twin = copy(thing)
    vars(twin).update(attributes)
    return twin


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
        out: dict[str, T] = {}
        before = self._made.get
        for job, inputs in of.items():
            known = before(job)
            # A tuple compares its items by identity first.
            if known is None or known[0] != inputs:
                known = inputs, self._make(*inputs)
            made[job] = known
            out[job] = known[1]
        self._made = made
        return out

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a maker that goes on from here. Inputs and objects are immutable, so that the copy shares them, and so
        does the rest of a deep copy that it is a part of."""
        for inputs, thing in self._made.values():
            memo.update((id(one), one) for one in (*inputs, thing))
        return altered(self, _make=deepcopy(self._make, memo), _made=dict(self._made))
