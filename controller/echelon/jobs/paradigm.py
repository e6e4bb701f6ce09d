"""The base of training paradigms: a section of the job file, and the iteration graph that it describes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import ClassVar, Self

from echelon.documents import Section
from echelon.jobs.graph import IterationGraph


class Paradigm(Section):
    """The section of a job file that describes an iteration; one subclass for each paradigm.

    A subclass declares the section's keys as pydantic fields, documents them, and is registered under the section's
    name in the entry-point group `echelon.paradigms`.
    """

    examples: ClassVar[Mapping[str, Mapping[str, object]]]
    """Job documents by title, for the reference of the API."""
    compute_times: ClassVar[frozenset[str]]
    """The keys that hold profiled compute times, in seconds; `scaled` multiplies them."""
    nests: ClassVar[frozenset[str]] = frozenset()
    """The axes that the section nests in its key `order`; a job file may give them as `parallelism: [data, ...]`."""

    @abstractmethod
    def iteration(self, workers: Sequence[str]) -> IterationGraph:
        """Return the graph of one iteration on `workers`, in the order of the job file."""

    @abstractmethod
    def flow_count(self, workers: int) -> int:
        """Return how many flows the graph has, without building it."""

    @abstractmethod
    def connection_bytes(self, workers: int) -> int:
        """Return an upper bound on what one connection carries in an iteration, without building the graph."""

    def counting_refusal(self, exactly: bool) -> str | None:
        """Return what keeps switches from telling the flows of a connection apart by counting bytes, or None.

        They can if flows start in the same order however long anything takes, and connections pause between iterations.
        Unless they have to do so `exactly`, flows of an iteration may be taken for each other.
        """
        return None

    @property
    def sends_in_turn(self) -> bool:
        """Whether a host sends the job's flows one after the other, in the order in which they start."""
        return False

    def check(self, workers: Sequence[str]) -> None:
        """Raise `echelon.documents.problem` if the section does not fit the job's `workers`."""

    def other_hosts(self) -> Mapping[str, str]:
        """Return the hosts of the job that are not workers, each with the key that names it."""
        return {}

    def scaled(self, factor: Fraction) -> Self:
        """Return the section with all compute times multiplied by `factor`."""
        given = self.compute_times & self.model_fields_set
        return self.model_copy(update={key: _scaled(getattr(self, key), factor) for key in given})


def _scaled(value: object, factor: Fraction) -> object:
    if isinstance(value, tuple):
        return tuple(_scaled(item, factor) for item in value)
    return value * factor if isinstance(value, Fraction) else value
