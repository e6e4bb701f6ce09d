"""Objects that are made for each job and kept as long as it is there, and cheap copies.

The loops of the functions here run in C, because there may be ten thousand jobs, of which mostly
one has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from copy import copy, deepcopy
from itertools import compress, filterfalse
from operator import attrgetter, is_not, ne
from typing import Any, Generic, Protocol, Self, TypeVar, TypeVarTuple


class Named(Protocol):
    """A thing with a name."""

    @property
    def name(self) -> str: ...


K = TypeVar("K")
N = TypeVar("N", bound=Named)
T = TypeVar("T")
Inputs = TypeVarTuple("Inputs")


def altered(thing: T, **attributes: Any) -> T:
    """Return a shallow copy of an object, with other values of some attributes."""
    twin = copy(thing)
    vars(twin).update(attributes)
    return twin


def by_name(things: Sequence[N]) -> dict[str, N]:
    """Return things by their names."""
    names = map(attrgetter("name"), things)
    return dict(zip(names, things, strict=True))


def picked(things: Mapping[K, T], names: Collection[K]) -> dict[K, T]:
    """Return the things of these names, in the order of the names."""
    in_order = map(things.__getitem__, names)
    return dict(zip(names, in_order, strict=True))


def without(names: Iterable[K], things: Container[K]) -> list[K]:
    """Return those of the names that `things` does not hold."""
    return [*filterfalse(things.__contains__, names)]


def replaced(things: Mapping[K, object], before: Mapping[K, object]) -> list[K]:
    """Return the names of things that are other objects than before, or new."""
    former = map(before.get, things)
    is_other = map(is_not, things.values(), former)
    return [*compress(things, is_other)]


class Kept(Generic[*Inputs, T]):
    """A maker of an object for each job, which is kept until the job goes or its inputs change."""

    def __init__(self, make: Callable[[*Inputs], T]) -> None:
        self._make = make
        self._inputs: Mapping[str, tuple[*Inputs]] = {}
        self._objects: dict[str, T] = {}

    def update(self, inputs: Mapping[str, tuple[*Inputs]]) -> Mapping[str, T]:
        """Return, by job, the object made of its inputs.

        It is the same object as at the last call if the inputs are equal. Objects of other jobs are
        forgotten. Both mappings belong to this maker and the caller, who do not change them. Raise
        what the maker raises; then nothing has changed.
        """
        # In C for all jobs but those that changed. A tuple compares its items by identity first.
        last_inputs = map(self._inputs.get, inputs)
        changed = list(compress(inputs, map(ne, inputs.values(), last_inputs)))
        objects = dict(self._objects)
        for job in changed:
            objects[job] = self._make(*inputs[job])
        # Mostly a job comes behind the others: then nothing is put in another order.
        if [*objects] != [*inputs]:
            objects = picked(objects, inputs)
        self._objects = objects
        self._inputs = inputs
        return self._objects

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a maker that goes on from here.

        Inputs and objects are immutable, so that the copy shares them, and so does the rest of a
        deep copy that it is a part of.
        """
        for job, thing in self._objects.items():
            memo[id(thing)] = thing
            for item in self._inputs[job]:
                memo[id(item)] = item
        return altered(self, _make=deepcopy(self._make, memo))
