"""The base of training paradigms: a section of the job file, and its iteration graph."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import ClassVar, Self

from echelon.model.documents import Section, problem
from echelon.model.extras import origin
from echelon.model.jobs.graph import IterationGraph

Examples = Mapping[str, Mapping[str, object]]
"""Job documents by title."""


def example(
    parallelism: str,
    job: str,
    workers: int,
    **section: object,
) -> Mapping[str, object]:
    """Return the document of a job on hosts h1, h2..., with this section for its paradigm."""
    hosts = [f"h{number}" for number in range(1, workers + 1)]
    return {"job": job, "parallelism": parallelism, "workers": hosts, parallelism: section}


class Paradigm(Section):
    """The section of a job file that describes an iteration; one subclass for each paradigm.

    A subclass declares the section's keys as pydantic fields, documents them, and is registered
    under the section's name in the entry-point group `echelon.paradigms`.
    """

    examples: ClassVar[Examples]
    """The job documents that the reference of the API shows."""
    compute_times: ClassVar[frozenset[str]]
    """The keys that hold profiled compute times, in seconds; `scaled` multiplies them."""
    nests: ClassVar[frozenset[str]] = frozenset()
    """The axes that the section nests in its key `order`; a job file may give them as `parallelism:
    [data, ...]`.
    """

    @abstractmethod
    def iteration(self, workers: Sequence[str]) -> IterationGraph:
        """Return the graph of one iteration on `workers`, in the order of the job file."""

    @abstractmethod
    def flow_count(self, workers: int) -> int:
        """Return how many flows the graph has, without building it."""

    def step_count(self, workers: int) -> int:
        """Return an upper bound on the steps of the graph, flows and others, by arithmetic."""
        return 3 * self.flow_count(workers) + workers

    @abstractmethod
    def connection_bytes(self, workers: int) -> int:
        """Return an upper bound on the bytes of a connection in an iteration, by arithmetic."""

    def counting_refusal(self, exactly: bool) -> str | None:
        """Return why switches cannot tell flows of a connection apart by bytes; None: they can.

        They can if flows start in the same order however long anything takes, and connections pause
        between iterations. Unless they have to do so `exactly`, flows of an iteration may be taken
        for each other.
        """
        return None

    @property
    def sends_in_turn(self) -> bool:
        """Whether a host sends the job's flows one after the other, in the order of their start."""
        return False

    def check(self, workers: Sequence[str]) -> None:
        """Raise `problem` (`echelon.model.documents`) if the section does not fit `workers`."""

    def check_length(
        self,
        key: str,
        length: int,
        places: str,
    ) -> None:
        """Raise `problem` if a key has a list with another number of values.

        `places` says in words what they are for.
        """
        value = getattr(self, key)
        if isinstance(value, tuple) and len(value) != length:
            reason = f"has {len(value)} values {places} (give one value or {length})"
            raise problem(reason, key, code="wrong-length")

    def other_hosts(self) -> Mapping[str, str]:
        """Return the hosts of the job that are not workers, each with the key that names it."""
        return {}

    def scaled(self, factor: Fraction) -> Self:
        """Return the section with all compute times multiplied by `factor`."""
        keys = self.compute_times & self.model_fields_set
        scaled = {key: _scaled(getattr(self, key), factor) for key in keys}
        return self.model_copy(update=scaled)


def _scaled(value: object, factor: Fraction) -> object:
    if isinstance(value, tuple):
        return tuple(_scaled(item, factor) for item in value)
    if isinstance(value, Fraction):
        return value * factor
    return value


GROUP = "echelon.paradigms"
"""The entry-point group."""


@dataclass(frozen=True, slots=True)
class Paradigms:
    """All registered paradigms by name, in alphabetical order."""

    sections: Mapping[str, type[Paradigm]]
    broken: Mapping[str, str]
    """The reason why each of the others cannot be used, and what to do."""


@cache
def registered() -> Paradigms:
    """Return the paradigms of all installed distributions.

    One that cannot be imported, or that two distributions register, does not keep the others from
    being used. Raises `RuntimeError` if there are none, because the installed metadata of Echelon
    itself are older than this source tree.
    """
    sections: dict[str, type[Paradigm]] = {}
    broken: dict[str, str] = {}
    origins: dict[str, str] = {}
    for entry in sorted(entry_points(group=GROUP)):
        name = entry.name
        place = origin(entry)
        if origins.setdefault(name, place) != place:
            sections.pop(name, None)
            broken[name] = f"is registered by {origins[name]} and {place} (remove one)"
            continue
        try:
            sections[name] = _load(entry)
        except Exception as error:  # whatever a foreign module raises when it is imported
            broken[name] = f"of {place} cannot be used: {error} (repair or remove it)"
    if not sections:
        raise RuntimeError(
            "no paradigm is registered: the installed package is older than its source tree"
            " (run: python -m pip install --editable .)"
        )
    return Paradigms(sections, broken)


def _load(entry: EntryPoint) -> type[Paradigm]:
    paradigm = entry.load()
    if not (isinstance(paradigm, type) and issubclass(paradigm, Paradigm)):
        raise TypeError(
            f"{entry.value} is not a subclass of {Paradigm.__module__}.{Paradigm.__name__}"
        )
    return paradigm
