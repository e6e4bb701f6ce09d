"""The pictures that `echelon fabric` and `echelon show` draw."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Job
from echelon_lab.commands.plots import draw_file


def draw_fabric(file: Path, fabric: Fabric) -> None:
    """Draw a fabric into a file, or fail with one line."""
    from echelon_lab.plots import fabric as pictures

    draw_file(lambda style: [pictures.draw_fabric(fabric, style)], file)


def draw_job(
    file: Path,
    job: Job,
    hosts: Sequence[str],
) -> None:
    """Draw one iteration of a job into a file, or fail with one line."""
    from echelon_lab.plots import inputs

    draw_file(lambda style: [inputs.draw_job(job, tuple(hosts), style)], file)
