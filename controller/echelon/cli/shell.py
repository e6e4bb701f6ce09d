"""`echelon shell`: p4runtime-shell on a switch that the service manages, without interfering."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli import calls
from echelon.cli.progress import ShownProgress
from echelon.cli.usage import FAILED, INTERRUPTED, fail

if TYPE_CHECKING:
    from echelon.cli.shell_environment import ShellEnvironment

HIGHEST_BACKUP_ID = 10**6
"""The highest election id of a shell. A controller's id counts microseconds since 1970 and is above it."""

_BANNER = """\
{name} at {address}, device id {device_id}, election id {election_id}: below the controller's, so that you are a backup.
You can read: table_entry["..."].read(lambda entry: print(entry)), tables, table_entry, counter_entry...
Writes are refused while the controller is connected; it reverts your other changes. Leave with Ctrl-D.
"""


@dataclass(frozen=True, slots=True)
class ShellSwitch:
    """The address of a switch, and how to reach it."""

    name: str
    address: str
    device_id: int
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    tls: bool = False


def shell(
    switch: Annotated[str, typer.Argument(help="The switch.", metavar="SWITCH")],
    config: Annotated[
        Path | None,
        typer.Option(help="Look the switch up in this configuration, its TLS files too; default: ask the service."),
    ] = None,
    tls: Annotated[bool, typer.Option("--tls", help="The switch speaks TLS; implied by --switch-ca.")] = False,
    switch_ca: Annotated[Path | None, typer.Option(help="The authority that signed the switch's certificate.")] = None,
    switch_certificate: Annotated[
        Path | None, typer.Option(help="Your certificate, if the switch asks for one.")
    ] = None,
    switch_key: Annotated[Path | None, typer.Option(help="Its key.")] = None,
    url: calls.Url = calls.DEFAULT_URL,
    token_file: calls.TokenFile = None,
    ca: calls.Authority = None,
    certificate: calls.Certificate = None,
) -> None:
    """Inspect a switch with p4runtime-shell, as a backup controller: it can read and cannot take over.

    The shell needs an environment of its own, which is made at the first use in the cache directory of your user (about
    25 s and 100 MB).

    Example: echelon shell leaf1 --config echelon.yaml
    """
    if config is not None:
        place = _in_configuration(switch, config)
    else:
        with calls.service(url, token_file, ca, certificate) as client:
            found = client.switch(switch)
        place = ShellSwitch(found.name, found.address, found.device_id)
    if tls or switch_ca or switch_certificate or switch_key:
        place = ShellSwitch(
            place.name, place.address, place.device_id, switch_ca, switch_certificate, switch_key, tls=True
        )
    _start(place)


def _in_configuration(name: str, file: Path) -> ShellSwitch:
    from echelon.documents import DocumentError, suggestion
    from echelon.service.config import load_service_config

    try:
        switches = load_service_config(file).switches
    except DocumentError as error:
        fail(str(error))
    if name not in switches:
        fail(f"{file}: switches: there is no '{name}' ({suggestion(name, switches)})")
    switch = switches[name]
    files = switch.tls
    if files is None:
        return ShellSwitch(name, switch.address, switch.device_id)
    return ShellSwitch(name, switch.address, switch.device_id, files.ca, files.certificate, files.key, tls=True)


def arguments(place: ShellSwitch, election_id: int) -> list[str]:
    """Return the arguments of p4runtime-shell."""
    out = ["--grpc-addr", place.address, "--device-id", str(place.device_id), "--election-id", f"0,{election_id}"]
    if place.tls:
        out.append("--ssl")
        for option, file in (("--cacert", place.ca), ("--cert", place.certificate), ("--private-key", place.key)):
            out += [] if file is None else [option, str(file)]
    return out


def _start(place: ShellSwitch) -> None:
    """Replace this process by the shell."""
    from echelon.cli.shell_environment import ShellEnvironment, cache_directory, clean

    environment = ShellEnvironment(cache_directory(os.environ))
    _make(environment)
    # Two controllers must not have the same id; any two shells almost surely differ.
    election_id = random.randint(1, HIGHEST_BACKUP_ID)
    typer.echo(
        _BANNER.format(name=place.name, address=place.address, device_id=place.device_id, election_id=election_id),
        err=True,
    )
    command = [str(environment.python), "-m", "p4runtime_sh", *arguments(place, election_id)]
    os.execve(command[0], command, clean(os.environ))


def _make(environment: ShellEnvironment) -> None:
    from echelon.cli.shell_environment import ShellEnvironmentError

    if environment.is_made:
        return
    try:
        with ShownProgress() as progress:
            progress.stage("making the environment of p4runtime-shell (once)")
            environment.make()
    except ShellEnvironmentError as error:
        fail(str(error), FAILED)
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)
