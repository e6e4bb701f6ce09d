"""The lines with which a TaskProlog changes the environment of a job's tasks.

Slurm takes ``export NAME=VALUE`` without quotes, ``unset NAME``, and ``print TEXT`` for the job's
output.
"""

from __future__ import annotations

from collections.abc import Iterator

from echelon.cli.nccl import nccl_environment
from echelon.controller.client import URL_VARIABLE
from echelon.controller.resources.plan import ClassesResource
from echelon_site.slurm.settings import Settings

CA_VARIABLE = "ECHELON_CA"

JOB_VARIABLE = "ECHELON_JOB"
"""The variable from which `echelon run-job` has the name of its job."""


WORKER_VARIABLE = "ECHELON_WORKER"
"""The variable from which it has the name of its host in the fabric."""


def task_lines(
    job: ClassesResource,
    settings: Settings,
    node: str,
) -> Iterator[str]:
    """Yield the lines for a job with these classes on a node, as Slurm calls it."""
    yield f"export {JOB_VARIABLE}={job.job}"
    yield f"export {WORKER_VARIABLE}={settings.host(node)}"
    yield f"export {URL_VARIABLE}={settings.url}"
    if settings.ca is not None:
        yield f"export {CA_VARIABLE}={settings.ca}"
    try:
        environment = nccl_environment(job)
    except ValueError as error:
        yield output_line(str(error))
        return
    yield output_line(environment.title)
    for name, value in environment.variables.items():
        yield f"export {name}={value}"
    for name in environment.unset:
        yield f"unset {name}"


def output_line(text: str) -> str:
    """Return the line that writes a text into the output of the job."""
    return f"print Echelon: {' '.join(text.split())}"
