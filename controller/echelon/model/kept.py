"""Objects made for each job, kept for as long as the job is there, and copies of what keeps
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy, deepcopy
from itertools import compress
from operator import ne
from typing import Any, Generic, Self, TypeVar, TypeVarTuple

T = TypeVar("T")
Of = TypeVarTuple("Of")


def altered(thing: T, **attributes: Any) -> T:
    """Return a shallow copy of an object, with other values of some attributes."""
    twin = copy(thing)
    vars(twin).update(attributes)
    return twin


class Kept(Generic[*Of, T]):
    """A maker of one object for each job, which keeps it until the job goes or its inputs
    change.
    """

    def __init__(self, make: Callable[[*Of], T]) -> None:
        self._make = make
        self._of: Mapping[str, tuple[*Of]] = {}
        self._made: dict[str, T] = {}

    def update(self, of: Mapping[str, tuple[*Of]]) -> Mapping[str, T]:
        """Return, by job, the object made of `of[job]`: the same object as at the last call if the
        inputs are equal.

        Objects of other jobs are forgotten. Both mappings belong to this maker and the caller, who
        do not change them. Raise what the maker raises; then nothing has changed.
        """
        # In C for all jobs but those that changed. A tuple compares its items by identity first.
        changed = [*compress(of, map(ne, of.values(), map(self._of.get, of)))]
        made = self._made | {job: self._make(*of[job]) for job in changed}
        self._of, self._made = of, dict(zip(of, map(made.__getitem__, of), strict=True))
        return self._made

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a maker that goes on from here. Inputs and objects are immutable, so that the copy
        shares them, and so does the rest of a deep copy that it is a part of."""
        for job, thing in self._made.items():
            memo.update((id(one), one) for one in (*self._of[job], thing))
        return altered(self, _make=deepcopy(self._make, memo))
