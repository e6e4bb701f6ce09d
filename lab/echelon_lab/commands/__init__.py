"""The commands of the laboratory. `echelon` finds them by entry points, and imports them when they are called."""

from __future__ import annotations

from echelon.cli.doors import COMPARE, DESCRIBE, RUN, Command

START = Command(RUN, "Run a scenario under each of its policies, and compare them.", "echelon_lab.commands.runs:run")
LAB = Command(
    RUN,
    "Start the switches of a fabric and a service for them, and open a shell in which `echelon` finds it.",
    "echelon_lab.commands.laboratories:lab",
)
TRAFFIC = Command(
    DESCRIBE, "Cross traffic: draw it, look at it, send it over real sockets.", "echelon_lab.commands.traffic:app"
)
PLOT = Command(
    COMPARE,
    "Draw pictures of a finished run or a sweep, readable at the width of a column, and say what they leave out.",
    "echelon_lab.commands.plots:plot",
)
