"""The commands that compare policies in many runs, repeat published experiments, describe models, and send traffic."""

from __future__ import annotations

from echelon.cli.doors import COMMANDS, COMPARE, RUN, Command

ADVISE = Command(
    COMPARE,
    "Say which policy to take for these jobs, why, and what the answer is worth.",
    "echelon_study.commands.advising:advise",
)
EVALUATE = Command(
    COMPARE,
    "Run every policy on random scenarios, and compare it with fair sharing and the physical limit.",
    "echelon_study.commands.evaluations:evaluate",
)
SWEEP = Command(
    COMPARE,
    "Run every variant of a scenario under every policy. The same command continues an interrupted sweep.",
    "echelon_study.commands.sweeps:sweep",
)
EXPERIMENT = Command(
    COMPARE, "Repeat published experiments and compare the numbers.", "echelon_study.commands.experiments:app"
)
COFLOWS = Command(
    COMPARE,
    "Replay a trace of coflows on one big switch, and print how long coflows take under each policy.",
    "echelon_study.commands.coflows:coflows",
)
PLACE = Command(
    RUN,
    "Show what each placement of the jobs' ranks on hosts would cost each job.",
    "echelon_study.commands.placing:place",
)
NEW = Command(
    COMMANDS, "Write the job file of a model that is trained on so many GPUs.", "echelon_study.commands.describing:new"
)
RECEIVE = Command(
    COMMANDS,
    "Receive what `echelon traffic send` sends, until interrupted (Ctrl-C or SIGTERM).",
    "echelon_study.commands.traffic:receive",
)
SEND = Command(
    COMMANDS,
    "Send a schedule's flows over TCP, each when it is due, and report offered against achieved load.",
    "echelon_study.commands.traffic:send",
)
