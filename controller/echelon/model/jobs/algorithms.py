"""The algorithms of collectives that job files may name: Echelon's and those of plug-ins.

A distribution registers an algorithm in the entry-point group `echelon.algorithms`, as operation
and name::

    [project.entry-points."echelon.algorithms"]
    "all-reduce.in-network" = "echelon_aggregation.collectives:ALL_REDUCE"

The object is an `echelon.model.jobs.collectives.Algorithm`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Literal, TypeAlias

from echelon.model.jobs import collectives
from echelon.model.jobs.collectives import Algorithm, Round

GROUP = "echelon.algorithms"
"""The entry-point group."""


@dataclass(frozen=True, slots=True)
class _Unusable(Algorithm):
    """An algorithm that cannot be used, which keeps no others from being used."""

    reason: str

    def rounds(self, ranks: int) -> Iterator[Round]:
        return iter(())

    def flow_count(self, ranks: int) -> int:
        return 0

    def connection_bytes(self, ranks: int, size_bytes: int) -> int:
        return 0

    def refusal(self, ranks: int) -> str | None:
        return self.reason


def _loaded(entry: EntryPoint) -> Algorithm:
    try:
        algorithm = entry.load()
        if not isinstance(algorithm, Algorithm):
            raise TypeError(f"it is not an {Algorithm.__name__} of {Algorithm.__module__}")
    except Exception as error:  # whatever a foreign module raises when it is imported
        return _Unusable(f"of {entry.value} cannot be used: {error} (repair or remove it)")
    return algorithm


def registered() -> Mapping[str, Mapping[str, Algorithm]]:
    """Return the algorithms of each operation by name.

    Nobody replaces one that has the name already.
    """
    operations = {}
    for operation, algorithms in collectives.OPERATIONS.items():
        operations[operation] = dict(algorithms)
    for entry in sorted(entry_points(group=GROUP)):
        operation, _, name = entry.name.partition(".")
        operations.setdefault(operation, {}).setdefault(name, _loaded(entry))
    return operations


OPERATIONS = registered()
"""The algorithms of each collective operation by name (`echelon.model.jobs.collectives.OPERATIONS`
says which sizes they take); the first is the default."""

_OF_RANKS = ("hierarchical", "gloo")
"""All-reduces of free graphs alone."""
ALL_REDUCES: Mapping[str, Algorithm] = {
    name: algorithm for name, algorithm in OPERATIONS["all-reduce"].items() if name not in _OF_RANKS
}
"""The all-reduce algorithms that every paradigm takes."""

if TYPE_CHECKING:
    AllReduceName: TypeAlias = str
else:
    AllReduceName = Literal[tuple(ALL_REDUCES)]
