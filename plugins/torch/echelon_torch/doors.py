"""The commands for training jobs that run: what they send, recorded or as they send it."""

from __future__ import annotations

from echelon.cli.doors import DESCRIBE, OPERATE, Command

CAPTURE = Command(
    DESCRIBE,
    "Run a training command, and write what its ranks send and compute in an iteration as Chakra"
    " traces.",
    "echelon_torch.capture_command:capture",
    interspersed=False,
)
AGENT = Command(
    OPERATE,
    "See the connections of an unmodified job on this host, and report them to the service.",
    "echelon_torch.agent_command:app",
)
RUN_JOB = Command(
    OPERATE,
    "Run a PyTorch job, and give each of its process groups the class that the plan has for it.",
    "echelon_torch.run_job_command:run_job",
    interspersed=False,
)
