"""`echelon agent`: the agent of a training host, which reports a job's connections to the
service.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.calls import on_service
from echelon.cli.usage import fail
from echelon_torch.this_host import Worker, local_hosts

if TYPE_CHECKING:
    from echelon.controller.client import Client
    from echelon_torch.agent.marking import SocketOptions
    from echelon_torch.agent.watching import Agent

app = typer.Typer(
    help="See the connections of an unmodified job on this host, and report them to the service.",
    no_args_is_help=True,
)

Job = Annotated[
    str,
    typer.Option(
        help="The job, as the service knows it.",
        metavar="NAME",
    ),
]
Dscp = Annotated[
    int | None,
    typer.Option(
        help="Mark the job's packets with this DSCP (needs eBPF).",
        min=0,
        max=63,
        metavar="NUMBER",
    ),
]
Window = Annotated[
    str | None,
    typer.Option(
        help="Give the job's sockets this receive window.",
        envvar="ECHELON_AGENT_WINDOW",
        metavar="SIZE",
    ),
]
Unsent = Annotated[
    str | None,
    typer.Option(
        help="Let so much wait in a socket unsent.",
        envvar="ECHELON_AGENT_UNSENT",
        metavar="SIZE",
    ),
]
Priority = Annotated[
    int | None,
    typer.Option(
        help="Give the job's sockets this priority on the host.",
        envvar="ECHELON_AGENT_PRIORITY",
        min=0,
        max=6,
        metavar="NUMBER",
    ),
]
Pacing = Annotated[
    str | None,
    typer.Option(
        help="Let segments leave at this rate at most.",
        envvar="ECHELON_AGENT_PACING",
        metavar="RATE",
    ),
]
IdleGap = Annotated[
    str | None,
    typer.Option(
        help="Tell iterations apart by this silence, as '50 ms', and time them.",
        metavar="DURATION",
    ),
]
Metrics = Annotated[
    str | None,
    typer.Option(
        help="Answer Prometheus at this address and port.",
        metavar="ADDRESS:PORT",
    ),
]
Classes = Annotated[
    bool,
    typer.Option(
        "--classes/--no-classes",
        help="Give the command the variables of `echelon job env`, for NCCL.",
    ),
]
Ebpf = Annotated[bool, typer.Option("--ebpf/--no-ebpf", help="Use eBPF where it is allowed.")]


@app.command(context_settings={"allow_interspersed_args": False})
@on_service
def run(
    client: Client,
    command: Annotated[
        list[str],
        typer.Argument(
            help="The command, after --.",
            metavar="COMMAND...",
        ),
    ],
    job: Job,
    worker: Worker = None,
    dscp: Dscp = None,
    window: Window = None,
    unsent: Unsent = None,
    priority: Priority = None,
    pacing: Pacing = None,
    idle_gap: IdleGap = None,
    metrics: Metrics = None,
    classes: Classes = False,
    ebpf: Ebpf = True,
) -> None:
    """Run a command, and report its TCP connections with the job's other hosts until it ends.

    Ends with the command's exit status. The command needs no change; it runs in a control group of
    its own, which goes with the agent. With eBPF, each connection is reported as it opens; this
    needs CAP_BPF and CAP_NET_ADMIN.

    Example: echelon agent run --job bert --worker h1 -- torchrun --nnodes 2 train.py
    """
    options = _options(dscp, window, unsent, priority, pacing)
    agent = _agent(client, job, worker, options, idle_gap, metrics, ebpf)
    environment = _with_classes(client, job) if classes else None
    with _refusals():
        status = agent.run(command, environment)
    raise typer.Exit(status if status >= 0 else 128 - status)


@app.command()
@on_service
def watch(
    client: Client,
    job: Job,
    cgroup: Annotated[
        Path,
        typer.Option(
            help="The control group of the job's processes, below /sys/fs/cgroup.",
            metavar="PATH",
        ),
    ],
    worker: Worker = None,
    dscp: Dscp = None,
    window: Window = None,
    unsent: Unsent = None,
    priority: Priority = None,
    pacing: Pacing = None,
    idle_gap: IdleGap = None,
    metrics: Metrics = None,
    ebpf: Ebpf = True,
) -> None:
    """Report the TCP connections of the processes in a control group, until SIGTERM or SIGINT.

    The group may be that of a container, a systemd unit or a Slurm step; groups below it belong to
    it.

    Example: echelon agent watch --job bert --worker h1 --cgroup /sys/fs/cgroup/system.slice/bert.service
    """
    options = _options(dscp, window, unsent, priority, pacing)
    agent = _agent(client, job, worker, options, idle_gap, metrics, ebpf)
    with _refusals():
        agent.watch(cgroup)


def _options(
    dscp: int | None,
    window: str | None,
    unsent: str | None,
    priority: int | None,
    pacing: str | None,
) -> SocketOptions:
    from echelon.model.quantities import QuantityError, rate_bps
    from echelon_torch.agent.marking import SocketOptions

    window_bytes = _buffer_bytes("--window", window)
    unsent_bytes = _buffer_bytes("--unsent", unsent)
    try:
        pacing_bps = None if pacing is None else rate_bps(pacing)
    except QuantityError as error:
        fail(f"--pacing: {error}")
    return SocketOptions(dscp, window_bytes, unsent_bytes, priority, pacing_bps)


def _with_classes(client: Client, job: str) -> dict[str, str]:
    """Return this environment with what NCCL needs for the job's classes."""
    from echelon.cli.nccl import nccl_environment

    try:
        environment = nccl_environment(client.classes(job))
    except ValueError as error:
        fail(f"--classes: {error}")
    _say(environment.title)
    return environment.applied_to(dict(os.environ))


