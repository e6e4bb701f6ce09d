"""The line of `echelon slurm` in `echelon --help`."""

from __future__ import annotations

from echelon.cli.doors import OPERATE, Command

SLURM = Command(
    OPERATE,
    "Register Slurm's jobs: the hooks of slurm.conf, and what repairs their failures.",
    "echelon_site.slurm.commands:app",
)
