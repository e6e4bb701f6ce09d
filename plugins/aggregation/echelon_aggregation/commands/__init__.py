"""The commands that plan aggregation in the network and compare it with other ways."""

from __future__ import annotations

from echelon.cli.doors import COMPARE, Command

AGGREGATION = Command(
    COMPARE,
    "Aggregation in the network: what jobs gain, and how it compares.",
    "echelon_aggregation.commands.app:app",
)