def _buffer_bytes(option: str, text: str | None) -> int | None:
    from echelon.model.quantities import QuantityError, size_bytes

    if text is None:
        return None
    try:
        size = size_bytes(text)
    except QuantityError as error:
        fail(f"{option}: {error}")
    if not 0 < size < 1 << 30:
        fail(f"{option}: {text} is not between 1 B and 1 GiB (give what the path needs, as 100 kB)")
    return size


def _agent(
    client: Client,
    job: str,
    worker: list[str] | None,
    options: SocketOptions,
    idle_gap: str | None,
    metrics: str | None,
    ebpf: bool,
) -> Agent:
    from echelon.model.documents import NAME
    from echelon.model.quantities import excerpt
    from echelon_torch.agent.interfaces import Interfaces
    from echelon_torch.agent.metrics import serve
    from echelon_torch.agent.reporting import Reporter
    from echelon_torch.agent.watching import Agent, Watched

    gap_s = _gap_s(idle_gap)
    hosts = local_hosts(worker)
    if len(hosts) > 1 and gap_s is not None:
        fail(
            "--idle-gap: the iterations of several interfaces are not told apart (leave it out, or"
            " run `echelon agent watch` once for each --worker)"
        )
    named = [("--job", job), *(("--worker", host) for host in hosts)]
    for option, name in named:
        if not NAME.fullmatch(name):
            fail(
                f"{option}: {excerpt(name)} is not a name (up to 32 letters, digits, '-', '_'; a"
                " letter first)"
            )
    reporters = [Reporter(client, job, host, _say) for host in hosts]
    reporter: Reporter | Interfaces = reporters[0]
    if len(reporters) > 1:
        reporter = Interfaces(reporters)
    agent = Agent(Watched(job, options, gap_s, ebpf), reporter, _say)
    if metrics is not None:
        address, _, port = metrics.rpartition(":")
        if not address or not port.isdecimal() or not 0 < int(port) < 65536:
            fail(f"--metrics: '{metrics}' is not an address and a port (write 127.0.0.1:9465)")
        with _refusals():
            serve(agent, address, int(port))
    return agent


def _gap_s(idle_gap: str | None) -> float | None:
    from echelon.model.quantities import QuantityError, duration_s

    if idle_gap is None:
        return None
    try:
        gap_s = float(duration_s(idle_gap))
    except QuantityError as error:
        fail(f"--idle-gap: {error}")
    if gap_s == 0:
        fail("--idle-gap: 0 s is no silence (give more)")
    return gap_s


def _say(line: str) -> None:
    typer.echo(f"echelon agent: {line}", err=True)


@contextmanager
def _refusals() -> Iterator[None]:
    """End the command with one line if the agent cannot do what it was asked to."""
    from echelon_torch.agent.connection import AgentError

    try:
        yield
    except AgentError as error:
        fail(str(error))


@app.command()
@on_service
def rank(
    client: Client,
    job: Annotated[
        list[str],
        typer.Option(
            help="A job, as the service knows it; repeatable.",
            metavar="NAME",
        ),
    ],
    address: Annotated[
        str,
        typer.Option(
            help="The address of this host, as the fabric gives it, by which jobs send.",
            metavar="IPV4",
        ),
    ],
) -> None:
    """Mark what this host sends of jobs with its rank, where switches do not rank, until SIGTERM or SIGINT.

    A program in the kernel (eBPF, Linux 6.6) writes the rank of each packet as its code point, by
    the rules of the service; switches need eight strict queues by code point. Packets of other
    connections stay as they are. Needs CAP_BPF and CAP_NET_ADMIN, and agents that report the jobs'
    connections.

    Example: echelon agent rank --job bert --address 10.0.0.1
    """
    import signal
    from contextlib import ExitStack

    from echelon_torch.agent.ranking import FollowedRules, HostRanking

    ending = {signal.SIGTERM, signal.SIGINT}
    with _refusals(), ExitStack() as stack:
        signal.pthread_sigmask(signal.SIG_BLOCK, ending)
        ranking = stack.enter_context(HostRanking(address))
        stack.enter_context(FollowedRules(client, job, ranking, _say))
        signal.sigwait(ending)
