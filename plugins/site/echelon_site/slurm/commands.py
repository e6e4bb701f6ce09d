"""`echelon slurm`: the hooks of Slurm, and the command that repairs what they miss.

Hooks may be killed, and the service or Slurm may be down when they run. So none of them has to
succeed: `sync`, which a timer runs, compares Slurm's jobs with the service's, and has the last
word. A hook only makes the same happen at once.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.usage import FAILED, fail

if TYPE_CHECKING:
    from echelon.controller.client import Client
    from echelon_site.slurm.settings import Settings
    from echelon_site.slurm.slurm_job import SlurmJob

NOT_REGISTERED = 75
"""The exit status of `prolog` for a job that must not start. It is EX_TEMPFAIL of sysexits.h."""
_NOT_FOUND = 404
_NODE_TIMEOUT_S = 3.0
"""The longest wait on a node. The job has waited for its plan already, and Slurm requeues a batch
job of which a node knows nothing after BatchStartTimeout, which counts from before the prologs."""

app = typer.Typer(
    help="Register Slurm's jobs: the hooks of slurm.conf, and what repairs their failures.",
    no_args_is_help=True,
)

Config = Annotated[
    Path,
    typer.Option(
        help="The file that says where the service is.",
        metavar="FILE",
    ),
]
_CONFIG = Path("/etc/echelon/slurm.yaml")


@app.command()
def prolog(config: Config = _CONFIG) -> None:
    """Register the job for which slurmctld calls this, and wait for its plan.

    The job's AdminComment says how it went (scontrol show job). A job that is not registered starts
    without classes; with `strict` in the file, the status is 75.

    Example: echelon slurm prolog --config slurm.yaml
    """
    from echelon_site.slurm.registering import register

    job = _hooked_job()
    if not job.is_for_echelon:
        return
    settings = _settings(config)
    status = FAILED
    if settings.strict:
        status = NOT_REGISTERED
    with _service(settings, status=status) as client:
        reason = register(client, settings, job)
    if reason is None:
        with _service(settings) as client:
            client.job(job.name, wait_s=float(settings.wait))
        return
    typer.echo(f"{job.name}: {reason}", err=True)
    if settings.strict:
        raise typer.Exit(NOT_REGISTERED)


@app.command()
def epilog(config: Config = _CONFIG) -> None:
    """Remove the job for which slurmctld calls this.

    Example: echelon slurm epilog --config slurm.yaml
    """
    job = _hooked_job()
    if not job.is_for_echelon:
        return
    with _service(_settings(config)) as client:
        _remove(client, job.name)


@app.command()
def env(config: Config = _CONFIG) -> None:
    """Print what a TaskProlog says to give the tasks of a job their environment.

    Slurm calls it on each node of the job (Prolog), as root.

    Example: echelon slurm env --config slurm.yaml
    """
    from echelon.controller.client import ClientError
    from echelon_site.slurm.task_environment import output_line, task_lines

    job = _hooked_job()
    settings = _settings(config)
    with _service(settings, _NODE_TIMEOUT_S) as client:
        try:
            node = os.environ.get("SLURMD_NODENAME", socket.gethostname().partition(".")[0])
            lines = list(task_lines(client.classes(job.name), settings, node))
        except ClientError as error:
            reason = f"this job starts without classes: {error}"
            lines = [output_line(f"{reason} (scontrol show job {job.number} may say why)")]
    for line in lines:
        typer.echo(line)


@app.command()
def sync(config: Config = _CONFIG) -> None:
    """Register the jobs of Slurm that the service does not have, and remove those that ended.

    Run it each half minute (deploy/slurm/echelon-slurm.timer).

    Example: echelon slurm sync --config slurm.yaml
    """
    from echelon_site.slurm.differences import difference
    from echelon_site.slurm.registering import fabric_hosts, register
    from echelon_site.slurm.slurm_job import is_from_slurm
    from echelon_site.slurm.slurmctld import SlurmError, running_jobs

    settings = _settings(config)
    with _service(settings) as client:
        # First the service: see `difference`.
        registered = {job.name: job.workers for job in client.jobs() if is_from_slurm(job.name)}
        try:
            running = {job: fabric_hosts(job, settings) for job in running_jobs()}
        except SlurmError as error:
            fail(str(error), FAILED)
        changes = difference(registered, running)
        for name in changes.removed:
            _remove(client, name)
            typer.echo(f"{name} is removed")
        for job in changes.registered:
            reason = register(client, settings, job)
            typer.echo(f"{job.name} {reason or 'is registered'}")


def _remove(client: Client, name: str) -> None:
    from echelon.controller.client import ClientError

    try:
        client.remove_job(name)
    except ClientError as error:
        if error.status != _NOT_FOUND:
            raise


def _hooked_job() -> SlurmJob:
    from echelon_site.slurm.slurm_job import SlurmJob

    try:
        return SlurmJob.from_environment(os.environ)
    except ValueError as error:
        fail(str(error))


def _settings(config: Path) -> Settings:
    from echelon.model.documents import DocumentError
    from echelon_site.slurm.settings import load_settings

    try:
        return load_settings(config)
    except DocumentError as error:
        fail(str(error))


@contextmanager
def _service(
    settings: Settings,
    longest_s: float | None = None,
    status: int = FAILED,
) -> Iterator[Client]:
    """Yield a client; an error ends the command with one line and this status."""
    from echelon.controller.client import ClientError

    try:
        with settings.client(longest_s) as client:
            yield client
    except ClientError as error:
        fail(str(error), status)
