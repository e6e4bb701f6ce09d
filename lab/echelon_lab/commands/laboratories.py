"""`echelon lab`: the switches of a fabric and a service, for as long as a shell runs.

With a scenario, emulated hosts do its jobs meanwhile.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import ExitStack, nullcontext
from fractions import Fraction
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.progress import ShownProgress
from echelon.cli.usage import fraction
from echelon.switches.targets import DEFAULT_TARGET
from echelon_lab.commands.runs import in_private, one_line_errors, policy_choice

if TYPE_CHECKING:
    from echelon.model.fabric.model import Fabric
    from echelon_lab.hosts.backends.base import NamespaceFabric
    from echelon_lab.hosts.laboratory import Laboratory
    from echelon_lab.scenarios.scenario import Scenario

_OTHER_SERVICE = ("ECHELON_TOKEN_FILE", "ECHELON_CA", "ECHELON_CERTIFICATE")
"""Variables about another service, whose token this one must not get."""
_SUGGESTED = {"ping": "iputils-ping"}
"""The commands that are suggested for hosts, and their Debian packages."""


FileArgument = Annotated[
    Path,
    typer.Argument(
        help="The file of a fabric, or of a scenario, whose jobs then run.",
        metavar="FILE.yaml",
    ),
]
RunOption = Annotated[
    str | None,
    typer.Option(
        "--run",
        help="Run this command line instead of a shell, and end with its status.",
        metavar="COMMAND",
    ),
]
PolicyOption = Annotated[
    str,
    typer.Option(
        help="The policy that the service begins with, e.g. fair or 'echelon(order=setf)'."
    ),
]
TargetOption = Annotated[str, typer.Option(help="The target of which all switches are.")]
ScaleOption = Annotated[
    str | None,
    typer.Option(
        help=(
            "Multiply the rates and sizes of a scenario by this, e.g. 1/10; default: what this"
            " machine carries."
        ),
    ),
]
HostsOption = Annotated[
    bool,
    typer.Option(
        "--hosts",
        help="Make hosts with the kernel's sockets; `host NAME` is a shell. Needs root.",
    ),
]
AddressOption = Annotated[
    str,
    typer.Option(
        "--at",
        metavar="HOST",
        help=(
            "The address of this machine at which switches listen. Beyond loopback, they take"
            " orders only of those with a certificate of the laboratory."
        ),
    ),
]


def lab(
    file: FileArgument,
    run: RunOption = None,
    policy: PolicyOption = "echelon",
    target: TargetOption = DEFAULT_TARGET,
    scale: ScaleOption = None,
    hosts: HostsOption = False,
    address: AddressOption = "127.0.0.1",
) -> None:
    """Start the switches of a fabric and a service for them, and open a shell.

    In the shell, `echelon` finds the service. Needs no root: the switches forward real frames
    between Unix sockets, and programs can be the hosts. With a scenario, emulated hosts do its jobs
    in real time, and those that are submitted in the shell; `echelon watch` shows their iterations.
    Everything ends with the shell. With --hosts (Debian: iproute2 iputils-ping), it is in network
    namespaces of its own, and `host h1 ping 10.0.0.2` runs a command there.

    Example: echelon lab scenario.yaml
    """
    with one_line_errors(str(file), "interrupted"):
        from echelon.controller.addresses import is_loopback
        from echelon.model.errors import RunError
        from echelon.switches.targets.target import find_target
        from echelon_lab.hosts.laboratory import laboratory, outside

        if hosts and not is_loopback(address):
            raise RunError(
                f"--at {address}: switches of --hosts are in a network of their own (leave out one)"
            )
        for name in _OTHER_SERVICE:
            os.environ.pop(name, None)
        launcher = find_target(target, "--target").launcher()
        if launcher is None:
            raise RunError(f"target {target} does not run as a process (choose another --target)")
        fabric, scenario = _load(file, scale)
        choice = policy_choice(policy)
        if hosts:
            # Before there are hosts, which take seconds.
            launcher.find()
            from echelon_lab.hosts import sandbox

            with nullcontext() if sandbox.inside() else outside():
                in_private(terminal=sys.stdin is not None and sys.stdin.isatty())
        if scenario is not None:
            scenario, factor = _at_scale(scenario, target, scale)
            fabric = scenario.fabric
        network = None
        if hosts:
            network = _network(fabric, scenario)
        with ExitStack() as stack:
            with ShownProgress() as progress:
                queue_bytes = None
                if scenario is not None:
                    queue_bytes = scenario.queue_bytes
                started = stack.enter_context(
                    laboratory(fabric, choice, launcher, progress, network, address, queue_bytes)
                )
                if scenario is not None:
                    from echelon_lab.living.processes import emulated_workers

                    stack.enter_context(emulated_workers(started, scenario, factor, network))
            if run is None:
                typer.echo(_welcome(fabric, started, hosts, scenario))
                command = [os.environ.get("SHELL", "sh")]
            else:
                command = ["sh", "-c", run]
            status = started.run(command)
    raise typer.Exit(status)


def _load(file: Path, scale: str | None) -> tuple[Fabric, Scenario | None]:
    """Return the fabric of a file, and its scenario if it has one.

    Raise `DocumentError`, or `RunError` for what no laboratory can do.
    """
    from echelon.model.documents import DocumentError, read_document
    from echelon.model.fabric.load import load_fabric

    document = read_document(file)
    if not isinstance(document, dict) or "scenario" not in document:
        if scale is not None:
            raise DocumentError("--scale", "", "goes with a scenario only (leave it out)")
        return load_fabric(file), None
    from echelon_lab.living.processes import check
    from echelon_lab.scenarios.scenario import load_scenario

    scenario = load_scenario(file)
    check(scenario)
    return scenario.fabric, scenario


def _at_scale(
    scenario: Scenario,
    target: str,
    scale: str | None,
) -> tuple[Scenario, Fraction]:
    """Return the scenario as this machine carries it or as `scale` says, and the factor.

    Say so. Raise `DocumentError` for what cannot be scaled.
    """
    from echelon_lab.living.capacity import carried
    from echelon_lab.living.processes import at_scale
    from echelon_lab.scenarios.scale import scaled

    if scale is None:
        most = factor = carried(scenario, target)
        smaller = at_scale(scenario, factor)
    else:
        factor = fraction("--scale", scale)
        smaller = at_scale(scenario, factor)
        most = carried(scenario, target)
    changes = "scale 1: rates and sizes are those of the file"
    if factor != 1:
        changes = scaled(scenario, factor).changes
    typer.echo(changes, err=True)
    if factor > most:
        reason = f"this machine carries about {most}: iterations may take longer"
        typer.echo(f"--scale {factor} is too much: {reason}", err=True)
    return smaller, factor


def _network(fabric: Fabric, scenario: Scenario | None) -> NamespaceFabric:
    from echelon_lab.hosts.backends.base import NamespaceFabric
    from echelon_lab.hosts.run import check_links
    from echelon_lab.hosts.workers.coordinator import mtu_bytes

    if scenario is None:
        return NamespaceFabric(fabric)
    check_links(fabric)
    return NamespaceFabric(fabric, mtu_bytes(scenario))


def _welcome(
    fabric: Fabric,
    started: Laboratory,
    has_hosts: bool,
    scenario: Scenario | None,
) -> str:
    """Return what there is, and what to try."""
    has_page = bool(entry_points(group="echelon.pages"))
    lines = {
        "fabric": (
            f"{fabric.name}: {len(fabric.switches)} switches, {len(fabric.hosts)} hosts, all ready"
        ),
        "page": f"{started.page}/" if has_page else "not installed (pip install echelon-web)",
        "try": (
            "echelon status; echelon job submit FILE --wait;"
            " echelon plan show; echelon switch show NAME"
        ),
    }
    if scenario is not None:
        names = ", ".join(job.name for job in scenario.jobs)
        lines["jobs"] = (
            f"{names}: echelon watch shows their iterations;"
            " scaled FILE | echelon job submit - starts another one"
        )
    if has_hosts:
        lines["hosts"] = _about_hosts(fabric)
        missing = not_installed()
        if missing:
            lines["missing"] = missing
    addresses = [f"{name} {switch.address}" for name, switch in started.switches.items()]
    lines["switches"] = ", ".join(addresses)
    if started.certificates is not None:
        lines["TLS"] = f"{started.certificates}: a folder for each switch, and that of a controller"
    lines["logs"] = f"{started.directory}, until the end"
    lines["end"] = "exit, or Ctrl-D"
    return "\n".join(f"{name:<9} {text}" for name, text in lines.items())


def _about_hosts(fabric: Fabric) -> str:
    hosts = list(fabric.hosts.values())
    example = f"host {hosts[0].name} ping {hosts[-1].ipv4}"
    addresses = ", ".join(f"{host.name} {host.ipv4}" for host in hosts)
    return f"host NAME COMMAND, or host NAME for a shell, as {example}: {addresses}"


def not_installed() -> str:
    """Return which suggested commands are missing, and what to install."""
    missing = []
    for command, package in _SUGGESTED.items():
        if shutil.which(command) is None:
            missing.append(f"{command} is not installed (apt-get install {package})")
    return ", ".join(missing)
