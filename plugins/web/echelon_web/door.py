"""The command that shows results in a browser."""

from __future__ import annotations

from echelon.cli.doors import COMPARE, Command

VIEW = Command(
    COMPARE,
    "Show the results of a finished run as a web page: policies, timeline, waits, links.",
    "echelon_web.command:view",
)
