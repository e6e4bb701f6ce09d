"""The interface of a kind of topology: options, and a parser from the bytes of a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Generic, TypeVar

from echelon.model.documents import Duration, Rate, Section, parse_document
from echelon_importers.entries import load_class
from echelon_importers.importer import Source
from echelon_importers.topologies.network import Network

GROUP = "echelon.topologies"
"""The entry-point group."""


class TopologyOptions(Section):
    """Options of an import: values that a file lacks. A kind adds its own options."""

    rate: Rate | None = None
    """The rate of links for which the file has none."""
    delay: Duration | None = None
    """The propagation delay of links for which the file has none. Default: 0 s, and it is said."""
    part: str | None = None
    """A node of a file with several networks: the one that this node is in is imported."""


O = TypeVar("O", bound=TopologyOptions)  # noqa: E741


class Topology(ABC, Generic[O]):
    """A kind of topology. The docstring of the class is the kind's help."""

    Options: ClassVar[type[TopologyOptions]] = TopologyOptions

    def __init__(self, options: O) -> None:
        self.options = options

    @abstractmethod
    def read(self, source: Source) -> Network:
        """Return the network in a file. Raises `DocumentError`, which names file and place."""


@cache
def _registered() -> Mapping[str, EntryPoint]:
    return {entry.name: entry for entry in sorted(entry_points(group=GROUP))}


def topology_kinds() -> tuple[str, ...]:
    """Return the names of all kinds, in alphabetical order."""
    return tuple(_registered())


def make_topology(name: str, settings: Mapping[str, object]) -> Topology[Any]:
    """Return the reader of a kind, one of `topology_kinds()`, with options by name.

    Raises `DocumentError`.
    """
    entry = _registered()[name]
    kind: type[Topology[Any]] = load_class(entry)
    return kind(parse_document(kind.Options, dict(settings), f"format {name}"))
