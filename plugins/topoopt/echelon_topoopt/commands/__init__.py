"""The commands about topologies."""

from __future__ import annotations

from echelon.cli.doors import COMPARE, Command

TOPOLOGY = Command(
    COMPARE,
    "Topologies of direct connections, and parallelisations for them.",
    "echelon_topoopt.commands.app:app",
)
