"""The command that makes job files of other tools' workloads, and fabric files of topologies."""

from __future__ import annotations

from echelon.cli.doors import DESCRIBE, Command

IMPORT = Command(
    DESCRIBE,
    "Write a job file of another tool's workload, or a fabric file of its topology.",
    "echelon_importers.command:import_workload",
)
