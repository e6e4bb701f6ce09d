"""Starts a recorder as a process."""

from __future__ import annotations

from collections.abc import Sequence

from echelon.switches.targets.launching import ExecutableLauncher, Place, Ports


class RecorderLauncher(ExecutableLauncher):
    """A launcher of `echelon-recorder`, which then records to its log: its standard output."""

    target = "recorder"
    executable = "echelon-recorder"
    remedy = "pip install echelon-example-plugins"
    # A recorder opens no interface, so any name will do.
    unix_ports = True

    def arguments(self, place: Place, ports: Ports) -> Sequence[str]:
        return []
