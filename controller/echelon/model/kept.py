"""Objects that are made for each job and kept as long as it is there, and cheap copies.

The loops of the functions here run in C, because there may be ten thousand jobs, of which mostly
one has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy, deepcopy
from itertools import compress, filterfalse
from operator import attrgetter, is_not, ne
from typing import Any, Generic, Protocol, Self, TypeVar, TypeVarTuple
from weakref import ref


class Named(Protocol):
    """A thing with a name."""

    @property
    def name(self) -> str: ...


K = TypeVar("K")
N = TypeVar("N", bound=Named)
T = TypeVar("T")
Inputs = TypeVarTuple("Inputs")


class Successor(dict[K, T]):
    """A mapping that knows in what it differs from the one before it. Nobody changes it in place.

    So to compare the two takes no longer with ten thousand jobs than with one.
    """

    def __init__(
        self,
        things: Mapping[K, T],
        before: Mapping[K, T],
        changed: Collection[K],
        removed: Collection[K],
    ) -> None:
        super().__init__(things)
        self._before: Callable[[], object] | None = None
        # All plans since the start would be kept otherwise.
        if isinstance(before, Successor):
            self._before = ref(before)
        self.changed = changed
        """The names of things that are other objects than before, or new, in their order."""
        self.removed = removed

    def follows(self, before: object) -> bool:
        """Return whether this is the mapping before it."""
        return self._before is not None and self._before() is before

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the same mapping: like its things, it is never changed."""
        return self


class Roster(tuple[N, ...]):
    """Things with names, and the mapping from these names to them."""

    by_name: Mapping[str, N]

    @classmethod
    def of_named(cls, by_name: Mapping[str, N]) -> Self:
        """Return the things of that mapping, in its order."""
        roster = cls(by_name.values())
        roster.by_name = by_name
        return roster

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, ([*self],)


def altered(thing: T, **attributes: Any) -> T:
    """Return a shallow copy of an object, with other values of some attributes."""
    twin = copy(thing)
    vars(twin).update(attributes)
    return twin


def by_name(things: Sequence[N]) -> Mapping[str, N]:
    """Return things by their names."""
    if isinstance(things, Roster):
        return things.by_name
    names = map(attrgetter("name"), things)
    return dict(zip(names, things, strict=True))


def picked(things: Mapping[K, T], names: Collection[K]) -> dict[K, T]:
    """Return the things of these names, in the order of the names."""
    in_order = map(things.__getitem__, names)
    return dict(zip(names, in_order, strict=True))


def succeed(
    before: Mapping[K, T],
    changed: Mapping[K, T],
    names: Collection[K],
) -> Successor[K, T]:
    """Return the things of these names, in their order: those that changed, and others as before.

    `changed` may also hold the same object as before.
    """
    things = {**before, **changed}
    removed: Collection[K] = ()
    if len(things) > len(names):
        removed = without(things, names)
        for name in removed:
            del things[name]
    # Mostly a job comes behind the others: then nothing is put in another order.
    if [*things] != [*names]:
        things = picked(things, names)
    differing = replaced(changed, before)
    if len(differing) > 1:
        differing = [*filter({*differing}.__contains__, things)]
    return Successor(things, before, differing, removed)


def without(names: Collection[K], things: Collection[K]) -> Collection[K]:
    """Return those of the names that `things` does not hold."""
    if things is names:
        return ()
    if isinstance(things, Successor) and things.follows(names):
        return things.removed
    return [*filterfalse(things.__contains__, names)]


def replaced(things: Mapping[K, object], before: Mapping[K, object]) -> Collection[K]:
    """Return the names of things that are other objects than before, or new."""
    if things is before:
        return ()
    if isinstance(things, Successor) and things.follows(before):
        return things.changed
    former = map(before.get, things)
    is_other = map(is_not, things.values(), former)
    return [*compress(things, is_other)]


class Kept(Generic[*Inputs, T]):
    """A maker of an object for each job, which is kept until the job goes or its inputs change."""

    def __init__(self, make: Callable[[*Inputs], T]) -> None:
        self._make = make
        self._inputs: Mapping[str, tuple[*Inputs]] = {}
        self._objects: Successor[str, T] = Successor({}, {}, (), ())
        self._columns: tuple[Mapping[str, Any], ...] = ()
        self._common: tuple[Any, ...] = ()

    def update(self, inputs: Mapping[str, tuple[*Inputs]]) -> Mapping[str, T]:
        """Return, by job, the object made of its inputs.

        It is the same object as at the last call if the inputs are equal. Objects of other jobs are
        forgotten. Both mappings belong to this maker and the caller, who do not change them. Raise
        what the maker raises; then nothing has changed.
        """
        # In C for all jobs but those that changed. A tuple compares its items by identity first.
        last_inputs = map(self._inputs.get, inputs)
        changed = compress(inputs, map(ne, inputs.values(), last_inputs))
        objects = {name: self._make(*inputs[name]) for name in changed}
        self._objects = succeed(self._objects, objects, inputs)
        self._inputs = inputs
        return self._objects

    def update_columns(
        self,
        *columns: Mapping[str, Any],
        common: tuple[Any, ...] = (),
    ) -> Mapping[str, T]:
        """Return what `update` returns, for inputs in columns, followed by `common`.

        The jobs are those of the first column; others may lack some, for which there is None. If
        each column is the `Successor` of the last one, this takes time for jobs that changed only.
        """
        names = columns[0]
        changed: Iterable[str] = names
        if self._columns and common == self._common:
            differing: set[str] = set()
            for column, former in zip(columns, self._columns, strict=True):
                differing.update(replaced(column, former), without(former, column))
            # In the order of the jobs: an error is about the first that has any.
            changed = filter(differing.__contains__, names)
        inputs: dict[str, Any] = dict(self._inputs)
        objects = {}
        for name in changed:
            row = (*[column.get(name) for column in columns], *common)
            if row != self._inputs.get(name):
                inputs[name] = row
                objects[name] = self._make(*row)
        self._objects = succeed(self._objects, objects, names)
        for name in self._objects.removed:
            del inputs[name]
        self._inputs = inputs
        self._columns = columns
        self._common = common
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
