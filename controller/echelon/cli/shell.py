"""`echelon shell`: p4runtime-shell, which needs protobuf 3 and so an environment of its own, beside the controller."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelon.cli.calls import on_service
from echelon.cli.progress import ShownProgress
from echelon.cli.usage import FAILED, fail

if TYPE_CHECKING:
    from echelon.client import Client

PINS = """p4runtime-shell==0.0.6 p4runtime==1.4.1 protobuf==3.20.3 googleapis-common-protos==1.73.0 grpcio==1.85.1
ipython==7.31.1 jedi==0.17.2"""
HIGHEST_BACKUP_ID = 10**6  # a controller's counts microseconds since 1970
_MAKE = """trap 'rm -rf "$1"' EXIT; "$0" -E -m venv "$1"; "$1/bin/python" -E -m pip -q install $3
"$1/bin/python" -E -c "import p4runtime_sh.shell"; mv -T "$1" "$2" || test -e "$2" """
_CANNOT = (
    "cannot make p4runtime-shell's environment (it needs python3-venv, a package index, a writable XDG_CACHE_HOME)"
)
_BANNER = """{of.name} at {of.address}, device id {of.device_id}, election id {id}: that of a backup.
You can read: table_entry["..."].read(lambda entry: print(entry)), tables, table_entry, counter_entry...
Writes are refused while the controller is connected; it reverts your other changes. Leave with Ctrl-D.
"""


@on_service
def shell(
    client: Client,
    switch: Annotated[str, typer.Argument(help="The switch.", metavar="SWITCH")],
    config: Annotated[
        Path | None, typer.Option(help="The configuration with the switch and its TLS files; default: ask the service.")
    ] = None,
) -> None:
    """Inspect a switch with p4runtime-shell, as a backup controller: it can read and cannot take over.

    The first use makes an environment for it in the cache directory of your user (about 25 s and 100 MB).

    Example: echelon shell leaf1 --config echelon.yaml
    """
    from echelon.documents import suggestion
    from echelon.service.config import load_service_config as load

    known: dict[str, Any] = {switch: client.switch(switch)} if config is None else {**load(config).switches}
    if switch not in known:
        fail(f"{config}: switches: there is no '{switch}' ({suggestion(switch, known)})")
    with ShownProgress() as progress:
        progress.stage("making the environment of p4runtime-shell (once)")
        python = shell_python(Path.home() / ".cache" / os.environ.get("XDG_CACHE_HOME", "") / "echelon")
    election_id = random.randint(1, HIGHEST_BACKUP_ID)  # two controllers must not have the same
    typer.echo(_BANNER.format(of=known[switch], id=election_id), err=True)
    os.execv(python, [str(python), "-E", "-m", "p4runtime_sh", *arguments(known[switch], election_id)])


def arguments(switch: Any, election_id: int) -> list[str]:
    out = ["--grpc-addr", switch.address, "--device-id", str(switch.device_id), "--election-id", f"0,{election_id}"]
    if tls := getattr(switch, "tls", None):
        files = (("--cacert", tls.ca), ("--cert", tls.certificate), ("--private-key", tls.key))
        out += ["--ssl", *(text for option, file in files if file for text in (option, str(file)))]
    return out


def shell_python(cache: Path) -> Path:
    """Return the Python of the shell's environment below `cache`. Make it if it is not there, or end the command."""
    home = cache / f"p4runtime-shell-{hashlib.sha256(f'{PINS} {sys.version}'.encode()).hexdigest()[:12]}"
    if not home.exists():
        command = ["sh", "-ec", _MAKE, sys.executable, f"{home}-{os.getpid()}", str(home), PINS]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            fail(f"{_CANNOT}: {(done.stderr or done.stdout or 'no message').strip().splitlines()[-1]}", FAILED)
    return home / "bin" / "python"
