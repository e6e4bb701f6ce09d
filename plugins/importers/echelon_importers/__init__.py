"""Workloads that other tools have written, read into free job graphs.

A format is one module or package. It has a class derived from `echelon_importers.importer.Importer`, registered in the
entry-point group `echelon.importers`. Importers parse bytes; they open no files. What they return is a `Workload`,
which `echelon_importers.job_file` writes as a job file of parallelism `graph`.
"""

from __future__ import annotations

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
