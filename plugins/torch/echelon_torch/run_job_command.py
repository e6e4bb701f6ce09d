"""`echelon run-job`: a PyTorch job whose process groups get the classes of the plan."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.calls import on_service
from echelon.cli.usage import fail
from echelon_torch.this_host import Worker, local_hosts

if TYPE_CHECKING:
    from echelon.controller.client import Client
    from echelon_torch.run_job.answering import GroupClasses

Job = Annotated[
    str | None,
    typer.Option(
        help="The job, as the service knows it (default: the only one that has this host).",
        envvar="ECHELON_JOB",
        metavar="NAME",
    ),
]


@on_service
def run_job(
    client: Client,
    command: Annotated[
        list[str],
        typer.Argument(
            help="The command, after --.",
            metavar="COMMAND...",
        ),
    ],
    job: Job = None,
    worker: Worker = None,
) -> None:
    """Run a PyTorch job, and give each of its process groups the class that the plan has for it.

    The program needs no change. NCCL gets classes by options of its groups, and connections of Gloo
    are marked. What gets no class is said in one line. Ends with the command's exit status.

    Example: echelon run-job --job bert -- torchrun --nnodes 2 train.py
    """
    from echelon.cli.nccl import nccl_environment
    from echelon.model.errors import RunError
    from echelon_torch.injecting import with_hook
    from echelon_torch.run_job.answering import answering

    hosts = tuple(local_hosts(worker))
    name = job or _only_job(client, hosts)
    try:
        settings = nccl_environment(client.classes(name))
    except ValueError as error:
        fail(f"echelon run-job: {error}")
    classes = _group_classes(client, name, hosts)
    try:
        with answering(classes) as path:
            environment = settings.applied_to(with_hook(os.environ))
            environment["ECHELON_CLASSES_SOCKET"] = str(path)
            status = _run(command, environment, settings.title)
    except RunError as error:
        fail(f"echelon run-job: {error}")
    raise typer.Exit(status if status >= 0 else 128 - status)


def _only_job(client: Client, hosts: Sequence[str]) -> str:
    names: set[str] = set()
    for host in hosts:
        names.update(job.name for job in client.jobs(worker=host))
    if len(names) != 1:
        on_host = ", ".join(sorted(names)) or "none"
        fail(f"--job: {', '.join(hosts)} has not one job but {on_host} (give --job, or --worker)")
    return names.pop()


def _group_classes(client: Client, name: str, hosts: tuple[str, ...]) -> GroupClasses:
    from echelon.model.jobs.spec import make_job_spec
    from echelon_torch.run_job.answering import GroupClasses
    from echelon_torch.run_job.communicators import job_layout

    layout = job_layout(make_job_spec(**client.job(name).spec))
    for host in hosts:
        if host not in layout.hosts:
            fail(
                f"--worker: {host} is no host of job '{name}', which has"
                f" {', '.join(layout.hosts)} (give one of them)"
            )
    return GroupClasses(client, name, layout, hosts, _say)


def _run(command: Sequence[str], environment: Mapping[str, str], title: str) -> int:
    """Return the status of the command, which gets requests to end that this process gets."""
    children: list[subprocess.Popen[bytes]] = []
    requests: list[int] = []

    def pass_on(number: int, _frame: object) -> None:
        # An interrupt comes from the terminal, which sends it to the child, too.
        if number == signal.SIGTERM:
            requests.append(number)
            for child in children:
                child.terminate()

    before = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, pass_on)
    try:
        child = subprocess.Popen(command, env=environment)
        children.append(child)
        if requests:
            child.terminate()
        _say(title)
        return child.wait()
    except OSError as error:
        fail(f"{command[0]}: {error.strerror or error} (check the command, and PATH)")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(line: str) -> None:
    typer.echo(f"echelon run-job: {line}", err=True)
