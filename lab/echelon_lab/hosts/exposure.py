"""Switches of a laboratory that other machines reach: they and the service show certificates."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from echelon.controller.addresses import is_loopback
from echelon.model.errors import RunError
from echelon.switches.targets.launching import SwitchLauncher, accepts

CERTIFICATES = "certificates"
"""The folder of certificates below that of a laboratory."""
LOOPBACK = "127.0.0.1"
_CLIENT = "controller"


@dataclass(frozen=True, slots=True)
class Exposure:
    """The address at which switches listen, and the folder of their certificates."""

    host: str = LOOPBACK
    certificates: Path | None = None
    """The folder of certificates; None: only this machine reaches the switches, in plain text."""

    def options(self, switch: str) -> tuple[str, ...]:
        """Return the options of a switch's executable."""
        if self.certificates is None:
            return ()
        return "--tls", str(self.certificates / switch)

    def keys(self) -> Mapping[str, object]:
        """Return the keys of a switch's entry in the configuration of the service."""
        if self.certificates is None:
            return {}
        folder = self.certificates / _CLIENT
        files = {"ca": "authority.pem", "certificate": "certificate.pem", "key": "key.pem"}
        return {"tls": {key: str(folder / file) for key, file in files.items()}}


NO_EXPOSURE = Exposure()


def expose(
    host: str,
    launcher: SwitchLauncher,
    switches: Iterable[str],
    directory: Path,
) -> Exposure:
    """Make certificates in `directory` if others than this machine reach switches at `host`.

    Raise `RunError` for a target whose switches cannot use them.
    """
    if is_loopback(host):
        return Exposure(host)
    executable = launcher.find()
    if not accepts(executable, "--tls"):
        raise RunError(
            f"--at {host}: others could write to switches of this target, which take no"
            " certificates here (leave out --at, or take softswitch)"
        )
    out = directory / CERTIFICATES
    command = [executable, "certificates", "--out", str(out), "--client", _CLIENT]
    command += [f"{name}={host}" for name in switches]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RunError(f"--at {host}: {done.stderr.strip()}")
    return Exposure(host, out)
