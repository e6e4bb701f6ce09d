"""Starts the embedded switch as a process."""

from __future__ import annotations

from collections.abc import Sequence

from echelon.targets.launching import ExecutableLauncher, Place, Ports


class SoftswitchLauncher(ExecutableLauncher):
    """A launcher of `softswitch`, which shapes its ports itself."""

    target = "softswitch"
    executable = "softswitch"
    remedy = "it comes with this package: pip install echelon-p4"
    unix_ports = True

    def arguments(self, place: Place, ports: Ports) -> Sequence[str]:
        rates = [word for port, rate_bps in place.rates_bps.items() for word in ("--port-rate", f"{port}={rate_bps}")]
        depth = [] if place.queue_bytes is None else ["--queue-depth", str(place.queue_bytes)]
        return [*rates, *depth]
