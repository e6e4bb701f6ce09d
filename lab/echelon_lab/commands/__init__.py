"""The commands of the laboratory.

`echelon` finds them by entry points, and imports them when they are called.
"""

from __future__ import annotations

from echelon.cli.doors import COMMANDS, COMPARE, DESCRIBE, RUN, Command

START = Command(
    RUN,
    "Run a scenario under each of its policies, and compare them.",
    "echelon_lab.commands.runs:run",
)
LAB = Command(
    RUN,
    "Start the switches of a fabric and a service for them, and open a shell.",
    "echelon_lab.commands.laboratories:lab",
)
TRAFFIC = Command(
    DESCRIBE,
    "Cross traffic: draw it, look at it, send it over real sockets.",
    "echelon_lab.commands.traffic:app",
)
PLOT = Command(
    COMPARE,
    "Draw pictures of a finished run or a sweep, readable at the width of a column, and say what"
    " they leave out.",
    "echelon_lab.commands.plots:plot",
)
ADVISE = Command(
    COMPARE,
    "Say which policy to take for these jobs, why, and what the answer is worth.",
    "echelon_lab.commands.advising:advise",
)
EVALUATE = Command(
    COMPARE,
    "Run every policy on random scenarios,"
    " and compare it with fair sharing and the physical limit.",
    "echelon_lab.commands.evaluations:evaluate",
)
SWEEP = Command(
    COMPARE,
    "Run every variant of a scenario under every policy."
    " The same command continues an interrupted sweep.",
    "echelon_lab.commands.sweeps:sweep",
)
PLACE = Command(
    RUN,
    "Show what each placement of the jobs' ranks on hosts would cost each job.",
    "echelon_lab.commands.placing:place",
)
NEW = Command(
    COMMANDS,
    "Write the job file of a model that is trained on so many GPUs.",
    "echelon_lab.commands.describing:new",
)
RECEIVE = Command(
    COMMANDS,
    "Receive what `echelon traffic send` sends, until interrupted (Ctrl-C or SIGTERM).",
    "echelon_lab.commands.sending:receive",
)
SEND = Command(
    COMMANDS,
    "Send a schedule's flows over TCP, each when it is due,"
    " and report offered against achieved load.",
    "echelon_lab.commands.sending:send",
)
