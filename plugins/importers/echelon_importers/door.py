"""The command that makes job files of other tools' workloads."""

from __future__ import annotations

from echelon.cli.doors import DESCRIBE, Command

IMPORT = Command(
    DESCRIBE,
    "Write the job file of a workload in another tool's format, and say what was read, derived and"
    " ignored.",
    "echelon_importers.command:import_workload",
)
