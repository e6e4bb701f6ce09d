"""The registry of importers: which formats there are, and how to make the importer of one.

An importer is a class derived from `echelon_importers.importer.Importer`. A distribution registers
it in the entry-point group `echelon.importers`, under the name of its format::

    [project.entry-points."echelon.importers"]
    chakra = "echelon_importers.chakra:Chakra"

Listing the names imports no importer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from echelon.model.documents import DocumentError, parse_document, suggestion
from echelon_importers.entries import load_class
from echelon_importers.importer import Importer
from echelon_importers.topologies.topology import topology_kinds

GROUP = "echelon.importers"
"""The entry-point group."""


@cache
def _registered() -> Mapping[str, EntryPoint]:
    return {entry.name: entry for entry in sorted(entry_points(group=GROUP))}


def format_names() -> tuple[str, ...]:
    """Return the names of all formats, in alphabetical order."""
    return tuple(_registered())


def load_importer(name: str) -> type[Importer[Any]]:
    """Return the class of the importer of a format.

    Raises `DocumentError` for an unknown format.
    """
    entry = _registered().get(name)
    if entry is None:
        hint = suggestion(name, [*_registered(), *topology_kinds()])
        raise DocumentError("FORMAT", "", f"'{name}' is not a format ({hint})", code="not-allowed")
    importer: type[Importer[Any]] = load_class(entry)
    return importer


def make_importer(name: str, settings: Mapping[str, object]) -> Importer[Any]:
    """Return the importer of a format with options by name.

    Raises `DocumentError` for an unknown format or option.
    """
    importer = load_importer(name)
    return importer(parse_document(importer.Options, dict(settings), f"format {name}"))
