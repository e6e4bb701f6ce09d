"""Workloads that other tools have written, read into free job graphs.

A format is one module or package. It has a class derived from
`echelon_importers.importer.Importer`, registered in the entry-point group `echelon.importers`.
Importers parse bytes; they open no files. What they return is a `Workload`, which
`echelon_importers.job_file` writes as a job file of parallelism `graph`. Attributes are imported
when they are first used, so that `echelon --help` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from echelon_importers.importer import Importer, ImportOptions, Source
    from echelon_importers.registry import format_names, make_importer
    from echelon_importers.workload import ReadCounts, Workload

__all__ = [
    "ImportOptions",
    "Importer",
    "ReadCounts",
    "Source",
    "Workload",
    "format_names",
    "make_importer",
]
_PLACES = {
    **dict.fromkeys(("ImportOptions", "Importer", "Source"), "importer"),
    **dict.fromkeys(("format_names", "make_importer"), "registry"),
    **dict.fromkeys(("ReadCounts", "Workload"), "workload"),
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'echelon_importers' has no attribute '{name}'")
    return getattr(import_module(f"echelon_importers.{_PLACES[name]}"), name)
